//! Whose turn is it? One migration of a resource runs at a time; of those that wait, the oldest is next.

use std::collections::BTreeMap;

use mizzen_sdk::Object;

use super::status::{is_over, is_running};

/// The migrations of one resource for which something is to be done.
#[derive(Debug, Default)]
pub(super) struct Turn<'a> {
    /// Those that ended, of which nobody has noted it yet.
    pub ended: Vec<&'a Object>,
    /// The ones at work.
    pub running: Vec<&'a Object>,
    /// The one that may begin.
    pub next: Option<&'a Object>,
}

/// What is to be done for each resource.
pub(super) fn turns(migrations: &[Object]) -> Vec<Turn<'_>> {
    let mut turns: BTreeMap<(&str, &str), Turn> = BTreeMap::new();
    for migration in migrations {
        let of = &migration["spec"]["resource"];
        turns
            .entry((of["group"].str(), of["resource"].str()))
            .or_default()
            .add(migration);
    }
    turns.into_values().map(Turn::alone).collect()
}

impl<'a> Turn<'a> {
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

    /// Whoever is next waits for those at work.
    fn alone(self) -> Turn<'a> {
        let next = self.next.filter(|_| self.running.is_empty());
        Turn { next, ..self }
    }
}

fn rank(migration: &Object) -> (i64, &str) {
    (migration.created(), migration.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::{Value, time, value};

    /// A migration, such as `b foos 20 Running Failed`: its name, resource, time and what is true of it.
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
        let show = |turn: &Turn| {
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
    fn nobody_is_next_while_another_runs() {
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
    fn one_that_ended_keeps_nobody_waiting() {
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
