//! What may a controller do? Its RBAC rules, declared where its requests are.
//!
//! ```
//! use mizzen_sdk::Rbac;
//!
//! #[derive(Rbac)]
//! #[rbac(group("cache.example.com"), resources("memcacheds"), verbs("get", "list", "watch"))]
//! #[rbac(group("cache.example.com"), resources("memcacheds/status"), verbs("update"))]
//! #[rbac(group("apps"), resources("deployments"), verbs("get", "list", "watch", "create", "update"))]
//! #[rbac(group(""), resources("secrets"), verbs("get"), names("licence"), scope("Namespaced"))]
//! struct MemcachedReconciler;
//!
//! assert_eq!(MemcachedReconciler::rules().len(), 4);
//! ```
//!
//! Rules of a whole cluster become a ClusterRole, those with the scope `Namespaced` a Role in the namespace
//! of the operator: see [`manifests`](crate::manifests).
//!
//! A verb that does not exist is a compile error that names those that do:
//!
//! ```compile_fail
//! #[derive(mizzen_sdk::Rbac)]
//! #[rbac(group("apps"), resources("deployments"), verbs("fetch"))]
//! struct Reconciler;
//! ```

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

/// The rules that a component needs; `#[derive(Rbac)]` reads them from attributes.
///
/// ```
/// use mizzen_sdk::{Rbac, RbacRule};
///
/// struct Scaler;
///
/// impl Rbac for Scaler {
///     fn rules() -> Vec<RbacRule> {
///         vec![RbacRule::new("apps", ["deployments/scale"], ["get", "update"])]
///     }
/// }
/// ```
pub trait Rbac {
    /// The rules.
    fn rules() -> Vec<RbacRule>;
}

/// Verbs on resources of an API group, or on URLs.
///
/// ```
/// use mizzen_sdk::RbacRule;
///
/// let licence = RbacRule::new("", ["secrets"], ["get"]).names(["licence"]).namespaced();
/// let metrics = RbacRule::urls(["/metrics"], ["get"]);
/// assert_ne!(licence, metrics);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbacRule {
    group: String,
    resources: Vec<String>,
    verbs: Vec<String>,
    /// The names of the objects; empty for all.
    names: Vec<String>,
    urls: Vec<String>,
    /// Only in the namespace of the operator.
    is_namespaced: bool,
}

impl RbacRule {
    /// Verbs on resources of a group; the core group is `""`.
    pub fn new(
        group: &str,
        resources: impl IntoIterator<Item = impl Into<String>>,
        verbs: impl IntoIterator<Item = impl Into<String>>,
    ) -> RbacRule {
        RbacRule {
            group: group.into(),
            resources: resources.into_iter().map(Into::into).collect(),
            verbs: verbs.into_iter().map(Into::into).collect(),
            names: Vec::new(),
            urls: Vec::new(),
            is_namespaced: false,
        }
    }

    /// Verbs on URLs that are no resources.
    pub fn urls(
        urls: impl IntoIterator<Item = impl Into<String>>,
        verbs: impl IntoIterator<Item = impl Into<String>>,
    ) -> RbacRule {
        RbacRule {
            urls: urls.into_iter().map(Into::into).collect(),
            ..RbacRule::new("", [""; 0], verbs)
        }
    }

    /// For objects with these names alone.
    pub fn names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> RbacRule {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// In the namespace of the operator alone.
    pub fn namespaced(mut self) -> RbacRule {
        self.is_namespaced = true;
        self
    }
}

/// One permission: a verb on a resource, of all objects or of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

impl Permission {
    /// Whether this permission includes the other one.
    fn covers(&self, other: &Permission) -> bool {
        let is_name_covered = self.name.is_none() || self.name == other.name;
        let is_resource_covered = match self.resource.strip_prefix("*/") {
            Some(subresource) => other
                .resource
                .split_once('/')
                .is_some_and(|(_, other)| other == subresource),
            None => self.resource == "*" || self.resource == other.resource,
        };
        is_name_covered
            && is_resource_covered
            && (self.group == "*" || self.group == other.group)
            && (self.verb == "*" || self.verb == other.verb)
    }
}

/// The rules of a ClusterRole, and those of a Role in the namespace of the operator: sorted, and none
/// grants what another one grants.
pub(crate) fn policy_rules(rules: &[RbacRule]) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let (namespaced, cluster): (Vec<&RbacRule>, Vec<&RbacRule>) =
        rules.iter().partition(|rule| rule.is_namespaced);
    let (cluster_wide, own) = (permissions(&cluster), permissions(&namespaced));
    let is_needed = |permission: &&Permission, all: &BTreeSet<Permission>| {
        let mut others = all.iter().filter(|other| other != permission);
        !others.any(|other| other.covers(permission))
    };
    let needed_cluster_wide = cluster_wide
        .iter()
        .filter(|permission| is_needed(permission, &cluster_wide));
    let needed_own = own.iter().filter(|permission| {
        is_needed(permission, &own) && !cluster_wide.iter().any(|other| other.covers(permission))
    });
    let mut cluster_rules = group(needed_cluster_wide);
    cluster_rules.extend(url_rules(&cluster));
    (cluster_rules, group(needed_own))
}

fn permissions(rules: &[&RbacRule]) -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    for rule in rules {
        let names: Vec<Option<String>> = match rule.names.is_empty() {
            true => vec![None],
            false => rule.names.iter().cloned().map(Some).collect(),
        };
        for resource in &rule.resources {
            for verb in &rule.verbs {
                permissions.extend(names.iter().map(|name| Permission {
                    group: rule.group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    permissions
}

/// Joins permissions that differ in their verb, then name, then resource, then group.
fn group<'a>(permissions: impl Iterator<Item = &'a Permission>) -> Vec<PolicyRule> {
    type Texts = BTreeSet<String>;
    let mut by_object: BTreeMap<(String, String, Option<String>), Texts> = BTreeMap::new();
    for permission in permissions.cloned() {
        let object = (permission.group, permission.resource, permission.name);
        by_object.entry(object).or_default().insert(permission.verb);
    }
    let mut by_resource: BTreeMap<(String, String, bool, Texts), Texts> = BTreeMap::new();
    for ((group, resource, name), verbs) in by_object {
        let key = (group, resource, name.is_some(), verbs);
        by_resource.entry(key).or_default().extend(name);
    }
    let mut by_group: BTreeMap<(String, Texts, Texts), Texts> = BTreeMap::new();
    for ((group, resource, _, verbs), names) in by_resource {
        by_group
            .entry((group, names, verbs))
            .or_default()
            .insert(resource);
    }
    let mut by_resources: BTreeMap<(Texts, Texts, Texts), Texts> = BTreeMap::new();
    for ((group, names, verbs), resources) in by_group {
        by_resources
            .entry((resources, names, verbs))
            .or_default()
            .insert(group);
    }
    let list = |texts: Texts| texts.into_iter().collect::<Vec<_>>();
    let mut rules: Vec<PolicyRule> = by_resources
        .into_iter()
        .map(|((resources, names, verbs), groups)| PolicyRule {
            api_groups: Some(list(groups)),
            resources: Some(list(resources)),
            resource_names: (!names.is_empty()).then(|| list(names)),
            verbs: list(verbs),
            non_resource_urls: None,
        })
        .collect();
    rules.sort_by(|left, right| {
        let key = |rule: &PolicyRule| (rule.api_groups.clone(), rule.resources.clone());
        key(left).cmp(&key(right))
    });
    rules
}

fn url_rules(rules: &[&RbacRule]) -> Vec<PolicyRule> {
    let mut by_url: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for rule in rules {
        for url in &rule.urls {
            let verbs = by_url.entry(url).or_default();
            verbs.extend(rule.verbs.iter().map(String::as_str));
        }
    }
    let mut by_verbs: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
    for (url, verbs) in by_url {
        by_verbs.entry(verbs).or_default().push(url.into());
    }
    let rules = by_verbs.into_iter().map(|(verbs, urls)| PolicyRule {
        non_resource_urls: Some(urls),
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        ..PolicyRule::default()
    });
    rules.collect()
}
