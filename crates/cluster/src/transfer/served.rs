//! The resource types of a server, by discovery.

use std::collections::HashSet;

use kube::Error;
use mizzen_sdk::ResourceType;
use mizzen_sdk::write::{is_not_found, message};
use mizzen_value::Value;

use super::group_of;
use super::request::Requests;

/// A resource type of a server.
#[derive(Debug, Clone)]
pub(super) struct ServedType {
    pub(super) resource: ResourceType,
    verbs: Vec<String>,
    /// Whether its status is written separately.
    pub(super) has_status: bool,
}

impl ServedType {
    /// Whether its objects can be read and created: reviews, for instance, are never stored, and metrics never written.
    pub(super) fn is_stored(&self) -> bool {
        ["list", "create"]
            .iter()
            .all(|verb| self.verbs.iter().any(|known| known == verb))
    }
}

/// All resource types of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct ServedTypes {
    /// Preferred versions come first within their group.
    types: Vec<ServedType>,
    /// Groups with versions that another server serves: `metrics.k8s.io/v1beta1`.
    aggregated: HashSet<String>,
    /// Groups with versions that could not be discovered, and why.
    pub(super) unavailable: Vec<(String, String)>,
}

impl ServedTypes {
    /// Asks a server.
    pub(super) async fn discover(requests: &Requests) -> Result<ServedTypes, Error> {
        let mut served = ServedTypes::default();
        let core = requests.get("/api").await?;
        for version in core["versions"].items().map(Value::str) {
            let list = requests.get(&format!("/api/{version}")).await?;
            served.append(version, &list);
        }
        let groups = requests.get("/apis").await?;
        served.aggregated = aggregated(requests).await?;
        for group in groups["groups"].items() {
            let preferred = group["preferredVersion"]["groupVersion"].str();
            let versions = group["versions"].items();
            let mut versions: Vec<_> = versions
                .map(|version| version["groupVersion"].str())
                .collect();
            versions.sort_by_key(|version| *version != preferred);
            for version in versions {
                match requests.get(&format!("/apis/{version}")).await {
                    Ok(list) => served.append(version, &list),
                    // It was removed, or its handler runs elsewhere: nothing is stored here.
                    Err(error) if is_not_found(&error) => {}
                    Err(error) => served.unavailable.push((version.into(), message(&error))),
                }
            }
        }
        Ok(served)
    }

    fn append(&mut self, api_version: &str, list: &Value) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resources = list["resources"].list();
        let has = |name: &str| {
            resources
                .iter()
                .any(|resource| resource["name"].str() == name)
        };
        let types = resources
            .iter()
            .filter(|one| !one["name"].str().contains('/'));
        self.types.extend(types.map(|resource| {
            let plural = resource["name"].str();
            ServedType {
                resource: ResourceType {
                    group: group.to_owned().into(),
                    version: version.to_owned().into(),
                    plural: plural.to_owned().into(),
                    kind: resource["kind"].str().to_owned().into(),
                    namespaced: resource["namespaced"].bool(),
                },
                verbs: resource["verbs"]
                    .items()
                    .map(|verb| verb.str().into())
                    .collect(),
                has_status: has(&format!("{plural}/status")),
            }
        }));
    }

    /// The types whose objects are stored, each in one version.
    pub(super) fn stored(&self) -> Vec<&ServedType> {
        let mut seen = HashSet::new();
        let is_first = |one: &&ServedType| {
            let ResourceType { group, plural, .. } = &one.resource;
            // Kubernetes: the events of both groups are the same objects.
            let is_copy = group == "events.k8s.io" && plural == "events";
            one.is_stored() && !is_copy && seen.insert((group.clone(), plural.clone()))
        };
        self.types.iter().filter(is_first).collect()
    }

    /// The type of an object.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&ServedType> {
        self.types
            .iter()
            .find(|one| one.resource.kind == kind && one.resource.api_version() == api_version)
    }

    /// The type of a kind in its preferred version.
    pub(super) fn find_kind(&self, group: &str, kind: &str) -> Option<&ServedType> {
        self.types
            .iter()
            .find(|one| one.resource.kind == kind && one.resource.group == group)
    }

    /// Whether another server serves a type.
    pub(super) fn is_aggregated(&self, api_version: &str) -> bool {
        self.aggregated.contains(api_version)
    }

    /// Why a kind may be missing, for a message.
    pub(super) fn why_missing(&self, api_version: &str, kind: &str) -> String {
        let unavailable = self
            .unavailable
            .iter()
            .find(|(version, _)| version == api_version);
        match (unavailable, self.find_kind(group_of(api_version), kind)) {
            (Some((_, why)), _) => format!("{api_version} is not available: {why}"),
            (None, Some(other)) => {
                let other = other.resource.api_version();
                format!("the target does not serve {kind} in {api_version}, only in {other}")
            }
            (None, None) => format!("the target does not serve {kind} in {api_version}"),
        }
    }
}

/// The groups and versions that other servers serve, as far as the user may know them.
async fn aggregated(requests: &Requests) -> Result<HashSet<String>, Error> {
    let services = requests
        .get("/apis/apiregistration.k8s.io/v1/apiservices")
        .await;
    let services = match services {
        Err(Error::Api(status)) if matches!(status.code, 403 | 404) => return Ok(HashSet::new()),
        services => services?,
    };
    let remote = services["items"]
        .items()
        .filter(|service| !service["spec"]["service"].is_null());
    let versions = remote.map(|service| {
        let spec = &service["spec"];
        format!("{}/{}", spec["group"].str(), spec["version"].str())
    });
    Ok(versions.collect())
}
