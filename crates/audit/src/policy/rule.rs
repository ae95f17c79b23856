//! Rules of an audit policy.

use mizzen_request::{Attributes, AttributesTarget, ResourceAttributes};
use mizzen_value::Str;

use super::PolicyDecision;

/// A rule. An empty list matches everything.
#[derive(Debug, Clone)]
pub(super) struct AuditRule {
    pub decision: PolicyDecision,
    pub users: Vec<Str>,
    pub groups: Vec<Str>,
    pub verbs: Vec<Str>,
    pub resources: Vec<GroupResources>,
    /// `""` matches cluster-scoped objects.
    pub namespaces: Vec<Str>,
    /// Paths, which may end with `*`.
    pub non_resource_urls: Vec<Str>,
}

/// Resources of an API group.
#[derive(Debug, Clone)]
pub(super) struct GroupResources {
    /// `*` matches every group.
    pub group: Str,
    /// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`; all if empty.
    pub resources: Vec<Str>,
    /// Object names; all if empty.
    pub names: Vec<Str>,
}

impl AuditRule {
    pub(super) fn matches(&self, attributes: &Attributes, known: bool) -> bool {
        let Attributes { user, verb, target } = attributes;
        // Kubernetes: an unauthenticated request matches no user and no group
        // (audit/policy/checker.go).
        let by_user = self.users.is_empty() || known && contains(&self.users, &user.name);
        let in_group = || {
            known
                && user
                    .groups
                    .iter()
                    .any(|group| contains(&self.groups, group))
        };
        by_user
            && (self.groups.is_empty() || in_group())
            && (self.verbs.is_empty() || contains(&self.verbs, verb))
            && self.matches_target(target)
    }

    fn matches_target(&self, target: &AttributesTarget) -> bool {
        let about_objects = !self.namespaces.is_empty() || !self.resources.is_empty();
        match target {
            AttributesTarget::Resource(resource) if about_objects => {
                (self.namespaces.is_empty() || contains(&self.namespaces, resource.namespace))
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|some| some.matches(resource)))
            }
            AttributesTarget::NonResource(_) if about_objects => false,
            AttributesTarget::NonResource(path) if !self.non_resource_urls.is_empty() => {
                self.non_resource_urls.iter().any(|url| {
                    url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
                })
            }
            AttributesTarget::Resource(_) => self.non_resource_urls.is_empty(),
            AttributesTarget::NonResource(_) => true,
        }
    }
}

impl GroupResources {
    fn matches(&self, target: &ResourceAttributes) -> bool {
        let here = self.group == target.group || self.group == "*";
        let named = || self.names.is_empty() || contains(&self.names, target.name);
        here && (self.resources.is_empty()
            || named()
                && self
                    .resources
                    .iter()
                    .any(|pattern| matches_pattern(pattern, target)))
    }
}

/// Whether a resource matches a pattern. Kubernetes: `pods/*` also matches pods.
fn matches_pattern(pattern: &str, target: &ResourceAttributes) -> bool {
    let ResourceAttributes {
        resource,
        subresource,
        ..
    } = target;
    match pattern.split_once('/') {
        _ if pattern == "*" => true,
        None => pattern == *resource && subresource.is_empty(),
        Some(("*", below)) => !subresource.is_empty() && below == *subresource,
        Some((above, "*")) => above == *resource,
        Some((above, below)) => {
            above == *resource && !subresource.is_empty() && below == *subresource
        }
    }
}

fn contains(list: &[Str], text: &str) -> bool {
    list.iter().any(|item| item == text)
}
