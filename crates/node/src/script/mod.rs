//! The script of a simulated container, from an annotation of its pod.
//!
//! `mizzen.dev/simulate: "web: start 2s, ready 1s, run 30s, exit 1; proxy: 3x exit 1 then run"`
//!
//! A clause applies to the container that it names, or to every other one of `spec.containers` if
//! it names none. It has one run or several, separated by `then`; a restarted container takes the
//! next one, and the last one repeats. A run is a list of stages: each takes its time, then its
//! change is made. `docs/simulated-nodes.md` explains it with examples.

mod parse;
mod pull;
#[cfg(test)]
mod tests;
mod usage;

use std::time::Duration;

use mizzen_object::owner_references::controller_of;
use mizzen_value::{Str, Value};

use crate::moment::Moment;
use crate::runtime::{ContainerConfig, ContainerLife, ContainerRole, plain};
use crate::shell::ProgramOutcome;

pub use parse::parse;
pub use pull::Pulls;
pub use usage::{UsageProfile, UsageScript};

/// The annotation with the script of a pod.
pub const SIMULATE: &str = "mizzen.dev/simulate";

/// The run time of an unknown command in a container of a Job.
const JOB_TAKES: Duration = Duration::from_secs(1);

/// The script of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimulationScript {
    clauses: Vec<ScriptClause>,
}

/// The script of one container, or of all without a clause of their own.
#[derive(Debug, Clone, PartialEq)]
struct ScriptClause {
    container: Option<Str>,
    runs: Vec<(u32, ScriptRun)>,
}

/// One instance of a container, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScriptRun {
    /// How long it takes to start.
    pub start: Duration,
    /// The changes, with their time after the start.
    pub changes: Vec<(Duration, ScriptChange)>,
    /// What SIGTERM does.
    pub stop: StopBehavior,
}

/// A change of a running container.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptChange {
    /// It becomes ready.
    Ready,
    /// It becomes unready.
    Unready,
    /// Its liveness probe succeeds from now on.
    Healthy,
    /// Its liveness probe fails from now on.
    Unhealthy,
    /// It exits.
    Exit(Exit),
}

/// How a container exits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exit {
    /// The exit code.
    pub code: i64,
    /// The reason; empty for the default.
    pub reason: Str,
    /// The termination message.
    pub message: Str,
}

/// What a container does on SIGTERM.
#[derive(Debug, Clone, PartialEq)]
pub struct StopBehavior {
    /// How long it takes; `None` if it ignores SIGTERM.
    pub takes: Option<Duration>,
    /// The exit code.
    pub code: i64,
}

/// The default action of SIGTERM ends a process at once.
impl Default for StopBehavior {
    fn default() -> StopBehavior {
        StopBehavior {
            takes: Some(Duration::ZERO),
            code: 143,
        }
    }
}

impl SimulationScript {
    /// Parses a pod's annotation.
    pub fn from_pod(pod: &Value) -> Result<SimulationScript, String> {
        let text = pod["metadata"]["annotations"][SIMULATE].str();
        let script = parse(text).map_err(|problem| format!("{SIMULATE}: {problem}"))?;
        let named = script
            .clauses
            .iter()
            .filter_map(|clause| clause.container.as_deref());
        check_containers(pod, SIMULATE, named).map(|()| script)
    }

    /// The run of a container that starts at `since`.
    pub fn run(&self, config: &ContainerConfig, since: Moment) -> ScriptRun {
        let ContainerConfig {
            pod,
            container,
            role,
            inputs,
            node,
            ..
        } = *config;
        if let Some(clause) = self.clause(container["name"].str(), role) {
            return clause.run(config.n_restarts);
        }
        let known = match plain::outcome(&ContainerLife {
            pod,
            container,
            since,
            inputs,
            node,
        }) {
            Some(ProgramOutcome::Exited { after, code }) => return ends(after, code),
            Some(ProgramOutcome::Running) => return ScriptRun::default(),
            Some(ProgramOutcome::Unknown { after }) => after,
            None => Duration::ZERO,
        };
        match role {
            ContainerRole::Init => ends(known, 0),
            // A Job waits for the end of its pods.
            ContainerRole::Regular
                if controller_of(pod).is_some_and(|owner| owner["kind"].str() == "Job") =>
            {
                ends(known + JOB_TAKES, 0)
            }
            _ => ScriptRun::default(),
        }
    }

    fn clause(&self, container: &str, role: ContainerRole) -> Option<&ScriptClause> {
        let own = self
            .clauses
            .iter()
            .find(|clause| clause.container.as_deref() == Some(container));
        let common = || {
            self.clauses
                .iter()
                .find(|clause| clause.container.is_none())
        };
        own.or_else(|| common().filter(|_| role == ContainerRole::Regular))
    }
}

impl ScriptClause {
    fn run(&self, n_restarts: u32) -> ScriptRun {
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

fn ends(after: Duration, code: i64) -> ScriptRun {
    ScriptRun {
        changes: vec![(
            after,
            ScriptChange::Exit(Exit {
                code,
                ..Exit::default()
            }),
        )],
        ..ScriptRun::default()
    }
}

/// Checks that a pod has the containers that an annotation names.
pub fn check_containers<'a>(
    pod: &Value,
    annotation: &str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let has_container = |name: &str| {
        let mut containers = lists.iter().flat_map(|list| pod["spec"][*list].list());
        containers.any(|container| container["name"].str() == name)
    };
    match names.find(|name| !has_container(name)) {
        Some(name) => Err(format!("{annotation}: the pod has no container {name:?}")),
        None => Ok(()),
    }
}
