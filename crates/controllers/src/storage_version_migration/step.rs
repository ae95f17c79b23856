//! The next step of a running migration.

use mizzen_sdk::{Object, ResourceType};

use super::status::{is_over, is_running};
use crate::metadata_informers::DiscoveredKinds;

/// The verbs that a resource must have.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// How long discovery may lack the resource of a new migration, in seconds.
const PATIENCE: i64 = 60;

#[derive(Debug, PartialEq)]
pub(super) enum MigrationStep<'a> {
    /// It is not running.
    Nothing,
    /// Discovery may have the resource soon.
    Wait,
    Fail(String),
    /// Record the resourceVersion of the collection: later writes are in the storage version
    /// anyway.
    RecordResourceVersion(&'a ResourceType),
    /// Rewrite all objects up to the recorded resourceVersion.
    Rewrite(&'a ResourceType),
}

/// The next step at `now`, in seconds since 1970.
pub(super) fn next_step<'a>(
    migration: &Object,
    served: &'a DiscoveredKinds,
    now: i64,
) -> MigrationStep<'a> {
    if is_over(migration) || !is_running(migration) {
        return MigrationStep::Nothing;
    }
    let of = &migration["spec"]["resource"];
    let is_meant = |resource: &ResourceType| {
        resource.group == of["group"].str() && resource.plural == of["resource"].str()
    };
    let is_noted = !migration["status"]["resourceVersion"].is_empty();
    match served.kinds.iter().find(|kind| is_meant(&kind.resource)) {
        None if migration.created() + PATIENCE > now => MigrationStep::Wait,
        None if is_noted => MigrationStep::Fail(unhandled("unable to obtain GVR from discovery")),
        None => MigrationStep::Fail("resource does not exist in discovery".into()),
        Some(kind) if is_noted => MigrationStep::Rewrite(&kind.resource),
        Some(kind) if kind.supports(&VERBS) => MigrationStep::RecordResourceVersion(&kind.resource),
        Some(kind) => MigrationStep::Fail(format!(
            "resource {:?} does not support discovery operations: [{}]",
            full_name(&kind.resource),
            VERBS.join(" ")
        )),
    }
}

/// The message of an unexpected error.
pub(super) fn unhandled(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}

/// A resource in upstream's messages.
pub(super) fn full_name(resource: &ResourceType) -> String {
    format!(
        "{}/{}, Resource={}",
        resource.group, resource.version, resource.plural
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata_informers::DiscoveredKind;
    use mizzen_value::{Value, time, value};

    fn served() -> DiscoveredKinds {
        let kind = |version: &'static str, plural: &'static str, verbs: &[&str]| DiscoveredKind {
            resource: ResourceType::namespaced("a.io", version, plural, "Foo"),
            verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
            is_preferred: version == "v2",
        };
        let all = ["list", "get", "patch", "update"];
        let kinds = vec![
            kind("v2", "foos", &all),
            kind("v1", "foos", &all),
            kind("v2", "bars", &all[..2]),
        ];
        DiscoveredKinds {
            kinds,
            ..DiscoveredKinds::default()
        }
    }

    /// A migration of a resource in a group, created at second 100.
    #[track_caller]
    fn check(
        resource: (&str, &str),
        version: &str,
        conditions: Value,
        now: i64,
        expected: MigrationStep,
    ) {
        let (group, plural) = resource;
        let migration = Object(value!({
            "metadata": { "name": "m", "creationTimestamp": (time::from_unix(100)) },
            "spec": { "resource": { "group": group, "resource": plural } },
            "status": { "resourceVersion": version, "conditions": conditions }
        }));
        assert_eq!(next_step(&migration, &served(), now), expected);
    }

    fn running() -> Value {
        value!([{ "type": "Running", "status": "True" }])
    }

    #[test]
    fn only_running_migrations_are_processed() {
        check(
            ("a.io", "foos"),
            "5",
            value!([]),
            100,
            MigrationStep::Nothing,
        );
        for end in ["Succeeded", "Failed"] {
            let over = value!([{ "type": "Running", "status": "True" }, { "type": end, "status": "True" }]);
            check(("a.io", "foos"), "5", over, 100, MigrationStep::Nothing);
        }
    }

    #[test]
    fn the_version_is_noted_before_anything_is_written() {
        let served = served();
        let foos = &served.kinds[0].resource;
        check(
            ("a.io", "foos"),
            "",
            running(),
            100,
            MigrationStep::RecordResourceVersion(foos),
        );
        check(
            ("a.io", "foos"),
            "5",
            running(),
            100,
            MigrationStep::Rewrite(foos),
        );
    }

    #[test]
    fn an_unknown_resource_is_waited_for_and_then_fails() {
        for resource in [("a.io", "hats"), ("", "foos"), ("b.io", "foos")] {
            check(resource, "", running(), 159, MigrationStep::Wait);
            check(
                resource,
                "",
                running(),
                160,
                MigrationStep::Fail("resource does not exist in discovery".into()),
            );
        }
        let lost = "migration encountered unhandled error: unable to obtain GVR from discovery";
        check(("a.io", "hats"), "5", running(), 159, MigrationStep::Wait);
        check(
            ("a.io", "hats"),
            "5",
            running(),
            160,
            MigrationStep::Fail(lost.into()),
        );
    }

    #[test]
    fn a_read_only_resource_fails_at_once() {
        let why = r#"resource "a.io/v2, Resource=bars" does not support discovery operations: [update patch list]"#;
        check(
            ("a.io", "bars"),
            "",
            running(),
            100,
            MigrationStep::Fail(why.into()),
        );
    }
}
