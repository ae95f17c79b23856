//! What do the plain commands of a container do? Its `command` and `args`, run by [`shell`] with its environment.

use std::collections::BTreeMap;
use std::time::Duration;

use mizzen_object::{Str, Value};

use super::{ContainerLife, Line};
use crate::moment::Moment;
use crate::pod::inputs::{NodeContext, Sources, expand, known_mounts};
use crate::shell::{self, Environment, Limits, Outcome, Script};

/// How far a script is followed to find its end: a container whose end lies beyond that runs for ever.
const HORIZON: Limits = Limits {
    until: Duration::from_secs(366 * 24 * 3_600),
    steps: 20_000,
    lines: 0,
};

/// How a container ends; none if nothing is known of its program.
pub(crate) fn outcome(life: &ContainerLife) -> Option<Outcome> {
    let environment = environment(life);
    Some(
        script(life.container, &environment)?
            .run(&environment, HORIZON)
            .outcome,
    )
}

/// What a container has printed up to `now`, the latest lines if there are many.
pub(crate) fn lines(life: &ContainerLife, now: Moment) -> Vec<Line> {
    let (environment, since) = (environment(life), life.since);
    let Some(script) = script(life.container, &environment) else {
        return Vec::new();
    };
    let printed = script
        .run(&environment, Limits::until(now.saturating_since(since)))
        .lines;
    printed
        .into_iter()
        .map(|(after, text)| Line {
            at: since + after,
            text,
        })
        .collect()
}

/// Whether a container runs commands that are known and may read files.
pub(crate) fn reads_files(container: &Value) -> bool {
    let words = words(container, &|_| None);
    shell::may_read_files(&words) && shell::parse(&words).is_some()
}

/// Kubernetes: without `command` the image's entry point runs, with `args` behind it. Images that are given `args` alone are
/// those whose entry point is a shell or nothing at all.
fn script(container: &Value, environment: &Environment) -> Option<Script> {
    // Kubernetes: what the runtime adds is not known to `$(NAME)`.
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
    shell::parse(&words(container, &lookup))
}

fn words(container: &Value, lookup: &dyn Fn(&str) -> Option<Str>) -> Vec<String> {
    let words = container["command"]
        .list()
        .iter()
        .chain(container["args"].list());
    words.map(|word| expand(word.str(), lookup)).collect()
}

/// What a container runtime adds to the environment.
const ADDED: [&str; 2] = ["HOSTNAME", "PATH"];

/// What a command in a container sees: its variables and the files of its volumes.
pub(crate) fn environment(life: &ContainerLife) -> Environment {
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
        let node = match node.host_ip {
            "" => NodeContext {
                host_ip: status["hostIP"].str(),
                ..node
            },
            _ => node,
        };
        Sources {
            pod,
            pod_ip: status["podIP"].str(),
            node,
            found,
        }
        .variables(container)
    };
    let own = inputs.variables.clone().unwrap_or_else(of_specification);
    variables.extend(
        own.into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    Environment {
        variables,
        files: inputs.files.clone(),
        mounts: known_mounts(pod, container).map(String::from).collect(),
        started: since,
    }
}

/// Kubernetes: the pod's own or its name, cut off at 63 characters; the node's for one that uses its network.
fn hostname(pod: &Value) -> String {
    let spec = &pod["spec"];
    let name = match (spec["hostNetwork"].bool(), spec["hostname"].str()) {
        (true, _) => spec["nodeName"].str(),
        (_, "") => pod["metadata"]["name"].str(),
        (_, hostname) => hostname,
    };
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).into()
}

#[cfg(test)]
mod tests {
    use mizzen_object::json;

    use super::*;
    use crate::pod::inputs::NO_INPUTS;

    fn pod(container: &str) -> Value {
        let text = format!(
            r#"{{"metadata":{{"name":"web-0","namespace":"shop","labels":{{"app":"web"}}}},"spec":{{"containers":[{container}]}}}}"#
        );
        json::parse(text.as_bytes()).expect("sound JSON")
    }

    #[track_caller]
    fn check(container: &str, expected: Option<Outcome>, printed: &[(u64, &str)]) {
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
    fn commands_and_arguments_are_run_with_the_environment() {
        let ended = |after: u64, code| {
            Some(Outcome::Exited {
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
            Some(Outcome::Running),
            &[],
        );
        check(
            r#"{"command":["sh","-c","echo up; nginx"]}"#,
            Some(Outcome::Unknown {
                after: Duration::ZERO,
            }),
            &[(0, "up")],
        );
        check(r#"{"image":"nginx"}"#, None, &[]);
        check(r#"{"command":["nginx"]}"#, None, &[]);
    }
}
