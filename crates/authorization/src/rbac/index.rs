//! Roles by name and bindings by subject, up to date with the store.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_registry::{Follower, Resource};
use mizzen_value::{Str, Value};

use super::RbacSources;
use super::binding::{BoundUser, RbacBinding, RoleName};
use super::role::RbacRole;
use crate::store_index::{IndexedResource, StoreIndex};

pub(super) struct RbacIndex(StoreIndex<RbacTable, 4>);

impl RbacIndex {
    /// An empty index, filled by the first read.
    pub(super) fn new(sources: RbacSources) -> RbacIndex {
        let RbacSources {
            roles,
            cluster_roles,
            role_bindings,
            cluster_role_bindings,
        } = sources;
        let source = |resource: Resource, take, clear| IndexedResource {
            follower: Follower::new(resource),
            clear,
            apply: take,
        };
        RbacIndex(StoreIndex::new([
            source(roles, RbacTable::apply_role, |table| {
                table.clear_local(|scope| scope.roles.clear())
            }),
            source(cluster_roles, RbacTable::apply_role, |table| {
                table.cluster.roles.clear()
            }),
            source(role_bindings, RbacTable::apply_binding, |table| {
                table.clear_local(RbacScope::clear_bindings)
            }),
            source(cluster_role_bindings, RbacTable::apply_binding, |table| {
                table.cluster.clear_bindings()
            }),
        ]))
    }

    /// Calls `look` with the current table.
    pub(super) fn read<T>(&self, look: impl FnOnce(&RbacTable) -> T) -> T {
        self.0.read(look)
    }
}

#[derive(Default)]
pub(super) struct RbacTable {
    cluster: RbacScope,
    namespaces: HashMap<Str, RbacScope>,
}

/// The roles and bindings of one namespace, or of the cluster.
#[derive(Default)]
struct RbacScope {
    roles: HashMap<Str, RbacRole>,
    users: HashMap<Str, SubjectBindings>,
    groups: HashMap<Str, SubjectBindings>,
}

/// The bindings of one subject, sorted by name. Most subjects have one.
#[derive(Default)]
struct SubjectBindings(Vec<Arc<RbacBinding>>);

impl SubjectBindings {
    fn find(&self, name: &Str) -> Result<usize, usize> {
        self.0.binary_search_by(|known| known.name.cmp(name))
    }

    fn put(&mut self, binding: &Arc<RbacBinding>) {
        match self.find(&binding.name) {
            Ok(at) => self.0[at] = binding.clone(),
            Err(at) => self.0.insert(at, binding.clone()),
        }
    }

    fn remove(&mut self, name: &Str) {
        if let Ok(at) = self.find(name) {
            self.0.remove(at);
        }
    }
}

impl RbacTable {
    /// A role, as a binding in `namespace` references it.
    pub(super) fn role(&self, role: &RoleName, namespace: &str) -> Option<&RbacRole> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster.roles.get(&role.name),
            "Role" => self.namespaces.get(namespace)?.roles.get(&role.name),
            _ => None,
        }
    }

    /// The bindings of a user: those of the cluster, then those of the namespace if there is one.
    pub(super) fn bindings(
        &self,
        user: &User,
        namespace: &str,
    ) -> impl Iterator<Item = &Arc<RbacBinding>> {
        let local = (!namespace.is_empty())
            .then(|| self.namespaces.get(namespace))
            .flatten();
        [Some(&self.cluster), local]
            .into_iter()
            .flatten()
            .flat_map(|scope| scope.bindings_of(user))
    }

    fn clear_local(&mut self, clear: fn(&mut RbacScope)) {
        self.namespaces.values_mut().for_each(clear);
        self.namespaces.retain(|_, scope| !scope.is_empty());
    }

    /// Removes the namespace of a deleted object, if it was the last there.
    fn remove_empty_namespace(&mut self, object: &Value) {
        let namespace = object["metadata"]["namespace"].str();
        if self
            .namespaces
            .get(namespace)
            .is_some_and(RbacScope::is_empty)
        {
            self.namespaces.remove(namespace);
        }
    }

    fn scope(&mut self, object: &Value) -> &mut RbacScope {
        match object["metadata"]["namespace"].str() {
            "" => &mut self.cluster,
            namespace => self.namespaces.entry(namespace.into()).or_default(),
        }
    }

    fn apply_role(&mut self, object: &Value, there: bool) {
        let (scope, name) = (self.scope(object), object["metadata"]["name"].str());
        match there {
            true => drop(scope.roles.insert(name.into(), RbacRole::new(object))),
            false => {
                scope.roles.remove(name);
                self.remove_empty_namespace(object);
            }
        }
    }

    fn apply_binding(&mut self, object: &Value, there: bool) {
        let binding = Arc::new(RbacBinding::new(object));
        let scope = self.scope(object);
        for subject in &binding.subjects {
            let (bindings, name) = match &subject.user {
                BoundUser::User(name) => (&mut scope.users, name),
                BoundUser::Group(name) => (&mut scope.groups, name),
                BoundUser::None => continue,
            };
            match there {
                true => bindings.entry(name.clone()).or_default().put(&binding),
                false => remove(bindings, name, &binding.name),
            }
        }
        if !there {
            self.remove_empty_namespace(object);
        }
    }
}

fn remove(bindings: &mut HashMap<Str, SubjectBindings>, subject: &Str, name: &Str) {
    let Some(own) = bindings.get_mut(subject) else {
        return;
    };
    own.remove(name);
    if own.0.is_empty() {
        bindings.remove(subject);
    }
}

impl RbacScope {
    fn bindings_of(&self, user: &User) -> impl Iterator<Item = &Arc<RbacBinding>> {
        let own = self.users.get(&user.name);
        let shared = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group));
        own.into_iter()
            .chain(shared)
            .flat_map(|bindings| &bindings.0)
    }

    fn clear_bindings(&mut self) {
        self.users.clear();
        self.groups.clear();
    }

    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }
}
