//! Containers that only look as if they ran: a script says what they do, and time does the rest.

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mizzen_value::time::duration_nanos;
use mizzen_value::{Str, Value};

use super::http::Site;
use super::{
    Chunk, Connection, Container, ContainerLife, ContainerRuntime, ContainerUsage, End, Exec,
    Health, Line, Probe, Sight, State, Stdio, Wish, exec, plain,
};
use crate::moment::{Moment, earlier};
use crate::pod::spec::field;
use crate::script::{Change, Exit, Pulls, Run, Script, UsageScript, check_containers};

/// The annotation that has the lines which every container of a pod writes; with a dot and a container's name, those
/// of that container.
pub(super) const LOGS: &str = "mizzen.dev/logs";

/// How long a container takes to start if nothing is said of it: long enough to be seen, short enough not to matter.
const START: Duration = Duration::from_millis(5);

/// The simulated runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulated;

impl ContainerRuntime for Simulated {
    fn version(&self) -> String {
        concat!("simulated://", env!("CARGO_PKG_VERSION")).into()
    }

    fn accepts(&self, pod: &Value) -> Result<(), String> {
        Script::of(pod)?;
        Pulls::of(pod)?;
        UsageScript::of(pod)?;
        Site::of(pod)?;
        let annotations = pod["metadata"]["annotations"].entries();
        let named = annotations.filter_map(|(name, _)| name.strip_prefix(LOGS)?.strip_prefix('.'));
        check_containers(pod, LOGS, named)
    }

    fn pull(&self, pod: &Value, container: &Value, n_tries: u32) -> Result<(), String> {
        // What cannot be read has failed the pod before.
        let pulls = Pulls::of(pod).unwrap_or_default();
        let failure = pulls.failure(container["name"].str(), container["image"].str(), n_tries);
        failure.map_or(Ok(()), Err)
    }

    fn start(&self, wish: &Wish, now: Moment) -> Box<dyn Container> {
        let run = run(wish, wish.since.unwrap_or(now + START));
        let since = wish.since.unwrap_or_else(|| now + run.start.max(START));
        Box::new(Actor {
            run,
            since,
            stop: None,
        })
    }

    fn reads_files(&self, container: &Value) -> bool {
        plain::reads_files(container)
    }

    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<Line> {
        let Some(text) = annotated_logs(life) else {
            return plain::lines(life, now);
        };
        let mut lines: Vec<Line> = text.lines().map(|line| written(line, life.since)).collect();
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
        let chunk = |line: Line| Chunk {
            is_error: false,
            text: line.text + "\n",
        };
        lines.into_iter().map(chunk).collect()
    }

    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage> {
        // An annotation that was fine when the pod was admitted may have been changed since; the usual usage counts then.
        let profile = UsageScript::of(life.pod)
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
    ) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        // An annotation that cannot be read has failed its pod before.
        let connected = Site::of(pod).unwrap_or_default().connect(pod, port);
        std::future::ready(connected).boxed()
    }
}

/// The lines that an annotation has for a container.
fn annotated_logs<'a>(life: &ContainerLife<'a>) -> Option<&'a str> {
    let annotations = &life.pod["metadata"]["annotations"];
    let own = annotations.get(&format!("{LOGS}.{}", life.container["name"].str()));
    own.or_else(|| annotations.get(LOGS)).map(Value::str)
}

/// A line of the annotation: `+5s text` is written five seconds after the start, any other one at once.
fn written(line: &str, since: Moment) -> Line {
    let delayed = line
        .strip_prefix('+')
        .map(|line| line.split_once(' ').unwrap_or((line, "")));
    let delay = |word: &str| {
        duration_nanos(word)
            .ok()
            .and_then(|nanos| u64::try_from(nanos).ok())
    };
    match delayed.and_then(|(word, text)| Some((delay(word)?, text))) {
        Some((nanos, text)) => Line {
            at: since + Duration::from_nanos(nanos),
            text: text.into(),
        },
        None => Line {
            at: since,
            text: line.into(),
        },
    }
}

/// What a container does that starts at `since`. A script that cannot be read has failed its pod before.
fn run(wish: &Wish, since: Moment) -> Run {
    Script::of(wish.pod).unwrap_or_default().run(wish, since)
}

/// A container that plays its part.
struct Actor {
    run: Run,
    since: Moment,
    /// When it is told to stop, and when it is ended.
    stop: Option<(Moment, Moment)>,
}

impl Container for Actor {
    fn look(&self, now: Moment) -> Sight {
        let end = self.end();
        let state = match end {
            Some(end) if end.0 <= now => State::Ended(self.ended(end)),
            _ if self.since <= now => State::Running { since: self.since },
            _ => State::Creating,
        };
        let usable = matches!(state, State::Running { .. }) && self.is_ready(now);
        let changes_at = match state {
            State::Ended(_) => None,
            _ => earlier(self.next_change(now), self.end().map(|(at, _)| at)),
        };
        Sight {
            state,
            usable,
            changes_at,
        }
    }

    fn stop(&mut self, ask: Moment, kill: Moment) {
        self.stop = Some(match self.stop {
            Some((asked, killed)) => (asked.min(ask), killed.min(kill)),
            None => (ask, kill),
        });
    }

    fn update(&mut self, wish: &Wish) {
        self.run = run(wish, self.since);
    }

    /// What the script says of a probe wins; then what the pod answers over HTTP, or what a plain command finds. Of anything else
    /// nothing is known, and it succeeds.
    fn probe(&self, probe: Probe, wish: &Wish, at: Moment) -> Health {
        let spec = &wish.container[field(probe)];
        let mut health = Health {
            good: match probe {
                Probe::Readiness => self.is_ready(at),
                // It has started as soon as it can be used for the first time.
                Probe::Startup => self.was_ready(at),
                Probe::Liveness => self.is_healthy(at),
            },
            steady: true,
            is_of_pod: false,
            output: None,
        };
        if self.says(probe) {
            return health;
        }
        if !spec["httpGet"].is_null() {
            // An annotation that cannot be read has failed its pod before.
            let site = Site::of(wish.pod).unwrap_or_default();
            if let Some(found) = site.probe(wish.pod, wish.container, &spec["httpGet"]) {
                health.is_of_pod = true;
                (health.good, health.output) = (found.is_ok(), found.err());
            }
        } else if !spec["exec"].is_null() {
            let life = ContainerLife {
                pod: wish.pod,
                container: wish.container,
                since: self.since,
                inputs: wish.inputs,
                node: wish.node,
            };
            if let Some((good, output)) = plain::probe(&life, spec, at) {
                health.steady = plain::is_steady(wish.container, spec);
                (health.good, health.output) = (good, Some(output));
            }
        }
        health
    }
}

/// When a container ends, and how.
type Ends = (Moment, Exit);

impl Actor {
    /// When it ends, and how: by itself, because it was told to, or because it was killed.
    fn end(&self) -> Option<Ends> {
        let own = self
            .run
            .changes
            .iter()
            .find_map(|(after, change)| match change {
                Change::Exit(exit) => Some((self.since + *after, exit.clone())),
                _ => None,
            });
        [own, self.stopped()]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    fn stopped(&self) -> Option<Ends> {
        let (ask, kill) = self.stop?;
        // What is not yet there cannot listen.
        let heard = ask.max(self.since.min(kill));
        let by_itself = self
            .run
            .stop
            .takes
            .map(|takes| heard + takes)
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

    fn ended(&self, (at, exit): Ends) -> End {
        let usual = if exit.code == 0 { "Completed" } else { "Error" };
        let reason = if exit.reason.is_empty() {
            Str::new_static(usual)
        } else {
            exit.reason
        };
        End {
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

    /// What of a kind was said last up to now.
    fn last<T>(&self, now: Moment, says: impl Fn(&Change) -> Option<T>) -> Option<T> {
        let passed = self
            .run
            .changes
            .iter()
            .take_while(|(after, _)| self.since + *after <= now);
        passed.filter_map(|(_, change)| says(change)).last()
    }

    /// Whether the script says something of what a probe asks.
    fn says(&self, probe: Probe) -> bool {
        let mut said = self.run.changes.iter().map(|(_, change)| change);
        said.any(|change| match probe {
            Probe::Readiness | Probe::Startup => matches!(change, Change::Ready | Change::Unready),
            Probe::Liveness => matches!(change, Change::Healthy | Change::Unhealthy),
        })
    }

    fn is_ready(&self, now: Moment) -> bool {
        let said = self.last(now, |change| match change {
            Change::Ready => Some(true),
            Change::Unready => Some(false),
            _ => None,
        });
        said.unwrap_or_else(|| !self.waits_to_be_ready())
    }

    /// Whether the first thing that is said is that it gets ready: until then it is not.
    fn waits_to_be_ready(&self) -> bool {
        let mut said = self.run.changes.iter().map(|(_, change)| change);
        said.find(|change| matches!(change, Change::Ready | Change::Unready))
            == Some(&Change::Ready)
    }

    fn was_ready(&self, now: Moment) -> bool {
        !self.waits_to_be_ready()
            || self
                .last(now, |change| (*change == Change::Ready).then_some(()))
                .is_some()
    }

    fn is_healthy(&self, now: Moment) -> bool {
        let said = self.last(now, |change| match change {
            Change::Healthy => Some(true),
            Change::Unhealthy => Some(false),
            _ => None,
        });
        said.unwrap_or(true)
    }
}
