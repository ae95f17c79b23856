//! The simulated runtime: a script says what containers do, and time does the rest.

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mizzen_value::time::duration_nanos;
use mizzen_value::{Str, Value};

use super::exec_script::ExecScript;
use super::http::HttpSite;
use super::{
    Chunk, ContainerConfig, ContainerHandle, ContainerLife, ContainerPhase, ContainerRuntime,
    ContainerStatus, ContainerUsage, Exec, ImageRequest, ImageState, ImageUser, LogLine,
    PodConnection, ProbeResult, ProbeType, Stdio, StopTimes, Termination, Unacceptable, exec,
    plain,
};
use crate::moment::{Moment, earlier};
use crate::pod::spec::{SHORTEST_GRACE, field};
use crate::script::{
    Exit, Pulls, ScriptChange, ScriptRun, SimulationScript, UsageScript, check_containers,
};

/// The annotation with the log lines of every container of a pod; with a dot and a container's
/// name, of that container.
pub(super) const LOGS: &str = "mizzen.dev/logs";

/// The default start time of a container: long enough to be seen, short enough not to matter.
const START: Duration = Duration::from_millis(5);

/// The simulated runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulated;

impl ContainerRuntime for Simulated {
    fn version(&self) -> String {
        concat!("simulated://", env!("CARGO_PKG_VERSION")).into()
    }

    fn accepts(&self, pod: &Value) -> Result<(), Unacceptable> {
        check_annotations(pod).map_err(|message| Unacceptable {
            reason: "InvalidSimulation",
            message,
        })
    }

    fn image(&self, request: &ImageRequest) -> ImageState {
        // An invalid annotation has failed the pod before.
        let pulls = Pulls::from_pod(request.pod).unwrap_or_default();
        let failure = match request.user {
            ImageUser::Container(name) => pulls.failure(name, request.image, request.n_tries),
            // The annotation is about containers.
            ImageUser::Volume(_) => None,
        };
        match failure {
            None => ImageState::Present { message: None },
            Some(message) => ImageState::Failed {
                reason: "ErrImagePull",
                message,
            },
        }
    }

    fn start(&self, config: &ContainerConfig, now: Moment) -> Box<dyn ContainerHandle> {
        let run = run(config, config.since.unwrap_or(now + START));
        let since = config.since.unwrap_or_else(|| now + run.start.max(START));
        Box::new(SimulatedContainer {
            run,
            since,
            stop: None,
        })
    }

    fn reads_files(&self, container: &Value) -> bool {
        plain::reads_files(container)
    }

    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<LogLine> {
        let Some(text) = annotated_logs(life) else {
            return plain::lines(life, now);
        };
        let mut lines: Vec<LogLine> = text
            .lines()
            .map(|line| LogLine::from_annotation(line, life.since))
            .collect();
        lines.retain(|line| line.at <= now);
        lines.sort_by_key(|line| line.at);
        lines
    }

    fn output(&self, life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk> {
        if annotated_logs(life).is_none() {
            return plain::output(life, from, now);
        }
        let mut lines = self.logs(life, now);
        lines.retain(|line| line.at >= from);
        let chunk = |line: LogLine| Chunk {
            is_error: false,
            text: line.text + "\n",
        };
        lines.into_iter().map(chunk).collect()
    }

    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage> {
        // A valid annotation may have become invalid since admission; then the default usage
        // counts.
        let profile = UsageScript::from_pod(life.pod)
            .unwrap_or_default()
            .profile(life.container);
        let [from, to] = [from, to].map(|at| at.saturating_since(life.since));
        Some(ContainerUsage {
            cpu_time: profile.cpu_time(to).saturating_sub(profile.cpu_time(from)),
            memory_bytes: profile.memory_bytes(to),
        })
    }

    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        exec::run(exec, stdio).boxed()
    }

    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn PodConnection>>> {
        // An invalid annotation has failed its pod before.
        let connected = HttpSite::from_pod(pod)
            .unwrap_or_default()
            .connect(pod, port);
        std::future::ready(connected).boxed()
    }
}

/// Checks what the annotations of a pod say about its simulation.
fn check_annotations(pod: &Value) -> Result<(), String> {
    SimulationScript::from_pod(pod)?;
    Pulls::from_pod(pod)?;
    UsageScript::from_pod(pod)?;
    HttpSite::from_pod(pod)?;
    ExecScript::check(pod)?;
    let annotations = pod["metadata"]["annotations"].entries();
    let named = annotations.filter_map(|(name, _)| name.strip_prefix(LOGS)?.strip_prefix('.'));
    check_containers(pod, LOGS, named)
}

/// The annotated log lines of a container.
fn annotated_logs<'a>(life: &ContainerLife<'a>) -> Option<&'a str> {
    let annotations = &life.pod["metadata"]["annotations"];
    let own = annotations.get(&format!("{LOGS}.{}", life.container["name"].str()));
    own.or_else(|| annotations.get(LOGS)).map(Value::str)
}

impl LogLine {
    /// A line of the annotation: `+5s text` is written five seconds after the start, any other at
    /// once.
    fn from_annotation(line: &str, since: Moment) -> LogLine {
        let delayed = line
            .strip_prefix('+')
            .map(|line| line.split_once(' ').unwrap_or((line, "")));
        let delay = |word: &str| {
            duration_nanos(word)
                .ok()
                .and_then(|nanos| u64::try_from(nanos).ok())
        };
        match delayed.and_then(|(word, text)| Some((delay(word)?, text))) {
            Some((nanos, text)) => LogLine {
                at: since + Duration::from_nanos(nanos),
                text: text.into(),
            },
            None => LogLine {
                at: since,
                text: line.into(),
            },
        }
    }
}

/// The script of a container that starts at `since`. An invalid script has failed its pod before.
fn run(config: &ContainerConfig, since: Moment) -> ScriptRun {
    SimulationScript::from_pod(config.pod)
        .unwrap_or_default()
        .run(config, since)
}

/// A simulated container.
struct SimulatedContainer {
    run: ScriptRun,
    since: Moment,
    /// When SIGTERM and SIGKILL are sent.
    stop: Option<(Moment, Moment)>,
}

impl ContainerHandle for SimulatedContainer {
    fn status(&self, now: Moment) -> ContainerStatus {
        let end = self.end();
        let state = match end {
            Some(end) if end.0 <= now => ContainerPhase::Ended(self.ended(end)),
            _ if self.since <= now => ContainerPhase::Running { since: self.since },
            _ => ContainerPhase::Creating,
        };
        let usable = matches!(state, ContainerPhase::Running { .. }) && self.is_ready(now);
        let changes_at = match state {
            ContainerPhase::Ended(_) => None,
            _ => earlier(self.next_change(now), self.end().map(|(at, _)| at)),
        };
        ContainerStatus {
            state,
            usable,
            has_failed_hook: false,
            changes_at,
            id: Str::default(),
            image_id: Str::default(),
            user: None,
        }
    }

    fn stop(&mut self, StopTimes { term, kill, .. }: StopTimes) {
        let kill = kill.max(term + SHORTEST_GRACE);
        self.stop = Some(match self.stop {
            Some((earlier_term, killed)) => (earlier_term.min(term), killed.min(kill)),
            None => (term, kill),
        });
    }

    fn update(&mut self, config: &ContainerConfig) {
        self.run = run(config, self.since);
    }

    fn probe(&self, probe: ProbeType, config: &ContainerConfig, at: Moment) -> Option<ProbeResult> {
        Some(self.probe_result(probe, config, at))
    }

    fn foresee_probe(
        &self,
        probe: ProbeType,
        config: &ContainerConfig,
        now: Moment,
    ) -> Option<ProbeResult> {
        Some(self.probe_result(probe, config, now))
    }
}

/// When a container exits, and how.
type ExitAt = (Moment, Exit);

impl SimulatedContainer {
    /// The script takes precedence, then the simulated HTTP pages, then the result of a known
    /// command. Any other probe succeeds.
    fn probe_result(&self, probe: ProbeType, config: &ContainerConfig, at: Moment) -> ProbeResult {
        let spec = &config.container[field(probe)];
        let mut health = ProbeResult {
            good: match probe {
                ProbeType::Readiness => self.is_ready(at),
                // A container has started when it is ready for the first time.
                ProbeType::Startup => self.was_ready(at),
                ProbeType::Liveness => self.is_healthy(at),
            },
            is_unknown: false,
            steady: true,
            is_of_pod: false,
            is_measured: false,
            output: None,
        };
        if self.says(probe) {
            return health;
        }
        if !spec["httpGet"].is_null() {
            // An invalid annotation has failed its pod before.
            let site = HttpSite::from_pod(config.pod).unwrap_or_default();
            if let Some(found) = site.probe(config.pod, config.container, &spec["httpGet"]) {
                health.is_of_pod = true;
                (health.good, health.output) = (found.is_ok(), found.err());
            }
        } else if !spec["exec"].is_null() {
            let life = ContainerLife {
                pod: config.pod,
                container: config.container,
                since: self.since,
                inputs: config.inputs,
                node: config.node,
            };
            if let Some((good, output)) = plain::probe(&life, spec, at) {
                health.steady = plain::is_steady(config.container, spec);
                (health.good, health.output) = (good, Some(output));
            }
        }
        health
    }

    /// When it exits, and how: by itself, after SIGTERM, or killed.
    fn end(&self) -> Option<ExitAt> {
        let own = self
            .run
            .changes
            .iter()
            .find_map(|(after, change)| match change {
                ScriptChange::Exit(exit) => Some((self.since + *after, exit.clone())),
                _ => None,
            });
        [own, self.stopped()]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    fn stopped(&self) -> Option<ExitAt> {
        let (term, kill) = self.stop?;
        // A container that has not started yet receives SIGTERM when it does.
        let term_received = term.max(self.since.min(kill));
        let by_itself = self
            .run
            .stop
            .takes
            .map(|takes| term_received + takes)
            .filter(|at| *at <= kill);
        Some(match by_itself {
            Some(at) => (
                at,
                Exit {
                    code: self.run.stop.code,
                    ..Exit::default()
                },
            ),
            None => (
                kill,
                Exit {
                    code: 137,
                    ..Exit::default()
                },
            ),
        })
    }

    fn ended(&self, (at, exit): ExitAt) -> Termination {
        let usual = if exit.code == 0 { "Completed" } else { "Error" };
        let reason = if exit.reason.is_empty() {
            Str::new_static(usual)
        } else {
            exit.reason
        };
        Termination {
            started: Some(self.since.min(at)),
            finished: Some(at),
            code: exit.code,
            reason,
            message: exit.message,
        }
    }

    fn next_change(&self, now: Moment) -> Option<Moment> {
        let changes = self
            .run
            .changes
            .iter()
            .map(|(after, _)| self.since + *after);
        std::iter::once(self.since)
            .chain(changes)
            .find(|at| *at > now)
    }

    /// The latest change of one kind up to now.
    fn last<T>(&self, now: Moment, says: impl Fn(&ScriptChange) -> Option<T>) -> Option<T> {
        let passed = self
            .run
            .changes
            .iter()
            .take_while(|(after, _)| self.since + *after <= now);
        passed.filter_map(|(_, change)| says(change)).last()
    }

    /// Whether the script covers a probe.
    fn says(&self, probe: ProbeType) -> bool {
        let mut said = self.run.changes.iter().map(|(_, change)| change);
        said.any(|change| match probe {
            ProbeType::Readiness | ProbeType::Startup => {
                matches!(change, ScriptChange::Ready | ScriptChange::Unready)
            }
            ProbeType::Liveness => {
                matches!(change, ScriptChange::Healthy | ScriptChange::Unhealthy)
            }
        })
    }

    fn is_ready(&self, now: Moment) -> bool {
        let said = self.last(now, |change| match change {
            ScriptChange::Ready => Some(true),
            ScriptChange::Unready => Some(false),
            _ => None,
        });
        said.unwrap_or_else(|| !self.waits_to_be_ready())
    }

    /// Whether the first readiness change of the script is to ready: until then it is not.
    fn waits_to_be_ready(&self) -> bool {
        let mut said = self.run.changes.iter().map(|(_, change)| change);
        said.find(|change| matches!(change, ScriptChange::Ready | ScriptChange::Unready))
            == Some(&ScriptChange::Ready)
    }

    fn was_ready(&self, now: Moment) -> bool {
        !self.waits_to_be_ready()
            || self
                .last(now, |change| (*change == ScriptChange::Ready).then_some(()))
                .is_some()
    }

    fn is_healthy(&self, now: Moment) -> bool {
        let said = self.last(now, |change| match change {
            ScriptChange::Healthy => Some(true),
            ScriptChange::Unhealthy => Some(false),
            _ => None,
        });
        said.unwrap_or(true)
    }
}
