//! The commands of a container: its `command` and `args`, run by [`shell`] with its environment.

use std::collections::BTreeMap;
use std::time::Duration;

use mizzen_value::{Str, Value};

use super::terminal::{Terminal, Typing, cooked};
use super::{Chunk, ContainerLife, LogLine, ProbeType};
use crate::moment::Moment;
use crate::pod::PodAddresses;
use crate::pod::inputs::{InputSources, NO_VARIABLES, NodeContext, expand, known_mounts};
use crate::pod::spec::field;
use crate::shell::{
    self, ContainerEnvironment, Descriptor, ProcessIo, ProgramOutcome, ProgramProgress,
    ProgramState, ShellLimits, ShellProgram,
};

/// How far a script is evaluated to find its end; a longer one runs for ever.
const HORIZON: ShellLimits = ShellLimits {
    until: Duration::from_secs(366 * 24 * 3_600),
    steps: 20_000,
    lines: 0,
};
/// Kubernetes: the most output of a probe that is kept (pkg/probe/exec, `maxReadLength`).
const MAX_PROBE_OUTPUT: usize = 10 * 1024;

/// How a container ends; `None` if its program is not known.
pub(crate) fn outcome(life: &ContainerLife) -> Option<ProgramOutcome> {
    Some(run(life, None, HORIZON)?.outcome())
}

/// Runs the process of a container, and records its output from some time after its start; `None`
/// if its program is not known.
fn run(
    life: &ContainerLife,
    records_from: Option<Duration>,
    limits: ShellLimits,
) -> Option<ProgramProgress> {
    let environment = environment(life);
    let program = program(life.container, &environment)?;
    let tty = life.container["tty"].bool();
    let (mut typing, mut terminal) = (Typing::default(), tty.then(Terminal::default));
    let mut echo = Vec::new();
    for (at, data) in &life.inputs.stdin {
        let after = at.saturating_since(life.since);
        // The agent limits the size of the input.
        let shown = typing.receive(after, data.clone(), terminal.as_mut());
        let shown = String::from_utf8_lossy(&shown.unwrap_or_default()).replace("\r\n", "\n");
        echo.push((after, shown));
    }
    // A terminal without a client does not end.
    let is_open = tty || life.container["stdin"].bool();
    let io = ProcessIo {
        input: is_open.then_some(&typing.input),
        echo: &echo,
        tty,
        is_exec: false,
        records_from,
    };
    Some(program.run(&environment, io, limits))
}

/// The log lines of a container up to `now`, the latest if there are many.
pub(crate) fn lines(life: &ContainerLife, now: Moment) -> Vec<LogLine> {
    let (since, tty) = (life.since, life.container["tty"].bool());
    let limits = ShellLimits::until(now.saturating_since(since));
    let printed = run(life, None, limits).map_or_else(Vec::new, |progress| progress.lines);
    let line = |(after, text): (Duration, String)| LogLine {
        at: since + after,
        text: if tty { text + "\r" } else { text },
    };
    printed.into_iter().map(line).collect()
}

/// The output of a container from `from` up to `now`.
pub(crate) fn output(life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk> {
    let limits = ShellLimits {
        lines: 0,
        ..ShellLimits::until(now.saturating_since(life.since))
    };
    let tty = life.container["tty"].bool();
    let printed = run(life, Some(from.saturating_since(life.since)), limits);
    let chunk = |(descriptor, text): (Descriptor, String)| Chunk {
        is_error: descriptor == Descriptor::Stderr && !tty,
        text: if tty { cooked(&text) } else { text },
    };
    let printed = printed.map_or_else(Vec::new, |progress| progress.output);
    printed.into_iter().map(chunk).collect()
}

/// The result of an exec probe at `at`: whether it succeeds, and its output. `None` if the command
/// is not known.
pub(crate) fn probe(life: &ContainerLife, probe: &Value, at: Moment) -> Option<(bool, String)> {
    let words = probe_command(life.container, probe);
    let program = ShellProgram::container_status(&words)?;
    let environment = ContainerEnvironment {
        started: at,
        ..environment(life)
    };
    let timeout = crate::moment::seconds(&probe["timeoutSeconds"]).max(Duration::from_secs(1));
    let limits = ShellLimits {
        until: timeout,
        ..HORIZON
    };
    let io = ProcessIo {
        records_from: Some(Duration::ZERO),
        ..ProcessIo::default()
    };
    let progress = program.run(&environment, io, limits);
    match progress.state {
        ProgramState::Exited(code) => {
            let mut printed: String = progress.output.into_iter().map(|(_, text)| text).collect();
            let mut end = printed.len().min(MAX_PROBE_OUTPUT);
            while !printed.is_char_boundary(end) {
                end -= 1;
            }
            printed.truncate(end);
            Some((code == 0, printed))
        }
        ProgramState::Unknown => None,
        ProgramState::Sleeping(_) | ProgramState::Reading | ProgramState::Exhausted => Some((
            false,
            format!(
                "command timed out: {:?} timed out after {timeout:?}",
                words.join(" ")
            ),
        )),
    }
}

/// Whether a command has the same result at any time.
pub(crate) fn is_steady(container: &Value, probe: &Value) -> bool {
    let words = probe_command(container, probe);
    !shell::may_read_files(&words) && !words.iter().any(|word| word.contains("date"))
}

/// Kubernetes: variables are replaced by their literal values in the specification
/// (kubelet/container/helpers.go, `ExpandContainerCommandOnlyStatic`).
fn probe_command(container: &Value, probe: &Value) -> Vec<String> {
    let lookup = |name: &str| {
        let mut variables = container["env"].list().iter().rev();
        let variable = variables.find(|variable| variable["name"].str() == name)?;
        Some(variable["value"].str().into())
    };
    let words = probe["exec"]["command"].list().iter();
    words.map(|word| expand(word.str(), &lookup)).collect()
}

/// Whether a container or its probes run known commands that may read files.
pub(crate) fn reads_files(container: &Value) -> bool {
    let reads = |words: &[String]| {
        shell::may_read_files(words) && ShellProgram::container_status(words).is_some()
    };
    let probes = [
        ProbeType::Startup,
        ProbeType::Readiness,
        ProbeType::Liveness,
    ];
    reads(&words(container, &|_| None))
        || probes
            .iter()
            .any(|probe| reads(&probe_command(container, &container[field(*probe)])))
}

/// Kubernetes: without `command` the entry point of the image runs, with `args` behind it. Images
/// with `args` alone are assumed to have a shell or nothing as their entry point.
fn program(container: &Value, environment: &ContainerEnvironment) -> Option<ShellProgram> {
    // Kubernetes: `$(NAME)` does not resolve variables of the runtime.
    let is_own = |name: &str| {
        !ADDED.contains(&name)
            || container["env"]
                .list()
                .iter()
                .any(|one| one["name"].str() == name)
    };
    let lookup = |name: &str| {
        environment
            .variables
            .get(name)
            .filter(|_| is_own(name))
            .map(Str::from)
    };
    ShellProgram::container_status(&words(container, &lookup))
}

fn words(container: &Value, lookup: &dyn Fn(&str) -> Option<Str>) -> Vec<String> {
    let words = container["command"]
        .list()
        .iter()
        .chain(container["args"].list());
    words.map(|word| expand(word.str(), lookup)).collect()
}

/// The variables that a container runtime adds.
const ADDED: [&str; 2] = ["HOSTNAME", "PATH"];

/// The environment of a container: its variables and the files of its volumes.
pub(crate) fn environment(life: &ContainerLife) -> ContainerEnvironment {
    let ContainerLife {
        pod,
        container,
        since,
        inputs,
        node,
    } = *life;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let added = ADDED
        .map(String::from)
        .into_iter()
        .zip([hostname(pod), path.into()]);
    let mut variables: BTreeMap<String, String> = added.collect();
    let of_specification = || {
        let (status, found) = (&pod["status"], &BTreeMap::new());
        // The Services at its start, unless it started before they had synced.
        let services = match inputs.services.is_empty() {
            true => node.services(),
            false => &inputs.services,
        };
        let node = match node.host_ip {
            "" => NodeContext {
                host_ip: status["hostIP"].str(),
                ..node
            },
            _ => node,
        };
        InputSources {
            pod,
            pod_ips: &PodAddresses::of_status(status),
            node,
            services,
            found,
            from_files: &NO_VARIABLES,
        }
        .variables(container)
    };
    let own = inputs.variables.clone().unwrap_or_else(of_specification);
    variables.extend(
        own.into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    ContainerEnvironment {
        variables,
        files: inputs.files.clone(),
        mounts: known_mounts(pod, container).map(String::from).collect(),
        started: since,
    }
}

/// Kubernetes: `hostnameOverride`, `hostname` or the pod's name, truncated to 63 characters; the
/// node's name on the host network (kubelet_pods.go, `GeneratePodHostNameAndDomain`).
fn hostname(pod: &Value) -> String {
    let spec = &pod["spec"];
    let own = [
        &spec["hostnameOverride"],
        &spec["hostname"],
        &pod["metadata"]["name"],
    ];
    let name = match spec["hostNetwork"].bool() {
        true => spec["nodeName"].str(),
        false => own
            .into_iter()
            .map(Value::str)
            .find(|name| !name.is_empty())
            .unwrap_or_default(),
    };
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).into()
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;
    use crate::pod::inputs::NO_INPUTS;

    fn pod(container: &str) -> Value {
        let text = format!(
            r#"{{"metadata":{{"name":"web-0","namespace":"shop","labels":{{"app":"web"}}}},"spec":{{"containers":[{container}]}}}}"#
        );
        json::parse(text.as_bytes()).expect("sound JSON")
    }

    #[track_caller]
    fn check(container: &str, expected: Option<ProgramOutcome>, printed: &[(u64, &str)]) {
        let pod = pod(container);
        let container = &pod["spec"]["containers"][0];
        let (since, inputs) = (Moment::from_secs(1_000), &NO_INPUTS);
        let life = ContainerLife {
            pod: &pod,
            container,
            since,
            inputs,
            node: NodeContext::NONE,
        };
        assert_eq!(outcome(&life), expected, "{container:?}");
        let found = lines(&life, since + Duration::from_secs(60));
        let found: Vec<(u64, &str)> = found
            .iter()
            .map(|line| {
                (
                    line.at.saturating_since(since).as_secs(),
                    line.text.as_str(),
                )
            })
            .collect();
        assert_eq!(found, printed, "{container:?}");
    }

    #[test]
    fn the_hostname_is_the_override_the_hostname_or_the_pod_name() {
        let long = "a".repeat(62) + "-b";
        for (spec, expected) in [
            ("{}", "web-0"),
            (r#"{"hostname":"h"}"#, "h"),
            (
                r#"{"hostname":"h","hostnameOverride":"o.example"}"#,
                "o.example",
            ),
            (r#"{"hostNetwork":true,"nodeName":"node-7"}"#, "node-7"),
            (&format!(r#"{{"hostname":"{long}"}}"#), &long[..62]),
        ] {
            let text = format!(r#"{{"metadata":{{"name":"web-0"}},"spec":{spec}}}"#);
            let pod = json::parse(text.as_bytes()).expect("sound JSON");
            assert_eq!(hostname(&pod), expected, "{spec}");
        }
    }

    #[test]
    fn commands_and_arguments_are_run_with_the_environment() {
        let ended = |after: u64, code| {
            Some(ProgramOutcome::Exited {
                after: Duration::from_secs(after),
                code,
            })
        };
        check(r#"{"command":["echo","YAY"]}"#, ended(0, 0), &[(0, "YAY")]);
        check(
            r#"{"args":["sh","-c","sleep 5; exit 2"]}"#,
            ended(5, 2),
            &[],
        );
        check(
            r#"{"command":["sh","-c"],"args":["echo $A; echo $HOSTNAME"],"env":[{"name":"A","value":"b"}]}"#,
            ended(0, 0),
            &[(0, "b"), (0, "web-0")],
        );
        check(
            r#"{"command":["echo","$(A)","$$(A)","$(B)"],"env":[{"name":"A","value":"x"}]}"#,
            ended(0, 0),
            &[(0, "x $(A) $(B)")],
        );
        check(
            r#"{"command":["echo","$(HOSTNAME)"]}"#,
            ended(0, 0),
            &[(0, "$(HOSTNAME)")],
        );
        let fields = r#"{"command":["echo","$(NS)/$(APP)"],"env":[
            {"name":"NS","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}},
            {"name":"APP","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['app']"}}}]}"#;
        check(fields, ended(0, 0), &[(0, "shop/web")]);
        check(
            r#"{"command":["sleep","infinity"]}"#,
            Some(ProgramOutcome::Running),
            &[],
        );
        check(
            r#"{"command":["sh","-c","echo up; nginx"]}"#,
            Some(ProgramOutcome::Unknown {
                after: Duration::ZERO,
            }),
            &[(0, "up")],
        );
        check(r#"{"image":"nginx"}"#, None, &[]);
        check(r#"{"command":["nginx"]}"#, None, &[]);
    }
}
