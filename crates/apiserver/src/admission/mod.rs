//! Admission: plug-ins, policies and webhooks that change or reject writes.
//!
//! The list in [`Options`](crate::Options) has all plug-ins in their order. A write passes the mutating plug-ins
//! (`Checks::admit`), then the validation of its kind, then the validating plug-ins (`Checks`).

mod metrics;
mod namespace;
mod owners;
mod plugin;
mod policy;
mod transaction;
mod webhook;

pub(crate) use metrics::AdmissionMetrics;
pub(crate) use namespace::admit as check_namespace;
pub(crate) use owners::{Dedupe, dedupe_owners};
pub use plugin::{
    ALWAYS_DENY, MUTATING_POLICY, MUTATING_WEBHOOK, Mutate, MutateLater, NAMESPACE_AUTO_PROVISION,
    NAMESPACE_EXISTS, NAMESPACE_LIFECYCLE, Plugin, VALIDATING_POLICY, VALIDATING_WEBHOOK, Validate,
    ValidateDeletion, ValidateLater,
};
pub(crate) use policy::AdmissionPolicies;
pub use transaction::{WriteOutcome, WriteStrategy, WriteTransaction};
pub(crate) use webhook::Webhooks;

use parking_lot::Mutex;

use mizzen_audit::Layer;
use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::validate::names;
use mizzen_object::{GroupResource, GroupVersionKind, Status, Violations};
use mizzen_registry::{
    BoxFuture, Key, ListOptions, Object, Resource, Revision, Selection, ValidatingAdmission,
};
use mizzen_value::Value;
use tokio::time::Instant;

use crate::authorization::{self, escalation, secondary};
use crate::crd;
use crate::delegate;
use crate::extend;
use crate::server::ServerParts;
use crate::verbs::ResourceCall;
use metrics::{AdmissionRun, AdmissionStep};
use owners::Managers;
use webhook::AdmissionOperation;

/// Mutating policies and webhooks. If they change the object, all plug-ins run again (reinvocation).

#[derive(Default)]
struct MutationRounds {
    policies: policy::PolicyRounds,
    webhooks: webhook::WebhookRounds,
}

impl MutationRounds {
    /// Runs mutating policies, then webhooks. Returns whether the plug-ins must run again.
    async fn mutate(
        &mut self,
        attributes: &webhook::VersionedAttributes<'_>,
        object: &mut CanonicalObject,
        second: bool,
    ) -> Result<bool, Status> {
        let metrics = &attributes.call.server.metrics.admission;
        let (managers, mut again) = (Managers::of(object), false);
        if let Some(position) = metrics.position(MUTATING_POLICY.name) {
            let timer = PluginTimer::start(attributes.call.server, attributes.operation);
            let changed = self.policies.mutate(attributes, object, second).await;
            timer.stop(position, AdmissionStep::Admit, &changed);
            again |= changed?;
        }
        if let Some(position) = metrics.position(MUTATING_WEBHOOK.name) {
            let timer = PluginTimer::start(attributes.call.server, attributes.operation);
            let changed = self.webhooks.mutate(attributes, Some(object), second).await;
            timer.stop(position, AdmissionStep::Admit, &changed);
            again |= changed?;
        }
        managers.restore(object, attributes.call.notes);
        Ok(again)
    }
}

/// The mutating plug-ins for the object of a subresource, such as an Eviction.
pub async fn admit_below(call: &ResourceCall<'_>, object: &mut Value) -> Result<(), Status> {
    let mut draft = CanonicalObject::from(std::mem::take(object));
    let mutated = mutate(&Attributes { call, old: None }, &mut draft).await;
    *object = draft.into_value();
    mutated
}

async fn mutate(attributes: &Attributes<'_>, object: &mut CanonicalObject) -> Result<(), Status> {
    let server = attributes.call.server;
    namespace::catch_up(attributes).await;
    let mut timer = PluginTimer::start(server, attributes.operation());
    for (position, plugin) in server.options.admission_plugins.iter().enumerate() {
        let outcome = match plugin.mutate {
            Mutate::Nothing => continue,
            Mutate::Now(mutate) => mutate(attributes, object),
            Mutate::Later { concerns, .. } if !concerns(attributes) => Ok(()),
            Mutate::Later { mutate, .. } => {
                let managers = Managers::of(object);
                let outcome = mutate(attributes, object).await;
                managers.restore(object, attributes.call.notes);
                outcome
            }
        };
        timer = timer.stop(position, AdmissionStep::Admit, &outcome);
        outcome?;
    }
    Ok(())
}

/// Measures one plug-in after the other.
struct PluginTimer<'a> {
    server: &'a ServerParts,
    operation: AdmissionOperation,
    started: Instant,
}

impl<'a> PluginTimer<'a> {
    fn start(server: &'a ServerParts, operation: AdmissionOperation) -> PluginTimer<'a> {
        PluginTimer {
            server,
            operation,
            started: Instant::now(),
        }
    }

    /// Ends the measurement of a plug-in, and starts the next one.
    fn stop<T>(
        mut self,
        position: usize,
        step: AdmissionStep,
        outcome: &Result<T, Status>,
    ) -> PluginTimer<'a> {
        let now = Instant::now();
        let run = self.run(step, outcome, now);
        self.server.metrics.admission.observe_plugin(position, run);
        self.started = now;
        self
    }

    /// Ends the measurement of a step.
    fn stop_step<T>(self, step: AdmissionStep, outcome: &Result<T, Status>) {
        let run = self.run(step, outcome, Instant::now());
        self.server.metrics.admission.observe_step(run);
    }

    fn run<T>(
        &self,
        step: AdmissionStep,
        outcome: &Result<T, Status>,
        ended: Instant,
    ) -> AdmissionRun {
        AdmissionRun {
            step,
            operation: self.operation,
            rejected: outcome.is_err(),
            took: ended - self.started,
        }
    }
}

/// Rejects the deletion of one object before the object is read.
pub(crate) fn check_delete(call: &ResourceCall) -> Result<(), Status> {
    if call.server.options.has_plugin(NAMESPACE_LIFECYCLE.name) {
        namespace::check_delete(call.resource, call.path)?;
    }
    let mut strategies = call.server.extensions.write_strategies().iter();
    strategies.try_for_each(|strategy| strategy.check_delete(call))
}

/// Validating admission of a write.
///
/// Invariant: a caller that passes this to the registry calls [`Checks::settle`] with the outcome.
pub(crate) struct Checks<'a> {
    call: &'a ResourceCall<'a>,
    transactions: Vec<Box<dyn WriteTransaction>>,
    /// When validation ended, for the storage latency in the audit log.
    passed: Mutex<Option<Instant>>,
}

impl ValidatingAdmission for Checks<'_> {
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            self.note_stored();
            let operation = match (new, old) {
                (None, _) => AdmissionOperation::Delete,
                (_, None) => AdmissionOperation::Create,
                _ => AdmissionOperation::Update,
            };
            let timer = PluginTimer::start(self.call.server, operation);
            let outcome = self.all(new, old).await;
            timer.stop_step(AdmissionStep::Validate, &outcome);
            outcome?;
            self.note_passed();
            Ok(())
        })
    }

    fn authorize<'a>(
        &'a self,
        new: &'a Value,
        old: Option<&'a Value>,
        violations: &'a mut Violations,
    ) -> Option<BoxFuture<'a, ()>> {
        secondary::authorize(self.call, new, old, violations)
    }
}

/// Runs mutating policies and webhooks for an object of another kind than the resource's, such as a Scale or an Eviction.
pub async fn admit_other(
    call: &ResourceCall<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let attributes = webhook::VersionedAttributes::other(call, kind, root, old);
    mutate_other(&attributes, object).await?;
    deny_all(call, Some(object))
}

/// Runs mutating policies and webhooks, and again if they changed the object.
async fn mutate_other(
    attributes: &webhook::VersionedAttributes<'_>,
    object: &mut Value,
) -> Result<(), Status> {
    let (mut rounds, mut draft) = (
        MutationRounds::default(),
        CanonicalObject::from(std::mem::take(object)),
    );
    for second in [false, true] {
        if !rounds.mutate(attributes, &mut draft, second).await? {
            break;
        }
    }
    *object = draft.into_value();
    Ok(())
}

/// Runs policies and webhooks for CONNECT. They may change `options`, which are of a kind of core/v1.
pub async fn admit_connect(call: &ResourceCall<'_>, options: &mut Value) -> Result<(), Status> {
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: options["kind"].str().into(),
    };
    let root = call.server.types.connect_options(&kind.kind);
    let attributes = webhook::VersionedAttributes::connect(call, &kind, root);
    mutate_other(&attributes, options).await?;
    deny_all(call, Some(options))?;
    ask(&attributes.with(options)).await
}

/// Runs policies and webhooks for a CONNECT without options.
pub(crate) async fn check_connect_without_options(call: &ResourceCall<'_>) -> Result<(), Status> {
    delegate::wait_for_main_server(call.server).await?;
    check_without_object(&webhook::VersionedAttributes::connect_without_options(call)).await
}

/// Runs policies and webhooks for an operation without an object, which they cannot change.
async fn check_without_object(attributes: &webhook::VersionedAttributes<'_>) -> Result<(), Status> {
    let (call, old) = (attributes.call, attributes.old);
    let options = &call.server.options;
    if options.has_plugin(MUTATING_WEBHOOK.name) {
        webhook::WebhookRounds::default()
            .mutate(attributes, None, false)
            .await?;
    }
    deny_all(call, None)?;
    // Kubernetes: it does not handle CONNECT (plugin/pkg/admission/namespace/exists).
    let is_delete = attributes.operation == AdmissionOperation::Delete;
    if is_delete && options.has_plugin(NAMESPACE_EXISTS.name) {
        namespace::check_exists(&Attributes { call, old })?;
    }
    ask(attributes).await
}

/// AlwaysDeny: rejects every write, after all other plug-ins.
fn deny_all(call: &ResourceCall, object: Option<&Value>) -> Result<(), Status> {
    if !call.server.options.has_plugin(ALWAYS_DENY.name) {
        return Ok(());
    }
    let (attributes, unnamed) = (Attributes { call, old: None }, Value::object());
    let why = "admission control is denying all modifications";
    match call.path.name.as_str() {
        "" => Err(attributes.forbidden(object.unwrap_or(&unnamed), why)),
        name => Err(Status::forbidden(&attributes.resource(), name, why)),
    }
}

/// Runs validating policies and webhooks for an object of another kind than the resource's.
pub async fn check_other(
    call: &ResourceCall<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    ask(&webhook::VersionedAttributes::other(call, kind, root, old).with(object)).await
}

/// Runs validating policies, then webhooks.
async fn ask(attributes: &webhook::VersionedAttributes<'_>) -> Result<(), Status> {
    let options = &attributes.call.server.options;
    if options.has_plugin(VALIDATING_POLICY.name) {
        policy::validate(attributes).await?;
    }
    match options.has_plugin(VALIDATING_WEBHOOK.name) {
        true => webhook::validate(attributes).await,
        false => Ok(()),
    }
}

/// Runs validating policies.
fn check_with_policies<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let judged =
            webhook::VersionedAttributes::judged(attributes.call, Some(new), attributes.old);
        policy::validate(&judged).await
    })
}

/// Runs validating webhooks.
fn check_with_webhooks<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let judged =
            webhook::VersionedAttributes::judged(attributes.call, Some(new), attributes.old);
        webhook::validate(&judged).await
    })
}

/// Adds an audit annotation of a policy or webhook. Kubernetes: a key without a domain, or an invalid one, is dropped
/// (admission/attributes.go).
pub fn annotate(call: &ResourceCall, key: &str, text: &str) {
    let record = &call.request.record;
    if record.is_open() && key.matches('/').count() == 1 && names::is_qualified_name(key).is_empty()
    {
        record.annotate(key, text);
    }
}

/// Kubernetes: the name of an object without one, such as a collection, in errors (apiserver/pkg/admission/errors.go).
pub(crate) const UNKNOWN_NAME: &str = "Unknown";

/// 403: a policy or webhook denies the request.
fn forbidden_for(attributes: &webhook::VersionedAttributes, why: &str) -> Status {
    Status::forbidden(
        &attributes.call.resource.kind().resource(),
        attributes.shown_name(),
        why,
    )
}

impl<'a> Checks<'a> {
    /// The checks of one request.
    pub(crate) fn new(call: &'a ResourceCall<'a>) -> Checks<'a> {
        let strategies = call.server.extensions.write_strategies().iter();
        Checks {
            call,
            transactions: strategies
                .filter_map(|strategy| strategy.begin(call))
                .collect(),
            passed: Mutex::default(),
        }
    }

    /// Mutates `object` as plug-ins, policies and webhooks say, and allocates what it needs, or rejects it. `old` is the
    /// object as stored, none if it is being made.
    pub(crate) async fn admit(
        &self,
        old: Option<&Value>,
        object: &mut CanonicalObject,
    ) -> Result<(), Status> {
        let operation = Attributes {
            call: self.call,
            old,
        }
        .operation();
        let timer = PluginTimer::start(self.call.server, operation);
        let outcome = self.mutate(old, object).await;
        timer.stop_step(AdmissionStep::Admit, &outcome);
        outcome
    }

    async fn mutate(
        &self,
        old: Option<&Value>,
        object: &mut CanonicalObject,
    ) -> Result<(), Status> {
        let call = self.call;
        delegate::wait_for_main_server(call.server).await?;
        crd::admit(call, old, object)?;
        let attributes = Attributes { call, old };
        let asked = webhook::VersionedAttributes::asked(call, old);
        let mut rounds = MutationRounds::default();
        for second in [false, true] {
            mutate(&attributes, object).await?;
            extend::mutate(call, old, object).await?;
            if !rounds.mutate(&asked, object, second).await? {
                break;
            }
        }
        deny_all(call, Some(object))?;
        dedupe_owners(call, object, Dedupe::AfterAdmission);
        for transaction in &self.transactions {
            transaction.allocate(call, old, object).await?;
        }
        escalation::check_escalation(call, old, object).await
    }

    fn note_passed(&self) {
        if self.call.request.record.is_open() {
            *self.passed.lock() = Some(Instant::now());
        }
    }

    /// Records how long the store took.
    fn note_stored(&self) {
        let record = &self.call.request.record;
        let passed = record.is_open().then(|| self.passed.lock().take());
        if let Some(passed) = passed.flatten() {
            record.add_latency_since(Layer::Storage, passed);
        }
    }

    async fn all(&self, new: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        let attributes = Attributes {
            call: self.call,
            old,
        };
        for transaction in &self.transactions {
            transaction.begin_attempt(&attributes, new).await;
        }
        let Some(new) = new else {
            return self.deletion(&attributes).await;
        };
        if old.is_none() {
            authorize_create(self.call).await?;
        }
        let server = self.call.server;
        let mut timer = PluginTimer::start(server, attributes.operation());
        for (position, plugin) in server.options.admission_plugins.iter().enumerate() {
            let outcome = match plugin.validate {
                Validate::Nothing => continue,
                Validate::Now(validate) => validate(&attributes, new),
                Validate::Later { concerns, .. } if !concerns(&attributes) => Ok(()),
                Validate::Later { validate, .. } => validate(&attributes, new).await,
            };
            timer = timer.stop(position, AdmissionStep::Validate, &outcome);
            outcome?;
        }
        for transaction in &self.transactions {
            transaction.reserve(&attributes, new).await?;
        }
        extend::validate(self.call, old, Some(new)).await
    }

    /// Runs plug-ins, policies and webhooks for a deletion; they cannot change anything.
    async fn deletion(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (call, old, options) = (self.call, attributes.old, &self.call.server.options);
        delegate::wait_for_main_server(call.server).await?;
        let plugins = options.admission_plugins.iter();
        for validate in plugins.filter_map(|plugin| plugin.validate_deletion) {
            validate(attributes)?;
        }
        extend::validate(call, old, None).await?;
        check_without_object(&webhook::VersionedAttributes::judged(call, None, old)).await
    }

    /// Keeps the quota charges of a write that was stored, or may be, and returns them otherwise.
    pub(crate) async fn settle<T>(&self, outcome: Result<T, Status>) -> Result<T, Status> {
        self.note_stored();
        let written = WriteOutcome::of(&outcome);
        for transaction in &self.transactions {
            transaction.settle(self.call, written).await;
        }
        outcome
    }
}

/// Authorizes `create` where another verb creates an object: an apply or an update of a name that does not exist.
/// Kubernetes: handlers/patch.go and handlers/update.go, as part of the validation.
async fn authorize_create(call: &ResourceCall<'_>) -> Result<(), Status> {
    let ResourceCall {
        server,
        request,
        path,
        ..
    } = call;
    if request.info.verb() == "create" {
        return Ok(());
    }
    let target = mizzen_authorization::AttributesTarget::Resource(
        mizzen_authorization::ResourceAttributes {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace: &path.namespace,
            name: &path.name,
            ..mizzen_authorization::ResourceAttributes::default()
        },
    );
    authorization::authorize(
        server,
        &mizzen_authorization::Attributes {
            user: &request.user,
            verb: "create",
            target,
        },
    )
    .await
}

/// What a plug-in sees of a write besides the object.
pub struct Attributes<'a> {
    /// The request.
    pub call: &'a ResourceCall<'a>,
    /// The stored object; `None` for a create.
    pub old: Option<&'a Value>,
}

impl Attributes<'_> {
    /// Whether the write is for this resource. Every plug-in checks this first.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        let kind = self.call.resource.kind();
        kind.plural == plural && kind.gvk.group == group
    }

    /// Whether the write is for this resource and no subresource.
    pub fn is_main(&self, group: &str, plural: &str) -> bool {
        self.subresource().is_empty() && self.is(group, plural)
    }

    /// Create or update: deletions have no new object.
    fn operation(&self) -> AdmissionOperation {
        match self.old {
            None => AdmissionOperation::Create,
            Some(_) => AdmissionOperation::Update,
        }
    }

    /// Whether an object is being made.
    pub fn is_create(&self) -> bool {
        self.old.is_none()
    }

    /// Whether nothing is to be stored.
    pub fn is_dry_run(&self) -> bool {
        self.call.request.query.get("dryRun").is_some()
    }

    /// The subresource of the request, mostly empty.
    pub fn subresource(&self) -> &str {
        &self.call.path.subresource
    }

    /// The namespace of the request, or empty.
    pub fn namespace(&self) -> &str {
        &self.call.path.namespace
    }

    /// The resource of the request.
    pub fn resource(&self) -> GroupResource {
        self.call.resource.kind().resource()
    }

    /// Whether the user is also authorized for something else.
    pub async fn may(
        &self,
        verb: &str,
        resource: mizzen_authorization::ResourceAttributes<'_>,
    ) -> bool {
        let ResourceCall {
            server, request, ..
        } = self.call;
        let target = mizzen_authorization::AttributesTarget::Resource(resource);
        let asked = mizzen_authorization::Attributes {
            user: &request.user,
            verb,
            target,
        };
        server
            .authorization
            .authorizers
            .authorize(&asked)
            .await
            .is_allowed()
    }

    /// 403: the plug-in rejects the write.
    pub fn forbidden(&self, object: &Value, why: &str) -> Status {
        let metadata = &object["metadata"];
        let said = ["name", "generateName"].map(|field| metadata[field].str());
        let name = said
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or(UNKNOWN_NAME);
        Status::forbidden(&self.resource(), name, why)
    }

    /// An object that a plug-in needs, also if another server has just created it. Kubernetes: a lister, and then a live
    /// lookup.
    pub async fn look_up(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Status> {
        let server = self.call.server;
        let resource = server
            .catalog
            .get(group, "v1", plural)
            .ok_or_else(Status::no_such_resource)?;
        let key = Key::new(namespace, name);
        let found = server.registry.find(&resource, &key).await?;
        Ok(found.value())
    }

    /// An object that a plug-in needs; `None` if the cache does not have it.
    pub fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.call.server.catalog.get(group, "v1", plural)?;
        let found = self
            .call
            .server
            .registry
            .get(&resource, &Key::new(namespace, name), "")
            .ok()?;
        Some(found.value())
    }

    /// All objects of a resource in a namespace, or in all if that is empty, as the cache has them.
    pub fn all(&self, group: &str, plural: &str, namespace: &str) -> Result<Vec<Value>, Status> {
        let (resource, options) = self.all_options(group, plural, namespace)?;
        let found = self.call.server.registry.list(&resource, &options)?;
        Ok(found.items.iter().map(Object::value).collect())
    }

    /// The same as the store has them, also if another server has just written them; and the revision of that.
    pub async fn look_up_all(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> Result<(Vec<Value>, Revision), Status> {
        let (resource, options) = self.all_options(group, plural, namespace)?;
        let found = self.call.server.registry.read_list(&resource, &options);
        let found = found.await?;
        let objects = found.items.iter().map(Object::value).collect();
        Ok((objects, found.version))
    }

    fn all_options(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> Result<(Resource, ListOptions), Status> {
        let catalog = &self.call.server.catalog;
        let resource = catalog.get(group, "v1", plural);
        let resource = resource.ok_or_else(Status::no_such_resource)?;
        let selection = Selection {
            namespace: namespace.into(),
            ..Selection::default()
        };
        let options = ListOptions {
            selection,
            ..ListOptions::default()
        };
        Ok((resource, options))
    }
}
