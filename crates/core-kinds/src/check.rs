//! Test support: runs one object through a kind's hooks.

use mizzen_object::{Action, HookContext, Violations};
use mizzen_value::{Value, json};

use crate::Behaviour;

/// An object that has been through the hooks, and what they said.
pub(super) struct Check {
    behaviour: Behaviour,
    object: Value,
    old: Option<Value>,
    action: Action,
}

pub(super) fn check(behaviour: Behaviour) -> Check {
    Check {
        behaviour,
        object: Value::Null,
        old: None,
        action: Action::Create,
    }
}

pub(super) fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Check {
    pub(super) fn create(self, object: &str) -> Check {
        self.run(Action::Create, object, None)
    }

    pub(super) fn update(self, object: &str, old: &str) -> Check {
        self.run(Action::Update, object, Some(old))
    }

    pub(super) fn status(self, object: &str, old: &str) -> Check {
        self.run(Action::Status, object, Some(old))
    }

    fn run(mut self, action: Action, object: &str, old: Option<&str>) -> Check {
        self.action = action;
        self.object = parse(object);
        self.old = old.map(parse);
        (self.behaviour.default)(&mut self.object);
        if let Some(old) = &mut self.old {
            (self.behaviour.default)(old);
        }
        let context = context(action);
        (self.behaviour.prepare)(&mut self.object, self.old.as_ref(), &context);
        self
    }

    /// The object as it would be stored.
    #[track_caller]
    pub(super) fn becomes(self, expected: &str) -> Check {
        assert_eq!(
            json::to_string(&self.object),
            json::to_string(&parse(expected))
        );
        self
    }

    /// One field of it.
    #[track_caller]
    pub(super) fn has(self, path: &str, expected: &str) -> Check {
        assert_eq!(
            json::to_string(self.object.at(path)),
            json::to_string(&parse(expected))
        );
        self
    }

    /// The start of each violation, in order; none if it is accepted.
    #[track_caller]
    pub(super) fn refused(self, expected: &[&str]) -> Check {
        let mut violations = Violations::default();
        (self.behaviour.validate)(
            &self.object,
            self.old.as_ref(),
            &context(self.action),
            &mut violations,
        );
        let found: Vec<String> = violations.0.iter().map(ToString::to_string).collect();
        let matches = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| a.starts_with(b));
        assert!(matches, "{found:#?}");
        self
    }

    /// The warnings, in order.
    #[track_caller]
    pub(super) fn warns(self, expected: &[&str]) -> Check {
        let found =
            (self.behaviour.warnings)(&self.object, self.old.as_ref(), &context(self.action));
        assert_eq!(found, expected);
        self
    }
}

fn context(action: Action) -> HookContext<'static> {
    HookContext {
        action,
        now: "2026-01-01T00:00:00Z",
        user: "tester",
        groups: &[],
        uid: "",
        extra: &Value::Null,
    }
}
