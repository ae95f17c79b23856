//! The conditions of a migration, with upstream's reasons.

use mizzen_object::condition;
use mizzen_value::{Value, value};
use mizzen_workloads::common::pod::condition;

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Whether the Running condition is True.
pub(super) fn is_running(migration: &Value) -> bool {
    is_true(migration, RUNNING)
}

/// Whether it has Succeeded or Failed.
pub(super) fn is_over(migration: &Value) -> bool {
    has_succeeded(migration) || is_true(migration, FAILED)
}

pub(super) fn has_succeeded(migration: &Value) -> bool {
    is_true(migration, SUCCEEDED)
}

fn is_true(migration: &Value, type_: &str) -> bool {
    condition::is_true(&migration["status"]["conditions"], type_)
}

/// Sets Running.
pub(super) fn begin(migration: &mut Value, now: &str) {
    set_condition(
        migration,
        RUNNING,
        "MigrationRunning",
        "The migration is running",
        now,
    );
}

/// Sets Succeeded.
pub(super) fn succeed(migration: &mut Value, now: &str) {
    set_condition(
        migration,
        SUCCEEDED,
        "StorageVersionMigrationSucceeded",
        "",
        now,
    );
}

/// Sets Failed.
pub(super) fn fail(migration: &mut Value, why: &str, now: &str) {
    set_condition(migration, FAILED, "StorageVersionMigrationFailed", why, now);
}

/// Kubernetes: a condition that exists is not changed.
fn set_condition(migration: &mut Value, type_: &str, reason: &str, message: &str, now: &str) {
    if condition(migration, type_)
        .is_some_and(|known| matches!(known["status"].str(), "True" | "False"))
    {
        return;
    }
    let conditions = migration.entry("status").entry("conditions").make_list();
    conditions.push(value!({
        "type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message
    }));
}

/// Sets Running to False.
pub(super) fn complete(migration: &mut Value, now: &str) {
    let generation = migration["metadata"]["generation"].as_int();
    let conditions = migration.entry("status").entry("conditions").make_list();
    for running in conditions
        .iter_mut()
        .filter(|condition| condition["type"].str() == RUNNING)
    {
        running.set("status", "False");
        running.set("lastTransitionTime", now);
        running.set("reason", "MigrationCompleted");
        running.set("message", "Migration completed");
        if let Some(generation) = generation {
            running.set("observedGeneration", generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    /// The conditions after a change: type, status, reason, message, time and generation of each.
    #[track_caller]
    fn check(before: Value, change: impl FnOnce(&mut Value), expected: &[&str]) {
        let mut migration =
            value!({ "metadata": { "generation": 2 }, "status": { "conditions": before } });
        change(&mut migration);
        let conditions = migration["status"]["conditions"].list();
        assert_eq!(
            conditions.iter().map(json::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn start_and_end_have_upstreams_reasons() {
        check(
            value!([]),
            |migration| begin(migration, "now"),
            &[
                r#"{"type":"Running","status":"True","lastTransitionTime":"now","reason":"MigrationRunning","message":"The migration is running"}"#,
            ],
        );
        check(
            value!([]),
            |migration| succeed(migration, "now"),
            &[
                r#"{"type":"Succeeded","status":"True","lastTransitionTime":"now","reason":"StorageVersionMigrationSucceeded","message":""}"#,
            ],
        );
        check(
            value!([]),
            |migration| fail(migration, "no", "now"),
            &[
                r#"{"type":"Failed","status":"True","lastTransitionTime":"now","reason":"StorageVersionMigrationFailed","message":"no"}"#,
            ],
        );
    }

    #[test]
    fn an_existing_condition_is_not_changed() {
        let known = value!([{ "type": "Running", "status": "False" }]);
        check(
            known,
            |migration| begin(migration, "now"),
            &[r#"{"type":"Running","status":"False"}"#],
        );
        let unknown = value!([{ "type": "Failed", "status": "Unknown" }]);
        check(
            unknown,
            |migration| fail(migration, "no", "now"),
            &[
                r#"{"type":"Failed","status":"Unknown"}"#,
                r#"{"type":"Failed","status":"True","lastTransitionTime":"now","reason":"StorageVersionMigrationFailed","message":"no"}"#,
            ],
        );
    }

    #[test]
    fn a_completed_migration_is_not_running() {
        let running = value!([{ "type": "Running", "status": "True" }, { "type": "Succeeded", "status": "True" }]);
        check(
            running,
            |migration| complete(migration, "now"),
            &[
                r#"{"type":"Running","status":"False","lastTransitionTime":"now","reason":"MigrationCompleted","message":"Migration completed","observedGeneration":2}"#,
                r#"{"type":"Succeeded","status":"True"}"#,
            ],
        );
    }
}
