//! The operator shop-operator: its kinds, controllers and webhooks.

pub mod api;
pub mod controllers;
pub mod manifests;
pub mod webhooks;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _};
use mizzen_sdk::clock::Clock;
use mizzen_sdk::manager::Manager;
use mizzen_sdk::write::Applier;

/// Why the operator does not run.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The manager with all controllers. Tests give it the clock of their cluster.
pub fn manager(client: Client, clock: Clock) -> Manager {
    let mut manager = Manager::new(client).clock(clock);
    controllers::add_to(&mut manager);
    manager
}

/// Applies the CustomResourceDefinitions, and waits until the API server serves them.
pub async fn install(client: &Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let applier = Applier::new("shop-operator");
    for definition in api::definitions() {
        let name = definition.name_any();
        let mut applied = applier.apply(&api, &name, &definition).await?;
        while !is_established(&applied) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            applied = api.get(&name).await?;
        }
    }
    Ok(())
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
}
