//! What is gathered of one request while it is answered, and told at each stage.

use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, User};
use mizzen_value::time::Moment;
use mizzen_value::{Str, Value, value};
use tokio::time::Instant;

use super::event::{AuditEvent, ObjectReference, ResponseStatus, StagedEvent};
use super::latency::{Latencies, Layer};
use super::policy::{AuditLevel, AuditStage, PolicyDecision};
use super::{Audit, capture, source};
use crate::answer::{Answer, Body};
use crate::authorization::request::request_attributes;
use crate::authorization::{Attributes, Target};
use crate::request::Request;
use crate::types::Types;

/// What is remembered of a request, if anything is. Cheap to clone: whoever works for the request holds it.
#[derive(Clone, Default)]
pub struct AuditRecord(Option<Arc<OpenRecord>>);

struct OpenRecord {
    audit: Arc<Audit>,
    verdict: PolicyDecision,
    course: RecordStages,
    state: Mutex<RecordState>,
}

struct RecordState {
    event: AuditEvent,
    latencies: Latencies,
    /// Whether the last event was told.
    over: bool,
}

/// Which stages a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordStages {
    /// It comes, and is answered.
    Ordinary,
    /// The beginning of its answer is told of, too.
    Long,
    /// We do not know whose it is. Kubernetes: only that it was answered is told (endpoints/filters/audit.go).
    Unknown,
}

impl AuditRecord {
    /// What the policy wants to be remembered of a request that came at `started`.
    pub(crate) fn new(
        audit: &Arc<Audit>,
        request: &Request,
        known: bool,
        started: Instant,
    ) -> AuditRecord {
        let Some(policy) = &audit.policy else {
            return AuditRecord(None);
        };
        let attributes = request_attributes(request);
        let verdict = policy.evaluate(&attributes, known);
        audit.counters.record_level(verdict.level);
        if verdict.level == AuditLevel::None {
            return AuditRecord(None);
        }
        let course = match known {
            false => RecordStages::Unknown,
            true if attributes.is_long_running() => RecordStages::Long,
            true => RecordStages::Ordinary,
        };
        let mut latencies = Latencies::default();
        latencies.add(Layer::Authentication, started.elapsed());
        let received = earlier(audit.registry.moment(), started.elapsed());
        let event = new_event(request, &attributes, verdict.level, known, received);
        let state = Mutex::new(RecordState {
            event,
            latencies,
            over: false,
        });
        AuditRecord(Some(Arc::new(OpenRecord {
            audit: audit.clone(),
            verdict,
            course,
            state,
        })))
    }

    /// Tells that the request has come; whether that was stored, or need not be.
    pub(crate) async fn record_received(&self) -> bool {
        match self
            .open()
            .filter(|open| open.course != RecordStages::Unknown)
        {
            Some(open) => open.emit(AuditStage::RequestReceived).await,
            None => true,
        }
    }

    /// Whether anything is remembered.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Nothing more is told of the request.
    pub(crate) fn discard(&self) {
        self.update(|state| state.over = true);
    }

    /// Notes something that was found out on the way. What was noted first stays.
pub fn annotate(&self, key:&str, text:impl Into<String>) { self.annotate_at_level(AuditLevel::Metadata, key, text);
    }

    /// The same, for those who remember at least so much.
    pub(crate) fn annotate_at_level(&self, level: AuditLevel, key: &str, text: impl Into<String>) {
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

    /// Notes how long a part of the way took.
    pub(crate) fn add_latency_since(&self, layer: Layer, since: Instant) {
        self.update(|state| state.latencies.add(layer, since.elapsed()));
    }

    /// The same, where that is known.
    pub(crate) fn add_latency(&self, layer: Layer, took: Duration) {
        self.update(|state| state.latencies.add(layer, took));
    }

    /// Lets an answer be written, and notes how long that took.
    pub(crate) fn time_serialization<T>(&self, write: impl FnOnce() -> T) -> T {
        if !self.is_open() {
            return write();
        }
        let started = Instant::now();
        let written = write();
        self.add_latency_since(Layer::Serialization, started);
        written
    }

    /// Notes as whom the user acts, and what allows it.
    pub(crate) fn set_impersonated_user(&self, user: &User, constraint: &str) {
        self.update(|state| {
            state.event.impersonated = Some(user.clone());
            state.event.constraint = constraint.into();
        });
    }

    /// Notes the object that was sent.
    pub(crate) fn set_request_object(
        &self,
        kind: &GroupVersionKind,
        root: &Struct,
        object: &Value,
    ) {
        let Some(open) = self.open() else { return };
        let text = self
            .has_level(AuditLevel::Request)
            .then(|| capture::request_object(kind, root, object, open.verdict));
        self.update(|state| {
            state
                .event
                .object
                .get_or_insert_default()
                .fill_from_metadata(&object["metadata"]);
            state.event.request = text;
        });
    }

    /// Notes the patch that was sent.
    pub(crate) fn set_request_patch(&self, patch: &Bytes) {
        if self.has_level(AuditLevel::Request) {
            let text = capture::patch(patch);
            self.update(|state| state.event.request = text);
        }
    }

    /// Whether the object that is sent back is remembered.
    pub(crate) fn wants_response(&self) -> bool {
        self.has_level(AuditLevel::RequestResponse)
    }

    /// Notes the answer, and tells what can be told of it: all, unless the answer goes on.
    pub(crate) async fn record_response(&self, types: &Types, mut answer: Answer) -> Answer {
        let Some(open) = self.open() else {
            return answer;
        };
        let outcome = ResponseStatus {
            code: answer.status().as_u16(),
            status: capture::response_status(types, &answer),
        };
        let response = self
            .wants_response()
            .then(|| capture::response_object(&mut answer, open.verdict))
            .flatten();
        self.update(|state| {
            state.event.outcome = Some(outcome);
            state.event.response = response;
        });
        if open.course != RecordStages::Ordinary {
            open.emit(AuditStage::ResponseStarted).await;
        }
        match open.course {
            RecordStages::Unknown => self.discard(),
            _ if answer.body().is_stream() => {
                return answer.map(|body| Body::held(body, self.clone()));
            }
            // What follows another protocol is over when those who speak it say so.
            _ if answer.status() == 101 => {}
            _ => open.complete().await,
        }
        answer
    }

    /// Lets work be done. If it panics, that is told, and goes on.
    pub(crate) async fn record_panics<T>(&self, work: impl Future<Output = T>) -> T {
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
        self.open().is_some_and(|open| open.verdict.level >= level)
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
        // Kubernetes: nobody answered, and that is called a success (endpoints/filters/audit.go).
        state.event.outcome.get_or_insert_with(|| ResponseStatus {
            code: 200,
            status: value!({ "status": "Success", "message": "Connection closed early" }),
        });
        // Kubernetes: a watch takes as long as its client likes (endpoints/filters/webhook_duration.go).
        let total = if state.event.verb == "watch" {
            Duration::ZERO
        } else {
            between(state.event.received, now)
        };
        let said = state.latencies.annotations(total);
        for (key, text) in said {
            state.event.annotations.entry(key.into()).or_insert(text);
        }
    }

    /// Tells what is known by now; whether all who must have stored it have.
    async fn emit(&self, stage: AuditStage) -> bool {
        let mut stored = true;
        for (sink, text) in self.audit.sinks.iter().zip(self.serialize_for_sinks(stage)) {
            if let Some(text) = text {
                stored &= sink.deliver(text).await;
            }
        }
        stored
    }

    /// The same for those who cannot wait.
    fn emit_in_background(&self, stage: AuditStage) {
        for (sink, text) in self.audit.sinks.iter().zip(self.serialize_for_sinks(stage)) {
            if let Some(text) = text {
                sink.deliver_in_background(text);
            }
        }
    }

    /// What each sink is told; nothing if the policy does not want to hear of the stage.
    fn serialize_for_sinks(&self, stage: AuditStage) -> Vec<Option<Bytes>> {
        if self.verdict.omitted.has(stage) {
            return Vec::new();
        }
        let state = self.state();
        let at = match stage {
            AuditStage::RequestReceived => state.event.received,
            _ => self.audit.registry.moment(),
        };
        self.audit.counters.record_event();
        let told = StagedEvent {
            event: &state.event,
            stage,
            at,
            truncated: false,
        };
        self.audit
            .sinks
            .iter()
            .map(|sink| sink.serialize(told))
            .collect()
    }
}

/// Nobody works for the request any more.
impl Drop for OpenRecord {
    fn drop(&mut self) {
        let over = self.state().over;
        if !over {
            let unanswered = self.state().event.outcome.is_none();
            self.finish_event();
            if unanswered && self.course == RecordStages::Long {
                self.emit_in_background(AuditStage::ResponseStarted);
            }
            self.emit_in_background(AuditStage::ResponseComplete);
        }
    }
}

fn new_event(
    request: &Request,
    attributes: &Attributes,
    level: AuditLevel,
    known: bool,
    received: Moment,
) -> AuditEvent {
    let object = match attributes.target {
        Target::Page(_) => None,
        Target::Resource(resource) => Some(ObjectReference {
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
        id: (&*request.header("audit-id")).into(),
        uri: request
            .uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .into(),
        verb: attributes.verb.into(),
        user: known.then(|| request.user.clone()),
        impersonated: None,
        constraint: String::new(),
        sources: source::source_addresses(&request.headers, request.address),
        agent: source::user_agent(&request.headers),
        object,
        outcome: None,
        request: None,
        response: None,
        received,
        annotations: Default::default(),
    }
}

impl ObjectReference {
    /// Fills in what the path does not say and the object does.
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

fn earlier(moment: Moment, by: Duration) -> Moment {
    let nanos = nanos(moment) - i128::try_from(by.as_nanos()).unwrap_or_default();
    let seconds = i64::try_from(nanos.div_euclid(SECOND)).unwrap_or_default();
    Moment {
        seconds,
        nanos: u32::try_from(nanos.rem_euclid(SECOND)).unwrap_or_default(),
    }
}

fn between(from: Moment, to: Moment) -> Duration {
    Duration::from_nanos(u64::try_from(nanos(to) - nanos(from)).unwrap_or_default())
}
