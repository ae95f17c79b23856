//! Patterns of objects: `RESOURCE`, `RESOURCE.GROUP`, `*.GROUP`, each with an optional `/NAME`.
//!
//! A resource is its plural name (`deployments`), or its kind (`Deployment`), in any case. In groups and names `*` stands for any
//! text. `deployments` matches every group; `deployments.` the core group only, as kubectl reads it.

use std::str::FromStr;

/// One pattern of `--include` and `--exclude`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    resource: String,
    group: Option<String>,
    name: Option<String>,
}

/// The names by which patterns find an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectNames<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
    /// The plural name; empty where it is not known, as in a file.
    pub(super) plural: &'a str,
    pub(super) name: &'a str,
}

impl Pattern {
    /// Whether an object matches.
    pub(super) fn matches(&self, names: ObjectNames) -> bool {
        self.matches_type(names) && self.name.as_ref().is_none_or(|name| glob(name, names.name))
    }

    /// Whether objects of this type can match, whatever their names.
    pub(super) fn matches_type(&self, names: ObjectNames) -> bool {
        let kind = names.kind.to_lowercase();
        let plural = match names.plural {
            "" => pluralize(&kind),
            plural => plural.to_owned(),
        };
        let is_resource = self.resource == "*" || self.resource == kind || self.resource == plural;
        is_resource
            && self
                .group
                .as_ref()
                .is_none_or(|group| glob(group, names.group))
    }

    /// Whether every object of the type matches.
    pub(super) fn is_for_all_names(&self) -> bool {
        self.name.is_none()
    }

    /// Whether the pattern names the group of `group`, and not just any.
    pub(super) fn names_group(&self, group: &str) -> bool {
        self.group
            .as_ref()
            .is_some_and(|pattern| pattern != "*" && glob(pattern, group))
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (types, name) = match text.split_once('/') {
            Some((types, name)) => (types, Some(name)),
            None => (text, None),
        };
        let (resource, group) = match types.split_once('.') {
            Some((resource, group)) => (resource, Some(group.to_lowercase())),
            None => (types, None),
        };
        if resource.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
            return Err("expected RESOURCE[.GROUP][/NAME], such as deployments.apps/web".into());
        }
        Ok(Pattern {
            resource: resource.to_lowercase(),
            group,
            name: name.map(str::to_owned),
        })
    }
}

/// The plural by which Kubernetes guesses a resource name from a kind in lower case (meta.UnsafeGuessKindToResource).
fn pluralize(kind: &str) -> String {
    match kind {
        "" => String::new(),
        "endpoints" => kind.into(),
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ if kind.ends_with('y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, group: &str, kind: &str, name: &str) -> bool {
        let pattern: Pattern = pattern.parse().unwrap();
        pattern.matches(ObjectNames {
            group,
            kind,
            plural: "",
            name,
        })
    }

    #[test]
    fn a_resource_is_matched_by_plural_or_kind_in_any_case() {
        for pattern in [
            "deployments",
            "Deployment",
            "deployment.apps",
            "*.apps",
            "*",
        ] {
            assert!(check(pattern, "apps", "Deployment", "web"), "{pattern}");
        }
        assert!(check("ingresses", "networking.k8s.io", "Ingress", "web"));
        assert!(check(
            "networkpolicies",
            "networking.k8s.io",
            "NetworkPolicy",
            "web"
        ));
        assert!(check("endpoints", "", "Endpoints", "web"));
        assert!(!check("deployments.batch", "apps", "Deployment", "web"));
    }

    #[test]
    fn a_dot_at_the_end_is_the_core_group() {
        assert!(check("services.", "", "Service", "web"));
        assert!(!check("services.", "serving.knative.dev", "Service", "web"));
    }

    #[test]
    fn stars_in_groups_and_names_stand_for_any_text() {
        assert!(check("*.*.example.com", "shop.example.com", "Oven", "big"));
        assert!(!check("*.*.example.com", "example.org", "Oven", "big"));
        assert!(check("secrets/db-*", "", "Secret", "db-login"));
        assert!(check("secrets/*-log*n", "", "Secret", "db-login"));
        assert!(!check("secrets/db-*", "", "Secret", "web"));
        assert!(!check("secrets/db", "", "Secret", "db-login"));
        assert!(!check("secrets/a*a", "", "Secret", "a"));
    }

    #[test]
    fn incomplete_patterns_are_rejected() {
        for text in ["", ".apps", "pods/", "/web", "pods/a/b"] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
    }
}
