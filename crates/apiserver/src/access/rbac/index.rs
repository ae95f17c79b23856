//! Roles by name and bindings by subject, as of now.
//!
//! The index follows the store: before it is read it takes in what was written since. That nothing was is the rule, and
//! costs a look at the store's revision.
//!
//! Invariant: whoever reads sees every write that was acknowledged before.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mizzen_object::{Str, Value};
use mizzen_registry::{Changed, Changes, Follower, Resource};

use super::binding::{Binding, RoleName, Who};
use super::{Rule, Sources};
use crate::identity::User;

/// A revision at which nothing has been read yet.
const NEVER: u64 = u64::MAX;

pub(super) struct Index {
    resources: [Resource; 4],
    followers: Mutex<[Follower; 4]>,
    table: RwLock<Table>,
    /// The last change that the table shows.
    shown: AtomicU64,
}

impl Index {
    /// An index of nothing; it is filled when it is first read.
    pub fn new(sources: Sources) -> Index {
        let Sources { roles, cluster_roles, role_bindings, cluster_role_bindings } = sources;
        let resources = [roles, cluster_roles, role_bindings, cluster_role_bindings];
        Index {
            followers: Mutex::new(resources.clone().map(Follower::new)),
            resources,
            table: RwLock::default(),
            shown: AtomicU64::new(NEVER),
        }
    }

    /// What `look` finds in the table as it is now.
    pub fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        let last = self.resources.iter().map(|resource| Follower::last_change(resource).0).max();
        if last != Some(self.shown.load(Ordering::Acquire)) {
            self.catch_up(last.unwrap_or_default());
        }
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in at least everything up to `last`.
    fn catch_up(&self, last: u64) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever held the lock before may have done the work.
        if self.shown.load(Ordering::Acquire) == last {
            return;
        }
        let changes = followers.each_mut().map(Follower::changes);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let takes = [Table::role, Table::role, Table::binding, Table::binding];
        for ((changes, take), clear) in changes.into_iter().zip(takes).zip(CLEAR) {
            table.take(changes, take, clear);
        }
        drop(table);
        self.shown.store(last, Ordering::Release);
    }
}

/// What to forget of each of the four kinds when all of them are told anew.
const CLEAR: [fn(&mut Table); 4] = [
    |table| table.namespaces.values_mut().for_each(|scope| scope.roles.clear()),
    |table| table.cluster.roles.clear(),
    |table| table.namespaces.values_mut().for_each(Scope::clear_bindings),
    |table| table.cluster.clear_bindings(),
];

/// Roles and bindings, ready to be asked.
#[derive(Default)]
pub(super) struct Table {
    cluster: Scope,
    namespaces: HashMap<Str, Scope>,
}

/// Roles and bindings of one namespace, or of the cluster.
#[derive(Default)]
struct Scope {
    roles: HashMap<Str, Arc<[Arc<Rule>]>>,
    users: HashMap<Str, Bindings>,
    groups: HashMap<Str, Bindings>,
}

/// Bindings of one subject by their names.
type Bindings = BTreeMap<Str, Arc<Binding>>;

impl Table {
    /// The rules of a role, as a binding in `namespace` means it.
    pub fn rules(&self, role: &RoleName, namespace: &str) -> Option<&Arc<[Arc<Rule>]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster.roles.get(&role.name),
            "Role" => self.namespaces.get(namespace)?.roles.get(&role.name),
            _ => None,
        }
    }

    /// The bindings that are for a user: those of the cluster, then those of the namespace if there is one.
    pub fn bindings(&self, user: &User, namespace: &str) -> impl Iterator<Item = &Arc<Binding>> {
        let local = (!namespace.is_empty()).then(|| self.namespaces.get(namespace)).flatten();
        [Some(&self.cluster), local].into_iter().flatten().flat_map(|scope| scope.of(user))
    }

    fn take(&mut self, changes: Changes, take: fn(&mut Table, &Value, bool), clear: fn(&mut Table)) {
        match changes {
            Changes::All(objects) => {
                clear(self);
                objects.iter().for_each(|object| take(self, object, true));
            }
            Changes::Some(changed) => {
                for Changed { before, after } in changed {
                    before.iter().for_each(|object| take(self, object, false));
                    after.iter().for_each(|object| take(self, object, true));
                }
            }
        }
        self.namespaces.retain(|_, scope| !scope.is_empty());
    }

    fn scope(&mut self, object: &Value) -> &mut Scope {
        match object["metadata"]["namespace"].str() {
            "" => &mut self.cluster,
            namespace => self.namespaces.entry(namespace.into()).or_default(),
        }
    }

    fn role(&mut self, object: &Value, there: bool) {
        let (scope, name) = (self.scope(object), object["metadata"]["name"].str());
        match there {
            true => {
                let rules = object["rules"].list().iter().map(|rule| Arc::new(Rule::new(rule))).collect();
                scope.roles.insert(name.into(), rules);
            }
            false => drop(scope.roles.remove(name)),
        }
    }

    fn binding(&mut self, object: &Value, there: bool) {
        let binding = Arc::new(Binding::new(object));
        let scope = self.scope(object);
        for subject in &binding.subjects {
            let (bindings, name) = match &subject.who {
                Who::User(name) => (&mut scope.users, name),
                Who::Group(name) => (&mut scope.groups, name),
                Who::Nobody => continue,
            };
            match there {
                true => drop(
                    bindings.entry(name.clone()).or_default().insert(binding.name.clone(), binding.clone()),
                ),
                false => remove(bindings, name, &binding.name),
            }
        }
    }
}

fn remove(bindings: &mut HashMap<Str, Bindings>, subject: &Str, name: &Str) {
    let Some(own) = bindings.get_mut(subject) else { return };
    own.remove(name);
    if own.is_empty() {
        bindings.remove(subject);
    }
}

impl Scope {
    fn of(&self, user: &User) -> impl Iterator<Item = &Arc<Binding>> {
        let own = self.users.get(&user.name);
        let shared = user.groups.iter().filter_map(|group| self.groups.get(group));
        own.into_iter().chain(shared).flat_map(BTreeMap::values)
    }

    fn clear_bindings(&mut self) {
        self.users.clear();
        self.groups.clear();
    }

    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }
}
