//! Simulated image pulls, from an annotation of the pod.
//!
//! `mizzen.dev/pull: "web: 3x fail; fail \"no such host\""`
//!
//! A clause applies to the container that it names, or to all without a clause of their own. It
//! says how often a pull fails, by default always, and why.

use mizzen_value::{Str, Value};

use super::check_containers;

/// The annotation with the failing pulls.
pub(super) const PULL: &str = "mizzen.dev/pull";

/// The failing pulls of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pulls(Vec<PullFailure>);

#[derive(Debug, Clone, PartialEq)]
struct PullFailure {
    container: Option<Str>,
    /// `None` for always.
    times: Option<u32>,
    why: Option<Str>,
}

impl Pulls {
    /// Parses a pod's annotation.
    pub fn from_pod(pod: &Value) -> Result<Pulls, String> {
        let text = pod["metadata"]["annotations"][PULL].str();
        let pulls = parse(text).map_err(|problem| format!("{PULL}: {problem}"))?;
        let named = pulls
            .0
            .iter()
            .filter_map(|failure| failure.container.as_deref());
        check_containers(pod, PULL, named).map(|()| pulls)
    }

    /// Why a pull fails after `n_tries` tries; `None` if it succeeds.
    pub fn failure(&self, container: &str, image: &str, n_tries: u32) -> Option<String> {
        let own = self
            .0
            .iter()
            .find(|failure| failure.container.as_deref() == Some(container));
        let common = || self.0.iter().find(|failure| failure.container.is_none());
        let failure = own
            .or_else(common)
            .filter(|failure| failure.times.is_none_or(|times| n_tries < times))?;
        // As containerd formats it.
        let not_found = || {
            format!(
                "rpc error: code = NotFound desc = failed to pull and unpack image {image:?}: failed to resolve reference \
                 {image:?}: {image}: not found"
            )
        };
        Some(failure.why.as_ref().map_or_else(not_found, Str::to_string))
    }
}

fn parse(text: &str) -> Result<Pulls, String> {
    let clauses = text
        .split(';')
        .map(str::trim)
        .filter(|clause| !clause.is_empty());
    let failures: Vec<PullFailure> = clauses.map(clause).collect::<Result<_, _>>()?;
    let twice = |(at, one): (usize, &PullFailure)| {
        failures[..at]
            .iter()
            .any(|other| other.container == one.container)
    };
    match failures.iter().enumerate().any(twice) {
        true => Err("there are two clauses for one container".into()),
        false => Ok(Pulls(failures)),
    }
}

fn clause(text: &str) -> Result<PullFailure, String> {
    let (said, why) = match text.split_once('"') {
        Some((said, rest)) => (
            said,
            Some(rest.strip_suffix('"').ok_or("a quotation is not closed")?),
        ),
        None => (text, None),
    };
    let (container, said) = match said.split_once(':') {
        Some((container, said)) => (Some(container.trim().into()), said),
        None => (None, said),
    };
    let mut words = said.split_whitespace();
    let mut word = words.next().unwrap_or_default();
    let times = word.strip_suffix('x').and_then(|times| times.parse().ok());
    if times.is_some() {
        word = words.next().unwrap_or_default();
    }
    match (word, words.next()) {
        ("fail", None) => Ok(PullFailure {
            container,
            times,
            why: why.map(Str::from),
        }),
        _ => Err(format!(
            "{text:?} is not \"fail\", nor so many times, such as \"3x fail\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, container: &str, n_tries: u32, expected: Option<&str>) {
        assert_eq!(
            parse(text)
                .unwrap()
                .failure(container, "i", n_tries)
                .as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn pulls_fail_as_often_as_scripted() {
        check("", "web", 0, None);
        check(r#"fail "no""#, "web", 1000, Some("no"));
        check(r#"2x fail "no""#, "web", 1, Some("no"));
        check(r#"2x fail "no""#, "web", 2, None);
        check(r#"web: fail "no"; 1x fail "nope""#, "web", 7, Some("no"));
        check(r#"web: fail "no"; 1x fail "nope""#, "db", 0, Some("nope"));
        check(r#"web: fail "no: never""#, "db", 0, None);
        assert!(
            parse("fail")
                .unwrap()
                .failure("web", "i", 0)
                .unwrap()
                .ends_with("i: not found")
        );
    }

    #[test]
    fn invalid_clauses_are_rejected() {
        for text in ["maybe", "3x", "fail now", r#"fail "no"#, "fail; fail"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
