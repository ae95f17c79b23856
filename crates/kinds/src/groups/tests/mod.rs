//! Runs one object of each kind through decoding, defaults, preparation and validation.

mod access;
mod extension;
mod hardware;
mod legacy;
mod load;
mod rules;
mod traffic;

use std::sync::LazyLock;

use expect_test::Expect;
use mizzen_object::schema::canonical;
use mizzen_object::{Action, HookContext, Kind, Violations, decode, default};
use mizzen_value::{Value, json};

use crate::{KindCatalog, legacy_catalog};

static CATALOG: LazyLock<KindCatalog> = LazyLock::new(legacy_catalog);

fn kind(api_version: &str, name: &str) -> &'static Kind {
    let found = CATALOG
        .kinds
        .iter()
        .find(|kind| kind.gvk.api_version() == api_version && kind.gvk.kind == name);
    found.unwrap_or_else(|| panic!("{api_version} has no {name}"))
}

/// The object in the form in which it is stored, with its defaults; what is wrong before it is turned into that.
fn stored(kind: &Kind, text: &str, violations: &mut Violations) -> Value {
    let mut object = decode::decode(&kind.root, text.as_bytes()).unwrap().value;
    default::apply(&kind.root, &mut object);
    kind.hooks.default(&mut object);
    kind.hooks.validate_unconverted(&object, violations);
    kind.hooks.to_stored(&mut object);
    object
}

fn canonical_stored(kind: &Kind, object: &mut Value) {
    let root = match &kind.stored {
        Some(gvk) => &self::kind(&gvk.api_version(), &gvk.kind).root,
        None => &kind.root,
    };
    canonical(root, object);
}

/// What becomes of an object: the violations, or the object as the client sees it, and the warnings.
fn run(action: Action, kind: &Kind, new: &str, old: Option<&str>) -> String {
    let old = old.map(|old| stored(kind, old, &mut Violations::default()));
    let mut violations = Violations::default();
    let mut new = stored(kind, new, &mut violations);
    let context = HookContext {
        action,
        now: "2024-01-01T00:00:00Z",
        user: "jane",
        groups: &[],
        uid: "",
        extra: &Value::Null,
    };
    kind.hooks.prepare(&mut new, old.as_ref(), &context);
    canonical_stored(kind, &mut new);

    kind.hooks
        .validate(&new, old.as_ref(), &context, &mut violations);
    if !violations.is_empty() {
        return violations
            .0
            .iter()
            .map(|violation| format!("{violation}\n"))
            .collect();
    }
    let warnings = kind.hooks.warnings(&new, old.as_ref(), &context);
    kind.hooks.from_stored(&mut new);
    canonical(&kind.root, &mut new);
    let object = json::to_string(&new);
    std::iter::once(object)
        .chain(warnings)
        .map(|line| format!("{line}\n"))
        .collect()
}

#[track_caller]
fn check(kind: &str, object: &str, expect: Expect) {
    let (api_version, name) = kind.split_once(' ').unwrap();
    expect.assert_eq(&run(
        Action::Create,
        self::kind(api_version, name),
        object,
        None,
    ));
}

#[track_caller]
fn check_update(kind: &str, new: &str, old: &str, expect: Expect) {
    let (api_version, name) = kind.split_once(' ').unwrap();
    expect.assert_eq(&run(
        Action::Update,
        self::kind(api_version, name),
        new,
        Some(old),
    ));
}

#[track_caller]
fn check_status(kind: &str, new: &str, old: &str, expect: Expect) {
    let (api_version, name) = kind.split_once(' ').unwrap();
    expect.assert_eq(&run(
        Action::Status,
        self::kind(api_version, name),
        new,
        Some(old),
    ));
}
