//! Registration: the webhook configurations of a server, and the conversion of its definitions.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::json;

use super::inject::InjectionTarget;
use super::server::{Server, conversion_path};
use crate::write::Applier;

/// Where the API server reaches a webhook server.
///
/// ```
/// use mizzen_sdk::webhook::Endpoint;
///
/// let service = Endpoint::service("shop", "shop-webhook");
/// assert_eq!(service.names(), ["shop-webhook.shop.svc", "shop-webhook.shop.svc.cluster.local"]);
/// assert_eq!(Endpoint::Url("https://127.0.0.1:9443".into()).names(), ["127.0.0.1"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// At a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// At a URL without a path, for servers outside of the cluster.
    Url(String),
}

impl Endpoint {
    /// At port 443 of a Service.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Endpoint {
        Endpoint::Service {
            namespace: namespace.into(),
            name: name.into(),
            port: 443,
        }
    }

    /// The names that the serving certificate must have.
    pub fn names(&self) -> Vec<String> {
        match self {
            Endpoint::Service {
                namespace, name, ..
            } => ["", ".cluster.local"]
                .map(|suffix| format!("{name}.{namespace}.svc{suffix}"))
                .to_vec(),
            Endpoint::Url(url) => {
                let uri: Option<http::Uri> = url.parse().ok();
                let host = uri.as_ref().and_then(http::Uri::host).unwrap_or(url);
                vec![host.trim_matches(['[', ']']).to_owned()]
            }
        }
    }

    fn client_config(&self, path: &str, bundle: &str) -> WebhookClientConfig {
        let ca_bundle = (!bundle.is_empty()).then(|| ByteString(bundle.into()));
        match self {
            Endpoint::Service {
                namespace,
                name,
                port,
            } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.into()),
                    port: Some((*port).into()),
                }),
                url: None,
            },
            Endpoint::Url(url) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{}{path}", url.trim_end_matches('/'))),
            },
        }
    }
}

impl Server {
    /// The configuration of its mutating webhooks, `None` if it has none. The CA bundle is PEM; an
    /// empty one is left out.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_sdk::webhook::{Endpoint, Rule, Server, Webhook};
    ///
    /// let defaults = Webhook::defaulting("defaults.shop.example.com", Rule::kind::<ConfigMap>(), |_: &mut ConfigMap| {});
    /// let server = Server::builder("shop").webhook(defaults).build()?;
    /// let endpoint = Endpoint::service("shop", "shop-webhook");
    /// let configuration = server.mutating_configuration(&endpoint, "").expect("there is one");
    /// let webhook = &configuration.webhooks.as_deref().unwrap_or_default()[0];
    /// let service = webhook.client_config.service.as_ref().expect("it is a Service");
    /// assert_eq!(service.path.as_deref(), Some("/mutate/defaults.shop.example.com"));
    /// assert!(server.validating_configuration(&endpoint, "").is_none());
    /// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
    /// ```
    pub fn mutating_configuration(
        &self,
        endpoint: &Endpoint,
        bundle: &str,
    ) -> Option<MutatingWebhookConfiguration> {
        let webhooks = self.0.webhooks.iter().filter(|webhook| webhook.is_mutating);
        let webhooks: Vec<_> = webhooks
            .map(|webhook| {
                let mut registration = webhook.mutating_registration();
                registration.client_config = endpoint.client_config(&webhook.path, bundle);
                registration
            })
            .collect();
        (!webhooks.is_empty()).then(|| MutatingWebhookConfiguration {
            metadata: self.configuration_meta(),
            webhooks: Some(webhooks),
        })
    }

    /// The configuration of its validating webhooks, `None` if it has none.
    pub fn validating_configuration(
        &self,
        endpoint: &Endpoint,
        bundle: &str,
    ) -> Option<ValidatingWebhookConfiguration> {
        let webhooks = self
            .0
            .webhooks
            .iter()
            .filter(|webhook| !webhook.is_mutating);
        let webhooks: Vec<_> = webhooks
            .map(|webhook| {
                let mut registration = webhook.validating_registration();
                registration.client_config = endpoint.client_config(&webhook.path, bundle);
                registration
            })
            .collect();
        (!webhooks.is_empty()).then(|| ValidatingWebhookConfiguration {
            metadata: self.configuration_meta(),
            webhooks: Some(webhooks),
        })
    }

    fn configuration_meta(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.0.name.clone()),
            ..ObjectMeta::default()
        }
    }

    /// Whether it converts the objects of a CustomResourceDefinition.
    pub(crate) fn converts(&self, definition: &str) -> bool {
        self.0.definitions.iter().any(|name| name == definition)
    }

    /// The `spec.conversion` of a CustomResourceDefinition whose objects it converts.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::webhook::{Denied, Endpoint, Server};
    ///
    /// let convert = async |oven: Object, _version: String| Ok::<_, Denied>(oven);
    /// let server = Server::builder("shop").conversion("ovens.shop.example.com", convert).build()?;
    /// let endpoint = Endpoint::service("shop", "shop-webhook");
    /// let conversion = server.conversion_of("ovens.shop.example.com", &endpoint, "");
    /// assert_eq!(conversion.strategy, "Webhook");
    /// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
    /// ```
    pub fn conversion_of(
        &self,
        definition: &str,
        endpoint: &Endpoint,
        bundle: &str,
    ) -> apiextensions::CustomResourceConversion {
        let WebhookClientConfig {
            ca_bundle,
            service,
            url,
        } = endpoint.client_config(&conversion_path(definition), bundle);
        let service = service.map(|service| apiextensions::ServiceReference {
            name: service.name,
            namespace: service.namespace,
            path: service.path,
            port: service.port,
        });
        apiextensions::CustomResourceConversion {
            strategy: "Webhook".into(),
            webhook: Some(apiextensions::WebhookConversion {
                client_config: Some(apiextensions::WebhookClientConfig {
                    ca_bundle,
                    service,
                    url,
                }),
                conversion_review_versions: vec!["v1".into()],
            }),
        }
    }

    /// Applies its webhook configurations, and sets the conversion of its CustomResourceDefinitions,
    /// which must exist.
    ///
    /// The service account needs `create` and `patch` of the webhook configurations and `patch` of
    /// the definitions.
    pub async fn apply(
        &self,
        client: &Client,
        endpoint: &Endpoint,
        bundle: &str,
    ) -> Result<(), Error> {
        let (name, applier) = (&self.0.name, Applier::new(&self.0.name));
        for definition in &self.0.definitions {
            let conversion = self.conversion_of(definition, endpoint, bundle);
            let patch = Patch::Merge(json!({ "spec": { "conversion": conversion } }));
            let api: Api<CustomResourceDefinition> = Api::all(client.clone());
            api.patch(definition, &PatchParams::default(), &patch)
                .await?;
        }
        if let Some(configuration) = self.mutating_configuration(endpoint, bundle) {
            let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            applier.apply(&api, name, &configuration).await?;
        }
        if let Some(configuration) = self.validating_configuration(endpoint, bundle) {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            applier.apply(&api, name, &configuration).await?;
        }
        Ok(())
    }

    /// The objects that need its CA bundle: its configurations and CustomResourceDefinitions.
    pub fn injection_targets(&self) -> Vec<InjectionTarget> {
        let has = |is_mutating| {
            self.0
                .webhooks
                .iter()
                .any(|webhook| webhook.is_mutating == is_mutating)
        };
        let name = || self.0.name.clone();
        let mutating = has(true).then(|| InjectionTarget::MutatingWebhooks(name()));
        let validating = has(false).then(|| InjectionTarget::ValidatingWebhooks(name()));
        let definitions = self
            .0
            .definitions
            .iter()
            .cloned()
            .map(InjectionTarget::Conversion);
        mutating
            .into_iter()
            .chain(validating)
            .chain(definitions)
            .collect()
    }
}
