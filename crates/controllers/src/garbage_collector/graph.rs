//! Who belongs to whom? A graph of all objects, from owners to their dependents.
//!
//! It hears of objects as they come, change and go, and says what may have to be done because of it. An owner of which
//! it only knows because somebody refers to it is in the graph too, as a *virtual* node: whoever looks at it finds out
//! that it exists, or says [`absent`](Graph::absent).
//!
//! Invariant: pure. It does not ask the server, and what it says is a suspicion: whoever follows it up looks at the
//! objects as they are.
//! Invariant: for every owner reference of a node, the owner, if it is in the graph, has the node as a dependent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mizzen_value::Value;

use super::absent::Absent;
use super::name::{Identity, KindName, Names, Uid};
use super::seen::{End, Owner, Seen};

/// What may have to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// Look whether this object must go.
    TryDelete(Uid),
    /// The same, but not at once: it was looked at just now.
    TryDeleteLater(Uid),
    /// Let the dependents of this object be on their own.
    TryOrphan(Uid),
    /// Say that an object refers to an owner that cannot be its owner.
    Complain {
        /// The object.
        dependent: Identity,
        /// What it takes for its owner.
        owner: Identity,
    },
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    names: Names,
    absent: Absent,
}

#[derive(Debug)]
struct Node {
    kind: Arc<KindName>,
    namespace: Arc<str>,
    name: Box<str>,
    owners: Box<[Owner]>,
    dependents: BTreeSet<Uid>,
    end: End,
    /// Known only because others refer to it.
    is_virtual: bool,
}

/// What a node takes beside its names and edges.
#[cfg(test)]
pub(super) const NODE_SIZE: usize = size_of::<Node>();

/// What is known of an object that is looked at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// Which object.
    pub identity: Identity,
    /// How far its end has come.
    pub end: End,
    /// Known only because others refer to it.
    pub is_virtual: bool,
}

impl Graph {
    /// The name of a kind.
    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Arc<KindName> {
        self.names.kind(api_version, kind)
    }

    /// To whom an object belongs that was just read.
    pub(super) fn owners(&mut self, object: &Value) -> Box<[Owner]> {
        super::seen::owners(&mut self.names, &object["metadata"])
    }

    /// An object is there, or has changed.
    pub(super) fn see(&mut self, kind: &Arc<KindName>, object: &Value) -> Vec<Effect> {
        let seen = Seen::of(&mut self.names, kind, object);
        let mut effects = Vec::new();
        self.take_in(seen, &mut effects);
        effects
    }

    /// These are all objects of a kind; those that are not among them are gone.
    pub(super) fn replace(
        &mut self,
        kind: &Arc<KindName>,
        objects: impl Iterator<Item = Value>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut there = BTreeSet::new();
        for object in objects {
            let seen = Seen::of(&mut self.names, kind, &object);
            there.insert(seen.identity.uid.clone());
            self.take_in(seen, &mut effects);
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

    /// An object is gone: the server said so.
    pub(super) fn gone(&mut self, uid: &Uid) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.remove(uid, &mut effects);
        effects
    }

    /// Nobody follows a kind any more. Its objects may still exist, so that nothing is concluded: those that own others
    /// are looked for when there is a way.
    pub(super) fn forget(&mut self, kind: &Arc<KindName>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for uid in self.of_kind(kind) {
            let Some(node) = self.nodes.get_mut(&uid) else {
                continue;
            };
            if node.dependents.is_empty() {
                self.take_out(&uid);
            } else {
                node.is_virtual = true;
                effects.push(Effect::TryDelete(uid));
            }
        }
        effects
    }

    /// The observed objects of a kind.
    fn of_kind(&self, kind: &Arc<KindName>) -> BTreeSet<Uid> {
        let is_meant = |node: &Node| !node.is_virtual && node.kind == *kind;
        self.nodes
            .iter()
            .filter(|(_, node)| is_meant(node))
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    fn take_in(&mut self, seen: Seen, effects: &mut Vec<Effect>) {
        let uid = seen.identity.uid.clone();
        let Some(node) = self.nodes.get(&uid) else {
            return self.insert(seen, effects);
        };
        if node.is_virtual {
            self.unmask(&seen.identity, effects);
        }
        let before = self.nodes[&uid].end;
        self.change_owners(&uid, seen.owners, effects);
        let node = self
            .nodes
            .get_mut(&uid)
            .expect("it was there, and owners remove nobody");
        node.place_at(&seen.identity);
        node.is_virtual = false;
        node.end = seen.end;
        self.note_end(&uid, before, effects);
    }

    fn insert(
        &mut self,
        Seen {
            identity,
            owners,
            end,
        }: Seen,
        effects: &mut Vec<Effect>,
    ) {
        let uid = identity.uid.clone();
        let added = owners.clone();
        self.nodes.insert(
            uid.clone(),
            Node {
                owners,
                end,
                is_virtual: false,
                ..Node::at(identity)
            },
        );
        self.join(&uid, &added, effects);
        self.note_end(&uid, End::default(), effects);
    }

    /// An owner that others only referred to is there. Who meant another object by its uid is looked at.
    fn unmask(&mut self, observed: &Identity, effects: &mut Vec<Effect>) {
        if self.identity(&observed.uid).as_ref() == Some(observed) {
            return;
        }
        for uid in self.part_dependents(observed).1 {
            let namespace = &self.nodes[&uid].namespace;
            if !observed.namespace.is_empty() && *namespace != observed.namespace {
                effects.extend(self.complaint(&uid, &observed.uid));
            }
            effects.push(Effect::TryDelete(uid));
        }
    }

    /// What follows from how an object's end has come on.
    fn note_end(&self, uid: &Uid, before: End, effects: &mut Vec<Effect>) {
        let node = &self.nodes[uid];
        if node.end.is_orphaning && !before.is_orphaning {
            effects.push(Effect::TryOrphan(uid.clone()));
        } else if node.end.is_foreground && !before.is_foreground {
            effects.extend(
                node.dependents
                    .iter()
                    .chain([uid])
                    .cloned()
                    .map(Effect::TryDelete),
            );
        }
    }

    fn change_owners(&mut self, uid: &Uid, new: Box<[Owner]>, effects: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(uid).expect("whoever asks has found it");
        if node.owners == new {
            return;
        }
        let old = std::mem::replace(&mut node.owners, new.clone());
        let is_in =
            |owners: &[Owner], owner: &Owner| owners.iter().any(|other| other.uid == owner.uid);
        let added: Vec<Owner> = new
            .iter()
            .filter(|owner| !is_in(&old, owner))
            .cloned()
            .collect();
        for owner in old
            .iter()
            .filter(|owner| owner.blocks && !is_blocked(&new, &owner.uid))
        {
            // The owner may have waited for this dependent alone.
            if self.nodes.contains_key(&owner.uid) {
                effects.push(Effect::TryDelete(owner.uid.clone()));
            }
        }
        self.join(uid, &added, effects);
        self.part(uid, old.iter().filter(|owner| !is_in(&new, owner)));
    }

    /// Makes a node a dependent of its owners. Owners that are not known are made virtual nodes.
    fn join(&mut self, uid: &Uid, owners: &[Owner], effects: &mut Vec<Effect>) {
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
            let doubt = node.doubt(owner, &namespace);
            is_doubtful = doubt != Doubt::None;
            if doubt == Doubt::Namespace && !node.is_virtual {
                effects.extend(self.complaint(uid, &owner.uid));
            }
        }
        if is_doubtful {
            effects.push(Effect::TryDelete(uid.clone()));
        }
    }

    fn add_virtual(
        &mut self,
        uid: &Uid,
        owner: &Owner,
        namespace: &Arc<str>,
        effects: &mut Vec<Effect>,
    ) {
        let mut node = Node::at(owner.identity(namespace.clone()));
        node.dependents.insert(uid.clone());
        self.nodes.insert(owner.uid.clone(), node);
        effects.push(Effect::TryDelete(owner.uid.clone()));
    }

    fn part<'a>(&mut self, uid: &Uid, owners: impl Iterator<Item = &'a Owner>) {
        for owner in owners {
            if let Some(node) = self.nodes.get_mut(&owner.uid) {
                node.dependents.remove(uid);
            }
        }
    }

    /// What is said of a reference into another namespace.
    fn complaint(&self, dependent: &Uid, owner: &Uid) -> Option<Effect> {
        let node = self.nodes.get(dependent)?;
        let reference = node
            .owners
            .iter()
            .find(|reference| reference.uid == *owner)?;
        let owner = reference.identity(node.namespace.clone());
        Some(Effect::Complain {
            dependent: node.identity(dependent),
            owner,
        })
    }

    fn take_out(&mut self, uid: &Uid) -> Option<Node> {
        let node = self.nodes.remove(uid)?;
        self.part(uid, node.owners.iter());
        Some(node)
    }

    fn remove(&mut self, uid: &Uid, effects: &mut Vec<Effect>) {
        let Some(node) = self.take_out(uid) else {
            return;
        };
        if !node.dependents.is_empty() {
            self.absent.add(node.identity(uid));
        }
        effects.extend(node.dependents.into_iter().map(Effect::TryDelete));
        let waits = |owner: &&Owner| {
            self.nodes
                .get(&owner.uid)
                .is_some_and(|node| node.end.is_foreground)
        };
        effects.extend(
            node.owners
                .iter()
                .filter(waits)
                .map(|owner| Effect::TryDelete(owner.uid.clone())),
        );
    }

    /// Somebody looked for an object under this name, and it was not there.
    pub(super) fn absent(&mut self, absent: &Identity) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get(&absent.uid) else {
            return effects;
        };
        let (is_virtual, is_same) = (node.is_virtual, node.identity(&absent.uid) == *absent);
        let (matching, others) = self.part_dependents(absent);
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
            effects.extend(matching.into_iter().map(Effect::TryDelete));
        }
        if is_virtual && is_same {
            self.rename(absent, &others, &mut effects);
        }
        effects
    }

    /// Looks for an owner under another of the names by which its dependents call it.
    fn rename(&mut self, absent: &Identity, dependents: &[Uid], effects: &mut Vec<Effect>) {
        let names: BTreeSet<Identity> = dependents
            .iter()
            .flat_map(|uid| self.other_names(uid, absent))
            .collect();
        let Some(name) = names.iter().find(|name| *name > absent).or(names.first()) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&absent.uid) {
            node.place_at(name);
            effects.push(Effect::TryDeleteLater(absent.uid.clone()));
        }
    }

    /// By what other names a dependent calls an owner.
    fn other_names(&self, dependent: &Uid, absent: &Identity) -> Vec<Identity> {
        let Some(node) = self.nodes.get(dependent) else {
            return Vec::new();
        };
        let references = node.owners.iter().filter(|owner| owner.uid == absent.uid);
        let named = references.map(|owner| {
            let mut name = owner.identity(node.namespace.clone());
            // What was looked for in no namespace is of a kind that has none.
            if absent.namespace.is_empty() && owner.kind == absent.kind {
                name.namespace = absent.namespace.clone();
            }
            name
        });
        named.filter(|name| name != absent).collect()
    }

    /// The dependents of an object, those that call it by this name and those that do not. Some do both.
    fn part_dependents(&self, owner: &Identity) -> (Vec<Uid>, Vec<Uid>) {
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

    /// Whether it is known that there is no such object.
    pub(super) fn is_absent(&self, identity: &Identity) -> bool {
        self.absent.has(identity)
    }

    /// Remembers that there is no such object.
    pub(super) fn note_absent(&mut self, identity: Identity) {
        self.absent.add(identity);
    }

    /// What is known of an object.
    pub(super) fn item(&self, uid: &Uid) -> Option<Item> {
        let node = self.nodes.get(uid)?;
        Some(Item {
            identity: node.identity(uid),
            end: node.end,
            is_virtual: node.is_virtual,
        })
    }

    fn identity(&self, uid: &Uid) -> Option<Identity> {
        Some(self.nodes.get(uid)?.identity(uid))
    }

    /// What depends on an object.
    pub(super) fn dependents(&self, uid: &Uid) -> Vec<Item> {
        let dependents = self
            .nodes
            .get(uid)
            .into_iter()
            .flat_map(|node| &node.dependents);
        dependents.filter_map(|uid| self.item(uid)).collect()
    }

    /// What must be gone before an object can go.
    pub(super) fn blocking(&self, uid: &Uid) -> Vec<Item> {
        let blocks = |item: &Item| {
            self.nodes
                .get(&item.identity.uid)
                .is_some_and(|dependent| is_blocked(&dependent.owners, uid))
        };
        self.dependents(uid).into_iter().filter(blocks).collect()
    }

    /// The owners of an object that cannot go before it.
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

    /// How many objects there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn is_blocked(owners: &[Owner], uid: &Uid) -> bool {
    owners.iter().any(|owner| owner.uid == *uid && owner.blocks)
}

/// What may be wrong with a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// The owner is in another namespace.
    Namespace,
    /// The owner is called something else, or nobody knows yet where it is.
    Name,
}

impl Node {
    /// A node of which nothing is known but what it is called.
    fn at(
        Identity {
            kind,
            namespace,
            name,
            ..
        }: Identity,
    ) -> Node {
        Node {
            kind,
            namespace,
            name,
            owners: Box::default(),
            dependents: BTreeSet::new(),
            end: End::default(),
            is_virtual: true,
        }
    }

    fn place_at(&mut self, identity: &Identity) {
        self.kind = identity.kind.clone();
        self.namespace = identity.namespace.clone();
        self.name = identity.name.clone();
    }

    fn identity(&self, uid: &Uid) -> Identity {
        Identity {
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: uid.clone(),
        }
    }

    /// What is wrong when somebody in `namespace` refers to this node as its owner.
    fn doubt(&self, reference: &Owner, namespace: &Arc<str>) -> Doubt {
        let is_same = self.namespace == *namespace;
        if !self.namespace.is_empty() && !is_same {
            Doubt::Namespace
        } else if self.kind != reference.kind
            || self.name != reference.name
            || self.is_virtual && !is_same
        {
            // A virtual owner in no namespace may be one of a namespaced kind to which something in no namespace refers.
            Doubt::Name
        } else {
            Doubt::None
        }
    }
}

impl Owner {
    /// The owner of something in `namespace`.
    pub(super) fn identity(&self, namespace: Arc<str>) -> Identity {
        Identity {
            kind: self.kind.clone(),
            namespace,
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Whether this reference calls the owner so.
    fn names(&self, owner: &Identity) -> bool {
        self.kind == owner.kind && self.name == owner.name
    }
}
