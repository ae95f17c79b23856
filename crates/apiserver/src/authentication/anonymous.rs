//! Where may those go who show nothing? Everywhere, to some paths, or nowhere. What they may do there others say.

use std::collections::HashSet;

/// Where anonymous requests are let in.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Anonymous {
    /// Everywhere. Kubernetes: this is the default, and roles let them see little more than whether the server lives.
    #[default]
    Enabled,
    /// At these paths only, to the letter.
    AtPaths(HashSet<String>),
    /// Nowhere.
    Disabled,
}

/// Says of an answer that it goes to somebody who showed nothing, or nothing that is good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unauthenticated;

impl Anonymous {
    /// Whether somebody who shows nothing may ask for a path.
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
    fn a_path_is_open_to_the_letter() {
        let some = Anonymous::AtPaths(HashSet::from(["/healthz".into()]));
        assert!(some.allows("/healthz"));
        assert!(!some.allows("/healthz/") && !some.allows("/") && !some.allows("/api"));
        assert!(Anonymous::Enabled.allows("/api"));
        assert!(!Anonymous::Disabled.allows("/healthz"));
    }
}
