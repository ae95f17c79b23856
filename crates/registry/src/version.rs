//! Resource versions in requests.

use mizzen_value::json::quote;

/// The resourceVersionMatch of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Unset: as NotOlderThan.
    #[default]
    Unset,
    /// Exact.
    Exact,
    /// NotOlderThan.
    NotOlderThan,
}

/// An invalid resourceVersion, in the words of Go's parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionError {
    text: String,
    problem: &'static str,
}

impl std::fmt::Display for VersionError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "strconv.ParseUint: parsing {}: {}",
            quote(&self.text),
            self.problem
        )
    }
}

impl VersionError {
    /// The error as a violation of `resourceVersion`.
    pub fn named(&self) -> String {
        format!(
            "resourceVersion: Invalid value: {}: {self}",
            quote(&self.text)
        )
    }
}

/// Parses a resourceVersion; `""` is 0.
pub fn parse_version(text: &str) -> Result<u64, VersionError> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let problem = if digits {
        "value out of range"
    } else {
        "invalid syntax"
    };
    let error = || VersionError {
        text: text.into(),
        problem,
    };
    if !digits {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}
