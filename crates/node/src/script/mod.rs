//! What does a simulated container do? An annotation of its pod says it, in a small language of stages.
//!
//! `mizzen.dev/simulate: "web: start 2s, ready 1s, run 30s, exit 1; proxy: 3x exit 1 then run"`
//!
//! A clause is about the container that it names, or about every other one of `spec.containers` if it names none. It
//! has one run or several, divided by `then`; a restarted container takes the next one, and the last one serves for ever.
//! A run is a list of stages, one after the other: each takes its time, and then what it says is so.
//! `docs/simulated-nodes.md` explains it with examples.

mod parse;
mod pull;
#[cfg(test)]
mod tests;
mod usage;

use std::time::Duration;

use mizzen_object::owner_references::controller_of;
use mizzen_value::{Str, Value};

use crate::moment::Moment;
use crate::runtime::{ContainerLife, Role, Wish, plain};
use crate::shell::Outcome;

pub use parse::parse;
pub use pull::Pulls;
pub use usage::{UsageProfile, UsageScript};

/// The annotation that says what a pod's containers do.
pub const SIMULATE: &str = "mizzen.dev/simulate";

/// For how long a container of a Job runs a command that is not known.
const JOB_TAKES: Duration = Duration::from_secs(1);

/// What the containers of a pod do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    clauses: Vec<Clause>,
}

/// What one container does, or all that have no clause of their own.
#[derive(Debug, Clone, PartialEq)]
struct Clause {
    container: Option<Str>,
    runs: Vec<(u32, Run)>,
}

/// One life of a container, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// How long it takes to start.
    pub start: Duration,
    /// What happens, and how long after the start.
    pub changes: Vec<(Duration, Change)>,
    /// What it does when it is told to stop.
    pub stop: Stop,
}

/// Something that happens to a container that runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// It can be used from now on.
    Ready,
    /// It cannot be used from now on.
    Unready,
    /// It is alive from now on.
    Healthy,
    /// It hangs from now on.
    Unhealthy,
    /// It ends.
    Exit(Exit),
}

/// How a container ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exit {
    /// Its exit code.
    pub code: i64,
    /// Why, in one word; empty for the usual one.
    pub reason: Str,
    /// What it leaves behind as its termination message.
    pub message: Str,
}

/// What a container does when it is told to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    /// How long it takes; none if it does not listen.
    pub takes: Option<Duration>,
    /// The exit code with which it then ends.
    pub code: i64,
}

/// Who does not listen to SIGTERM in particular ends by it at once.
impl Default for Stop {
    fn default() -> Stop {
        Stop {
            takes: Some(Duration::ZERO),
            code: 143,
        }
    }
}

impl Script {
    /// What a pod's annotation says; the error is for people.
    pub fn of(pod: &Value) -> Result<Script, String> {
        let text = pod["metadata"]["annotations"][SIMULATE].str();
        let script = parse(text).map_err(|problem| format!("{SIMULATE}: {problem}"))?;
        let named = script
            .clauses
            .iter()
            .filter_map(|clause| clause.container.as_deref());
        check_containers(pod, SIMULATE, named).map(|()| script)
    }

    /// What a container does that starts at `since`.
    pub fn run(&self, wish: &Wish, since: Moment) -> Run {
        let Wish {
            pod,
            container,
            role,
            inputs,
            node,
            ..
        } = *wish;
        if let Some(clause) = self.clause(container["name"].str(), role) {
            return clause.run(wish.n_restarts);
        }
        let known = match plain::outcome(&ContainerLife {
            pod,
            container,
            since,
            inputs,
            node,
        }) {
            Some(Outcome::Exited { after, code }) => return ends(after, code),
            Some(Outcome::Running) => return Run::default(),
            Some(Outcome::Unknown { after }) => after,
            None => Duration::ZERO,
        };
        match role {
            Role::Init => ends(known, 0),
            Role::Regular if is_of_job(pod) => ends(known + JOB_TAKES, 0),
            _ => Run::default(),
        }
    }

    fn clause(&self, container: &str, role: Role) -> Option<&Clause> {
        let own = self
            .clauses
            .iter()
            .find(|clause| clause.container.as_deref() == Some(container));
        let common = || {
            self.clauses
                .iter()
                .find(|clause| clause.container.is_none())
        };
        own.or_else(|| common().filter(|_| role == Role::Regular))
    }
}

impl Clause {
    fn run(&self, n_restarts: u32) -> Run {
        let mut left = n_restarts;
        for (times, run) in &self.runs {
            if left < *times {
                return run.clone();
            }
            left -= times;
        }
        self.runs
            .last()
            .map(|(_, run)| run.clone())
            .unwrap_or_default()
    }
}

fn ends(after: Duration, code: i64) -> Run {
    Run {
        changes: vec![(
            after,
            Change::Exit(Exit {
                code,
                ..Exit::default()
            }),
        )],
        ..Run::default()
    }
}

/// Whether a Job made the pod: then somebody waits for its end.
fn is_of_job(pod: &Value) -> bool {
    controller_of(pod).is_some_and(|owner| owner["kind"].str() == "Job")
}

/// Whether a pod has the containers that an annotation names; the error is for people.
pub fn check_containers<'a>(
    pod: &Value,
    annotation: &str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    match names.find(|name| !has_container(pod, name)) {
        Some(name) => Err(format!("{annotation}: the pod has no container {name:?}")),
        None => Ok(()),
    }
}

fn has_container(pod: &Value, name: &str) -> bool {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.iter().any(|list| {
        pod["spec"][*list]
            .list()
            .iter()
            .any(|container| container["name"].str() == name)
    })
}
