//! Does a rule fit a request?

use mizzen_value::Str;

use super::Verdict;
use crate::authorization::{Attributes, Resource, Target};

/// A rule. A list that is empty fits everything.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub verdict: Verdict,
    pub users: Vec<Str>,
    pub groups: Vec<Str>,
    pub verbs: Vec<Str>,
    pub resources: Vec<Resources>,
    /// `""` is that of objects that belong to none.
    pub namespaces: Vec<Str>,
    /// Paths of pages; one may end with `*`.
    pub pages: Vec<Str>,
}

/// Resources of an API group.
#[derive(Debug, Clone)]
pub(super) struct Resources {
    /// `*` is any.
    pub group: Str,
    /// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`; all if there are none.
    pub resources: Vec<Str>,
    /// The objects; all if there are none.
    pub names: Vec<Str>,
}

impl Rule {
    pub(super) fn fits(&self, attributes: &Attributes, known: bool) -> bool {
        let Attributes { user, verb, target } = attributes;
        // Kubernetes: one whom we do not know is no user, and in no group (audit/policy/checker.go).
        let by_user = self.users.is_empty() || known && has(&self.users, &user.name);
        let in_group = || known && user.groups.iter().any(|group| has(&self.groups, group));
        by_user
            && (self.groups.is_empty() || in_group())
            && (self.verbs.is_empty() || has(&self.verbs, verb))
            && self.is_about(target)
    }

    fn is_about(&self, target: &Target) -> bool {
        let about_objects = !self.namespaces.is_empty() || !self.resources.is_empty();
        match target {
            Target::Resource(resource) if about_objects => {
                (self.namespaces.is_empty() || has(&self.namespaces, resource.namespace))
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|some| some.have(resource)))
            }
            Target::Page(_) if about_objects => false,
            Target::Page(path) if !self.pages.is_empty() => {
                self.pages.iter().any(|page| leads_to(page, path))
            }
            Target::Resource(_) => self.pages.is_empty(),
            Target::Page(_) => true,
        }
    }
}

impl Resources {
    fn have(&self, asked: &Resource) -> bool {
        let here = self.group == asked.group || self.group == "*";
        let named = || self.names.is_empty() || has(&self.names, asked.name);
        here && (self.resources.is_empty()
            || named() && self.resources.iter().any(|pattern| is_like(pattern, asked)))
    }
}

/// Whether a resource is what a pattern says. Kubernetes: `pods/*` is pods, too.
fn is_like(pattern: &str, asked: &Resource) -> bool {
    let Resource {
        resource,
        subresource,
        ..
    } = asked;
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

fn leads_to(page: &str, path: &str) -> bool {
    page == path || page.ends_with('*') && path.starts_with(page.trim_end_matches('*'))
}

fn has(list: &[Str], text: &str) -> bool {
    list.iter().any(|item| item == text)
}
