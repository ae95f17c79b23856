//! Paths that need no authorization.

use mizzen_authorization::{Attributes, AttributesTarget, Authorizer, Decision, DecisionReason};
use mizzen_registry::BoxFuture;

/// Allows non-resource paths to every user. Kubernetes: apiserver/pkg/authorization/path.
#[derive(Debug)]
pub(crate) struct AlwaysAllowPaths(Vec<String>);

impl AlwaysAllowPaths {
    /// Allows these paths; a trailing `*` matches any suffix.
    pub(crate) fn new(paths: &[String]) -> Result<AlwaysAllowPaths, String> {
        let trimmed = |path: &String| path.trim_start_matches('/').to_owned();
        let paths: Vec<String> = paths.iter().map(trimmed).collect();
        match paths
            .iter()
            .find(|path| path.find('*').is_some_and(|at| at + 1 != path.len()))
        {
            Some(path) => Err(format!("only trailing * allowed in {path:?}")),
            None => Ok(AlwaysAllowPaths(paths)),
        }
    }

    fn allows(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        self.0
            .iter()
            .any(|allowed| match allowed.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == allowed,
            })
    }
}

impl Authorizer for AlwaysAllowPaths {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let is_allowed =
            matches!(attributes.target, AttributesTarget::NonResource(path) if self.allows(path));
        let decision = match is_allowed {
            true => Decision::Allow(DecisionReason::default()),
            false => Decision::NoOpinion(DecisionReason::default()),
        };
        Box::pin(async { decision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_allowed_exactly_or_by_prefix() {
        let paths = AlwaysAllowPaths::new(&["/healthz".into(), "public/*".into()]).unwrap();
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/public/a", true),
            ("/metrics", false),
        ] {
            assert_eq!(paths.allows(path), expected, "{path}");
        }
        let error = AlwaysAllowPaths::new(&["/a*b".into()]).unwrap_err();
        assert_eq!(error, "only trailing * allowed in \"a*b\"");
    }
}
