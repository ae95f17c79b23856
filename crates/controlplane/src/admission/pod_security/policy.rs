//! The policy of a namespace: a level and a version for each of the modes `enforce`, `audit` and `warn`.

use std::fmt;

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// A level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum StandardLevel {
    /// Unrestricted.
    #[default]
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Current best practice of hardening.
    Restricted,
}

impl StandardLevel {
    fn parse(text: &str) -> Option<StandardLevel> {
        match text {
            "privileged" => Some(StandardLevel::Privileged),
            "baseline" => Some(StandardLevel::Baseline),
            "restricted" => Some(StandardLevel::Restricted),
            _ => None,
        }
    }
}

/// The version of a standard: `v1.N` or `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StandardVersion {
    /// `latest`.
    #[default]
    Latest,
    /// `v1.N`.
    Minor(u64),
}

impl StandardVersion {
    fn parse(text: &str) -> Option<StandardVersion> {
        if text == "latest" {
            return Some(StandardVersion::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = digits == "0" || !digits.starts_with('0');
        let is_number = is_number && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number
            .then(|| digits.parse().ok().map(StandardVersion::Minor))
            .flatten()
    }
}

/// A level as of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standard {
    /// The level.
    pub level: StandardLevel,
    /// The version.
    pub version: StandardVersion,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            StandardLevel::Privileged => "privileged",
            StandardLevel::Baseline => "baseline",
            StandardLevel::Restricted => "restricted",
        };
        match self.version {
            StandardVersion::Latest => write!(f, "{level}:latest"),
            StandardVersion::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// The standards of the three modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespacePolicy {
    /// Violating pods are rejected.
    pub enforce: Standard,
    /// Violations are audit annotations.
    pub audit: Standard,
    /// The user is warned.
    pub warn: Standard,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl NamespacePolicy {
    /// Reads the labels of a namespace, with `defaults` for missing ones. Invalid values are added to `problems`.
    pub fn from_labels(
        labels: &Value,
        defaults: &NamespacePolicy,
        problems: &mut Violations,
    ) -> NamespacePolicy {
        let mut reader = LabelReader { labels, problems };
        let mut policy = *defaults;
        let enforced = reader.level(
            "enforce",
            StandardLevel::Restricted,
            &mut policy.enforce.level,
        );
        reader.version("enforce", &mut policy.enforce.version);
        reader.level("audit", StandardLevel::Privileged, &mut policy.audit.level);
        reader.version("audit", &mut policy.audit.version);
        let warned = reader.level("warn", StandardLevel::Privileged, &mut policy.warn.level);
        let warned_version = reader.version("warn", &mut policy.warn.version);
        // A stricter `enforce` implies `warn`.
        if warned == Label::Absent
            && enforced == Label::Valid
            && policy.enforce.level > policy.warn.level
        {
            policy.warn.level = policy.enforce.level;
            if warned_version == Label::Absent {
                policy.warn.version = policy.enforce.version;
            }
        }
        policy
    }

    /// Whether all modes are privileged.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|standard| standard.level == StandardLevel::Privileged)
    }

    /// Whether two policies are equal; the version of the privileged level does not count.
    pub fn is_like(&self, other: &NamespacePolicy) -> bool {
        let like = |one: Standard, other: Standard| {
            one == other
                || one.level == StandardLevel::Privileged
                    && other.level == StandardLevel::Privileged
        };
        like(self.enforce, other.enforce)
            && like(self.audit, other.audit)
            && like(self.warn, other.warn)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Absent,
    Valid,
    Invalid,
}

/// How a label is parsed, and what counts if it is invalid.
struct LabelRule<T> {
    label: String,
    parse: fn(&str) -> Option<T>,
    fallback: T,
    detail: &'static str,
}

struct LabelReader<'a> {
    labels: &'a Value,
    problems: &'a mut Violations,
}

impl LabelReader<'_> {
    fn level(&mut self, mode: &str, fallback: StandardLevel, into: &mut StandardLevel) -> Label {
        let rule = LabelRule {
            label: format!("{PREFIX}{mode}"),
            parse: StandardLevel::parse,
            fallback,
            detail: "must be one of privileged, baseline, restricted",
        };
        self.read(rule, into)
    }

    fn version(&mut self, mode: &str, into: &mut StandardVersion) -> Label {
        let rule = LabelRule {
            label: format!("{PREFIX}{mode}-version"),
            parse: StandardVersion::parse,
            fallback: StandardVersion::Latest,
            detail: "must be \"latest\" or \"v1.x\"",
        };
        self.read(rule, into)
    }

    fn read<T>(&mut self, rule: LabelRule<T>, into: &mut T) -> Label {
        let label = rule.label.as_str();
        let Some(text) = self.labels[label].as_str() else {
            return Label::Absent;
        };
        let found = (rule.parse)(text);
        let outcome = if found.is_some() {
            Label::Valid
        } else {
            Label::Invalid
        };
        if outcome == Label::Invalid {
            let path = Path::new("metadata");
            self.problems
                .invalid(path.child("labels").key(label), text, rule.detail);
        }
        *into = found.unwrap_or(rule.fallback);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(labels: &str, expected: &str, n_problems: usize) {
        let labels = labels.replace('@', PREFIX);
        let mut problems = Violations::default();
        let labels = json::parse(labels.as_bytes()).unwrap();
        let NamespacePolicy {
            enforce,
            audit,
            warn,
        } = NamespacePolicy::from_labels(&labels, &NamespacePolicy::default(), &mut problems);
        assert_eq!(format!("{enforce} {audit} {warn}"), expected);
        assert_eq!(problems.0.len(), n_problems);
    }

    #[test]
    fn labels_set_the_standards() {
        check(
            "{}",
            "privileged:latest privileged:latest privileged:latest",
            0,
        );
        let expected = "baseline:v1.20 privileged:latest baseline:v1.20";
        check(
            r#"{"@enforce":"baseline","@enforce-version":"v1.20"}"#,
            expected,
            0,
        );
        check(
            r#"{"@enforce":"baseline","@warn":"restricted","@audit":"restricted","@warn-version":"v1.9"}"#,
            "baseline:latest restricted:latest restricted:v1.9",
            0,
        );
    }

    #[test]
    fn an_invalid_enforce_label_is_restricted() {
        check(
            r#"{"@enforce":"x"}"#,
            "restricted:latest privileged:latest privileged:latest",
            1,
        );
        check(
            r#"{"@warn":"x","@audit":"y","@warn-version":"v1.07"}"#,
            "privileged:latest privileged:latest privileged:latest",
            3,
        );
    }
}
