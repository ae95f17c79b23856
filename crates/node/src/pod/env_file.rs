//! Variables from files: `fileKeyRef` names a key of a file in a volume of the pod.
//!
//! A file has lines `KEY='value'`. A value is in single quotes, is taken as it is, and may have several lines. Blank
//! lines and comments are left out (upstream: pkg/kubelet/util/env).

use std::io;
use std::path::PathBuf;

use mizzen_value::{Str, Value};

use super::inputs::Variables;

/// Kubernetes: a line must be shorter (Go's `bufio.MaxScanTokenSize`).
const MAX_LINE: usize = 64 * 1024;

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeText {
    /// Where it is on the node.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// Why a file of variables is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum EnvFileError {
    #[error("invalid environment variable format at line {0}: missing '='")]
    NoEquals(usize),
    #[error("invalid environment variable format at line {0}: empty variable name")]
    NoName(usize),
    #[error(
        "invalid environment variable format at line {0}: whitespace before '=' is not allowed"
    )]
    SpaceBeforeEquals(usize),
    #[error(
        "invalid environment variable format at line {0}: value must be enclosed in single quotes"
    )]
    NotQuoted(usize),
    #[error(
        "invalid environment variable format at line {0}: unexpected content after closing quote"
    )]
    AfterQuote(usize),
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
    #[error("line {0} is too long")]
    TooLong(usize),
}

/// The values of a container's variables from files, by name; those that are missing and optional
/// are left out. The error is the message of the container's status.
pub(super) fn file_variables(
    container: &Value,
    read: &dyn Fn(&str, &str) -> io::Result<VolumeText>,
) -> Result<Variables, String> {
    let mut variables = Variables::new();
    for variable in container["env"].list() {
        let reference = &variable["valueFrom"]["fileKeyRef"];
        if reference.is_null() || !variable["value"].is_empty() {
            continue;
        }
        let [volume, path, key] = ["volumeName", "path", "key"].map(|field| reference[field].str());
        // Kubernetes: a file that is missing is an error even if the key is optional, and what is
        // wrong with it is only logged (kubelet_pods.go, `makeEnvironmentVariables`).
        let invalid = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, volume, path, "cannot read variables from a file");
            "couldn't parse env file".to_owned()
        };
        let file = read(volume, path).map_err(|error| invalid(&error))?;
        let value = value_of(&file.text, key).map_err(|error| invalid(&error))?;
        match value {
            Some(value) => drop(variables.insert(variable["name"].str().into(), value)),
            None if reference["optional"].bool() => {}
            None => {
                let file = file.path.display().to_string();
                return Err(format!(
                    "environment variable key {key:?} not found in file {file:?}"
                ));
            }
        }
    }
    Ok(variables)
}

/// The value of a key. Kubernetes: an empty value is that of a key that is missing, the first
/// value counts, and what follows it is not checked.
fn value_of(text: &str, key: &str) -> Result<Option<Str>, EnvFileError> {
    let blank = [' ', '\t'];
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let mut lines = lines
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .zip(1..);
    while let Some((line, n)) = lines.next() {
        if line.len() >= MAX_LINE {
            return Err(EnvFileError::TooLong(n));
        }
        let line = line.trim_start_matches(blank);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(EnvFileError::NoEquals(n))?;
        match name.trim_end_matches(blank) {
            "" => return Err(EnvFileError::NoName(n)),
            trimmed if trimmed != name => return Err(EnvFileError::SpaceBeforeEquals(n)),
            _ => {}
        }
        // A shell takes what follows white space for a command.
        if value.starts_with(blank) {
            match name == key {
                true => return Ok(None),
                false => continue,
            }
        }
        let mut rest = value.strip_prefix('\'').ok_or(EnvFileError::NotQuoted(n))?;
        let (mut value, mut last) = (String::new(), n);
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches(blank);
            }
            value.push_str(rest);
            value.push('\n');
            let next = lines.next().filter(|(line, _)| line.len() < MAX_LINE);
            (rest, last) = next.ok_or(EnvFileError::Unclosed(n))?;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return Err(EnvFileError::AfterQuote(last));
        }
        if name == key {
            return Ok((!value.is_empty()).then(|| value.into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    /// The value of the key `K`.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match value_of(text, "K") {
            Ok(value) => value.as_deref().unwrap_or_default().to_owned(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn a_value_is_what_is_in_single_quotes() {
        check("K='a'", "a");
        check("\n# about K\n \t K='a b' \t# said\nL='c'\n", "a b");
        check("A='1'\r\nK='2'\r\n", "2");
        check(
            "K='$HOME `x` \"q\" \\n = # \u{e9}'",
            "$HOME `x` \"q\" \\n = # \u{e9}",
        );
        check("K='one\n # two\n\nthree '\nL=''", "one\n # two\n\nthree ");
        // The first one counts, and what follows is not checked.
        check("K='1'\nK='2'\n?", "1");
        check("k='1'", "");
        check("K=''", "");
        check("K= '1'\nK='2'", "");
        check("L= '1'\nK='2'", "2");
        check("", "");
    }

    #[test]
    fn an_invalid_line_is_named() {
        let invalid = |n: usize, what: &str| {
            format!("error: invalid environment variable format at line {n}: {what}")
        };
        let quoted = "value must be enclosed in single quotes";
        check("A='1'\nK", &invalid(2, "missing '='"));
        check("=1", &invalid(1, "empty variable name"));
        check(
            "K ='1'",
            &invalid(1, "whitespace before '=' is not allowed"),
        );
        check("K=1", &invalid(1, quoted));
        check("K=\"1\"", &invalid(1, quoted));
        check("K=", &invalid(1, quoted));
        check("export K=1", &invalid(1, quoted));
        let after = "unexpected content after closing quote";
        check("K='1\n2'3", &invalid(2, after));
        check("K='1''2'", &invalid(1, after));
        let unclosed =
            "error: invalid environment variable format starting at line 2: unclosed single quote";
        check("\nK='1\n2", unclosed);
        let long = format!("A='{}'\nK='1'", "a".repeat(MAX_LINE));
        check(&long, "error: line 1 is too long");
    }

    #[test]
    fn a_container_has_the_variables_of_its_files() {
        let files = |volume: &str, path: &str| match (volume, path) {
            ("v", "a.env") => Ok(VolumeText {
                path: "/node/v/a.env".into(),
                text: "ONE='1'\n".into(),
            }),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        #[track_caller]
        fn check(
            reference: &str,
            read: &dyn Fn(&str, &str) -> io::Result<VolumeText>,
            expected: Result<&[(&str, &str)], &str>,
        ) {
            let text = format!(
                "{{env: [{{name: PLAIN, value: x}}, {{name: A, valueFrom: {{fileKeyRef: {{{reference}}}}}}}]}}"
            );
            let container = yaml::read(text.as_bytes()).unwrap().value;
            let found = file_variables(&container, read);
            let pair = |(name, value): &(&str, &str)| (Str::from(*name), Str::from(*value));
            let expected = expected.map(|list| list.iter().map(pair).collect());
            assert_eq!(found, expected.map_err(str::to_owned), "{reference}");
        }
        let key = |key: &str| format!("volumeName: v, path: a.env, key: {key}");
        check(&key("ONE"), &files, Ok(&[("A", "1")]));
        check(&key("TWO, optional: true"), &files, Ok(&[]));
        let missing = "environment variable key \"TWO\" not found in file \"/node/v/a.env\"";
        check(&key("TWO"), &files, Err(missing));
        let other = "volumeName: v, path: b.env, key: ONE, optional: true";
        check(other, &files, Err("couldn't parse env file"));
    }
}
