//! What is refused, and in which words? `refusals.cases` has answers of the real server.
//!
//! `create KIND OBJECT` makes an object; `old KIND OBJECT` gives one that `update PATCH` and `status PATCH` change
//! by a merge patch. The lines below, after a colon, are the causes in their order; `…` stands for the rest of one.

use mizzen_kinds::catalog;
use mizzen_object::{Action, HookContext, Kind, Violations, decode, default, schema};
use mizzen_value::{Value, json};

#[test]
fn what_upstream_refuses_is_refused_in_its_words() {
    let kinds = catalog().kinds;
    let find = |name: &str| {
        kinds
            .iter()
            .find(|kind| kind.gvk.kind == name)
            .expect("a kind that exists")
    };
    let mut old: Option<(&Kind, Value)> = None;
    for case in include_str!("refusals.cases").split("\n\n") {
        let mut lines = case.lines().filter(|line| !line.starts_with('#'));
        let Some((verb, rest)) = lines.next().and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let found = match (verb, &old) {
            ("old", _) => {
                let (kind, object) = named(rest);
                old = Some((find(kind), read(find(kind), &object)));
                continue;
            }
            ("create", _) => {
                let (kind, object) = named(rest);
                refuse(find(kind), object, None, Action::Create)
            }
            (verb, Some((kind, old))) => {
                let action = if verb == "status" {
                    Action::Status
                } else {
                    Action::Update
                };
                refuse(kind, merge(old, &parse(rest)), Some(old), action)
            }
            _ => panic!("nothing to change: {case}"),
        };
        let expected: Vec<&str> = lines.map(|line| line.trim_start_matches(": ")).collect();
        let agrees = expected.len() == found.len()
            && expected.iter().zip(&found).all(|(a, b)| is_like(a, b));
        assert!(
            agrees,
            "{verb} {rest}\nexpected {expected:#?}\nfound {found:#?}"
        );
    }
}

fn is_like(expected: &str, found: &str) -> bool {
    expected
        .strip_suffix('…')
        .map_or(expected == found, |start| found.starts_with(start))
}

fn named(text: &str) -> (&str, Value) {
    let (kind, object) = text.split_once(' ').expect("a kind and an object");
    (kind, parse(object))
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("sound JSON")
}

/// An object as the server has it after reading.
fn read(kind: &Kind, object: &Value) -> Value {
    let mut object = decode::decode(&kind.root, json::to_string(object).as_bytes())
        .expect("a sound object")
        .value;
    default::apply(&kind.root, &mut object);
    kind.hooks.default(&mut object);
    schema::canonical(&kind.root, &mut object);
    object
}

fn refuse(kind: &Kind, object: Value, old: Option<&Value>, action: Action) -> Vec<String> {
    let context = HookContext {
        action,
        now: "2026-01-01T00:00:00Z",
        user: "admin",
        groups: &[],
        uid: "",
        extra: &Value::Null,
    };
    let mut new = read(kind, &object);
    identify(kind, &mut new);
    let old = old.map(|old| {
        let mut old = old.clone();
        identify(kind, &mut old);
        new.entry("metadata").set_default("resourceVersion", "1");
        old
    });
    kind.hooks.prepare(&mut new, old.as_ref(), &context);
    schema::canonical(&kind.root, &mut new);
    let mut violations = Violations::default();
    kind.hooks
        .validate(&new, old.as_ref(), &context, &mut violations);
    let show = |text: String| text.replace('\\', "\\\\").replace('\n', "\\n");
    violations
        .0
        .iter()
        .map(|violation| show(format!("{} {violation}", violation.reason.word())))
        .collect()
}

/// What the server knows of an object, whatever its client says.
fn identify(kind: &Kind, object: &mut Value) {
    let metadata = object.entry("metadata");
    metadata.set_default("name", "x");
    metadata.set_default("uid", "u");
    if kind.is_namespaced() {
        metadata.set_default("namespace", "default");
    }
}

fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Map(members) = patch else {
        return patch.clone();
    };
    let mut merged = if let Value::Map(_) = target {
        target.clone()
    } else {
        Value::object()
    };
    for (name, value) in members.iter() {
        match value {
            Value::Null => drop(merged.remove(name)),
            value => merged.set(name, merge(&target[name], value)),
        }
    }
    merged
}
