//! Injection of a CA bundle into the objects through which the API server finds a server.

use k8s_openapi::ByteString;
use kube::{Client, Error};
use mizzen_value::Value;

use crate::dynamic::DynamicClient;
use crate::key::Key;
use crate::resource::{CUSTOM_RESOURCE_DEFINITIONS, ResourceType};
use crate::write::{is_conflict, is_not_found};

const MUTATING_WEBHOOKS: ResourceType = ResourceType::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
);
const VALIDATING_WEBHOOKS: ResourceType = ResourceType::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
);
const API_SERVICES: ResourceType =
    ResourceType::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");

/// How often a write is tried again after a conflict.
const TRIES: usize = 5;

/// An object that needs a CA bundle, by name.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::webhook::InjectionTarget;
///
/// let target = InjectionTarget::Conversion("ovens.shop.example.com".into());
/// target.inject(&client, "-----BEGIN CERTIFICATE-----").await?; // what does not exist is left out
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectionTarget {
    /// All webhooks of a MutatingWebhookConfiguration.
    MutatingWebhooks(String),
    /// All webhooks of a ValidatingWebhookConfiguration.
    ValidatingWebhooks(String),
    /// The conversion webhook of a CustomResourceDefinition.
    Conversion(String),
    /// An APIService.
    ApiService(String),
}

impl InjectionTarget {
    pub(super) fn resource(&self) -> (ResourceType, &str) {
        match self {
            InjectionTarget::MutatingWebhooks(name) => (MUTATING_WEBHOOKS, name),
            InjectionTarget::ValidatingWebhooks(name) => (VALIDATING_WEBHOOKS, name),
            InjectionTarget::Conversion(name) => (CUSTOM_RESOURCE_DEFINITIONS, name),
            InjectionTarget::ApiService(name) => (API_SERVICES, name),
        }
    }

    /// Sets the bundle, if there is a place for it. Returns whether the object has changed.
    fn set_bundle(&self, object: &mut Value, bundle: &Value) -> bool {
        let before = object.clone();
        match self {
            InjectionTarget::MutatingWebhooks(_) | InjectionTarget::ValidatingWebhooks(_) => {
                for webhook in object.entry("webhooks").list_mut() {
                    webhook
                        .entry("clientConfig")
                        .set("caBundle", bundle.clone());
                }
            }
            InjectionTarget::Conversion(_) => {
                if let Some(config) = object.at_mut("spec.conversion.webhook.clientConfig") {
                    config.set("caBundle", bundle.clone());
                }
            }
            InjectionTarget::ApiService(_) => object.entry("spec").set("caBundle", bundle.clone()),
        }
        *object != before
    }

    /// Writes a CA bundle, which is PEM, unless the object has it already. An object that does not
    /// exist is left out.
    pub async fn inject(&self, client: &Client, bundle: &str) -> Result<(), Error> {
        let (resource, name) = self.resource();
        let (api, key) = (DynamicClient::new(client.clone()), Key::cluster(name));
        let bundle = serde_json::to_value(ByteString(bundle.into())).map_err(Error::SerdeError)?;
        let bundle = Value::from(bundle.as_str().unwrap_or_default());
        let mut tries = 0;
        loop {
            let Some(mut object) = api.find(&resource, &key).await? else {
                return Ok(());
            };
            if !self.set_bundle(&mut object, &bundle) {
                return Ok(());
            }
            tries += 1;
            match api.update(&resource, &object).await {
                Err(error) if is_conflict(&error) && tries < TRIES => {}
                Err(error) if is_not_found(&error) => return Ok(()),
                outcome => return outcome.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(target: &InjectionTarget, mut object: Value, expected: Value) {
        let has_changed = object != expected;
        assert_eq!(
            target.set_bundle(&mut object, &Value::from("Y2E=")),
            has_changed
        );
        assert_eq!(object, expected);
        assert!(!target.set_bundle(&mut object, &Value::from("Y2E=")));
    }

    #[test]
    fn every_webhook_of_a_configuration_gets_the_bundle() {
        let target = InjectionTarget::MutatingWebhooks("a".into());
        check(
            &target,
            value!({"webhooks": [{"clientConfig": {"url": "u"}}, {"clientConfig": {"caBundle": "b2xk"}}]}),
            value!({"webhooks": [{"clientConfig": {"url": "u", "caBundle": "Y2E="}}, {"clientConfig": {"caBundle": "Y2E="}}]}),
        );
    }

    #[test]
    fn only_a_conversion_by_webhook_gets_the_bundle() {
        let target = InjectionTarget::Conversion("a".into());
        let by_webhook =
            value!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Y2E="}}}}});
        check(
            &target,
            value!({"spec": {"conversion": {"webhook": {"clientConfig": {}}}}}),
            by_webhook,
        );
        let without = value!({"spec": {"conversion": {"strategy": "None"}}});
        check(&target, without.clone(), without);
    }

    #[test]
    fn an_api_service_gets_the_bundle() {
        let target = InjectionTarget::ApiService("a".into());
        check(
            &target,
            value!({"spec": {}}),
            value!({"spec": {"caBundle": "Y2E="}}),
        );
    }
}
