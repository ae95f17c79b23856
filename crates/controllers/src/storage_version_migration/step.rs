//! What is next for a migration that runs?

use mizzen_sdk::{Object, Resource};

use super::status::{is_over, is_running};
use crate::census::Served;

/// What can be done with a resource whose objects can be migrated.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// How old a migration may be until its resource must be known, in seconds.
const PATIENCE: i64 = 60;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Step<'a> {
    /// It does not run.
    Nothing,
    /// The resource may be known soon.
    Wait,
    /// It can never be done.
    Fail(String),
    /// The version of the resource is to be noted: what is written later is stored right anyway.
    Note(&'a Resource),
    /// Everything that was written until then is to be written again.
    Rewrite(&'a Resource),
}

/// The next step, at a time in seconds since 1970.
pub(super) fn next<'a>(migration: &Object, served: &'a Served, now: i64) -> Step<'a> {
    if is_over(migration) || !is_running(migration) {
        return Step::Nothing;
    }
    let of = &migration["spec"]["resource"];
    let is_meant = |resource: &Resource| {
        resource.group == of["group"].str() && resource.plural == of["resource"].str()
    };
    let is_noted = !migration["status"]["resourceVersion"].is_empty();
    match served.kinds.iter().find(|kind| is_meant(&kind.resource)) {
        None if migration.created() + PATIENCE > now => Step::Wait,
        None if is_noted => Step::Fail(unhandled("unable to obtain GVR from discovery")),
        None => Step::Fail("resource does not exist in discovery".into()),
        Some(kind) if is_noted => Step::Rewrite(&kind.resource),
        Some(kind) if kind.can(&VERBS) => Step::Note(&kind.resource),
        Some(kind) => Step::Fail(format!(
            "resource {:?} does not support discovery operations: [{}]",
            full_name(&kind.resource),
            VERBS.join(" ")
        )),
    }
}

/// The message of a failure that nobody thought of.
pub(super) fn unhandled(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}

/// A resource as upstream's messages call it.
pub(super) fn full_name(resource: &Resource) -> String {
    format!(
        "{}/{}, Resource={}",
        resource.group, resource.version, resource.plural
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::ServedKind;
    use mizzen_value::{Value, time, value};

    fn served() -> Served {
        let kind = |version: &'static str, plural: &'static str, verbs: &[&str]| ServedKind {
            resource: Resource::namespaced("a.io", version, plural, "Foo"),
            verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
            is_preferred: version == "v2",
        };
        let all = ["list", "get", "patch", "update"];
        let kinds = vec![
            kind("v2", "foos", &all),
            kind("v1", "foos", &all),
            kind("v2", "bars", &all[..2]),
        ];
        Served {
            kinds,
            ..Served::default()
        }
    }

    /// A migration of a resource in a group, made at second 100.
    #[track_caller]
    fn check(resource: (&str, &str), version: &str, conditions: Value, now: i64, expected: Step) {
        let (group, plural) = resource;
        let migration = Object(value!({
            "metadata": { "name": "m", "creationTimestamp": (time::from_unix(100)) },
            "spec": { "resource": { "group": group, "resource": plural } },
            "status": { "resourceVersion": version, "conditions": conditions }
        }));
        assert_eq!(next(&migration, &served(), now), expected);
    }

    fn running() -> Value {
        value!([{ "type": "Running", "status": "True" }])
    }

    #[test]
    fn only_what_runs_and_is_not_over_is_worked_on() {
        check(("a.io", "foos"), "5", value!([]), 100, Step::Nothing);
        for end in ["Succeeded", "Failed"] {
            let over = value!([{ "type": "Running", "status": "True" }, { "type": end, "status": "True" }]);
            check(("a.io", "foos"), "5", over, 100, Step::Nothing);
        }
    }

    #[test]
    fn the_version_is_noted_before_anything_is_written() {
        let served = served();
        let foos = &served.kinds[0].resource;
        check(("a.io", "foos"), "", running(), 100, Step::Note(foos));
        check(("a.io", "foos"), "5", running(), 100, Step::Rewrite(foos));
    }

    #[test]
    fn an_unknown_resource_is_waited_for_and_then_given_up() {
        for resource in [("a.io", "hats"), ("", "foos"), ("b.io", "foos")] {
            check(resource, "", running(), 159, Step::Wait);
            check(
                resource,
                "",
                running(),
                160,
                Step::Fail("resource does not exist in discovery".into()),
            );
        }
        let lost = "migration encountered unhandled error: unable to obtain GVR from discovery";
        check(("a.io", "hats"), "5", running(), 159, Step::Wait);
        check(
            ("a.io", "hats"),
            "5",
            running(),
            160,
            Step::Fail(lost.into()),
        );
    }

    #[test]
    fn what_cannot_be_written_is_given_up_at_once() {
        let why = r#"resource "a.io/v2, Resource=bars" does not support discovery operations: [update patch list]"#;
        check(("a.io", "bars"), "", running(), 100, Step::Fail(why.into()));
    }
}
