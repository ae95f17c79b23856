//! PersistentVolumeClaims: a node may update the capacity and the resize state in the status.

use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::NodeRequest;

/// Fields that a node may change, or that change with every write.
const FREE: [&str; 6] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "status.allocatedResources",
    "status.allocatedResourceStatuses",
    "status.capacity",
    "status.conditions",
];

/// Checks an update of the status of a claim by a node.
pub(super) fn check_status(request: &NodeRequest) -> Result<(), Status> {
    let (Some(new), Some(old)) = (request.new, request.attributes.old) else {
        return request.reject_operation();
    };
    let mut changed = Vec::new();
    for part in ["metadata", "spec", "status"] {
        differences(part, &old[part], &new[part], &mut changed);
    }
    if changed.is_empty() {
        return Ok(());
    }
    // Kubernetes shows a diff of its Go structs; here the names of the fields.
    request.reject(format!(
        "node {} is not allowed to update fields other than status.quantity and status.conditions: {}",
        quote(request.node()),
        changed.join(", ")
    ))
}

/// The paths below `path` that differ.
fn differences(path: &str, old: &Value, new: &Value, changed: &mut Vec<String>) {
    if old == new || FREE.contains(&path) || old.is_empty() && new.is_empty() {
        return;
    }
    let (Some(left), Some(right)) = (old.as_map(), new.as_map()) else {
        return changed.push(path.into());
    };
    let added = right.keys().filter(|key| !left.contains_key(key));
    for key in left.keys().chain(added) {
        differences(
            &format!("{path}.{key}"),
            &old[key.as_str()],
            &new[key.as_str()],
            changed,
        );
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        let [old, new] = [old, new].map(|text| json::parse(text.as_bytes()).unwrap());
        let mut changed = Vec::new();
        differences("status", &old, &new, &mut changed);
        assert_eq!(changed, expected);
    }

    #[test]
    fn only_what_is_not_free_counts() {
        check(
            r#"{"capacity":{"storage":"1"}}"#,
            r#"{"capacity":{"storage":"2"},"conditions":[{}]}"#,
            &[],
        );
        check(
            r#"{"phase":"Bound"}"#,
            r#"{"phase":"Lost","x":{}}"#,
            &["status.phase"],
        );
        check(
            r#"{"a":{"b":"1","c":"2"}}"#,
            r#"{"a":{"b":"2"}}"#,
            &["status.a.b", "status.a.c"],
        );
    }
}
