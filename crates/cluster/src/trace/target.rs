//! The object to trace: a kind by any name that kubectl accepts, and the name of an object.

use http::Method;
use mizzen_object::validate::names::is_dns1123_subdomain;
use mizzen_sdk::ResourceType;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_value::Value;

use super::{KINDS, TraceError};

/// The object to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceTarget {
    /// The kind as it was given: `deploy`, `deployments.apps`.
    pub kind: String,
    /// The object's name.
    pub name: String,
}

/// Parses `deployment/web`.
pub(super) fn parse(text: &str) -> Result<TraceTarget, String> {
    let expected = || "expected KIND/NAME, such as deployment/web".to_string();
    let (kind, name) = text.split_once('/').ok_or_else(expected)?;
    if kind.is_empty() || name.is_empty() || name.contains('/') {
        return Err(expected());
    }
    match is_dns1123_subdomain(name).first() {
        Some(problem) => Err(format!("invalid name {name:?}: {problem}")),
        None => Ok(TraceTarget {
            kind: kind.to_lowercase(),
            name: name.into(),
        }),
    }
}

impl TraceTarget {
    /// The index of the kind, by the names in discovery.
    pub(super) async fn find(&self, api: &DynamicClient) -> Result<usize, TraceError> {
        let mut discovered: Vec<(String, Vec<Value>)> = Vec::new();
        for resource in &KINDS {
            let version = resource.api_version();
            if !discovered.iter().any(|(known, _)| *known == version) {
                let path = resource.path("");
                let root = path
                    .strip_suffix(&format!("/{}", resource.plural))
                    .unwrap_or_default();
                let list = api
                    .raw(Method::GET, root, None)
                    .await
                    .map_err(TraceError::Request)?;
                discovered.push((version, list["resources"].list().to_vec()));
            }
        }
        let named = |resource: &ResourceType| {
            let of_version = discovered
                .iter()
                .filter(|(one, _)| *one == resource.api_version());
            let mut entries = of_version.flat_map(|(_, entries)| entries);
            entries.any(|entry| {
                entry["name"].str() == &*resource.plural && self.matches(resource, entry)
            })
        };
        KINDS
            .iter()
            .position(named)
            .ok_or_else(|| TraceError::Untraceable {
                kind: self.kind.clone(),
            })
    }

    /// Whether the kind is a name of a resource, with its group or without.
    fn matches(&self, resource: &ResourceType, entry: &Value) -> bool {
        let (word, group) = self
            .kind
            .split_once('.')
            .map_or((&*self.kind, None), |(word, group)| (word, Some(group)));
        let full = format!("{}.{}", resource.version, resource.group);
        let is_group = group.is_none_or(|group| group == &*resource.group || group == full);
        let mut short = entry["shortNames"].list().iter();
        is_group
            && (word == entry["name"].str()
                || word == entry["singularName"].str()
                || word == entry["kind"].str().to_lowercase()
                || short.any(|short| short.str() == word))
    }
}

/// The supported kinds, for messages.
pub(super) fn kinds() -> String {
    KINDS
        .iter()
        .map(|resource| resource.kind.to_lowercase())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::resource::{DEPLOYMENTS, PODS};
    use mizzen_value::value;

    use super::*;

    #[test]
    fn malformed_targets_are_rejected() {
        for text in ["web", "deployment/", "/web", "deployment/web/x"] {
            assert!(parse(text).unwrap_err().contains("KIND/NAME"), "{text}");
        }
        assert!(
            parse("Deployment/WEB_")
                .unwrap_err()
                .contains("invalid name \"WEB_\"")
        );
    }

    #[test]
    fn a_kind_matches_the_names_in_discovery() {
        let entry = value!({"name": "deployments", "singularName": "deployment", "kind": "Deployment", "shortNames": ["deploy"]});
        let names = |kind: &str| {
            parse(&format!("{kind}/web"))
                .unwrap()
                .matches(&DEPLOYMENTS, &entry)
        };
        for kind in [
            "deploy",
            "deployment",
            "Deployments",
            "deployments.apps",
            "deploy.v1.apps",
        ] {
            assert!(names(kind), "{kind}");
        }
        for kind in ["dep", "deploy.batch", "deployments.v2.apps", "pods"] {
            assert!(!names(kind), "{kind}");
        }
        let pods =
            value!({"name": "pods", "singularName": "pod", "kind": "Pod", "shortNames": ["po"]});
        assert!(
            parse("po/a").unwrap().matches(&PODS, &pods)
                && parse("pods.v1./a").unwrap().matches(&PODS, &pods)
        );
    }
}
