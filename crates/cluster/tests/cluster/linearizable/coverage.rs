//! What happened in a run: which requests, answers, watches and faults, and how often. A run of many histories must have all
//! of them: what never happens is not checked.

use std::collections::BTreeMap;
use std::fmt;

use mizzen_linearizability::{Action, Outcome, Scope};

/// So many histories have everything, but for one run in thousands.
const MANY_HISTORIES: usize = 30;

/// What the clients of every run do and see.
pub(crate) const REQUESTS: [&str; 24] = [
    "create",
    "update",
    "update of a revision",
    "delete",
    "delete of a revision",
    "get",
    "get not older than a revision",
    "not found, not older than a revision",
    "stored",
    "deleted",
    "found",
    "not found",
    "already exists",
    "conflict",
    "no response",
    "list",
    "list at a revision",
    "list not older than a revision",
    "list in pages",
    "list of a name",
    "list of a label",
    "watch",
    "watch of a name",
    "watch of a label",
];

/// The faults of servers.
pub(crate) const SERVER_FAULTS: [&str; 2] = ["kill of a server", "pause of a server"];

/// The faults of etcd and of the network.
pub(crate) const ETCD_FAULTS: [&str; 10] = [
    "kill of a member",
    "pause of a member",
    "cut between members",
    "cut of a server from all members",
    "cut of a server from a member",
    "connections held up",
    "answers held up",
    "connections reset",
    "compaction",
    "two faults at a time",
];

/// How often each happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(BTreeMap<&'static str, usize>);

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Counts) {
        for (&what, n) in &other.0 {
            *self.0.entry(what).or_default() += n;
        }
    }

    /// What should have happened in so many histories, and did not.
    pub(crate) fn missing(
        &self,
        n_histories: usize,
        expected: impl IntoIterator<Item = &'static str>,
    ) -> Vec<&'static str> {
        let missing = expected.into_iter().filter(|it| !self.0.contains_key(it));
        let is_due = n_histories >= MANY_HISTORIES;
        missing.filter(|_| is_due).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(it, n)| format!("{it}: {n}")).collect();
        f.write_str(&counts.join(", "))
    }
}

pub(crate) fn of_action(action: &Action) -> &'static str {
    match action {
        Action::Create { .. } => "create",
        Action::Update { expected: None, .. } => "update",
        Action::Update { .. } => "update of a revision",
        Action::Delete { expected: None } => "delete",
        Action::Delete { .. } => "delete of a revision",
        Action::Get => "get",
    }
}

pub(crate) fn of_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Stored { .. } => "stored",
        Outcome::Deleted => "deleted",
        Outcome::Found(_) => "found",
        Outcome::NotFound => "not found",
        Outcome::AlreadyExists => "already exists",
        Outcome::Conflict => "conflict",
        Outcome::Refused => "refused",
        Outcome::Unknown => "no response",
    }
}

pub(crate) fn of_list(scope: &Scope) -> &'static str {
    match scope {
        Scope::All => "list",
        Scope::Key(_) => "list of a name",
        Scope::Label(_) => "list of a label",
    }
}

pub(crate) fn of_watch(scope: &Scope) -> &'static str {
    match scope {
        Scope::All => "watch",
        Scope::Key(_) => "watch of a name",
        Scope::Label(_) => "watch of a label",
    }
}

#[test]
fn many_histories_that_lack_something_are_reported() {
    let mut counts = Counts::default();
    counts.add("kill of a server");
    let mut sum = counts.clone();
    sum.merge(&counts);
    assert_eq!(sum.to_string(), "kill of a server: 2");
    assert_eq!(sum.missing(2, SERVER_FAULTS), [""; 0], "they are few");
    let missing = sum.missing(MANY_HISTORIES, SERVER_FAULTS);
    assert_eq!(missing, ["pause of a server"]);
}
