//! What commands in a simulated container answer: scripted, from an annotation for all containers of
//! the pod or for one.

use std::time::Duration;

use mizzen_value::time::duration_nanos;
use mizzen_value::{Value, json, yaml};

use crate::script::check_containers;

/// The annotation with the answers of a pod; with a dot and a container's name, of that container.
pub(super) const EXEC: &str = "mizzen.dev/exec";

/// Answers by command; a command that ends with `*` matches as a prefix.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ExecScript(Vec<(String, ExecAnswer)>);

/// The answer of a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ExecAnswer {
    pub stdout: String,
    pub stderr: String,
    pub exit: i64,
    /// How long it takes.
    pub after: Duration,
}

impl ExecScript {
    /// The answers of a container. Its own annotation precedes that of the pod.
    pub(super) fn of_container(pod: &Value, container: &str) -> Result<ExecScript, String> {
        let annotations = &pod["metadata"]["annotations"];
        let own = format!("{EXEC}.{container}");
        let name = match annotations[own.as_str()].is_null() {
            true => EXEC,
            false => own.as_str(),
        };
        match annotations[name].as_str() {
            Some(text) => ExecScript::parse(text).map_err(|problem| format!("{name}: {problem}")),
            None => Ok(ExecScript::default()),
        }
    }

    /// Checks the annotations of a pod.
    pub(super) fn check(pod: &Value) -> Result<(), String> {
        let annotations = pod["metadata"]["annotations"].entries();
        let named = annotations.filter_map(|(name, _)| name.strip_prefix(EXEC)?.strip_prefix('.'));
        let named: Vec<&str> = named.collect();
        check_containers(pod, EXEC, named.iter().copied())?;
        for container in named.into_iter().chain([""]) {
            ExecScript::of_container(pod, container)?;
        }
        Ok(())
    }

    fn parse(text: &str) -> Result<ExecScript, String> {
        let read = yaml::to_json(text.as_bytes()).map_err(|error| error.to_string())?;
        let answers = json::parse(&read).map_err(|error| error.to_string())?;
        if !matches!(answers, Value::Map(_)) {
            return Err("it is not a map from commands to answers".into());
        }
        let parsed = answers.entries().map(|(command, answer)| {
            let answer = ExecAnswer::parse(answer);
            let answer = answer.map_err(|problem| format!("{command}: {problem}"))?;
            Ok((command.to_owned(), answer))
        });
        parsed.collect::<Result<_, _>>().map(ExecScript)
    }

    /// The answer of a command, if there is one. The longest prefix wins.
    pub(super) fn find(&self, command: &[String]) -> Option<&ExecAnswer> {
        let command = command.join(" ");
        let exact = self.0.iter().find(|(known, _)| *known == command);
        let begins = |known: &str| {
            let begin = known.strip_suffix('*');
            begin.is_some_and(|begin| command.starts_with(begin))
        };
        let prefixes = self.0.iter().filter(|(known, _)| begins(known));
        let found = exact.or_else(|| prefixes.max_by_key(|(known, _)| known.len()));
        found.map(|(_, answer)| answer)
    }
}

impl ExecAnswer {
    /// A string is the output; an object has `stdout`, `stderr`, `exit` and `after`.
    fn parse(value: &Value) -> Result<ExecAnswer, String> {
        let mut answer = ExecAnswer::default();
        if let Some(text) = value.as_str() {
            answer.stdout = whole_lines(text);
            return Ok(answer);
        }
        if !matches!(value, Value::Map(_)) {
            return Err("an answer is a text, or has stdout, stderr, exit and after".into());
        }
        for (field, part) in value.entries() {
            match (field, part) {
                ("stdout", Value::String(_)) => answer.stdout = whole_lines(part.str()),
                ("stderr", Value::String(_)) => answer.stderr = whole_lines(part.str()),
                ("exit", Value::Int(code)) if (0..256).contains(code) => answer.exit = *code,
                ("exit", Value::Int(code)) => return Err(format!("{code} is not an exit code")),
                ("after", Value::String(_)) => {
                    let nanos = duration_nanos(part.str()).ok();
                    let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
                    let nanos = nanos.ok_or_else(|| format!("{:?} is not a time", part.str()))?;
                    answer.after = Duration::from_nanos(nanos);
                }
                _ => {
                    return Err(format!(
                        "the field {field:?} is unknown or of the wrong type"
                    ));
                }
            }
        }
        Ok(answer)
    }
}

/// A text with an end of line.
fn whole_lines(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.into(),
        false => format!("{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn pod(annotations: Value) -> Value {
        value!({
            "metadata": { "annotations": (annotations) },
            "spec": { "containers": [{ "name": "db" }, { "name": "other" }] },
        })
    }

    #[test]
    fn a_command_has_its_own_answer_or_that_of_the_longest_prefix() {
        let text = "pg_isready: accepting\npsql *: {stderr: none, exit: 2, after: 1s}\npsql -c *: rows\n'*': any";
        let pod = pod(value!({ "mizzen.dev/exec": text, "mizzen.dev/exec.other": "id: root" }));
        assert_eq!(ExecScript::check(&pod), Ok(()));
        let shown = |container: &str, command: &str| {
            let script = ExecScript::of_container(&pod, container).unwrap();
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let answer = script.find(&words).cloned();
            answer.map(|it| {
                format!(
                    "{}{}{} {}",
                    it.stdout,
                    it.stderr,
                    it.exit,
                    it.after.as_secs()
                )
            })
        };
        assert_eq!(shown("db", "pg_isready").unwrap(), "accepting\n0 0");
        assert_eq!(shown("db", "psql -l").unwrap(), "none\n2 1");
        assert_eq!(shown("db", "psql -c select").unwrap(), "rows\n0 0");
        assert_eq!(shown("db", "ls").unwrap(), "any\n0 0");
        assert_eq!(shown("other", "id").unwrap(), "root\n0 0");
        assert_eq!(shown("other", "ls"), None);
    }

    #[test]
    fn an_invalid_annotation_names_the_problem() {
        #[track_caller]
        fn check(name: &str, text: &str, expected: &str) {
            let mut annotations = Value::object();
            annotations.set(name, text);
            let problem = ExecScript::check(&pod(annotations)).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        check(
            EXEC,
            "text",
            "mizzen.dev/exec: it is not a map from commands to answers",
        );
        check(
            EXEC,
            "a: 5",
            "a: an answer is a text, or has stdout, stderr, exit and after",
        );
        check(EXEC, "a: {exit: 300}", "a: 300 is not an exit code");
        check(EXEC, "a: {after: soon}", "a: \"soon\" is not a time");
        check(
            EXEC,
            "a: {code: 1}",
            "a: the field \"code\" is unknown or of the wrong type",
        );
        check("mizzen.dev/exec.none", "a: b", "none");
    }
}
