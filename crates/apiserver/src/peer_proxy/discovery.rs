//! What a peer serves, by its own aggregated discovery.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Limited};
use mizzen_object::User;
use mizzen_outgoing::{OutgoingClient, SendError, Target, whole};
use mizzen_value::{Str, Value, json};
use tokio::time::timeout;

use super::exclusions::Exclusions;
use super::{ALREADY_PROXIED, PEER_PROXIED};
use crate::aggregation::set_auth_proxy_headers;

/// The timeout of a request for discovery.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest document.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// What the peer itself serves. Kubernetes: a server that does not know the profile ignores it.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
    application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// What one peer serves.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PeerDiscovery {
    /// Groups, versions and resources.
    resources: HashSet<(Str, Str, Str)>,
    /// The items of its aggregated discovery, without the core group.
    pub groups: Vec<Value>,
}

impl PeerDiscovery {
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.groups.is_empty()
    }

    pub(super) fn has(&self, group: &Str, version: &Str, resource: &Str) -> bool {
        let key = (group.clone(), version.clone(), resource.clone());
        self.resources.contains(&key)
    }

    /// The same without excluded versions.
    pub(super) fn without(&self, excluded: &Exclusions) -> PeerDiscovery {
        let resources = self.resources.iter().filter(|(group, version, _)| {
            let version = (group.clone(), version.clone());
            !excluded.contains(&version)
        });
        let mut groups = self.groups.clone();
        for group in &mut groups {
            let name: Str = group["metadata"]["name"].str().into();
            let versions = group.entry("versions").make_list();
            versions.retain(|version| {
                let version = (name.clone(), version["version"].str().into());
                !excluded.contains(&version)
            });
        }
        groups.retain(|group| !group["versions"].is_empty());
        PeerDiscovery {
            resources: resources.cloned().collect(),
            groups,
        }
    }

    /// Adds an aggregated discovery document.
    fn add(&mut self, document: &Value) {
        for group in document["items"].list() {
            let name: Str = group["metadata"]["name"].str().into();
            for version in group["versions"].list() {
                let resources = version["resources"].list().iter().map(|resource| {
                    let resource = resource["resource"].str().into();
                    (name.clone(), version["version"].str().into(), resource)
                });
                self.resources.extend(resources);
            }
            // Kubernetes: requests for the core group are proxied, but `/api` shows only what this server serves.
            let is_known = |known: &Value| known["metadata"]["name"].str() == name.as_str();
            if !name.is_empty() && !self.groups.iter().any(is_known) {
                self.groups.push(group.clone());
            }
        }
    }
}

/// Fetches the discovery of a peer: what could be fetched, and the errors.
pub(super) async fn fetch(
    client: &OutgoingClient,
    target: &Target,
) -> (PeerDiscovery, Vec<SendError>) {
    let mut discovery = PeerDiscovery::default();
    let mut errors = Vec::new();
    for path in ["/api", "/apis"] {
        let fetched = timeout(TIMEOUT, get(client, target, path)).await;
        match fetched.unwrap_or_else(|_| Err(SendError("context deadline exceeded".into()))) {
            Ok(document) => discovery.add(&document),
            Err(error) => errors.push(error),
        }
    }
    (discovery, errors)
}

async fn get(client: &OutgoingClient, target: &Target, path: &str) -> Result<Value, SendError> {
    let url = format!("https://{}{path}", target.address);
    let failed = |error: &dyn std::fmt::Display| SendError(format!("GET {url}: {error}"));
    let mut request = Request::get(&url)
        .body(whole(Bytes::new()))
        .map_err(|error| failed(&error))?;
    *request.headers_mut() = headers()?;
    let response = client.send(target, request).await;
    let (head, body) = response.map_err(|error| failed(&error))?.into_parts();
    if head.status != 200 {
        return Err(failed(&format_args!("status {}", head.status.as_u16())));
    }
    let body = Limited::new(body, MAX_DOCUMENT).collect().await;
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    let document = json::parse(&body).map_err(|error| failed(&error))?;
    match document["kind"].str() {
        "APIGroupDiscoveryList" => Ok(document),
        kind => Err(failed(&format_args!(
            "{kind:?} is no APIGroupDiscoveryList"
        ))),
    }
}

/// Kubernetes: the user is the API server, as any authenticated user, whose requests for discovery are authorized.
fn headers() -> Result<HeaderMap, SendError> {
    const API_SERVER: &str = "system:apiserver";
    let user = User {
        name: API_SERVER.into(),
        uid: API_SERVER.into(),
        groups: vec!["system:authenticated".into()],
        ..User::default()
    };
    let mut headers = HeaderMap::new();
    set_auth_proxy_headers(&user, &mut headers)?;
    headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
    headers.insert(PEER_PROXIED, ALREADY_PROXIED);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;
    use tokio::time::Instant;

    use super::*;

    fn document() -> Value {
        let version = |name: &str, resource: &str| value!({ "version": name, "resources": [{ "resource": resource }] });
        value!({ "items": [
            { "metadata": {}, "versions": [(version("v1", "pods"))] },
            { "metadata": { "name": "apps" }, "versions": [(version("v1", "deployments"))] },
            { "metadata": { "name": "a.io" }, "versions": [(version("v2", "b")), (version("v1", "a"))] }
        ] })
    }

    #[test]
    fn the_core_group_is_served_and_not_shown() {
        let mut discovery = PeerDiscovery::default();
        discovery.add(&document());
        discovery.add(&document());
        assert!(discovery.has(&"".into(), &"v1".into(), &"pods".into()));
        assert!(discovery.has(&"apps".into(), &"v1".into(), &"deployments".into()));
        assert!(!discovery.has(&"apps".into(), &"v1".into(), &"pods".into()));
        let names: Vec<&str> = discovery
            .groups
            .iter()
            .map(|group| group["metadata"]["name"].str())
            .collect();
        assert_eq!(names, ["apps", "a.io"]);
    }

    #[test]
    fn excluded_versions_are_neither_served_nor_shown() {
        let mut discovery = PeerDiscovery::default();
        discovery.add(&document());
        let mut exclusions = Exclusions::default();
        let excluded = [("a.io", "v1"), ("apps", "v1")];
        let excluded = excluded.map(|(group, version)| (group.into(), version.into()));
        exclusions.set_active(excluded.into(), Instant::now());
        let left = discovery.without(&exclusions);
        assert!(left.has(&"a.io".into(), &"v2".into(), &"b".into()));
        assert!(!left.has(&"a.io".into(), &"v1".into(), &"a".into()));
        assert!(!left.has(&"apps".into(), &"v1".into(), &"deployments".into()));
        assert_eq!(left.groups.len(), 1);
        assert_eq!(left.groups[0]["versions"].list().len(), 1);
    }
}
