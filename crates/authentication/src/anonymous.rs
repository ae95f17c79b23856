//! Where anonymous requests are allowed: everywhere, at some paths, or nowhere.

use std::collections::HashSet;

/// Where anonymous requests are allowed.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Anonymous {
    /// At every path. Kubernetes: the default; authorization grants them little more than health
    /// checks.
    #[default]
    Enabled,
    /// At exactly these paths.
    AtPaths(HashSet<String>),
    /// Nowhere.
    Disabled,
}

impl Anonymous {
    /// Whether an anonymous request to a path is allowed.
    pub(super) fn allows(&self, path: &str) -> bool {
        match self {
            Anonymous::Enabled => true,
            Anonymous::AtPaths(paths) => paths.contains(path),
            Anonymous::Disabled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_paths_match_exactly() {
        let some = Anonymous::AtPaths(HashSet::from(["/healthz".into()]));
        assert!(some.allows("/healthz"));
        assert!(!some.allows("/healthz/") && !some.allows("/") && !some.allows("/api"));
        assert!(Anonymous::Enabled.allows("/api"));
        assert!(!Anonymous::Disabled.allows("/healthz"));
    }
}
