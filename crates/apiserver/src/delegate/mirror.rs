//! What the main server says about the objects of this one: namespaces, admission policies and webhooks, and the Services of
//! webhooks, in a store in memory.
//!
//! Kubernetes: informers of an aggregated API server (apiserver/pkg/server/options/recommended.go).
//!
//! Invariant: no write is admitted before namespaces, policies and webhooks were listed; a main server that cannot be listed
//! is a 503 for writes.

use std::time::Duration;

use mizzen_object::{Kind, NoHooks, Status};
use mizzen_registry::{Key, Registry, Resource, Store};
use mizzen_value::{Value, value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::follow::{CollectionChange, CollectionSink};
use super::{Upstream, version_path};
use crate::server::ServerParts;

/// Kubernetes: how long a write waits for the informers (apiserver/pkg/admission/initializer).
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The groups and resources that are followed, and whether writes wait for them. Without Services only the webhooks fail that
/// name one.
const FOLLOWED: [(&str, &str, bool); 10] = [
    ("", "namespaces", true),
    (REGISTRATION, "mutatingadmissionpolicies", true),
    (REGISTRATION, "mutatingadmissionpolicybindings", true),
    (REGISTRATION, "mutatingwebhookconfigurations", true),
    (REGISTRATION, "validatingadmissionpolicies", true),
    (REGISTRATION, "validatingadmissionpolicybindings", true),
    (REGISTRATION, "validatingwebhookconfigurations", true),
    ("", "services", false),
    ("discovery.k8s.io", "endpointslices", false),
    ("", "nodes", false),
];

/// Copies of objects of the main server.
pub(crate) struct ClusterMirror {
    registry: Registry,
    collections: Vec<MirroredCollection>,
}

/// The objects of one resource.
struct MirroredCollection {
    registry: Registry,
    resource: Resource,
    is_required: bool,
    state: watch::Sender<MirrorState>,
}

/// How far a collection is known.
enum MirrorState {
    /// It was never listed; the last problem.
    Unknown(String),
    /// It was listed, and is followed.
    Listed,
}

impl ClusterMirror {
    pub(super) fn new(registry: &Registry) -> ClusterMirror {
        let own = registry.with_store(Store::in_memory(Default::default()));
        let kinds = &mizzen_schemas::schemas().kinds;
        let collections = FOLLOWED.iter().map(|(group, plural, is_required)| {
            let data = kinds.iter().find(|data| {
                data.gvk.group == *group && data.gvk.version == "v1" && data.plural == *plural
            });
            let data = data.expect("it is a built-in resource");
            let kind = Kind {
                data: data.clone().into(),
                hooks: std::sync::Arc::new(NoHooks),
            };
            MirroredCollection {
                resource: Resource::new(own.store(), kind, None),
                registry: own.clone(),
                is_required: *is_required,
                state: watch::Sender::new(MirrorState::Unknown("it was not listed yet".into())),
            }
        });
        ClusterMirror {
            collections: collections.collect(),
            registry: own,
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The resource that holds the copies.
    pub(crate) fn resource(&self, group: &str, plural: &str) -> Option<Resource> {
        let mut collections = self.collections.iter();
        let found = collections.find(|collection| {
            let kind = collection.resource.kind();
            kind.gvk.group == group && kind.plural == plural
        });
        found.map(|collection| collection.resource.clone())
    }

    /// Waits until everything is known that a write needs; 503 if that takes too long.
    async fn wait(&self) -> Result<(), Status> {
        let all = async {
            let required = self.collections.iter();
            for collection in required.filter(|collection| collection.is_required) {
                let mut state = collection.state.subscribe();
                let is_listed = |state: &MirrorState| matches!(state, MirrorState::Listed);
                let _ = state.wait_for(is_listed).await;
            }
        };
        if timeout(SYNC_TIMEOUT, all).await.is_ok() {
            return Ok(());
        }
        let mut problems =
            self.collections
                .iter()
                .filter_map(|collection| match &*collection.state.borrow() {
                    MirrorState::Unknown(problem) if collection.is_required => Some(format!(
                        "{}: {problem}",
                        collection.resource.kind().resource()
                    )),
                    _ => None,
                });
        let problem = problems.next().unwrap_or_default();
        Err(Status::failure(
            503,
            "ServiceUnavailable",
            format!("the main API server's policies are not known yet: {problem}"),
        ))
    }
}

impl Upstream {
    /// Follows namespaces, admission policies and webhooks of the main server. Never ends. [`Server::run`](crate::Server::run)
    /// calls it.
    pub async fn follow(&self) {
        let mut followers = JoinSet::new();
        for index in 0..self.mirror().collections.len() {
            let upstream = self.clone();
            followers.spawn(async move {
                let collection = &upstream.mirror().collections[index];
                let kind = collection.resource.kind();
                let path = format!("{}/{}", version_path(&kind.gvk), kind.plural);
                upstream.follow_collection(&path, "", collection).await;
            });
        }
        followers.join_all().await;
    }

    pub(crate) fn mirror(&self) -> &ClusterMirror {
        let make = || ClusterMirror::new(&self.0.registry);
        self.0.mirror.get_or_init(make)
    }

    /// Reads a namespace that is not known yet. Kubernetes: the live lookup of NamespaceLifecycle
    /// (plugin/namespace/lifecycle/admission.go).
    pub(super) async fn read_namespace(&self, name: &str) -> Result<(), Status> {
        let path = format!("/api/v1/namespaces/{name}");
        let answer = self.request("GET", &path, None).await;
        let (code, namespace) = answer
            .map_err(|error| Status::failure(503, "ServiceUnavailable", error.to_string()))?;
        let namespaces = self.mirror().resource("", "namespaces");
        match (code, namespaces) {
            (200, Some(namespaces)) => {
                let registry = self.mirror().registry();
                registry.put_copy(&namespaces, namespace).await
            }
            _ => Err(crate::extend::refusal(&namespace)),
        }
    }
}

/// Waits until a write can be admitted, if the server is aggregated.
pub(crate) async fn wait_for_main_server(server: &ServerParts) -> Result<(), Status> {
    match server.extensions.upstream() {
        Some(upstream) => upstream.mirror().wait().await,
        None => Ok(()),
    }
}

impl MirroredCollection {
    /// An object without what is not read.
    fn trim(&self, mut object: Value) -> Value {
        object.entry("metadata").remove("managedFields");
        if self.resource.kind().plural != "nodes" {
            return object;
        }
        // Nodes are large and change often; only their runtime matters.
        let runtime = &object["status"]["nodeInfo"]["containerRuntimeVersion"];
        value!({
            "metadata": { "name": (object["metadata"]["name"].clone()) },
            "status": { "nodeInfo": { "containerRuntimeVersion": (runtime.clone()) } },
        })
    }
}

impl CollectionSink for MirroredCollection {
    async fn apply(&self, change: CollectionChange) -> Result<(), String> {
        let (registry, resource) = (&self.registry, &self.resource);
        let stored = match change {
            CollectionChange::All(objects) => {
                let objects = objects.into_iter().map(|object| self.trim(object));
                registry.replace_copies(resource, objects.collect()).await
            }
            CollectionChange::Put(object) => registry.put_copy(resource, self.trim(object)).await,
            CollectionChange::Deleted(object) => {
                let metadata = &object["metadata"];
                let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
                registry.remove_copy(resource, &key).await
            }
        };
        stored.map_err(|status| status.message)?;
        self.state.send_replace(MirrorState::Listed);
        Ok(())
    }

    fn fail(&self, problem: &str) {
        self.state.send_if_modified(|state| match state {
            MirrorState::Unknown(last) => {
                *last = problem.into();
                true
            }
            // What was listed stays in force, as with upstream's informers.
            MirrorState::Listed => false,
        });
    }
}
