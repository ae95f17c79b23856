//! An object from a manifest, without a server: decoded, defaulted and validated, as a create would
//! do it. Static pods of a node come this way.

use mizzen_object::decode::decode;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::validate::meta;
use mizzen_object::{Action, NameRule, Path, User, Violations, default};
use mizzen_value::{Value, json};

use crate::catalog;

/// Completes an object of a kind with defaults, and validates it. The error names all violations.
///
/// ```
/// use mizzen_kinds::complete;
/// use mizzen_value::value;
///
/// let pod = value!({
///     "metadata": { "name": "web", "namespace": "default" },
///     "spec": { "containers": [{ "name": "web", "image": "web" }] },
/// });
/// let complete = complete("", "Pod", &pod).unwrap();
/// assert_eq!(complete["spec"]["restartPolicy"].str(), "Always");
/// assert!(mizzen_kinds::complete("", "Pod", &value!({ "metadata": {} })).is_err());
/// ```
pub fn complete(group: &str, kind: &str, object: &Value) -> Result<Value, String> {
    let catalog = catalog();
    let mut kinds = catalog.kinds.iter();
    let kind = kinds
        .find(|it| it.gvk.group == group && it.gvk.kind == kind)
        .ok_or_else(|| format!("no kind {kind:?} in group {group:?}"))?;
    let decoded = decode(&kind.root, json::to_string(object).as_bytes());
    let mut value = decoded.map_err(|error| error.to_string())?.value;
    kind.hooks.normalize(&mut value)?;
    default::apply(&kind.root, &mut value);
    kind.hooks.default(&mut value);
    let mut object = CanonicalObject::from(value);
    object.restore(&kind.root);
    let object = object.into_value();

    let mut violations = Violations::default();
    let user = User::default();
    // No rule of a kind that a manifest may have depends on the time.
    let context = user.context(Action::Create, "1970-01-01T00:00:00Z");
    let namespaced = kind.is_namespaced();
    meta::native_object_meta(
        &object["metadata"],
        namespaced,
        kind.rules.name,
        &mut violations,
    );
    kind.hooks
        .validate(&object, None, &context, &mut violations);
    if violations.is_empty() {
        let (rule, path) = (NameRule::PathSegment, Path::new("metadata"));
        meta::object_meta(
            &object["metadata"],
            namespaced,
            rule,
            &path,
            &mut violations,
        );
    }
    match violations.aggregate() {
        None => Ok(object),
        Some(problems) => Err(problems),
    }
}
