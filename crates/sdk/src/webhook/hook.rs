//! Admission webhooks: a handler and its registration.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, RuleWithOperations, ValidatingWebhook,
};
use kube::api::ApiResource;
use mizzen_object::patch::json_diff;
use mizzen_value::json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::admission::{AdmissionRequest, Operation};
use super::denied::Denied;
use super::merge::merge_change;
use crate::resource::ResourceType;

/// Decides on a request; a mutating handler returns its JSON Patch.
pub(super) type AdmissionHandler = Arc<
    dyn Fn(AdmissionRequest<Box<RawValue>>) -> BoxFuture<'static, Result<Option<String>, Denied>>
        + Send
        + Sync,
>;

/// Which requests a webhook is called for. By default creations and updates.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use mizzen_sdk::resource::PODS;
/// use mizzen_sdk::webhook::{Operation, Rule};
///
/// let deployments = Rule::kind::<Deployment>();
/// let evictions = Rule::resource(&PODS).subresource("eviction").operations([Operation::Create]);
/// ```
#[derive(Debug, Clone)]
pub struct Rule(RuleWithOperations);

impl Rule {
    /// Objects of a type, in the version of the type.
    pub fn kind<K: kube::Resource<DynamicType: Default>>() -> Rule {
        let ApiResource {
            group,
            version,
            plural,
            ..
        } = ApiResource::erase::<K>(&K::DynamicType::default());
        Rule::new(group, version, plural)
    }

    /// Objects of a resource that is known at run time.
    pub fn resource(resource: &ResourceType) -> Rule {
        let ResourceType {
            group,
            version,
            plural,
            ..
        } = resource.clone();
        Rule::new(group.into(), version.into(), plural.into())
    }

    fn new(group: String, version: String, plural: String) -> Rule {
        Rule(RuleWithOperations {
            api_groups: Some(vec![group]),
            api_versions: Some(vec![version]),
            resources: Some(vec![plural]),
            operations: None,
            scope: None,
        })
        .operations([Operation::Create, Operation::Update])
    }

    /// For these operations alone.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Rule {
        let names = operations
            .into_iter()
            .map(|operation| operation.name().into());
        self.0.operations = Some(names.collect());
        self
    }

    /// For a subresource of the resource, not for the resource itself.
    pub fn subresource(mut self, name: &str) -> Rule {
        let resources = self.0.resources.iter_mut().flatten();
        resources.for_each(|resource| *resource = format!("{resource}/{name}"));
        self
    }
}

/// An admission webhook: its name, its rules, its handler and how it is registered.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::Object;
/// use mizzen_sdk::resource::PODS;
/// use mizzen_sdk::webhook::{AdmissionRequest, Denied, Rule, Webhook};
///
/// let defaults = Webhook::defaulting("defaults.shop.example.com", Rule::kind::<ConfigMap>(), |config: &mut ConfigMap| {
///     config.data.get_or_insert_default().entry("colour".into()).or_insert("red".into());
/// });
///
/// async fn forbid_host_network(request: AdmissionRequest<Object>) -> Result<(), Denied> {
///     match request.object()?["spec"]["hostNetwork"].bool() {
///         true => Err(Denied::new("host network is not allowed")),
///         false => Ok(()),
///     }
/// }
/// let policy = Webhook::validating("pods.shop.example.com", Rule::resource(&PODS), forbid_host_network)
///     .configure(|webhook| webhook.failure_policy = Some("Ignore".into()));
/// ```
#[derive(Clone)]
pub struct Webhook {
    pub(super) is_mutating: bool,
    pub(super) path: String,
    pub(super) handler: AdmissionHandler,
    /// The registration; a validating webhook has no reinvocation policy.
    registration: MutatingWebhook,
}

impl Webhook {
    /// A webhook that allows or denies requests. Its name is a domain name with at least three
    /// labels, unique in the configuration.
    pub fn validating<K, F, R>(name: &str, rule: Rule, handler: F) -> Webhook
    where
        K: DeserializeOwned + Send + 'static,
        F: Fn(AdmissionRequest<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Webhook::new(name, rule, false, move |request| {
            let handler = handler.clone();
            Box::pin(async move {
                let request = request.decode(|text| decode::<K>(&text));
                handler(request.map_err(undecodable)?).await?;
                Ok(None)
            })
        })
    }

    /// A webhook that may change objects: the handler gets the request and a copy of its object, and
    /// returns the object as it should be. The JSON Patch is computed: it contains what the handler
    /// changed, and leaves alone what the type does not know. A request without an object is denied.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_sdk::webhook::{AdmissionRequest, Denied, Rule, Webhook};
    ///
    /// async fn note_author(request: AdmissionRequest<ConfigMap>, mut config: ConfigMap) -> Result<ConfigMap, Denied> {
    ///     let author = request.user_info.username.clone().unwrap_or_default();
    ///     config.metadata.annotations.get_or_insert_default().insert("shop.example.com/author".into(), author);
    ///     Ok(config)
    /// }
    /// let webhook = Webhook::mutating("author.shop.example.com", Rule::kind::<ConfigMap>(), note_author);
    /// ```
    pub fn mutating<K, F, R>(name: &str, rule: Rule, handler: F) -> Webhook
    where
        K: DeserializeOwned + Serialize + Clone + Send + 'static,
        F: Fn(AdmissionRequest<K>, K) -> R + Send + Sync + 'static,
        R: Future<Output = Result<K, Denied>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Webhook::new(name, rule, true, move |request| {
            let handler = handler.clone();
            Box::pin(async move {
                let sent = request
                    .object
                    .as_ref()
                    .map(|text| json::parse(text.get().as_bytes()));
                let request = request
                    .decode(|text| decode::<K>(&text))
                    .map_err(undecodable)?;
                let object = request.object()?.clone();
                let before = json::parse(&serde_json::to_vec(&object)?)?;
                let after = json::parse(&serde_json::to_vec(&handler(request, object).await?)?)?;
                let sent = sent.transpose()?.unwrap_or_default();
                let patch = json_diff(&sent, &merge_change(&sent, &before, &after));
                Ok((!patch.is_empty()).then(|| json::to_string(&patch)))
            })
        })
    }

    /// A webhook that fills in defaults.
    pub fn defaulting<K>(
        name: &str,
        rule: Rule,
        default: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Webhook
    where
        K: DeserializeOwned + Serialize + Clone + Send + 'static,
    {
        Webhook::mutating(name, rule, move |_: AdmissionRequest<K>, mut object: K| {
            default(&mut object);
            std::future::ready(Ok(object))
        })
    }

    fn new(
        name: &str,
        rule: Rule,
        is_mutating: bool,
        handler: impl Fn(
            AdmissionRequest<Box<RawValue>>,
        ) -> BoxFuture<'static, Result<Option<String>, Denied>>
        + Send
        + Sync
        + 'static,
    ) -> Webhook {
        let verb = if is_mutating { "mutate" } else { "validate" };
        Webhook {
            is_mutating,
            path: format!("/{verb}/{name}"),
            handler: Arc::new(handler),
            registration: MutatingWebhook {
                name: name.into(),
                admission_review_versions: vec!["v1".into()],
                side_effects: "None".into(),
                rules: Some(vec![rule.0]),
                ..MutatingWebhook::default()
            },
        }
    }

    /// Called for the requests of another rule, too.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
    /// use mizzen_sdk::webhook::{AdmissionRequest, Rule, Webhook};
    ///
    /// let webhook = Webhook::validating("data.shop.example.com", Rule::resource(&CONFIG_MAPS), async |_: AdmissionRequest<Object>| Ok(()))
    ///     .rule(Rule::resource(&SECRETS));
    /// # drop(webhook);
    /// ```
    pub fn rule(mut self, rule: Rule) -> Webhook {
        self.registration.rules.get_or_insert_default().push(rule.0);
        self
    }

    /// Served at another path than `/mutate/NAME` or `/validate/NAME`.
    pub fn at(mut self, path: impl Into<String>) -> Webhook {
        self.path = path.into();
        self
    }

    /// Changes the registration: failure policy, selectors, match conditions, timeout, side effects
    /// (by default none), reinvocation policy. The client configuration is set by the server.
    pub fn configure(mut self, change: impl FnOnce(&mut MutatingWebhook)) -> Webhook {
        change(&mut self.registration);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.registration.name
    }

    pub(super) fn mutating_registration(&self) -> MutatingWebhook {
        self.registration.clone()
    }

    pub(super) fn validating_registration(&self) -> ValidatingWebhook {
        let MutatingWebhook {
            admission_review_versions,
            client_config,
            failure_policy,
            match_conditions,
            match_policy,
            name,
            namespace_selector,
            object_selector,
            reinvocation_policy: _,
            rules,
            side_effects,
            timeout_seconds,
        } = self.registration.clone();
        ValidatingWebhook {
            admission_review_versions,
            client_config,
            failure_policy,
            match_conditions,
            match_policy,
            name,
            namespace_selector,
            object_selector,
            rules,
            side_effects,
            timeout_seconds,
        }
    }
}

fn decode<K: DeserializeOwned>(text: &RawValue) -> Result<K, serde_json::Error> {
    serde_json::from_str(text.get())
}

fn undecodable(error: serde_json::Error) -> Denied {
    Denied::with_code(
        400,
        "BadRequest",
        format!("the object cannot be decoded: {error}"),
    )
}
