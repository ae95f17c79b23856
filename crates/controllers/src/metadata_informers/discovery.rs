//! Discovery: the kinds that the server has, and their verbs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use kube::{Client, Error};
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::{Str, Value};

/// Aggregated discovery: all groups in two responses, preferred version first.
const ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// The kinds that the server has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DiscoveredKinds {
    /// Every version of every kind, the preferred one first within a group.
    pub kinds: Vec<DiscoveredKind>,
    /// The group versions whose discovery failed, and why.
    pub failures: BTreeMap<String, String>,
}

/// One version of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiscoveredKind {
    pub resource: ResourceType,
    pub verbs: Vec<Str>,
    /// Whether it is the preferred version of its kind.
    pub is_preferred: bool,
}

impl DiscoveredKind {
    /// Whether the kind has all of these verbs.
    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs
            .iter()
            .all(|verb| self.verbs.iter().any(|known| known == verb))
    }
}

impl DiscoveredKinds {
    /// Reads discovery.
    pub(crate) async fn discover(client: &Client) -> Result<DiscoveredKinds, Error> {
        let mut served = DiscoveredKinds::default();
        for root in ["/api", "/apis"] {
            let request = Request::get(root).header("accept", ACCEPT).body(Vec::new());
            let request = request.map_err(Error::HttpError)?;
            served.add(&*client.request::<Object>(request).await?);
        }
        Ok(served)
    }

    fn add(&mut self, groups: &Value) {
        for group in groups["items"].list() {
            let mut known = BTreeSet::new();
            for version in group["versions"].list() {
                self.add_version(group["metadata"]["name"].str(), version, &mut known);
            }
        }
    }

    fn add_version(&mut self, group: &str, version: &Value, known: &mut BTreeSet<String>) {
        let name = version["version"].str();
        if version["freshness"].str() == "Stale" {
            let version = if group.is_empty() {
                name.to_string()
            } else {
                format!("{group}/{name}")
            };
            let why = format!("stale GroupVersion discovery: {version}");
            self.failures.insert(version, why);
        }
        for kind in version["resources"].list() {
            let plural = kind["resource"].str().to_string();
            let resource = ResourceType {
                group: Cow::Owned(group.into()),
                version: Cow::Owned(name.into()),
                plural: Cow::Owned(plural.clone()),
                kind: Cow::Owned(kind["responseKind"]["kind"].str().into()),
                namespaced: kind["scope"].str() == "Namespaced",
            };
            let verbs = kind["verbs"]
                .list()
                .iter()
                .map(|verb| verb.str().into())
                .collect();
            self.kinds.push(DiscoveredKind {
                resource,
                verbs,
                is_preferred: known.insert(plural),
            });
        }
    }

    /// Each kind once, in its preferred version, if it has these verbs.
    pub(crate) fn preferred<'a>(
        &'a self,
        verbs: &'a [&'a str],
    ) -> impl Iterator<Item = &'a DiscoveredKind> {
        self.kinds
            .iter()
            .filter(move |kind| kind.is_preferred && kind.supports(verbs))
    }

    /// The resource of an owner reference's apiVersion and kind.
    pub(crate) fn find(&self, api_version: &str, kind: &str) -> Option<&ResourceType> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_meant = |resource: &&ResourceType| {
            resource.kind == kind && resource.version == version && resource.group == group
        };
        self.kinds.iter().map(|kind| &kind.resource).find(is_meant)
    }

    /// The failures in one line; none if there are none.
    pub(crate) fn failure(&self) -> Option<String> {
        let list: Vec<String> = self
            .failures
            .iter()
            .map(|(version, why)| format!("{version}: {why}"))
            .collect();
        let all = format!(
            "unable to retrieve the complete list of server APIs: {}",
            list.join(", ")
        );
        (!list.is_empty()).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn served() -> DiscoveredKinds {
        let groups = r#"{"items":[
            {"metadata":{"name":"apps"},"versions":[
                {"version":"v2","freshness":"Current","resources":[
                    {"resource":"shirts","responseKind":{"kind":"Shirt"},"scope":"Namespaced","verbs":["get","list"]}]},
                {"version":"v1","freshness":"Stale","resources":[
                    {"resource":"shirts","responseKind":{"kind":"Shirt"},"scope":"Namespaced","verbs":["get","list"]},
                    {"resource":"hats","responseKind":{"kind":"Hat"},"scope":"Cluster","verbs":["get"]}]}]},
            {"metadata":{"name":"broken.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#;
        let mut served = DiscoveredKinds::default();
        served.add(&json::parse(groups.as_bytes()).unwrap());
        served
    }

    #[track_caller]
    fn check(kinds: impl Iterator<Item = String>, expected: &[&str]) {
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_kind_is_watched_in_its_preferred_version() {
        let show =
            |kind: &DiscoveredKind| format!("{}/{}", kind.resource.version, kind.resource.plural);
        check(served().preferred(&[]).map(show), &["v2/shirts", "v1/hats"]);
        check(served().preferred(&["list"]).map(show), &["v2/shirts"]);
    }

    #[test]
    fn every_version_is_found_by_reference() {
        assert_eq!(
            served()
                .find("apps/v1", "Shirt")
                .map(|found| found.path("a"))
                .as_deref(),
            Some("/apis/apps/v1/namespaces/a/shirts")
        );
        assert_eq!(served().find("apps/v3", "Shirt"), None);
        assert_eq!(served().find("v1", "Shirt"), None);
    }

    #[test]
    fn a_stale_group_version_is_a_failure() {
        let expected = "unable to retrieve the complete list of server APIs: apps/v1: stale GroupVersion discovery: apps/v1, broken.io/v1: stale GroupVersion discovery: broken.io/v1";
        assert_eq!(served().failure().as_deref(), Some(expected));
        assert_eq!(DiscoveredKinds::default().failure(), None);
    }
}
