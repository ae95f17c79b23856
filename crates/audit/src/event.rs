//! Audit events and their formats: JSON, or one legacy line.
//!
//! Invariant: the text is written field by field, in Go's order; no intermediate value is built.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::Bound;

use bytes::Bytes;
use mizzen_object::User;
use mizzen_value::time::Moment;
use mizzen_value::{Str, Value, json};

use super::policy::{AuditLevel, AuditStage};

/// The event of a request as of now.
#[derive(Debug)]
pub(super) struct AuditEvent {
    pub level: AuditLevel,
    pub id: String,
    pub uri: String,
    pub verb: String,
    /// None if the request is not authenticated.
    pub user: Option<User>,
    pub impersonated: Option<User>,
    /// The constraint of the impersonation, if it was constrained.
    pub constraint: String,
    pub sources: Vec<IpAddr>,
    pub agent: String,
    pub object: Option<ObjectReference>,
    pub outcome: Option<ResponseStatus>,
    /// The request object, as JSON.
    pub request: Option<Bytes>,
    /// The response object, as JSON.
    pub response: Option<Bytes>,
    pub received: Moment,
    pub annotations: BTreeMap<Str, String>,
}

/// The object of a request.
#[derive(Debug, Default)]
pub(super) struct ObjectReference {
    pub resource: Str,
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub group: Str,
    pub version: Str,
    pub resource_version: Str,
    pub subresource: Str,
}

/// The result of a request.
#[derive(Debug, Default)]
pub(super) struct ResponseStatus {
    pub code: u16,
    /// The Status that was sent, `null` for another object.
    pub status: Value,
}

/// An event at a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagedEvent<'a> {
    pub event: &'a AuditEvent,
    pub stage: AuditStage,
    pub at: Moment,
    /// Whether objects are left out because the event is too large.
    pub truncated: bool,
}

impl StagedEvent<'_> {
    /// The JSON of the event. In a list it is not `named`: it has no `kind` and `apiVersion`.
    pub(super) fn json(&self, named: bool) -> Vec<u8> {
        let mut writer = EventWriter {
            out: Vec::with_capacity(1024),
            first: true,
        };
        writer.open();
        if named {
            writer.text("kind", "Event");
            writer.text("apiVersion", "audit.k8s.io/v1");
        }
        self.write(&mut writer);
        writer.close();
        writer.out
    }

    fn write(&self, writer: &mut EventWriter) {
        let AuditEvent {
            level,
            id,
            uri,
            verb,
            user,
            impersonated,
            agent,
            object,
            outcome,
            ..
        } = self.event;
        writer.text("level", level.name());
        writer.text("auditID", id);
        writer.text("stage", self.stage.name());
        writer.text("requestURI", uri);
        writer.text("verb", verb);
        writer.key("user");
        writer.user(user.as_ref());
        if let Some(user) = impersonated {
            writer.key("impersonatedUser");
            writer.user(Some(user));
        }
        self.write_constraint(writer);
        self.write_sources(writer);
        writer.text_unless_empty("userAgent", agent);
        if let Some(object) = object {
            writer.key("objectRef");
            writer.object(object);
        }
        if let Some(outcome) = outcome {
            writer.key("responseStatus");
            writer.response_status(outcome);
        }
        self.write_rest(writer);
    }

    fn write_constraint(&self, writer: &mut EventWriter) {
        if !self.event.constraint.is_empty() {
            writer.key("authenticationMetadata");
            writer.open();
            writer.text("impersonationConstraint", &self.event.constraint);
            writer.close();
        }
    }

    fn write_sources(&self, writer: &mut EventWriter) {
        let sources = self.event.sources.iter().map(ToString::to_string);
        writer.texts("sourceIPs", sources);
    }

    fn write_rest(&self, writer: &mut EventWriter) {
        let AuditEvent {
            request,
            response,
            received,
            ..
        } = self.event;
        for (field, object) in [("requestObject", request), ("responseObject", response)] {
            if let Some(object) = object.as_ref().filter(|_| !self.truncated) {
                writer.key(field);
                writer.out.extend_from_slice(object);
            }
        }
        writer.text("requestReceivedTimestamp", &received.to_micro_string());
        writer.text("stageTimestamp", &self.at.to_micro_string());
        self.write_annotations(writer);
    }

    /// Sorted by key, as Go writes a map.
    fn write_annotations(&self, writer: &mut EventWriter) {
        let annotations = &self.event.annotations;
        if annotations.is_empty() && !self.truncated {
            return;
        }
        writer.key("annotations");
        writer.open();
        let (before, after) = (Bound::Excluded(TRUNCATED), Bound::Included(TRUNCATED));
        let write = |bounds: (Bound<&str>, Bound<&str>), writer: &mut EventWriter| {
            annotations
                .range::<str, _>(bounds)
                .for_each(|(key, text)| writer.text(key, text));
        };
        write((Bound::Unbounded, before), writer);
        if self.truncated {
            writer.text(TRUNCATED, "true");
        }
        write((after, Bound::Unbounded), writer);
        writer.close();
    }

    /// The legacy format: one line with some fields.
    pub(super) fn legacy_line(&self) -> String {
        const NONE: &str = "<none>";
        let AuditEvent {
            id,
            uri,
            verb,
            user,
            impersonated,
            sources,
            agent,
            object,
            outcome,
            received,
            ..
        } = self.event;
        let user = user.as_ref().filter(|user| !user.name.is_empty());
        let name = user.map_or(NONE, |user| user.name.as_str());
        let groups = user
            .filter(|user| !user.groups.is_empty())
            .map_or(NONE.into(), quoted_groups);
        let other = impersonated.as_ref();
        let (as_user, as_groups) = other.map_or(("<self>", "<lookup>".into()), |user| {
            (user.name.as_str(), quoted_groups(user))
        });
        let namespace = object
            .as_ref()
            .map(|object| object.namespace.as_str())
            .filter(|name| !name.is_empty());
        let response = outcome
            .as_ref()
            .map_or("<deferred>".into(), |outcome| outcome.code.to_string());
        let address = sources
            .first()
            .map_or("<unknown>".into(), ToString::to_string);
        let said = [
            ("id", id.as_str()),
            ("stage", self.stage.name()),
            ("ip", &address),
            ("method", verb),
            ("user", name),
            ("groups", &groups),
            ("as", as_user),
            ("asgroups", &as_groups),
            ("user-agent", agent),
            ("namespace", namespace.unwrap_or(NONE)),
            ("uri", uri),
        ];
        let decimals = format!("{:09}", received.nanos);
        let whole = Moment {
            nanos: 0,
            ..*received
        };
        let time = match decimals.trim_end_matches('0') {
            "" => whole.to_string(),
            decimals => format!("{}.{decimals}Z", whole.to_string().trim_end_matches('Z')),
        };
        let mut line = format!("{time} AUDIT:");
        for (name, text) in said {
            let _ = write!(line, " {name}={}", json::quote(text));
        }
        let _ = write!(line, " response=\"{response}\"");
        line
    }
}

/// Kubernetes: the annotation of truncated events (plugin/pkg/audit/truncate/truncate.go).
const TRUNCATED: &str = "audit.k8s.io/truncated";

fn quoted_groups(user: &User) -> String {
    user.groups
        .iter()
        .map(|group| json::quote(group))
        .collect::<Vec<_>>()
        .join(",")
}
/// Writes the members of JSON objects.
struct EventWriter {
    out: Vec<u8>,
    first: bool,
}

impl EventWriter {
    fn open(&mut self) {
        self.out.push(b'{');
        self.first = true;
    }

    fn close(&mut self) {
        self.out.push(b'}');
        self.first = false;
    }

    fn key(&mut self, name: &str) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        json::write_string(name, &mut self.out);
        self.out.push(b':');
    }

    fn text(&mut self, name: &str, text: &str) {
        self.key(name);
        json::write_string(text, &mut self.out);
    }

    fn text_unless_empty(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    /// A list of strings, unless it is empty.
    fn texts(&mut self, name: &str, texts: impl Iterator<Item = impl AsRef<str>>) {
        let mut texts = texts.peekable();
        if texts.peek().is_none() {
            return;
        }
        self.key(name);
        self.out.push(b'[');
        while let Some(text) = texts.next() {
            json::write_string(text.as_ref(), &mut self.out);
            self.out
                .push(if texts.peek().is_some() { b',' } else { b']' });
        }
    }

    fn value(&mut self, name: &str, value: &Value) {
        self.key(name);
        json::write(value, &mut self.out);
    }

    fn user(&mut self, user: Option<&User>) {
        self.open();
        if let Some(User {
            name,
            uid,
            groups,
            extra,
        }) = user
        {
            self.text_unless_empty("username", name);
            self.text_unless_empty("uid", uid);
            self.texts("groups", groups.iter());
            if !extra.is_empty() {
                let mut extra = extra.clone();
                extra.make_map().sort();
                self.value("extra", &extra);
            }
        }
        self.close();
    }

    fn object(&mut self, object: &ObjectReference) {
        let ObjectReference {
            resource,
            namespace,
            name,
            uid,
            group,
            version,
            resource_version,
            subresource,
        } = object;
        self.open();
        self.text_unless_empty("resource", resource);
        self.text_unless_empty("namespace", namespace);
        self.text_unless_empty("name", name);
        self.text_unless_empty("uid", uid);
        self.text_unless_empty("apiGroup", group);
        self.text_unless_empty("apiVersion", version);
        self.text_unless_empty("resourceVersion", resource_version);
        self.text_unless_empty("subresource", subresource);
        self.close();
    }

    fn response_status(&mut self, ResponseStatus { code, status }: &ResponseStatus) {
        self.open();
        self.value("metadata", &Value::object());
        for field in ["status", "message", "reason", "details"] {
            if let Some(value) = status.get(field) {
                self.value(field, value);
            }
        }
        self.value("code", &Value::from(i64::from(*code)));
        self.close();
    }
}
