//! What do the plain commands of a container do? Its `command` and `args`, run by [`shell`] with its environment.

use std::time::Duration;

use mizzen_object::Value;

use super::Line;
use crate::moment::Moment;
use crate::shell::{self, Environment, Limits, Outcome, Script};

/// How far a script is followed to find its end: a container whose end lies beyond that runs for ever.
const HORIZON: Limits = Limits { until: Duration::from_secs(366 * 24 * 3_600), steps: 20_000, lines: 0 };

/// How a container ends; none if nothing is known of its program.
pub(crate) fn outcome(pod: &Value, container: &Value) -> Option<Outcome> {
    let environment = environment(pod, container, Moment::default());
    Some(script(container, &environment)?.run(&environment, HORIZON).outcome)
}

/// What a container that started at `since` has printed up to `now`, the latest lines if there are many.
pub(crate) fn lines(pod: &Value, container: &Value, since: Moment, now: Moment) -> Vec<Line> {
    let environment = environment(pod, container, since);
    let Some(script) = script(container, &environment) else { return Vec::new() };
    let printed = script.run(&environment, Limits::until(now.saturating_since(since))).lines;
    printed.into_iter().map(|(after, text)| Line { at: since + after, text }).collect()
}

/// Kubernetes: without `command` the image's entry point runs, with `args` behind it. Images that are given `args` alone are
/// those whose entry point is a shell or nothing at all.
fn script(container: &Value, environment: &Environment) -> Option<Script> {
    let words = |field: &str| {
        container[field].list().iter().map(|word| expand(word.str(), environment)).collect::<Vec<_>>()
    };
    shell::parse(&[words("command"), words("args")].concat())
}

fn environment(pod: &Value, container: &Value, started: Moment) -> Environment {
    let mut environment = Environment { started, ..Environment::default() };
    let hostname = match pod["spec"]["hostname"].str() {
        "" => pod["metadata"]["name"].str(),
        hostname => hostname,
    };
    environment.variables.insert("HOSTNAME".into(), hostname.into());
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    environment.variables.insert("PATH".into(), path.into());
    for variable in container["env"].list() {
        let source = &variable["valueFrom"];
        let value = match source["fieldRef"]["fieldPath"].as_str() {
            Some(path) => field(pod, path),
            None if source.is_null() => Some(expand(variable["value"].str(), &environment)),
            None => None,
        };
        if let Some(value) = value {
            environment.variables.insert(variable["name"].str().into(), value);
        }
    }
    environment
}

/// Kubernetes: what `fieldRef` can name (pkg/fieldpath).
fn field(pod: &Value, path: &str) -> Option<String> {
    let metadata = &pod["metadata"];
    let keyed = |map: &str| {
        let key =
            path.strip_prefix("metadata.")?.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(metadata[map][key].str().to_owned())
    };
    let value = match path {
        "metadata.name" => &metadata["name"],
        "metadata.namespace" => &metadata["namespace"],
        "metadata.uid" => &metadata["uid"],
        "spec.nodeName" => &pod["spec"]["nodeName"],
        "spec.serviceAccountName" => &pod["spec"]["serviceAccountName"],
        "status.podIP" => &pod["status"]["podIP"],
        "status.hostIP" => &pod["status"]["hostIP"],
        _ => return keyed("labels").or_else(|| keyed("annotations")),
    };
    Some(value.str().into())
}

/// Kubernetes: `$(NAME)` is replaced where the variable is known, and `$$` is a dollar (third_party/forked/golang/expansion).
fn expand(text: &str, environment: &Environment) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let named = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match named {
            _ if after.starts_with('$') => {
                out.push('$');
                &after[1..]
            }
            Some((name, rest)) if environment.variables.contains_key(name) => {
                out.push_str(&environment.variables[name]);
                rest
            }
            _ => {
                out.push('$');
                after
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use mizzen_object::json;

    use super::*;

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
        assert_eq!(outcome(&pod, container), expected, "{container:?}");
        let since = Moment::from_secs(1_000);
        let found = lines(&pod, container, since, since + Duration::from_secs(60));
        let found: Vec<(u64, &str)> = found
            .iter()
            .map(|line| (line.at.saturating_since(since).as_secs(), line.text.as_str()))
            .collect();
        assert_eq!(found, printed, "{container:?}");
    }

    #[test]
    fn commands_and_arguments_are_run_with_the_environment() {
        let ended = |after: u64, code| Some(Outcome::Exited { after: Duration::from_secs(after), code });
        check(r#"{"command":["echo","YAY"]}"#, ended(0, 0), &[(0, "YAY")]);
        check(r#"{"args":["sh","-c","sleep 5; exit 2"]}"#, ended(5, 2), &[]);
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
        let fields = r#"{"command":["echo","$(NS)/$(APP)"],"env":[
            {"name":"NS","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}},
            {"name":"APP","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['app']"}}}]}"#;
        check(fields, ended(0, 0), &[(0, "shop/web")]);
        check(r#"{"command":["sleep","infinity"]}"#, Some(Outcome::Running), &[]);
        check(
            r#"{"command":["sh","-c","echo up; nginx"]}"#,
            Some(Outcome::Unknown { after: Duration::ZERO }),
            &[(0, "up")],
        );
        check(r#"{"image":"nginx"}"#, None, &[]);
        check(r#"{"command":["nginx"]}"#, None, &[]);
    }
}
