//! Events of the core group.

use mizzen_object::{HookContext, Violations};
use mizzen_value::{Str, Value};

use crate::Behaviour;
use crate::events::validate_any;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<EventStrategy>();

pub(super) struct EventStrategy;

impl KindStrategy for EventStrategy {
    fn validate(event: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_any(event, "reportingComponent", violations);
    }

    /// The `source` field selector falls back to `reportingComponent`.
    fn selectable(event: &Value, field: &str) -> Option<Str> {
        (field == "source").then(|| match event["source"]["component"].str() {
            "" => event["reportingComponent"].str().into(),
            component => component.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{check, parse};
    use super::*;

    #[test]
    fn an_event_is_where_its_object_is() {
        let about = |namespace: &str| {
            format!(
                r#"{{"metadata":{{"namespace":"a"}},"involvedObject":{{"namespace":"{namespace}"}}}}"#
            )
        };
        check(BEHAVIOUR).create(&about("a")).refused(&[]);
        check(BEHAVIOUR).create(&about("b")).refused(&[
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace",
        ]);
    }

    #[test]
    fn an_event_with_a_time_of_its_own_says_more() {
        let event = r#"{"metadata":{"namespace":"a"},"involvedObject":{"namespace":"a"},
            "eventTime":"2024-01-01T00:00:00.000000Z","reason":"r"}"#;
        check(BEHAVIOUR).create(event).refused(&[
            "reportingComponent: Required value",
            "reportingComponent: Invalid value: \"\": name part must be non-empty",
            "reportingComponent: Invalid value: \"\": name part must consist",
            "reportingInstance: Required value",
            "action: Required value",
        ]);
    }

    #[test]
    fn the_reporter_is_the_source() {
        let source = |event: &str| EventStrategy::selectable(&parse(event), "source").unwrap();
        assert_eq!(
            source(r#"{"source":{"component":"a"},"reportingComponent":"b"}"#),
            "a"
        );
        assert_eq!(source(r#"{"source":{},"reportingComponent":"b"}"#), "b");
    }
}
