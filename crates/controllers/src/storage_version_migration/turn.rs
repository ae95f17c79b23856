//! Which migration of a resource runs: one at a time, oldest first.

use std::collections::BTreeMap;

use mizzen_sdk::Object;

use super::status::{is_over, is_running};

/// The migrations of one resource that need something.
#[derive(Debug, Default)]
pub(super) struct ResourceTurn<'a> {
    /// Those that ended and are still Running.
    pub ended: Vec<&'a Object>,
    pub running: Vec<&'a Object>,
    /// The one that may start.
    pub next: Option<&'a Object>,
}

/// The turns of all resources.
pub(super) fn turns(migrations: &[Object]) -> Vec<ResourceTurn<'_>> {
    let mut turns: BTreeMap<(&str, &str), ResourceTurn> = BTreeMap::new();
    for migration in migrations {
        let of = &migration["spec"]["resource"];
        turns
            .entry((of["group"].str(), of["resource"].str()))
            .or_default()
            .add(migration);
    }
    turns
        .into_values()
        .map(ResourceTurn::exclude_next_while_running)
        .collect()
}

impl<'a> ResourceTurn<'a> {
    fn add(&mut self, migration: &'a Object) {
        match (is_running(migration), is_over(migration)) {
            (true, true) => self.ended.push(migration),
            (true, false) => self.running.push(migration),
            (false, true) => {}
            (false, false) if self.next.is_none_or(|next| rank(migration) < rank(next)) => {
                self.next = Some(migration);
            }
            (false, false) => {}
        }
    }

    /// No migration starts while another one is running.
    fn exclude_next_while_running(self) -> ResourceTurn<'a> {
        let next = self.next.filter(|_| self.running.is_empty());
        ResourceTurn { next, ..self }
    }
}

fn rank(migration: &Object) -> (i64, &str) {
    (migration.created(), migration.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::{Value, time, value};

    /// A migration, such as `b foos 20 Running Failed`: name, resource, creation second and its
    /// True conditions.
    fn migration(text: &str) -> Object {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_default().to_string();
        let (name, plural, created) = (word(), word(), time::from_unix(word().parse().unwrap()));
        let conditions = words
            .map(|type_| value!({ "type": type_, "status": "True" }))
            .collect();
        Object(value!({
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "resource": { "group": "a.io", "resource": plural } },
            "status": { "conditions": (Value::List(conditions)) }
        }))
    }

    #[track_caller]
    fn check(migrations: &[&str], expected: &[&str]) {
        let migrations: Vec<Object> = migrations.iter().map(|text| migration(text)).collect();
        let names = |list: &[&Object]| {
            list.iter()
                .map(|one| one.name())
                .collect::<Vec<_>>()
                .join(",")
        };
        let show = |turn: &ResourceTurn| {
            let next = turn.next.map_or("", |next| next.name());
            format!(
                "ended {} running {} next {next}",
                names(&turn.ended),
                names(&turn.running)
            )
        };
        assert_eq!(
            turns(&migrations).iter().map(show).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn the_oldest_is_next_and_of_equal_age_the_first_by_name() {
        check(
            &["c foos 10", "b foos 10", "a foos 11"],
            &["ended  running  next b"],
        );
    }

    #[test]
    fn none_starts_while_another_runs() {
        check(
            &["a foos 10", "b foos 20 Running"],
            &["ended  running b next "],
        );
        check(
            &["b foos 20 Running", "a foos 10"],
            &["ended  running b next "],
        );
    }

    #[test]
    fn one_that_ended_does_not_block_the_next() {
        check(
            &["a foos 10 Running Failed", "b foos 20"],
            &["ended a running  next b"],
        );
        check(
            &["a foos 10 Succeeded", "b foos 20"],
            &["ended  running  next b"],
        );
    }

    #[test]
    fn resources_do_not_wait_for_each_other() {
        check(
            &["a foos 10 Running", "b bars 20", "c foos 30"],
            &["ended  running  next b", "ended  running a next "],
        );
    }
}
