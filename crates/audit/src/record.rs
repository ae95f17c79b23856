//! The audit record of one request: collected while it is served, emitted at each stage.

use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, User};
use mizzen_request::{Attributes, AttributesTarget, RequestInfo, RequestQuery, header};
use mizzen_value::time::Moment;
use mizzen_value::{Str, Value, value};
use tokio::time::Instant;

use super::event::{AuditEvent, ObjectReference, ResponseStatus, StagedEvent};
use super::latency::{Latencies, Layer};
use super::policy::{AuditLevel, AuditStage, PolicyDecision};
use super::{Audit, capture, source};

/// The record of a request, if it is audited. Cheap to clone: every part of the server that works
/// for the request holds it.
#[derive(Clone, Default)]
pub struct AuditRecord(Option<Arc<OpenRecord>>);

/// A request, as auditing sees it.
pub struct AuditedRequest<'a> {
    /// The user; that of an anonymous request if it is not authenticated.
    pub user: &'a User,
    /// The verb and the target.
    pub info: &'a RequestInfo,
    /// The query parameters.
    pub query: &'a RequestQuery,
    /// The headers, with the audit ID.
    pub headers: &'a HeaderMap,
    /// The URI.
    pub uri: &'a Uri,
    /// The client's address; none for this process.
    pub address: Option<IpAddr>,
}

/// A response, as auditing sees it.
pub struct AuditedResponse {
    /// The status code.
    pub code: u16,
    /// The Status that is sent; `null` for another object.
    pub status: Value,
    /// The object, if the level wants it.
    pub object: Option<Bytes>,
    /// Whether the response lasts: a stream, or a hijacked connection. The last event is emitted when its record is
    /// dropped.
    pub is_lasting: bool,
}

/// An event could not be stored, so its request must be rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to store audit event")]
pub struct NotAudited;

struct OpenRecord {
    audit: Arc<Audit>,
    decision: PolicyDecision,
    stages: RecordStages,
    state: Mutex<RecordState>,
}

struct RecordState {
    event: AuditEvent,
    latencies: Latencies,
    /// Whether the last event was emitted.
    over: bool,
}

/// Which stages a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordStages {
    /// RequestReceived and ResponseComplete.
    Ordinary,
    /// Also ResponseStarted: a long-running request.
    Long,
    /// The user is unknown. Kubernetes: only ResponseStarted is emitted
    /// (endpoints/filters/audit.go).
    Unknown,
}

impl AuditRecord {
    /// Starts the record of a request that arrived at `started`, and emits RequestReceived. `known`
    /// says whether the request is authenticated.
    pub async fn begin(
        audit: &Arc<Audit>,
        request: &AuditedRequest<'_>,
        known: bool,
        started: Instant,
    ) -> Result<AuditRecord, NotAudited> {
        let record = AuditRecord::new(audit, request, known, started);
        if record.record_received().await {
            return Ok(record);
        }
        audit.counters.record_rejected();
        record.discard();
        Err(NotAudited)
    }

    /// The record that the policy requires for a request that arrived at `started`.
    fn new(
        audit: &Arc<Audit>,
        request: &AuditedRequest,
        known: bool,
        started: Instant,
    ) -> AuditRecord {
        let Some(policy) = &audit.policy else {
            return AuditRecord(None);
        };
        let attributes = Attributes::of_request(request.user, request.info, request.query);
        let decision = policy.evaluate(&attributes, known);
        audit.counters.record_level(decision.level);
        if decision.level == AuditLevel::None {
            return AuditRecord(None);
        }
        let stages = match known {
            false => RecordStages::Unknown,
            true if attributes.is_long_running() => RecordStages::Long,
            true => RecordStages::Ordinary,
        };
        let mut latencies = Latencies::default();
        latencies.add(Layer::Authentication, started.elapsed());
        let moment = audit.registry.moment();
        let received =
            nanos(moment) - i128::try_from(started.elapsed().as_nanos()).unwrap_or_default();
        let received = Moment {
            seconds: i64::try_from(received.div_euclid(SECOND)).unwrap_or_default(),
            nanos: u32::try_from(received.rem_euclid(SECOND)).unwrap_or_default(),
        };
        let event = AuditEvent::new(request, &attributes, decision.level, known, received);
        let state = Mutex::new(RecordState {
            event,
            latencies,
            over: false,
        });
        AuditRecord(Some(Arc::new(OpenRecord {
            audit: audit.clone(),
            decision,
            stages,
            state,
        })))
    }

    /// Emits RequestReceived. Returns whether the request may proceed.
    async fn record_received(&self) -> bool {
        match self
            .open()
            .filter(|open| open.stages != RecordStages::Unknown)
        {
            Some(open) => open.emit(AuditStage::RequestReceived).await,
            None => true,
        }
    }

    /// Whether the request is audited.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Emits nothing more for the request.
    fn discard(&self) {
        self.update(|state| state.over = true);
    }

    /// Adds an annotation. The first value of a key stays.
    pub fn annotate(&self, key: &str, text: impl Into<String>) {
        self.annotate_at_level(AuditLevel::Metadata, key, text);
    }

    /// Adds an annotation at this level and above.
    pub fn annotate_at_level(&self, level: AuditLevel, key: &str, text: impl Into<String>) {
        if self.has_level(level) {
            self.update(|state| {
                state
                    .event
                    .annotations
                    .entry(key.into())
                    .or_insert_with(|| text.into());
            });
        }
    }

    /// Adds the time since `since` to the latency of a layer.
    pub fn add_latency_since(&self, layer: Layer, since: Instant) {
        self.update(|state| state.latencies.add(layer, since.elapsed()));
    }

    /// Adds to the latency of a layer.
    pub fn add_latency(&self, layer: Layer, took: Duration) {
        self.update(|state| state.latencies.add(layer, took));
    }

    /// Times the serialization of a response.
    pub fn time_serialization<T>(&self, write: impl FnOnce() -> T) -> T {
        if !self.is_open() {
            return write();
        }
        let started = Instant::now();
        let written = write();
        self.add_latency_since(Layer::Serialization, started);
        written
    }

    /// Records the impersonated user and the constraint that allowed it.
    pub fn set_impersonated_user(&self, user: &User, constraint: &str) {
        self.update(|state| {
            state.event.impersonated = Some(user.clone());
            state.event.constraint = constraint.into();
        });
    }

    /// Records the request object.
    pub fn set_request_object(&self, kind: &GroupVersionKind, root: &Struct, object: &Value) {
        let Some(open) = self.open() else { return };
        let text = self
            .has_level(AuditLevel::Request)
            .then(|| capture::request_object(kind, root, object, open.decision));
        self.update(|state| {
            state
                .event
                .object
                .get_or_insert_default()
                .fill_from_metadata(&object["metadata"]);
            state.event.request = text;
        });
    }

    /// Records the request patch.
    pub fn set_request_patch(&self, patch: &Bytes) {
        if self.has_level(AuditLevel::Request) {
            let text = capture::patch(patch);
            self.update(|state| state.event.request = text);
        }
    }

    /// Whether the response object is recorded.
    pub fn wants_response(&self) -> bool {
        self.has_level(AuditLevel::RequestResponse)
    }

    /// Whether recorded objects have no managed fields.
    pub fn omits_managed_fields(&self) -> bool {
        self.open()
            .is_some_and(|open| open.decision.omits_managed_fields)
    }

    /// Records the response and emits the stages that are reached: all, unless the response lasts.
    pub async fn record_response(&self, response: AuditedResponse) {
        let Some(open) = self.open() else { return };
        let AuditedResponse {
            code,
            status,
            object,
            is_lasting,
        } = response;
        self.update(|state| {
            state.event.outcome = Some(ResponseStatus { code, status });
            state.event.response = object;
        });
        if open.stages != RecordStages::Ordinary {
            open.emit(AuditStage::ResponseStarted).await;
        }
        match open.stages {
            RecordStages::Unknown => self.discard(),
            _ if is_lasting => {}
            _ => open.complete().await,
        }
    }

    /// Polls a future. A panic is recorded and resumed.
    pub async fn record_panics<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(
            |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                Ok(poll) => poll,
                Err(panic) => {
                    self.record_panic(&*panic);
                    resume_unwind(panic)
                }
            },
        )
        .await
    }

    fn record_panic(&self, panic: &(dyn Any + Send)) {
        let Some(open) = self.open() else { return };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let why = text
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or_default();
        let status = value!({
            "status": "Failure",
            "message": (format!("APIServer panic'd: {why}")),
            "reason": "InternalError",
        });
        self.update(|state| state.event.outcome = Some(ResponseStatus { code: 500, status }));
        open.emit_in_background(AuditStage::Panic);
        self.discard();
    }

    fn open(&self) -> Option<&Arc<OpenRecord>> {
        self.0.as_ref()
    }

    fn has_level(&self, level: AuditLevel) -> bool {
        self.open().is_some_and(|open| open.decision.level >= level)
    }

    fn update(&self, change: impl FnOnce(&mut RecordState)) {
        if let Some(open) = self.open() {
            change(&mut open.state());
        }
    }
}

impl OpenRecord {
    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock()
    }

    async fn complete(&self) {
        self.finish_event();
        self.emit(AuditStage::ResponseComplete).await;
    }

    fn finish_event(&self) {
        let now = self.audit.registry.moment();
        let mut state = self.state();
        state.over = true;
        // Kubernetes: without a response the request counts as successful
        // (endpoints/filters/audit.go).
        state.event.outcome.get_or_insert_with(|| ResponseStatus {
            code: 200,
            status: value!({ "status": "Success", "message": "Connection closed early" }),
        });
        // Kubernetes: the duration of a watch is up to its client
        // (endpoints/filters/webhook_duration.go).
        let total = if state.event.verb == "watch" {
            Duration::ZERO
        } else {
            let took = nanos(now) - nanos(state.event.received);
            Duration::from_nanos(u64::try_from(took).unwrap_or_default())
        };
        let said = state.latencies.annotations(total);
        for (key, text) in said {
            state.event.annotations.entry(key.into()).or_insert(text);
        }
    }

    /// Emits the event as of now. Returns whether all strict sinks have stored it.
    async fn emit(&self, stage: AuditStage) -> bool {
        let mut stored = true;
        for (sink, text) in self.audit.sinks.iter().zip(self.serialize_for_sinks(stage)) {
            if let Some(text) = text {
                stored &= sink.deliver(text).await;
            }
        }
        stored
    }

    /// The same without waiting.
    fn emit_in_background(&self, stage: AuditStage) {
        for (sink, text) in self.audit.sinks.iter().zip(self.serialize_for_sinks(stage)) {
            if let Some(text) = text {
                sink.deliver_in_background(text);
            }
        }
    }

    /// The serialized event for each sink; empty if the policy omits the stage.
    fn serialize_for_sinks(&self, stage: AuditStage) -> Vec<Option<Bytes>> {
        if self.decision.omitted.has(stage) {
            return Vec::new();
        }
        let state = self.state();
        let at = match stage {
            AuditStage::RequestReceived => state.event.received,
            _ => self.audit.registry.moment(),
        };
        self.audit.counters.record_event();
        let staged = StagedEvent {
            event: &state.event,
            stage,
            at,
            truncated: false,
        };
        self.audit
            .sinks
            .iter()
            .map(|sink| sink.serialize(staged))
            .collect()
    }
}

/// The last record of the request is dropped.
impl Drop for OpenRecord {
    fn drop(&mut self) {
        let over = self.state().over;
        if !over {
            let unanswered = self.state().event.outcome.is_none();
            self.finish_event();
            if unanswered && self.stages == RecordStages::Long {
                self.emit_in_background(AuditStage::ResponseStarted);
            }
            self.emit_in_background(AuditStage::ResponseComplete);
        }
    }
}

impl AuditEvent {
    fn new(
        request: &AuditedRequest,
        attributes: &Attributes,
        level: AuditLevel,
        known: bool,
        received: Moment,
    ) -> AuditEvent {
        let object = match attributes.target {
            AttributesTarget::NonResource(_) => None,
            AttributesTarget::Resource(resource) => Some(ObjectReference {
                resource: resource.resource.into(),
                namespace: resource.namespace.into(),
                name: resource.name.into(),
                group: resource.group.into(),
                version: resource.version.into(),
                subresource: resource.subresource.into(),
                ..ObjectReference::default()
            }),
        };
        AuditEvent {
            level,
            id: header::text(request.headers, "audit-id").into_owned(),
            uri: request
                .uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .into(),
            verb: attributes.verb.into(),
            user: known.then(|| request.user.clone()),
            impersonated: None,
            constraint: String::new(),
            sources: source::source_addresses(request.headers, request.address),
            agent: source::user_agent(request.headers),
            object,
            outcome: None,
            request: None,
            response: None,
            received,
            annotations: Default::default(),
        }
    }
}

impl ObjectReference {
    /// Fills in fields that the path does not have from the object's metadata.
    fn fill_from_metadata(&mut self, metadata: &Value) {
        let fields = [
            ("namespace", &mut self.namespace),
            ("name", &mut self.name),
            ("uid", &mut self.uid),
            ("resourceVersion", &mut self.resource_version),
        ];
        for (name, field) in fields {
            if field.is_empty() {
                *field = Str::from(metadata[name].str());
            }
        }
    }
}

const SECOND: i128 = 1_000_000_000;

fn nanos(moment: Moment) -> i128 {
    i128::from(moment.seconds) * SECOND + i128::from(moment.nanos)
}
