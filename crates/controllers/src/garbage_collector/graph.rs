//! The dependency graph of all objects, from owners to their dependents.
//!
//! It is updated by the events of the metadata informers and returns what may have to be done. An
//! owner that is only known from a reference is a *virtual* node: attemptToDelete finds that it
//! exists, or calls [`on_absent`](Graph::on_absent).
//!
//! Invariant: pure. The graph never calls the server, and its effects are hints: the garbage
//! collector reads the live objects before it acts.
//! Invariant: for every owner reference of a node, the owner, if it is in the graph, has the node
//! as a dependent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mizzen_value::Value;

use super::absent_owner_cache::AbsentOwnerCache;
use super::identity::{InternedNames, KindName, ObjectIdentity, Uid};
use super::observed::{DeletionState, ObservedObject, OwnerReference};

/// What may have to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// Enqueue for attemptToDelete.
    AttemptToDelete(Uid),
    /// The same with a delay, because it was tried just now.
    AttemptToDeleteLater(Uid),
    /// Enqueue for attemptToOrphan.
    AttemptToOrphan(Uid),
    /// Record the OwnerRefInvalidNamespace event.
    InvalidOwnerNamespace {
        dependent: ObjectIdentity,
        /// The owner that its reference names.
        owner: ObjectIdentity,
    },
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, GraphNode>,
    names: InternedNames,
    absent: AbsentOwnerCache,
}

#[derive(Debug)]
struct GraphNode {
    kind: Arc<KindName>,
    namespace: Arc<str>,
    name: Box<str>,
    owners: Box<[OwnerReference]>,
    dependents: BTreeSet<Uid>,
    deletion: DeletionState,
    /// Known only from owner references.
    is_virtual: bool,
}

/// The size of a node without names and edges.
#[cfg(test)]
pub(super) const NODE_SIZE: usize = size_of::<GraphNode>();

/// What attemptToDelete needs to know of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GraphItem {
    pub identity: ObjectIdentity,
    pub deletion: DeletionState,
    /// Known only from owner references.
    pub is_virtual: bool,
}

impl Graph {
    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Arc<KindName> {
        self.names.kind(api_version, kind)
    }

    /// The owner references of an object that was just read.
    pub(super) fn owners(&mut self, object: &Value) -> Box<[OwnerReference]> {
        super::observed::owners(&mut self.names, &object["metadata"])
    }

    /// Handles an added or updated object.
    pub(super) fn on_update(&mut self, kind: &Arc<KindName>, object: &Value) -> Vec<Effect> {
        let seen = ObservedObject::from_metadata(&mut self.names, kind, object);
        let mut effects = Vec::new();
        self.on_event(seen, &mut effects);
        effects
    }

    /// Handles a list of all objects of a kind; nodes that are not in it are deleted.
    pub(super) fn on_replace(
        &mut self,
        kind: &Arc<KindName>,
        objects: impl Iterator<Item = Value>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut there = BTreeSet::new();
        for object in objects {
            let seen = ObservedObject::from_metadata(&mut self.names, kind, &object);
            there.insert(seen.identity.uid.clone());
            self.on_event(seen, &mut effects);
        }
        for uid in self
            .of_kind(kind)
            .into_iter()
            .filter(|uid| !there.contains(uid))
        {
            self.remove(&uid, &mut effects);
        }
        effects
    }

    /// Handles a deleted object.
    pub(super) fn on_delete(&mut self, uid: &Uid) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.remove(uid, &mut effects);
        effects
    }

    /// A kind is not watched any more. Its objects may still exist, so nothing is concluded: those
    /// that have dependents become virtual.
    pub(super) fn on_watch_stopped(&mut self, kind: &Arc<KindName>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for uid in self.of_kind(kind) {
            let Some(node) = self.nodes.get_mut(&uid) else {
                continue;
            };
            if node.dependents.is_empty() {
                self.remove_node(&uid);
            } else {
                node.is_virtual = true;
                effects.push(Effect::AttemptToDelete(uid));
            }
        }
        effects
    }

    /// The observed objects of a kind.
    fn of_kind(&self, kind: &Arc<KindName>) -> BTreeSet<Uid> {
        let is_meant = |node: &GraphNode| !node.is_virtual && node.kind == *kind;
        self.nodes
            .iter()
            .filter(|(_, node)| is_meant(node))
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    fn on_event(&mut self, seen: ObservedObject, effects: &mut Vec<Effect>) {
        let uid = seen.identity.uid.clone();
        let Some(node) = self.nodes.get(&uid) else {
            return self.insert(seen, effects);
        };
        if node.is_virtual {
            self.observe_virtual(&seen.identity, effects);
        }
        let before = self.nodes[&uid].deletion;
        self.change_owners(&uid, seen.owners, effects);
        let node = self
            .nodes
            .get_mut(&uid)
            .expect("it was there, and owners remove nobody");
        node.set_identity(&seen.identity);
        node.is_virtual = false;
        node.deletion = seen.deletion;
        self.process_deletion(&uid, before, effects);
    }

    fn insert(
        &mut self,
        ObservedObject {
            identity,
            owners,
            deletion: end,
        }: ObservedObject,
        effects: &mut Vec<Effect>,
    ) {
        let uid = identity.uid.clone();
        let added = owners.clone();
        self.nodes.insert(
            uid.clone(),
            GraphNode {
                owners,
                deletion: end,
                is_virtual: false,
                ..GraphNode::virtual_node(identity)
            },
        );
        self.add_dependent_to_owners(&uid, &added, effects);
        self.process_deletion(&uid, DeletionState::default(), effects);
    }

    /// A virtual owner is observed. Dependents whose reference does not match its identity are
    /// enqueued.
    fn observe_virtual(&mut self, observed: &ObjectIdentity, effects: &mut Vec<Effect>) {
        if self.identity(&observed.uid).as_ref() == Some(observed) {
            return;
        }
        for uid in self.partition_dependents(observed).1 {
            let namespace = &self.nodes[&uid].namespace;
            if !observed.namespace.is_empty() && *namespace != observed.namespace {
                effects.extend(self.invalid_namespace(&uid, &observed.uid));
            }
            effects.push(Effect::AttemptToDelete(uid));
        }
    }

    /// The effects of a change of the deletion state.
    fn process_deletion(&self, uid: &Uid, before: DeletionState, effects: &mut Vec<Effect>) {
        let node = &self.nodes[uid];
        if node.deletion.is_orphaning && !before.is_orphaning {
            effects.push(Effect::AttemptToOrphan(uid.clone()));
        } else if node.deletion.is_foreground && !before.is_foreground {
            effects.extend(
                node.dependents
                    .iter()
                    .chain([uid])
                    .cloned()
                    .map(Effect::AttemptToDelete),
            );
        }
    }

    fn change_owners(&mut self, uid: &Uid, new: Box<[OwnerReference]>, effects: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(uid).expect("whoever asks has found it");
        if node.owners == new {
            return;
        }
        let old = std::mem::replace(&mut node.owners, new.clone());
        let is_in = |owners: &[OwnerReference], owner: &OwnerReference| {
            owners.iter().any(|other| other.uid == owner.uid)
        };
        let added: Vec<OwnerReference> = new
            .iter()
            .filter(|owner| !is_in(&old, owner))
            .cloned()
            .collect();
        for owner in old
            .iter()
            .filter(|owner| owner.blocks && !is_blocked(&new, &owner.uid))
        {
            // The owner may have waited for this dependent only.
            if self.nodes.contains_key(&owner.uid) {
                effects.push(Effect::AttemptToDelete(owner.uid.clone()));
            }
        }
        self.add_dependent_to_owners(uid, &added, effects);
        self.remove_dependent_from_owners(uid, old.iter().filter(|owner| !is_in(&new, owner)));
    }

    /// Adds a node to its owners' dependents. Unknown owners become virtual nodes.
    fn add_dependent_to_owners(
        &mut self,
        uid: &Uid,
        owners: &[OwnerReference],
        effects: &mut Vec<Effect>,
    ) {
        let namespace = self.nodes[uid].namespace.clone();
        let mut is_doubtful = false;
        for owner in owners {
            let Some(node) = self.nodes.get_mut(&owner.uid) else {
                self.add_virtual(uid, owner, &namespace, effects);
                continue;
            };
            node.dependents.insert(uid.clone());
            if is_doubtful {
                continue;
            }
            let doubt = node.mismatch(owner, &namespace);
            is_doubtful = doubt != ReferenceMismatch::None;
            if doubt == ReferenceMismatch::Namespace && !node.is_virtual {
                effects.extend(self.invalid_namespace(uid, &owner.uid));
            }
        }
        if is_doubtful {
            effects.push(Effect::AttemptToDelete(uid.clone()));
        }
    }

    fn add_virtual(
        &mut self,
        uid: &Uid,
        owner: &OwnerReference,
        namespace: &Arc<str>,
        effects: &mut Vec<Effect>,
    ) {
        let mut node = GraphNode::virtual_node(owner.identity(namespace.clone()));
        node.dependents.insert(uid.clone());
        self.nodes.insert(owner.uid.clone(), node);
        effects.push(Effect::AttemptToDelete(owner.uid.clone()));
    }

    fn remove_dependent_from_owners<'a>(
        &mut self,
        uid: &Uid,
        owners: impl Iterator<Item = &'a OwnerReference>,
    ) {
        for owner in owners {
            if let Some(node) = self.nodes.get_mut(&owner.uid) {
                node.dependents.remove(uid);
            }
        }
    }

    /// The event for a reference into another namespace.
    fn invalid_namespace(&self, dependent: &Uid, owner: &Uid) -> Option<Effect> {
        let node = self.nodes.get(dependent)?;
        let reference = node
            .owners
            .iter()
            .find(|reference| reference.uid == *owner)?;
        let owner = reference.identity(node.namespace.clone());
        Some(Effect::InvalidOwnerNamespace {
            dependent: node.identity(dependent),
            owner,
        })
    }

    fn remove_node(&mut self, uid: &Uid) -> Option<GraphNode> {
        let node = self.nodes.remove(uid)?;
        self.remove_dependent_from_owners(uid, node.owners.iter());
        Some(node)
    }

    fn remove(&mut self, uid: &Uid, effects: &mut Vec<Effect>) {
        let Some(node) = self.remove_node(uid) else {
            return;
        };
        if !node.dependents.is_empty() {
            self.absent.add(node.identity(uid));
        }
        effects.extend(node.dependents.into_iter().map(Effect::AttemptToDelete));
        let waits = |owner: &&OwnerReference| {
            self.nodes
                .get(&owner.uid)
                .is_some_and(|node| node.deletion.is_foreground)
        };
        effects.extend(
            node.owners
                .iter()
                .filter(waits)
                .map(|owner| Effect::AttemptToDelete(owner.uid.clone())),
        );
    }

    /// The live read of this identity returned not found.
    pub(super) fn on_absent(&mut self, absent: &ObjectIdentity) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get(&absent.uid) else {
            return effects;
        };
        let (is_virtual, is_same) = (node.is_virtual, node.identity(&absent.uid) == *absent);
        let (matching, others) = self.partition_dependents(absent);
        if if is_virtual {
            others.is_empty()
        } else {
            is_same
        } {
            self.remove(&absent.uid, &mut effects);
            return effects;
        }
        if !matching.is_empty() {
            self.absent.add(absent.clone());
            effects.extend(matching.into_iter().map(Effect::AttemptToDelete));
        }
        if is_virtual && is_same {
            self.try_alternate_identity(absent, &others, &mut effects);
        }
        effects
    }

    /// Tries another of the identities that dependents' references give for an owner.
    fn try_alternate_identity(
        &mut self,
        absent: &ObjectIdentity,
        dependents: &[Uid],
        effects: &mut Vec<Effect>,
    ) {
        let names: BTreeSet<ObjectIdentity> = dependents
            .iter()
            .flat_map(|uid| self.alternate_identities(uid, absent))
            .collect();
        let Some(name) = names.iter().find(|name| *name > absent).or(names.first()) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&absent.uid) {
            node.set_identity(name);
            effects.push(Effect::AttemptToDeleteLater(absent.uid.clone()));
        }
    }

    /// The other identities that a dependent's references give for an owner.
    fn alternate_identities(
        &self,
        dependent: &Uid,
        absent: &ObjectIdentity,
    ) -> Vec<ObjectIdentity> {
        let Some(node) = self.nodes.get(dependent) else {
            return Vec::new();
        };
        let references = node.owners.iter().filter(|owner| owner.uid == absent.uid);
        let named = references.map(|owner| {
            let mut name = owner.identity(node.namespace.clone());
            // A lookup without a namespace means that the kind is cluster-scoped.
            if absent.namespace.is_empty() && owner.kind == absent.kind {
                name.namespace = absent.namespace.clone();
            }
            name
        });
        named.filter(|name| name != absent).collect()
    }

    /// The dependents whose references match the identity, and those that do not. Some are in both.
    fn partition_dependents(&self, owner: &ObjectIdentity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        let Some(node) = self.nodes.get(&owner.uid) else {
            return (matching, others);
        };
        for uid in &node.dependents {
            let Some(dependent) = self.nodes.get(uid) else {
                continue;
            };
            let is_elsewhere =
                !owner.namespace.is_empty() && owner.namespace != dependent.namespace;
            let mut references = dependent
                .owners
                .iter()
                .filter(|reference| reference.uid == owner.uid);
            if !is_elsewhere && references.clone().any(|reference| reference.names(owner)) {
                matching.push(uid.clone());
            }
            if is_elsewhere || references.any(|reference| !reference.names(owner)) {
                others.push(uid.clone());
            }
        }
        (matching, others)
    }

    pub(super) fn is_absent(&self, identity: &ObjectIdentity) -> bool {
        self.absent.has(identity)
    }

    pub(super) fn note_absent(&mut self, identity: ObjectIdentity) {
        self.absent.add(identity);
    }

    pub(super) fn item(&self, uid: &Uid) -> Option<GraphItem> {
        let node = self.nodes.get(uid)?;
        Some(GraphItem {
            identity: node.identity(uid),
            deletion: node.deletion,
            is_virtual: node.is_virtual,
        })
    }

    fn identity(&self, uid: &Uid) -> Option<ObjectIdentity> {
        Some(self.nodes.get(uid)?.identity(uid))
    }

    pub(super) fn dependents(&self, uid: &Uid) -> Vec<GraphItem> {
        let dependents = self
            .nodes
            .get(uid)
            .into_iter()
            .flat_map(|node| &node.dependents);
        dependents.filter_map(|uid| self.item(uid)).collect()
    }

    /// The dependents that block the foreground deletion of an object.
    pub(super) fn blocking(&self, uid: &Uid) -> Vec<GraphItem> {
        let blocks = |item: &GraphItem| {
            self.nodes
                .get(&item.identity.uid)
                .is_some_and(|dependent| is_blocked(&dependent.owners, uid))
        };
        self.dependents(uid).into_iter().filter(blocks).collect()
    }

    /// The owners whose foreground deletion an object blocks.
    pub(super) fn blocked_owners(&self, uid: &Uid) -> Vec<Uid> {
        let owners = self
            .nodes
            .get(uid)
            .into_iter()
            .flat_map(|node| &node.owners);
        owners
            .filter(|owner| owner.blocks)
            .map(|owner| owner.uid.clone())
            .collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn is_blocked(owners: &[OwnerReference], uid: &Uid) -> bool {
    owners.iter().any(|owner| owner.uid == *uid && owner.blocks)
}

/// How a reference may differ from the owner's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceMismatch {
    None,
    /// The owner is in another namespace.
    Namespace,
    /// The owner has another identity, or its scope is not known yet.
    Name,
}

impl GraphNode {
    /// A virtual node.
    fn virtual_node(
        ObjectIdentity {
            kind,
            namespace,
            name,
            ..
        }: ObjectIdentity,
    ) -> GraphNode {
        GraphNode {
            kind,
            namespace,
            name,
            owners: Box::default(),
            dependents: BTreeSet::new(),
            deletion: DeletionState::default(),
            is_virtual: true,
        }
    }

    fn set_identity(&mut self, identity: &ObjectIdentity) {
        self.kind = identity.kind.clone();
        self.namespace = identity.namespace.clone();
        self.name = identity.name.clone();
    }

    fn identity(&self, uid: &Uid) -> ObjectIdentity {
        ObjectIdentity {
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: uid.clone(),
        }
    }

    /// How the node differs from a reference by an object in `namespace`.
    fn mismatch(&self, reference: &OwnerReference, namespace: &Arc<str>) -> ReferenceMismatch {
        let is_same = self.namespace == *namespace;
        if !self.namespace.is_empty() && !is_same {
            ReferenceMismatch::Namespace
        } else if self.kind != reference.kind
            || self.name != reference.name
            || self.is_virtual && !is_same
        {
            // A virtual owner without a namespace may be of a namespaced kind, referenced by a
            // cluster-scoped object.
            ReferenceMismatch::Name
        } else {
            ReferenceMismatch::None
        }
    }
}

impl OwnerReference {
    /// The identity of the owner of an object in `namespace`.
    pub(super) fn identity(&self, namespace: Arc<str>) -> ObjectIdentity {
        ObjectIdentity {
            kind: self.kind.clone(),
            namespace,
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Whether the reference matches the identity.
    fn names(&self, owner: &ObjectIdentity) -> bool {
        self.kind == owner.kind && self.name == owner.name
    }
}
