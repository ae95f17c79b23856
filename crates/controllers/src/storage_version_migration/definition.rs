//! The status of a CustomResourceDefinition during and after a migration.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};
use mizzen_workloads::common::pod::condition;

const MIGRATING: &str = "StorageMigrating";

/// The patch at the start of a migration.
pub(super) fn migration_started(definition: &Object, migration: &str, now: &str) -> Value {
    let message = format!("Migration {migration} is running");
    status_patch(
        definition,
        value!({ "status": "True", "reason": "MigrationRunning", "message": message }),
        now,
    )
}

/// The patch at the end of a migration.
///
/// Kubernetes: storedVersions is updated after a failed migration too.
pub(super) fn migration_ended(definition: &Object, succeeded: bool, now: &str) -> Value {
    // If the definition changed since the start, objects may be stored in another version.
    let generation = definition["metadata"]["generation"].int();
    let is_same = condition(definition, MIGRATING)
        .is_some_and(|known| known["observedGeneration"].int() == generation);
    let (reason, message) = match (succeeded, is_same) {
        (true, true) => (
            "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated",
        ),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let mut change = status_patch(
        definition,
        value!({ "status": "False", "reason": reason, "message": message }),
        now,
    );
    let mut versions = definition["spec"]["versions"].list().iter();
    if let Some(version) = versions.find(|version| is_same && version["storage"].bool()) {
        let version = version["name"].str();
        change
            .entry("status")
            .set("storedVersions", value!([version]));
    }
    change
}

/// A status patch with the resourceVersion as a precondition.
fn status_patch(definition: &Object, mut condition: Value, now: &str) -> Value {
    condition.set("type", MIGRATING);
    condition.set("lastTransitionTime", now);
    condition.set(
        "observedGeneration",
        definition["metadata"]["generation"].int(),
    );
    let mut conditions = definition["status"]["conditions"].list().to_vec();
    match conditions
        .iter_mut()
        .find(|known| known["type"].str() == MIGRATING)
    {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    value!({
        "metadata": { "resourceVersion": (definition.version()) },
        "status": { "conditions": (Value::List(conditions)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn definition(observed: i64) -> Object {
        Object(value!({
            "metadata": { "generation": 3, "resourceVersion": "7" },
            "spec": { "versions": [{ "name": "v1" }, { "name": "v2", "storage": true }] },
            "status": { "storedVersions": ["v1", "v2"], "conditions": [
                { "type": "Established", "status": "True" },
                { "type": "StorageMigrating", "status": "True", "observedGeneration": observed }
            ] }
        }))
    }

    /// The patch without its constant parts.
    #[track_caller]
    fn check(change: &Value, condition: &str, stored: Value) {
        assert_eq!(change["metadata"]["resourceVersion"].str(), "7");
        let conditions = change["status"]["conditions"].list();
        assert_eq!(
            (conditions.len(), conditions[0]["type"].str()),
            (2, "Established")
        );
        assert_eq!(json::to_string(&conditions[1]), condition);
        assert_eq!(change["status"]["storedVersions"], stored);
    }

    const END: &str =
        r#""type":"StorageMigrating","lastTransitionTime":"now","observedGeneration":3}"#;

    #[test]
    fn a_migration_that_runs_is_named() {
        let said =
            r#"{"status":"True","reason":"MigrationRunning","message":"Migration m is running","#;
        check(
            &migration_started(&definition(1), "m", "now"),
            &format!("{said}{END}"),
            Value::Null,
        );
        let mut fresh = definition(1);
        fresh.entry("status").entry("conditions").make_list().pop();
        check(
            &migration_started(&fresh, "m", "now"),
            &format!("{said}{END}"),
            Value::Null,
        );
    }

    #[test]
    fn stored_versions_are_reset_unless_the_definition_changed() {
        let said = r#"{"status":"False","reason":"MigrationSucceeded","message":"The migration has succeeded"#;
        let all = format!(r#"{said} and the stored versions have been updated",{END}"#);
        check(
            &migration_ended(&definition(3), true, "now"),
            &all,
            value!(["v2"]),
        );
        let none = format!(
            r#"{said} but the stored versions have not been updated due to a generation mismatch",{END}"#
        );
        check(
            &migration_ended(&definition(2), true, "now"),
            &none,
            Value::Null,
        );
    }

    #[test]
    fn a_failure_is_in_the_condition() {
        let said =
            r#"{"status":"False","reason":"MigrationFailed","message":"The migration has failed","#;
        check(
            &migration_ended(&definition(3), false, "now"),
            &format!("{said}{END}"),
            value!(["v2"]),
        );
        check(
            &migration_ended(&definition(2), false, "now"),
            &format!("{said}{END}"),
            Value::Null,
        );
    }
}
