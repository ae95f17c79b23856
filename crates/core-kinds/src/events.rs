//! events.k8s.io: Events.
//!
//! An event is stored as the core group's Event, which has the same fields under older names. Preparing and
//! validating see that form.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::{Str, Value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

/// The behaviour of a kind of events.k8s.io.
pub fn behaviour(version: &str, kind: &str) -> Behaviour {
    let event = Behaviour::of::<EventsEventStrategy>();

    /// The strategy of EventsEvent.
    pub(super) struct EventsEventStrategy;

    impl KindStrategy for EventsEventStrategy {
        fn validate(
            event: &Value,
            old: Option<&Value>,
            _: &HookContext,
            violations: &mut Violations,
        ) {
            validate(event, old, violations)
        }

        /// Finds a field under either name, because an event may come in either form.
        fn selectable(event: &Value, name: &str) -> Option<Str> {
            let (head, tail) = name.split_once('.').unwrap_or((name, ""));
            let (_, stored) = NAMES.into_iter().find(|(name, _)| *name == head)?;
            let value = event.get(stored).or_else(|| event.get(head))?;
            let value = if tail.is_empty() { value } else { &value[tail] };
            Some(value.str().into())
        }

        fn to_stored(event: &mut Value) {
            for (name, stored) in NAMES {
                rename(event, name, stored);
            }
        }

        fn from_stored(event: &mut Value) {
            for (name, stored) in NAMES {
                rename(event, stored, name);
            }
        }
    }

    match (version, kind) {
        ("v1beta1", "Event") => Behaviour {
            validate: |event, _old, _context, violations| {
                // Kubernetes: v1beta1 asks for no more than the core group does.
                validate_any(event, "reportingController", violations);
            },
            ..event
        },
        (_, "Event") => event,
        _ => Behaviour::NONE,
    }
}

/// What a field is called here, and where it is stored.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(value) = event.remove(from) {
        event.set(to, value);
    }
}

fn validate(event: &Value, old: Option<&Value>, violations: &mut Violations) {
    validate_any(event, "reportingController", violations);
    match old {
        Some(old) => {
            if event["series"] != old["series"] {
                validate_series(&event["series"], violations);
            }
            let mut immutable = |name: &str, shown: fn(&Value) -> Value| {
                let path = if name == "reportingComponent" {
                    "reportingController"
                } else {
                    name
                };
                field::immutable(
                    &shown(&event[name]),
                    &shown(&old[name]),
                    &Path::new(path),
                    violations,
                );
            };
            immutable("involvedObject", |value| {
                internal::shown("ObjectReference", value)
            });
            immutable("reason", text);
            immutable("message", text);
            immutable("source", |value| internal::shown("EventSource", value));
            immutable("firstTimestamp", Value::clone);
            immutable("lastTimestamp", Value::clone);
            immutable("count", |count| count.int().into());
            immutable("reason", text);
            immutable("type", text);
            immutable("eventTime", Value::clone);
            immutable("action", text);
            immutable("related", |value| {
                if value.is_null() {
                    Value::Null
                } else {
                    internal::shown("ObjectReference", value)
                }
            });
            immutable("reportingComponent", text);
            immutable("reportingInstance", text);
        }
        None => {
            validate_series(&event["series"], violations);
            if event["eventTime"].is_null() {
                violations.required("eventTime", "");
            }
            let event_type = event["type"].str();
            if !matches!(event_type, "Normal" | "Warning") {
                violations.invalid("type", "", &format!("has invalid value: {event_type}"));
            }
            for name in ["firstTimestamp", "lastTimestamp", "count", "source"] {
                if !event[name].is_empty() {
                    violations.invalid(name, "", "needs to be unset");
                }
            }
        }
    }
}

/// What holds for an event of any version. Newer events have a time of their own and must say more.
pub(crate) fn validate_any(event: &Value, controller: &str, violations: &mut Violations) {
    let namespace = event["metadata"]["namespace"].str();
    let about = event["involvedObject"]["namespace"].str();
    let is_old = event["eventTime"].is_null();
    let matches = match (is_old, about) {
        (true, "") => matches!(namespace, "" | "default"),
        (true, about) => about == namespace,
        (false, "") => matches!(namespace, "default" | "kube-system"),
        (false, _) => true,
    };
    if !matches {
        let path = Path::new("involvedObject");
        violations.invalid(
            path.child("namespace"),
            about,
            "does not match event.namespace",
        );
    }
    if !is_old {
        let reporter = event["reportingComponent"].str();
        if reporter.is_empty() {
            violations.required(controller, "");
        }
        rules::text(
            reporter,
            names::is_qualified_name,
            &Path::new(controller),
            violations,
        );
        for (name, limit) in [
            ("reportingInstance", 128),
            ("action", 128),
            ("reason", 128),
            ("message", 1024),
        ] {
            let text = event[name].str();
            if text.is_empty() && name != "message" {
                violations.required(name, "");
            }
            if text.len() > limit {
                violations.invalid(name, "", &format!("can have at most {limit} characters"));
            }
        }
    }
    rules::text(
        namespace,
        names::is_dns1123_subdomain,
        &Path::new("namespace"),
        violations,
    );
}

fn validate_series(series: &Value, violations: &mut Violations) {
    if series.is_null() {
        return;
    }
    if series["count"].int() < 2 {
        violations.invalid("series.count", "", "should be at least 2");
    }
    if series["lastObservedTime"].is_null() {
        violations.required("series.lastObservedTime", "");
    }
}

/// A text as it is shown: one that is not there is empty.
fn text(value: &Value) -> Value {
    value.str().into()
}
