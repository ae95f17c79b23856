//! The name of a cluster: a DNS label, or `default`.

use std::fmt;
use std::str::FromStr;

use mizzen_value::validation::names::is_dns1123_label;

/// The name of the cluster of commands without `--name`.
const DEFAULT: &str = "default";

/// Names of files in the directory of the default cluster, which has the directories of the other clusters, too.
const RESERVED: [&str; 4] = ["envtest", "lock", "reserve", "tip"];

/// The name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterName(String);

impl ClusterName {
    /// Whether it is the cluster of commands without `--name`.
    pub(crate) fn is_default(&self) -> bool {
        self.0 == DEFAULT
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ClusterName {
    fn default() -> Self {
        ClusterName(DEFAULT.into())
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match is_dns1123_label(text).as_slice() {
            [] if RESERVED.contains(&text) => Err("this name is reserved".into()),
            [] => Ok(ClusterName(text.into())),
            wrong => Err(wrong.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_label() {
        for name in ["default", "dev", "a-1", "7"] {
            assert_eq!(name.parse::<ClusterName>().unwrap().as_str(), name);
        }
        for (name, expected) in [
            ("", "RFC 1123 label"),
            ("Dev", "lower case"),
            ("a.b", "must not contain dots"),
            ("../x", "RFC 1123 label"),
            (&"a".repeat(64), "must be no more than 63"),
            ("envtest", "reserved"),
            ("lock", "reserved"),
        ] {
            let error = name.parse::<ClusterName>().unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
