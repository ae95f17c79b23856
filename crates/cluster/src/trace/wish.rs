//! Which object is meant? A kind by any name that kubectl takes, and the name of an object.

use http::Method;
use mizzen_object::validate::names::is_dns1123_subdomain;
use mizzen_sdk::Resource;
use mizzen_sdk::api::Api;
use mizzen_value::Value;

use super::{KINDS, TraceError};

/// What somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// The kind as it was written: `deploy`, `deployments.apps`.
    pub kind: String,
    /// The object's name.
    pub name: String,
}

/// Reads `deployment/web`.
pub(super) fn parse(text: &str) -> Result<Wish, String> {
    let expected = || "expected KIND/NAME, such as deployment/web".to_string();
    let (kind, name) = text.split_once('/').ok_or_else(expected)?;
    if kind.is_empty() || name.is_empty() || name.contains('/') {
        return Err(expected());
    }
    match is_dns1123_subdomain(name).first() {
        Some(problem) => Err(format!("nothing can be called {name:?}: {problem}")),
        None => Ok(Wish {
            kind: kind.to_lowercase(),
            name: name.into(),
        }),
    }
}

impl Wish {
    /// Which of the kinds is meant, as the server calls them.
    pub(super) async fn find(&self, api: &Api) -> Result<usize, TraceError> {
        let mut known: Vec<(String, Vec<Value>)> = Vec::new();
        for resource in &KINDS {
            let version = resource.api_version();
            if !known.iter().any(|(one, _)| *one == version) {
                let path = resource.path("");
                let root = path
                    .strip_suffix(&format!("/{}", resource.plural))
                    .unwrap_or_default();
                let list = api
                    .raw(Method::GET, root, None)
                    .await
                    .map_err(TraceError::Refused)?;
                known.push((version, list["resources"].list().to_vec()));
            }
        }
        let named = |resource: &Resource| {
            let of_version = known
                .iter()
                .filter(|(one, _)| *one == resource.api_version());
            let mut entries = of_version.flat_map(|(_, entries)| entries);
            entries.any(|entry| {
                entry["name"].str() == &*resource.plural && self.names(resource, entry)
            })
        };
        KINDS
            .iter()
            .position(named)
            .ok_or_else(|| TraceError::Untraceable {
                kind: self.kind.clone(),
            })
    }

    /// Whether a resource can be called so, with its group or without.
    fn names(&self, resource: &Resource, entry: &Value) -> bool {
        let (word, place) = self
            .kind
            .split_once('.')
            .map_or((&*self.kind, None), |(word, place)| (word, Some(place)));
        let full = format!("{}.{}", resource.version, resource.group);
        let is_there = place.is_none_or(|place| place == &*resource.group || place == full);
        let mut short = entry["shortNames"].list().iter();
        is_there
            && (word == entry["name"].str()
                || word == entry["singularName"].str()
                || word == entry["kind"].str().to_lowercase()
                || short.any(|short| short.str() == word))
    }
}

/// The kinds that can be traced, for people.
pub(super) fn kinds() -> String {
    KINDS
        .iter()
        .map(|known| known.kind.to_lowercase())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::resource::{DEPLOYMENTS, PODS};
    use mizzen_value::value;

    use super::*;

    #[test]
    fn what_is_no_kind_and_name_is_refused() {
        for text in ["web", "deployment/", "/web", "deployment/web/x"] {
            assert!(parse(text).unwrap_err().contains("KIND/NAME"), "{text}");
        }
        assert!(
            parse("Deployment/WEB_")
                .unwrap_err()
                .contains("nothing can be called \"WEB_\"")
        );
    }

    #[test]
    fn a_kind_has_the_names_that_the_server_gives_it() {
        let entry = value!({"name": "deployments", "singularName": "deployment", "kind": "Deployment", "shortNames": ["deploy"]});
        let names = |kind: &str| {
            parse(&format!("{kind}/web"))
                .unwrap()
                .names(&DEPLOYMENTS, &entry)
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
            parse("po/a").unwrap().names(&PODS, &pods)
                && parse("pods.v1./a").unwrap().names(&PODS, &pods)
        );
    }
}
