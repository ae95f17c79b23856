//! What does a namespace demand of its pods? Its labels say so: a level and a version of it, for each of three ways
//! to deal with pods that do not keep to it.

use std::fmt;

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// How much is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Nothing.
    #[default]
    Privileged,
    /// Nothing that is known to give a pod more than its due.
    Baseline,
    /// What is good practice.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }
}

/// As of which version of Kubernetes: `v1.` and this, or the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Whatever the latest version demands.
    #[default]
    Latest,
    /// What this minor version demanded.
    Minor(u64),
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = digits == "0" || !digits.starts_with('0');
        let is_number = is_number && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number
            .then(|| digits.parse().ok().map(Version::Minor))
            .flatten()
    }
}

/// A level as of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standard {
    /// How much.
    pub level: Level,
    /// As of when.
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// What happens with pods that do not keep to a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// They are refused.
    pub enforce: Standard,
    /// It is noted for those who look after the cluster.
    pub audit: Standard,
    /// Their maker is warned.
    pub warn: Standard,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// What a namespace's labels say; where they say nothing, `defaults` count. What makes no sense is noted.
    pub fn of(labels: &Value, defaults: &Policy, problems: &mut Violations) -> Policy {
        let mut reader = Reader { labels, problems };
        let mut policy = *defaults;
        let enforced = reader.level("enforce", Level::Restricted, &mut policy.enforce.level);
        reader.version("enforce", &mut policy.enforce.version);
        reader.level("audit", Level::Privileged, &mut policy.audit.level);
        reader.version("audit", &mut policy.audit.version);
        let warned = reader.level("warn", Level::Privileged, &mut policy.warn.level);
        let warned_version = reader.version("warn", &mut policy.warn.version);
        // Whoever enforces more than is warned of is warned of that.
        if warned == Label::Absent
            && enforced == Label::Sound
            && policy.enforce.level > policy.warn.level
        {
            policy.warn.level = policy.enforce.level;
            if warned_version == Label::Absent {
                policy.warn.version = policy.enforce.version;
            }
        }
        policy
    }

    /// Whether nothing is demanded.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|standard| standard.level == Level::Privileged)
    }

    /// Whether two policies demand the same, whatever the version of demanding nothing is.
    pub fn is_like(&self, other: &Policy) -> bool {
        let like = |one: Standard, other: Standard| {
            one == other || one.level == Level::Privileged && other.level == Level::Privileged
        };
        like(self.enforce, other.enforce)
            && like(self.audit, other.audit)
            && like(self.warn, other.warn)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Absent,
    Sound,
    Broken,
}

struct Reader<'a> {
    labels: &'a Value,
    problems: &'a mut Violations,
}

impl Reader<'_> {
    fn level(&mut self, mode: &str, fallback: Level, into: &mut Level) -> Label {
        let detail = "must be one of privileged, baseline, restricted";
        self.read(
            &format!("{PREFIX}{mode}"),
            Level::parse,
            fallback,
            detail,
            into,
        )
    }

    fn version(&mut self, mode: &str, into: &mut Version) -> Label {
        let label = format!("{PREFIX}{mode}-version");
        self.read(
            &label,
            Version::parse,
            Version::Latest,
            "must be \"latest\" or \"v1.x\"",
            into,
        )
    }

    fn read<T>(
        &mut self,
        label: &str,
        parse: fn(&str) -> Option<T>,
        fallback: T,
        detail: &str,
        into: &mut T,
    ) -> Label {
        let Some(text) = self.labels[label].as_str() else {
            return Label::Absent;
        };
        let found = parse(text);
        let outcome = if found.is_some() {
            Label::Sound
        } else {
            Label::Broken
        };
        if outcome == Label::Broken {
            let path = Path::new("metadata");
            self.problems
                .invalid(path.child("labels").key(label), text, detail);
        }
        *into = found.unwrap_or(fallback);
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
        let Policy {
            enforce,
            audit,
            warn,
        } = Policy::of(&labels, &Policy::default(), &mut problems);
        assert_eq!(format!("{enforce} {audit} {warn}"), expected);
        assert_eq!(problems.0.len(), n_problems);
    }

    #[test]
    fn labels_say_what_is_demanded() {
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
    fn what_makes_no_sense_is_as_strict_as_can_be_where_it_counts() {
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
