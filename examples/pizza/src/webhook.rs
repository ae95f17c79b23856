//! The same conversion for a CustomResourceDefinition: a conversion webhook of the SDK.

use std::time::Duration;

use mizzen_apiserver::ClientIdentity;
use mizzen_sdk::Object;
use mizzen_sdk::webhook::{BuildError, Denied, KeyPem, Server};
use tokio::net::TcpListener;

use crate::{GROUP, recipe};

/// The grace period of reviews at shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// The webhook server. `manifests/definition.yaml` names its path.
pub fn server() -> Result<Server, BuildError> {
    let definition = format!("pizzas.{GROUP}");
    Server::builder("pizza")
        .conversion(&definition, convert)
        .build()
}

/// Serves the webhook until `stop` resolves.
pub async fn serve(
    listener: TcpListener,
    identity: ClientIdentity,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let ClientIdentity { certificate, key } = identity;
    let certificate = KeyPem { certificate, key }.serving()?;
    server()?.serve(listener, certificate, stop, GRACE).await;
    Ok(())
}

/// Converts a pizza to an `apiVersion`.
async fn convert(mut pizza: Object, wanted: String) -> Result<Object, Denied> {
    let version = |text: &str| {
        let version = text.strip_prefix(GROUP)?.strip_prefix('/')?;
        Some(version.to_owned())
    };
    let (from, to) = (version(pizza["apiVersion"].str()), version(&wanted));
    match (from.as_deref(), to.as_deref()) {
        (Some("v1alpha1"), Some("v1beta1")) => recipe::count(&mut pizza),
        (Some("v1beta1"), Some("v1alpha1")) => recipe::spell_out(&mut pizza),
        (Some(from), Some(to)) if from == to => {}
        _ => {
            let from = pizza["apiVersion"].str();
            return Err(Denied::new(format!("cannot convert {from} to {wanted}")));
        }
    }
    pizza.set("apiVersion", wanted);
    Ok(pizza)
}
