//! What has to do with which node because of what runs there?
//!
//! Pods on a node use objects, and claims are bound to volumes, which use secrets. A question costs a look at what the
//! node's own pods use; a pod costs what it refers to.

use std::collections::{BTreeSet, HashMap};

use mizzen_apiserver::catalog::Catalog;
use mizzen_authorization::store_index::{IndexedResource, StoreIndex};
use mizzen_component_helpers::references;
use mizzen_registry::Follower;
use mizzen_value::{Str, Value};

use super::GraphKind;

/// What there is, as of now.
pub(super) struct GraphIndex(StoreIndex<NodeGraph, 4>);

/// What is never looked at, and so is not read. Most of a pod is in these.
const OF_PODS: &[&str] = &[
    "affinity",
    "args",
    "command",
    "conditions",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "initContainerStatuses",
    "items",
    "labels",
    "lifecycle",
    "livenessProbe",
    "managedFields",
    "ownerReferences",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "tolerations",
    "volumeMounts",
];
const OF_OTHERS: &[&str] = &["devices", "managedFields", "nodeAffinity", "status"];

impl GraphIndex {
    /// An index of nothing; it is filled when it is first read. None where no pods are served.
    pub(super) fn new(catalog: &Catalog) -> Option<GraphIndex> {
        let follow = |group: &str, plural: &str, uninteresting| {
            Some(Follower::skimming(
                catalog.get(group, "v1", plural)?,
                uninteresting,
            ))
        };
        Some(GraphIndex(StoreIndex::new([
            IndexedResource {
                follower: follow("", "pods", OF_PODS)?,
                clear: |table| table.used.clear(),
                apply: NodeGraph::pod,
            },
            IndexedResource {
                follower: follow("", "persistentvolumes", OF_OTHERS)?,
                clear: NodeGraph::clear_volumes,
                apply: NodeGraph::volume,
            },
            IndexedResource {
                follower: follow("storage.k8s.io", "volumeattachments", OF_OTHERS)?,
                clear: |table| table.attachments.clear(),
                apply: |table, object, there| note(&mut table.attachments, object, there),
            },
            IndexedResource {
                follower: follow("resource.k8s.io", "resourceslices", OF_OTHERS)?,
                clear: |table| table.slices.clear(),
                apply: |table, object, there| note(&mut table.slices, object, there),
            },
        ])))
    }

    /// What `look` finds as it is now.
    pub(super) fn read<R>(&self, look: impl FnOnce(&NodeGraph) -> R) -> R {
        self.0.read(look)
    }
}

/// A namespace, and a name in it.
type Name = (Str, Str);

/// Who has to do with what.
#[derive(Default)]
pub(super) struct NodeGraph {
    /// What the pods of each node use.
    used: HashMap<Str, Used>,
    volumes: HashMap<Str, BoundVolume>,
    /// The volumes of each claim.
    bound: HashMap<Name, BTreeSet<Str>>,
    /// The secrets of all volumes together, and how many volumes need each.
    needed: HashMap<Name, usize>,
    /// The node of each.
    attachments: HashMap<Str, Str>,
    slices: HashMap<Str, Str>,
}

/// Objects of each kind that pods name, and how many pods do.
#[derive(Default)]
struct Used([HashMap<Name, usize>; N_USED]);

/// How many kinds pods name; they come first among the kinds.
const N_USED: usize = GraphKind::ResourceClaim as usize + 1;

/// A volume that is bound.
struct BoundVolume {
    claim: Name,
    secrets: Vec<Name>,
}

impl NodeGraph {
    /// Whether what runs on a node has to do with an object.
    pub(super) fn relates(&self, node: &str, kind: GraphKind, namespace: &str, name: &str) -> bool {
        let is_of_node = |nodes: &HashMap<Str, Str>| nodes.get(name).is_some_and(|own| own == node);
        let name_of = || (namespace.into(), name.into());
        match (kind, self.used.get(node)) {
            (GraphKind::Attachment, _) => namespace.is_empty() && is_of_node(&self.attachments),
            (GraphKind::Slice, _) => namespace.is_empty() && is_of_node(&self.slices),
            (_, None) => false,
            (GraphKind::Volume, Some(used)) => {
                let volume = self.volumes.get(name).filter(|_| namespace.is_empty());
                volume.is_some_and(|volume| used.has(GraphKind::Claim, &volume.claim))
            }
            (GraphKind::Secret, Some(used)) => {
                let secret = name_of();
                used.has(kind, &secret) || self.is_of_volume(used, &secret)
            }
            (kind, Some(used)) => used.has(kind, &name_of()),
        }
    }

    /// Whether a volume of a claim in use needs a secret. Many volumes may share one, so the node's claims are looked at.
    fn is_of_volume(&self, used: &Used, secret: &Name) -> bool {
        if !self.needed.contains_key(secret) {
            return false;
        }
        let mut volumes = used
            .claims()
            .filter_map(|claim| self.bound.get(claim))
            .flatten();
        volumes.any(|name| {
            self.volumes
                .get(name)
                .is_some_and(|volume| volume.secrets.contains(secret))
        })
    }

    fn pod(&mut self, pod: &Value, there: bool) {
        let node = pod["spec"]["nodeName"].str();
        if node.is_empty() {
            return;
        }
        let used = self.used.entry(node.into()).or_default();
        uses(pod, |kind, name| {
            count(&mut used.0[kind as usize], name, there)
        });
        if used.0.iter().all(HashMap::is_empty) {
            self.used.remove(node);
        }
    }

    fn volume(&mut self, volume: &Value, there: bool) {
        let (name, spec) = (volume["metadata"]["name"].str(), &volume["spec"]);
        if spec["claimRef"].is_null() {
            return;
        }
        let claim: Name = (
            spec["claimRef"]["namespace"].str().into(),
            spec["claimRef"]["name"].str().into(),
        );
        let secrets = references::volume_secrets(volume);
        let secrets: Vec<Name> = secrets
            .map(|(namespace, name)| (namespace.into(), name.into()))
            .collect();
        secrets
            .iter()
            .for_each(|secret| count(&mut self.needed, secret.clone(), there));
        if there {
            self.bound
                .entry(claim.clone())
                .or_default()
                .insert(name.into());
            self.volumes
                .insert(name.into(), BoundVolume { claim, secrets });
            return;
        }
        self.volumes.remove(name);
        if let Some(volumes) = self.bound.get_mut(&claim) {
            volumes.remove(name);
            if volumes.is_empty() {
                self.bound.remove(&claim);
            }
        }
    }

    fn clear_volumes(&mut self) {
        self.volumes.clear();
        self.bound.clear();
        self.needed.clear();
    }
}

/// Tells everything that a pod on a node uses. A pod that its node made gives that node nothing: otherwise nodes could
/// help themselves.
fn uses(pod: &Value, mut tell: impl FnMut(GraphKind, Name)) {
    let metadata = &pod["metadata"];
    let namespace: Str = metadata["namespace"].str().into();
    let mut tell = |kind, name: &str| tell(kind, (namespace.clone(), name.into()));
    tell(GraphKind::Pod, metadata["name"].str());
    if references::is_mirror(pod) {
        return;
    }
    if let Some(account) = pod["spec"]["serviceAccountName"].as_str() {
        tell(GraphKind::ServiceAccount, account);
    }
    references::secrets(pod).for_each(|name| tell(GraphKind::Secret, name));
    references::config_maps(pod).for_each(|name| tell(GraphKind::ConfigMap, name));
    references::claims(pod).for_each(|name| tell(GraphKind::Claim, &name));
    references::resource_claims(pod).for_each(|name| tell(GraphKind::ResourceClaim, name));
}

impl Used {
    fn has(&self, kind: GraphKind, name: &Name) -> bool {
        self.0[kind as usize].contains_key(name)
    }

    fn claims(&self) -> impl Iterator<Item = &Name> {
        self.0[GraphKind::Claim as usize].keys()
    }
}

/// Counts one more that names something, or one less.
fn count(names: &mut HashMap<Name, usize>, name: Name, there: bool) {
    if there {
        *names.entry(name).or_default() += 1;
        return;
    }
    let left = names.get_mut(&name).map(|count| {
        *count -= 1;
        *count
    });
    if left == Some(0) {
        names.remove(&name);
    }
}

/// Notes on which node an object is.
fn note(nodes: &mut HashMap<Str, Str>, object: &Value, there: bool) {
    let (name, node) = (
        object["metadata"]["name"].str(),
        object["spec"]["nodeName"].str(),
    );
    match there && !node.is_empty() {
        true => drop(nodes.insert(name.into(), node.into())),
        false => drop(nodes.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::{json, value};
    use tokio::time::Instant;

    use super::*;

    const N_NODES: usize = 200;
    const N_PODS: usize = 10_000;

    fn pod(at: usize) -> Value {
        let (node, own) = (format!("node-{}", at % N_NODES), format!("own-{at}"));
        value!({
            "metadata": { "name": (format!("pod-{at}")), "namespace": "default" },
            "spec": {
                "nodeName": node,
                "serviceAccountName": "default",
                "volumes": [
                    { "name": "a", "secret": { "secretName": own } },
                    { "name": "b", "configMap": { "name": "shared" } },
                    { "name": "c", "persistentVolumeClaim": { "claimName": (format!("claim-{at}")) } },
                ],
            },
        })
    }

    fn volume(at: usize) -> Value {
        value!({
            "metadata": { "name": (format!("volume-{at}")) },
            "spec": {
                "claimRef": { "namespace": "default", "name": (format!("claim-{at}")) },
                "csi": { "nodeStageSecretRef": { "namespace": "storage", "name": "shared" } },
            },
        })
    }

    fn full() -> NodeGraph {
        let mut table = NodeGraph::default();
        for at in 0..N_PODS {
            table.pod(&pod(at), true);
            table.volume(&volume(at), true);
        }
        table
    }

    #[test]
    fn a_node_has_to_do_with_what_its_pods_use() {
        let table = full();
        let check = |node: &str, kind, namespace: &str, name: &str, expected: bool| {
            assert_eq!(
                table.relates(node, kind, namespace, name),
                expected,
                "{node} {kind:?} {namespace}/{name}"
            );
        };
        check("node-7", GraphKind::Pod, "default", "pod-207", true);
        check("node-7", GraphKind::Pod, "other", "pod-207", false);
        check("node-8", GraphKind::Pod, "default", "pod-207", false);
        check("node-7", GraphKind::Secret, "default", "own-207", true);
        check("node-8", GraphKind::Secret, "default", "own-207", false);
        check("node-8", GraphKind::Secret, "storage", "shared", true);
        check("nowhere", GraphKind::Secret, "storage", "shared", false);
        check(
            "node-8",
            GraphKind::ServiceAccount,
            "default",
            "default",
            true,
        );
        check("node-8", GraphKind::Volume, "", "volume-208", true);
        check("node-8", GraphKind::Volume, "default", "volume-208", false);
        check("node-8", GraphKind::Volume, "", "volume-207", false);
    }

    #[test]
    fn nothing_is_left_of_what_is_gone() {
        let mut table = full();
        for at in 0..N_PODS {
            table.pod(&pod(at), false);
            table.volume(&volume(at), false);
        }
        assert!(table.used.is_empty() && table.volumes.is_empty() && table.bound.is_empty());
        assert!(table.needed.is_empty());
    }

    #[test]
    fn a_pod_that_its_node_made_gives_it_nothing() {
        let mut mirror = pod(0);
        mirror
            .entry("metadata")
            .entry("annotations")
            .set(references::MIRROR, "m");
        let mut table = NodeGraph::default();
        table.pod(&mirror, true);
        assert!(table.relates("node-0", GraphKind::Pod, "default", "pod-0"));
        assert!(!table.relates("node-0", GraphKind::Secret, "default", "own-0"));
        assert!(!table.relates("node-0", GraphKind::ServiceAccount, "default", "default"));
    }

    #[test]
    fn what_is_attached_or_published_is_one_nodes() {
        let object = json::parse(br#"{"metadata":{"name":"x"},"spec":{"nodeName":"n"}}"#).unwrap();
        let mut table = NodeGraph::default();
        note(&mut table.attachments, &object, true);
        note(&mut table.slices, &object, true);
        for kind in [GraphKind::Attachment, GraphKind::Slice] {
            assert!(table.relates("n", kind, "", "x") && !table.relates("m", kind, "", "x"));
        }
        note(&mut table.slices, &object, false);
        assert!(!table.relates("n", GraphKind::Slice, "", "x"));
    }

    /// Claim: an answer costs what the node's own pods are, not what all are. The best of some rounds counts, for the
    /// machine may be busy; looking through 10,000 pods would take milliseconds here.
    #[test]
    fn authorization_with_ten_thousand_pods_on_two_hundred_nodes_takes_microseconds() {
        let table = full();
        type Name = fn(usize) -> String;
        let cases: [(GraphKind, &str, Name); 4] = [
            (GraphKind::Secret, "default", |at| format!("own-{at}")),
            (GraphKind::Secret, "nowhere", |at| format!("no-{at}")),
            (GraphKind::Secret, "storage", |_| "shared".into()),
            (GraphKind::Volume, "", |at| format!("volume-{at}")),
        ];
        for (kind, namespace, name) in cases {
            let round = |round: usize| {
                let began = Instant::now();
                for at in round * 100..(round + 1) * 100 {
                    let (node, name) = (format!("node-{}", at % N_NODES), name(at));
                    std::hint::black_box(table.relates(&node, kind, namespace, &name));
                }
                began.elapsed() / 100
            };
            let best = (0..N_PODS / 100).map(round).min().unwrap_or_default();
            println!("{kind:?} {namespace}/{}: {best:?}", name(0));
            assert!(
                best.as_micros() < 100,
                "{kind:?} {namespace}/{}: {best:?}",
                name(0)
            );
        }
    }
}
