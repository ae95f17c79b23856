//! The same conversion for a CustomResourceDefinition: a webhook that answers ConversionReviews.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mizzen_apiserver::ClientIdentity;
use mizzen_value::{Value, json, value};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{GROUP, recipe};

/// The largest review that is read.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// Why the webhook does not run.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Answers reviews until it is dropped, and its connections with it.
pub async fn serve(listener: TcpListener, identity: &ClientIdentity) -> Result<(), Error> {
    let acceptor = TlsAcceptor::from(Arc::new(tls(identity)?));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(answer);
            // A client that goes away needs no answer.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn tls(identity: &ClientIdentity) -> Result<ServerConfig, Error> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Error> {
    let body = Limited::new(request.into_body(), MAX_BODY)
        .collect()
        .await?
        .to_bytes();
    let answer = match json::parse(&body) {
        Ok(review) => Response::new(json::to_string(&convert(&review)).into()),
        Err(_) => Response::builder()
            .status(400)
            .body(Full::from("this is no ConversionReview\n"))?,
    };
    Ok(answer)
}

/// Answers a ConversionReview.
pub fn convert(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].str();
    let converted: Result<Vec<Value>, String> = request["objects"]
        .list()
        .iter()
        .map(|object| converted(object, wanted))
        .collect();
    let mut response = value!({ "uid": (request["uid"].clone()) });
    match converted {
        Ok(objects) => {
            response.set("convertedObjects", objects);
            response.set("result", value!({ "status": "Success" }));
        }
        Err(message) => {
            response.set(
                "result",
                value!({ "status": "Failure", "message": message }),
            );
        }
    }
    value!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response })
}

fn converted(object: &Value, wanted: &str) -> Result<Value, String> {
    let mut object = object.clone();
    let version = |text: &str| {
        text.strip_prefix(GROUP)
            .map(|rest| rest.trim_start_matches('/').to_owned())
    };
    let (from, to) = (version(object["apiVersion"].str()), version(wanted));
    match (from.as_deref(), to.as_deref()) {
        (Some("v1alpha1"), Some("v1beta1")) => recipe::count(&mut object),
        (Some("v1beta1"), Some("v1alpha1")) => recipe::spell_out(&mut object),
        (Some(from), Some(to)) if from == to => {}
        _ => {
            return Err(format!(
                "cannot convert {} to {wanted}",
                object["apiVersion"].str()
            ));
        }
    }
    object.set("apiVersion", wanted);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(object: Value, wanted: &str) -> Value {
        let wanted = format!("{GROUP}/{wanted}");
        let review = convert(&value!({
            "request": { "uid": "7", "desiredAPIVersion": wanted, "objects": (vec![object]) },
        }));
        assert_eq!(review["response"]["uid"].str(), "7");
        review["response"].clone()
    }

    #[test]
    fn a_review_is_answered_in_the_desired_version() {
        let pizza = value!({ "apiVersion": (format!("{GROUP}/v1alpha1")), "spec": { "toppings": ["ham", "ham"] } });
        let response = review(pizza, "v1beta1");
        let pizza = &response["convertedObjects"].list()[0];
        assert_eq!(pizza["apiVersion"].str(), format!("{GROUP}/v1beta1"));
        assert_eq!(pizza["spec"]["toppings"].list()[0]["quantity"].int(), 2);
    }

    #[test]
    fn unknown_versions_are_rejected() {
        let pizza = value!({ "apiVersion": (format!("{GROUP}/v1alpha1")) });
        let response = review(pizza, "v7");
        assert_eq!(response["result"]["status"].str(), "Failure");
        assert!(
            response["result"]["message"]
                .str()
                .ends_with("to restaurant.programming-kubernetes.info/v7")
        );
    }
}
