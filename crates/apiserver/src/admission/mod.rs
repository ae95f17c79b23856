//! What the server does to every write besides its kind's own rules: it fills in what only it knows, takes
//! what must be had only once, and refuses what the cluster's state forbids.
//!
//! Each plug-in has a file or folder; which there are and in which order they have their say is the table in
//! [`plugins`](mod@plugins) and nowhere else. A write passes all that mutate in [`admit`], then its kind's
//! validation, then all that validate in [`Checks`].

mod always_pull_images;
mod anti_affinity;
mod certificate;
mod configuration;
mod default_class;
mod event_rate_limit;
mod extended_resource_toleration;
mod external_ips;
mod image_policy;
mod limits;
mod namespace;
mod node_restriction;
mod owner_references;
mod owners;
mod plugins;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_tolerations;
mod policy;
mod priority;
mod protection;
mod quota;
mod runtime_class;
mod service;
mod service_account;
mod taint;
mod toleration;
mod topology;
mod volume_resize;
mod webhook;

pub use configuration::{Admission, ConfigurationError};
pub use event_rate_limit::EventRateLimit;
pub use image_policy::ImagePolicy;
pub(crate) use owners::{Dedupe, dedupe_owners};
pub use plugins::{PluginError, Plugins};
pub use pod_node_selector::NodeSelectors;
pub use pod_security::{Level, PodSecurity, Policy, Standard, Version};
pub use pod_tolerations::PodTolerations;
pub(crate) use policy::Policies;
pub use quota::LimitedResource;
pub(crate) use service::{Claim, Claims, follow_all};
pub use toleration::TolerationSeconds;
pub(crate) use webhook::Webhooks;

use parking_lot::Mutex;

use mizzen_object::schema::Struct;
use mizzen_object::validate::names;
use mizzen_object::{GroupResource, GroupVersionKind, Status, Violations};
use mizzen_registry::{Future, Gate, Key, ListOptions, Selection};
use mizzen_value::Value;
use tokio::time::Instant;

use crate::access::{self, escalation, second};
use crate::audit::Layer;
use crate::definitions;
use crate::extend;
use crate::verbs::Call;
use owners::Managers;
use plugins::{Mutate, Validate};
use quota::Charges;

/// A write on its way to the registry.
pub(crate) struct Write<'a> {
    pub call: &'a Call<'a>,
    /// The object as stored, none if it is being made.
    pub old: Option<&'a Value>,
    /// What is taken for this write until it is stored or given up.
    pub claim: &'a mut Claim,
}

/// Changes `object` as the server must, or refuses it.
pub(crate) async fn admit(write: Write<'_>, object: &mut Value) -> Result<(), Status> {
    let Write { call, old, claim } = write;
    definitions::admit(call, old, object)?;
    let attributes = Attributes {
        call,
        old,
        charges: None,
    };
    let asked = webhook::Attributes::asked(call, old);
    let mut rounds = Rounds::default();
    for second in [false, true] {
        mutate(&attributes, object).await?;
        extend::mutate(call, old, object).await?;
        if !rounds.mutate(&asked, object, second).await? {
            break;
        }
    }
    deny_all(call, Some(object))?;
    dedupe_owners(call, object, Dedupe::AfterAdmission);
    if attributes.is_main("", "services") {
        service::allocate(call, old, claim, object)?;
    }
    escalation::check(call, old, object).await
}

/// What the cluster's own rules and webhooks make of an object. If they change it, everybody looks at it again.
#[derive(Default)]
struct Rounds {
    policies: policy::Rounds,
    webhooks: webhook::Rounds,
}

impl Rounds {
    /// Lets policies, then webhooks change an object; whether everybody else must look at it again.
    async fn mutate(
        &mut self,
        attributes: &webhook::Attributes<'_>,
        object: &mut Value,
        second: bool,
    ) -> Result<bool, Status> {
        let plugins = &attributes.call.server.options.plugins;
        let (managers, mut again) = (Managers::of(object), false);
        if plugins.has(plugins::MUTATING_POLICY) {
            again |= self.policies.mutate(attributes, object, second).await?;
        }
        if plugins.has(plugins::MUTATING_WEBHOOK) {
            again |= self
                .webhooks
                .mutate(attributes, Some(object), second)
                .await?;
        }
        managers.restore(object, attributes.call.notes);
        Ok(again)
    }
}

/// The same for what is made below an object, such as an eviction.
pub(crate) async fn admit_below(call: &Call<'_>, object: &mut Value) -> Result<(), Status> {
    mutate(
        &Attributes {
            call,
            old: None,
            charges: None,
        },
        object,
    )
    .await
}

async fn mutate(attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
    for plugin in attributes.call.server.options.plugins.iter() {
        match plugin.mutate {
            Mutate::Nothing => {}
            Mutate::Now(mutate) => mutate(attributes, object)?,
            Mutate::Later { concerns, .. } if !concerns(attributes) => {}
            Mutate::Later { mutate, .. } => {
                let managers = Managers::of(object);
                mutate(attributes, object).await?;
                managers.restore(object, attributes.call.notes);
            }
        }
    }
    Ok(())
}

/// Lets an object be deleted, or refuses.
pub(crate) fn on_delete(call: &Call) -> Result<(), Status> {
    if call
        .server
        .options
        .plugins
        .has(plugins::NAMESPACE_LIFECYCLE)
    {
        namespace::on_delete(call.resource, call.path)?;
    }
    priority::on_delete(call.resource, call.path)
}

/// The last word on what a write has come to.
///
/// Invariant: whoever passes this to the registry tells [`Checks::settle`] what came of it.
pub(crate) struct Checks<'a> {
    call: &'a Call<'a>,
    charges: Charges,
    addresses: service::Addresses,
    /// When the last one passed, for auditors who want to know how long the store took.
    passed: Mutex<Option<Instant>>,
}

impl Gate for Checks<'_> {
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Future<'a, Result<(), Status>> {
        Box::pin(async move {
            self.note_stored();
            self.all(new, old).await?;
            self.note_passed();
            Ok(())
        })
    }

    fn authorize<'a>(
        &'a self,
        new: &'a Value,
        old: Option<&'a Value>,
        violations: &'a mut Violations,
    ) -> Option<Future<'a, ()>> {
        second::authorize(self.call, new, old, violations)
    }
}

/// Lets policies and webhooks change what is no object of its resource's kind, such as a Scale or an Eviction.
pub(crate) async fn admit_other(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let attributes = webhook::Attributes::other(call, kind, root, old);
    let mut rounds = Rounds::default();
    for second in [false, true] {
        if !rounds.mutate(&attributes, object, second).await? {
            break;
        }
    }
    deny_all(call, Some(object))
}

/// Lets policies and webhooks refuse that a client connects to an object. What they change of the options is of no consequence, as
/// with upstream, which decodes them before.
pub(crate) async fn check_connect(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    options: &mut Value,
) -> Result<(), Status> {
    let attributes = webhook::Attributes::connect(call, kind, root);
    Rounds::default()
        .mutate(&attributes, options, false)
        .await?;
    deny_all(call, Some(options))?;
    ask(&attributes.with(options)).await
}

/// AlwaysDeny: rejects every write, after everything else had its say.
fn deny_all(call: &Call, object: Option<&Value>) -> Result<(), Status> {
    if !call.server.options.plugins.has(plugins::ALWAYS_DENY) {
        return Ok(());
    }
    let (attributes, unnamed) = (
        Attributes {
            call,
            old: None,
            charges: None,
        },
        Value::object(),
    );
    let why = "admission control is denying all modifications";
    match call.path.name.as_str() {
        "" => Err(attributes.forbidden(object.unwrap_or(&unnamed), why)),
        name => Err(Status::forbidden(&attributes.resource(), name, why)),
    }
}

/// Lets policies and webhooks refuse what is no object of its resource's kind.
pub(crate) async fn check_other(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    ask(&webhook::Attributes::other(call, kind, root, old).with(object)).await
}

/// Lets policies, then webhooks refuse a request.
async fn ask(attributes: &webhook::Attributes<'_>) -> Result<(), Status> {
    let plugins = &attributes.call.server.options.plugins;
    if plugins.has(plugins::VALIDATING_POLICY) {
        policy::validate(attributes).await?;
    }
    match plugins.has(plugins::VALIDATING_WEBHOOK) {
        true => webhook::validate(attributes).await,
        false => Ok(()),
    }
}

/// Lets policies refuse an object.
fn check_with_policies<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> Future<'a, Result<(), Status>> {
    Box::pin(async move {
        let judged = webhook::Attributes::judged(attributes.call, Some(new), attributes.old);
        policy::validate(&judged).await
    })
}

/// Lets webhooks refuse an object.
fn check_with_webhooks<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> Future<'a, Result<(), Status>> {
    Box::pin(async move {
        let judged = webhook::Attributes::judged(attributes.call, Some(new), attributes.old);
        webhook::validate(&judged).await
    })
}

/// Notes something for auditors under a name that somebody else has thought of. Kubernetes: one that has no domain, or is no
/// name at all, is dropped (admission/attributes.go).
fn annotate(call: &Call, key: &str, text: &str) {
    let record = &call.request.record;
    if record.is_open() && key.matches('/').count() == 1 && names::is_qualified_name(key).is_empty()
    {
        record.annotate(key, text);
    }
}

/// Kubernetes: how a refusal calls what has no name, such as a collection (apiserver/pkg/admission/errors.go).
pub(crate) const UNKNOWN_NAME: &str = "Unknown";

/// 403: a policy forbids it.
fn forbidden_for(attributes: &webhook::Attributes, why: &str) -> Status {
    Status::forbidden(
        &attributes.call.resource.kind().resource(),
        attributes.shown_name(),
        why,
    )
}

impl<'a> Checks<'a> {
    /// For the writes of one request.
    pub(crate) fn new(call: &'a Call<'a>) -> Checks<'a> {
        let (charges, addresses) = (Charges::default(), service::Addresses::default());
        Checks {
            call,
            charges,
            addresses,
            passed: Mutex::default(),
        }
    }

    fn note_passed(&self) {
        if self.call.request.record.is_open() {
            *self.passed.lock() = Some(Instant::now());
        }
    }

    /// What passed has been stored, or could not be.
    fn note_stored(&self) {
        let record = &self.call.request.record;
        let passed = record.is_open().then(|| self.passed.lock().take());
        if let Some(passed) = passed.flatten() {
            record.took(Layer::Storage, passed);
        }
    }

    async fn all(&self, new: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        // What an earlier attempt took may not be what this one needs.
        self.charges.give_back().await;
        let attributes = Attributes {
            call: self.call,
            old,
            charges: Some(&self.charges),
        };
        if attributes.is("", "services") {
            self.addresses.note(new, old);
        }
        if attributes.is("networking.k8s.io", "ipaddresses")
            && let Some(old) = old
        {
            self.addresses.note_address(old);
        }
        let Some(new) = new else {
            return self.deletion(old).await;
        };
        if old.is_none() {
            authorize_create(self.call).await?;
        }
        for plugin in self.call.server.options.plugins.iter() {
            match plugin.validate {
                Validate::Nothing => {}
                Validate::Now(validate) => validate(&attributes, new)?,
                Validate::Later { concerns, .. } if !concerns(&attributes) => {}
                Validate::Later { validate, .. } => validate(&attributes, new).await?,
            }
        }
        extend::validate(self.call, old, Some(new)).await
    }

    /// Lets plug-ins, policies and webhooks refuse that an object goes; there is nothing that they could change.
    async fn deletion(&self, old: Option<&Value>) -> Result<(), Status> {
        node_restriction::on_delete(self.call, old)?;
        extend::validate(self.call, old, None).await?;
        let attributes = webhook::Attributes::judged(self.call, None, old);
        if self
            .call
            .server
            .options
            .plugins
            .has(plugins::MUTATING_WEBHOOK)
        {
            webhook::Rounds::default()
                .mutate(&attributes, None, false)
                .await?;
        }
        deny_all(self.call, None)?;
        if self
            .call
            .server
            .options
            .plugins
            .has(plugins::NAMESPACE_EXISTS)
        {
            namespace::check_exists(&Attributes {
                call: self.call,
                old,
                charges: None,
            })?;
        }
        ask(&attributes).await
    }

    /// Keeps what was taken for the write if it is stored, and gives it back if it is not.
    pub(crate) async fn settle<T>(&self, outcome: Result<T, Status>) -> Result<T, Status> {
        self.note_stored();
        match &outcome {
            Ok(_) => self.charges.settle(),
            Err(_) => self.charges.give_back().await,
        }
        self.addresses.follow(self.call).await;
        outcome
    }
}

/// Authorizes `create` where another verb makes an object: an apply or an update of a name that is not there.
/// Kubernetes: handlers/patch.go and handlers/update.go, as a part of the validation of what is made.
async fn authorize_create(call: &Call<'_>) -> Result<(), Status> {
    let Call {
        server,
        request,
        path,
        ..
    } = call;
    if request.info.verb() == "create" {
        return Ok(());
    }
    let target = access::Target::Resource(access::Resource {
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        subresource: &path.subresource,
        namespace: &path.namespace,
        name: &path.name,
        ..access::Resource::default()
    });
    access::authorize(
        server,
        &access::Attributes {
            user: &request.user,
            verb: "create",
            target,
        },
    )
    .await
}

/// What a plug-in is asked about, besides the object itself.
pub(crate) struct Attributes<'a> {
    pub call: &'a Call<'a>,
    /// The object as stored, none if it is being made.
    pub old: Option<&'a Value>,
    /// What the write has taken from quotas, for those who have the last word.
    charges: Option<&'a Charges>,
}

impl Attributes<'_> {
    /// Whether the write is about this resource. Every plug-in asks this first: most writes are of no concern
    /// to it.
    fn is(&self, group: &str, plural: &str) -> bool {
        let kind = self.call.resource.kind();
        kind.plural == plural && kind.gvk.group == group
    }

    /// Whether the write is about an object of this resource, not something below it.
    fn is_main(&self, group: &str, plural: &str) -> bool {
        self.subresource().is_empty() && self.is(group, plural)
    }

    fn is_create(&self) -> bool {
        self.old.is_none()
    }

    fn is_dry_run(&self) -> bool {
        self.call.request.query.get("dryRun").is_some()
    }

    fn subresource(&self) -> &str {
        &self.call.path.subresource
    }

    fn namespace(&self) -> &str {
        &self.call.path.namespace
    }

    fn resource(&self) -> GroupResource {
        self.call.resource.kind().resource()
    }

    /// Whether whoever writes may do something else, too.
    async fn may(&self, verb: &str, resource: access::Resource<'_>) -> bool {
        let Call {
            server, request, ..
        } = self.call;
        let target = access::Target::Resource(resource);
        let asked = access::Attributes {
            user: &request.user,
            verb,
            target,
        };
        server
            .access
            .authorizers
            .authorize(&asked)
            .await
            .is_allowed()
    }

    /// 403: the cluster's state forbids it.
    fn forbidden(&self, object: &Value, why: &str) -> Status {
        let metadata = &object["metadata"];
        let said = ["name", "generateName"].map(|field| metadata[field].str());
        let name = said
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or(UNKNOWN_NAME);
        Status::forbidden(&self.resource(), name, why)
    }

    /// An object that a plug-in wants to know about; none if it is not there.
    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.call.server.catalog.get(group, "v1", plural)?;
        let found = self
            .call
            .server
            .registry
            .get(&resource, &Key::new(namespace, name), "")
            .ok()?;
        Some(found.value())
    }

    /// All objects of a resource in a namespace, or everywhere if that is empty.
    fn all(&self, group: &str, plural: &str, namespace: &str) -> Result<Vec<Value>, Status> {
        let server = self.call.server;
        let resource = server
            .catalog
            .get(group, "v1", plural)
            .ok_or_else(Status::no_such_resource)?;
        let selection = Selection {
            namespace: namespace.into(),
            ..Selection::default()
        };
        let found = server.registry.list(
            &resource,
            &ListOptions {
                selection,
                ..ListOptions::default()
            },
        )?;
        Ok(found.items.iter().map(|object| object.value()).collect())
    }
}
