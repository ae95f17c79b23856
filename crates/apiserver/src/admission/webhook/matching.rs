//! Matching of webhooks and policies: rules, selectors, and equivalent versions of a resource.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::{Key, Resource};
use mizzen_value::{Str, Value};

use super::attributes::VersionedAttributes;
use super::configuration::{AdmissionWebhook, WebhookCache};

/// A webhook to call, and the version of the object that it gets.
pub(super) struct WebhookInvocation {
    pub webhook: Arc<AdmissionWebhook>,
    pub resource: Resource,
    pub kind: GroupVersionKind,
}

/// The webhooks that may match a request.
pub(super) fn candidates(
    webhooks: &WebhookCache,
    attributes: &VersionedAttributes,
) -> Result<Vec<Arc<AdmissionWebhook>>, Status> {
    if is_exempt(&attributes.kind) {
        return Ok(Vec::new());
    }
    let call = attributes.call;
    let hooks = webhooks.hooks(call.server.cluster_registry())?;
    Ok(hooks.about(&call.resource.kind().plural))
}

/// Kubernetes: admission configuration is exempt from webhooks (predicates/rules/rules.go).
fn is_exempt(kind: &GroupVersionKind) -> bool {
    let exempt = [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ];
    kind.group == "admissionregistration.k8s.io" && exempt.contains(&kind.kind.as_str())
}

/// The invocation of a webhook, if it matches.
pub(super) async fn invocation(
    webhook: &Arc<AdmissionWebhook>,
    attributes: &VersionedAttributes<'_>,
) -> Result<Option<WebhookInvocation>, Status> {
    let Some(version) = webhook.matching.find(attributes)? else {
        return Ok(None);
    };
    match webhook.conditions.hold(attributes, &version).await? {
        Ok(true) => {
            let MatchedVersion { resource, kind } = version;
            Ok(Some(WebhookInvocation {
                webhook: webhook.clone(),
                resource,
                kind,
            }))
        }
        Err(why) if !webhook.ignores_failure => {
            let resource = attributes.call.resource.kind().resource();
            Err(Status::forbidden(&resource, attributes.shown_name(), &why))
        }
        _ => Ok(None),
    }
}

/// The version of a resource that a webhook or policy gets, and its kind.
#[derive(Clone)]
pub(crate) struct MatchedVersion {
    pub resource: Resource,
    pub kind: GroupVersionKind,
}

/// The match constraints of a webhook or policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matching {
    /// One of them must match; `None` matches everything.
    rules: Option<Vec<MatchRule>>,
    /// None of them may match.
    excluded: Vec<MatchRule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// `matchPolicy: Equivalent`.
    equivalent: bool,
}

impl Matching {
    /// Parses those of a webhook.
    pub(crate) fn of_webhook(webhook: &Value) -> Matching {
        Matching {
            rules: Some(rules(&webhook["rules"])),
            ..Matching::parse(webhook)
        }
    }

    /// Parses those of a policy or binding.
    pub(crate) fn parse(constraints: &Value) -> Matching {
        let selector =
            |field: &str| LabelSelector::from_value(&constraints[field]).unwrap_or_default();
        Matching {
            rules: Some(rules(&constraints["resourceRules"])).filter(|rules| !rules.is_empty()),
            excluded: rules(&constraints["excludeResourceRules"]),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: constraints["matchPolicy"].str() == "Equivalent",
        }
    }

    /// The version in which a request matches, if it does. Errors of selectors count only if the rules match.
    pub(crate) fn find(
        &self,
        attributes: &VersionedAttributes,
    ) -> Result<Option<MatchedVersion>, Status> {
        let in_namespace = self.matches_namespace(attributes);
        if in_namespace == Ok(false) || !self.matches_object(attributes) {
            return Ok(None);
        }
        if self.version(&self.excluded, attributes).is_some() {
            return Ok(None);
        }
        let version = match &self.rules {
            Some(rules) => self.version(rules, attributes),
            None => Some(attributes.version()),
        };
        if version.is_some() {
            in_namespace?;
        }
        Ok(version)
    }

    /// Whether the namespace selector matches. It always matches cluster-scoped objects.
    fn matches_namespace(&self, attributes: &VersionedAttributes) -> Result<bool, Status> {
        let is_namespace = attributes.call.resource.kind().plural == "namespaces";
        if self.namespaces.is_empty() || attributes.namespace().is_empty() && !is_namespace {
            return Ok(true);
        }
        let written = attributes
            .object
            .filter(|_| is_namespace && attributes.call.path.subresource.is_empty());
        let namespace = match written {
            // The written namespace counts, not the stored one.
            Some(namespace) => namespace.clone(),
            None => {
                let (registry, namespaces) = attributes.call.server.namespaces()?;
                let key = Key::new("", attributes.namespace());
                registry.get(&namespaces, &key, "")?.value()
            }
        };
        let labels = &namespace["metadata"]["labels"];
        Ok(self.namespaces.matches(|key| labels[key].as_str()))
    }

    /// Whether the object selector matches the old or the new object.
    fn matches_object(&self, attributes: &VersionedAttributes) -> bool {
        let selects = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            self.objects.matches(|key| labels[key].as_str())
        };
        self.objects.is_empty()
            || attributes.object.is_some_and(selects)
            || attributes.old.is_some_and(selects)
    }

    /// The version of the resource that rules match: the requested one if possible.
    fn version(
        &self,
        rules: &[MatchRule],
        attributes: &VersionedAttributes,
    ) -> Option<MatchedVersion> {
        if rules
            .iter()
            .any(|rule| rule.matches(attributes, attributes.call.resource))
        {
            return Some(attributes.version());
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let others = equivalents(attributes);
        let fits = |rule: &MatchRule| {
            others
                .iter()
                .find(|other| rule.matches(attributes, &other.resource))
        };
        rules.iter().find_map(fits).cloned()
    }

    /// The resources that may match; `None` for any.
    fn resources(&self) -> Option<Vec<&Str>> {
        let mut names: Vec<&Str> = self
            .rules
            .as_ref()?
            .iter()
            .flat_map(MatchRule::resources)
            .collect();
        names.sort();
        names.dedup();
        (!names.iter().any(|name| *name == "*")).then_some(names)
    }
}

/// An index of match constraints by resource.
#[derive(Debug, Default)]
pub(crate) struct MatchIndex {
    /// The positions of those with a resource.
    by_resource: HashMap<Str, Vec<usize>>,
    /// The positions of those for any resource.
    anywhere: Vec<usize>,
}

impl MatchIndex {
    pub(crate) fn new<'a>(all: impl Iterator<Item = &'a Matching>) -> MatchIndex {
        let mut index = MatchIndex::default();
        for (at, matching) in all.enumerate() {
            match matching.resources() {
                None => index.anywhere.push(at),
                Some(names) => {
                    for name in names {
                        index.by_resource.entry(name.clone()).or_default().push(at);
                    }
                }
            }
        }
        index
    }

    /// The positions of those that may match a resource, in order.
    pub(crate) fn about(&self, plural: &str) -> Vec<usize> {
        let named = self.by_resource.get(plural).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<usize> = named.iter().chain(&self.anywhere).copied().collect();
        found.sort_unstable();
        found
    }
}

/// The equivalent versions of the resource, with the request's kind.
fn equivalents(attributes: &VersionedAttributes) -> Vec<MatchedVersion> {
    let (catalog, own) = (
        &attributes.call.server.catalog,
        attributes.call.resource.kind(),
    );
    let subresource = attributes.call.path.subresource.as_str();
    let versions = catalog.versions(attributes.call.resource);
    let found = versions
        .into_iter()
        .filter(|resource| resource.kind().gvk != own.gvk)
        .filter_map(|resource| {
            let kind = resource.kind();
            let kind = match subresource {
                "" => kind.gvk.clone(),
                name => kind
                    .subresource(name)?
                    .kind
                    .clone()
                    .unwrap_or_else(|| kind.gvk.clone()),
            };
            Some(MatchedVersion { resource, kind })
        });
    found.collect()
}

/// A rule.
#[derive(Debug, Clone, PartialEq)]
struct MatchRule {
    operations: Vec<Str>,
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Resource and subresource.
    resources: Vec<(Str, Str)>,
    scope: RuleScope,
    /// The names of objects; empty for all.
    names: Vec<Str>,
}

fn rules(rules: &Value) -> Vec<MatchRule> {
    rules.list().iter().map(MatchRule::parse).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RuleScope {
    Any,
    Namespaced,
    Cluster,
}

impl MatchRule {
    fn parse(rule: &Value) -> MatchRule {
        let texts = |field: &str| {
            rule[field]
                .list()
                .iter()
                .map(|text| text.str().into())
                .collect()
        };
        let resources = rule["resources"].list().iter().map(|resource| {
            let (name, below) = resource
                .str()
                .split_once('/')
                .unwrap_or((resource.str(), ""));
            (name.into(), below.into())
        });
        MatchRule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: resources.collect(),
            scope: match rule["scope"].str() {
                "Namespaced" => RuleScope::Namespaced,
                "Cluster" => RuleScope::Cluster,
                _ => RuleScope::Any,
            },
            names: texts("resourceNames"),
        }
    }

    /// Its resources; `*` for any.
    fn resources(&self) -> impl Iterator<Item = &Str> {
        self.resources.iter().map(|(name, _)| name)
    }

    /// Whether the rule matches the request as one for `resource`.
    fn matches(&self, attributes: &VersionedAttributes, resource: &Resource) -> bool {
        let kind = resource.kind();
        let below = attributes.call.path.subresource.as_str();
        let mut resources = self.resources.iter();
        self.matches_scope(attributes)
            && has(&self.operations, attributes.operation.word())
            && has(&self.groups, &kind.gvk.group)
            && has(&self.versions, &kind.gvk.version)
            && resources.any(|(name, sub)| is(name, &kind.plural) && is(sub, below))
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name()))
    }

    fn matches_scope(&self, attributes: &VersionedAttributes) -> bool {
        let in_none = attributes.is_namespace() || attributes.namespace().is_empty();
        match self.scope {
            RuleScope::Any => true,
            RuleScope::Namespaced => !in_none,
            RuleScope::Cluster => in_none,
        }
    }
}

fn is(pattern: &str, actual: &str) -> bool {
    pattern == "*" || pattern == actual
}

fn has(pattern: &[Str], actual: &str) -> bool {
    pattern.iter().any(|pattern| is(pattern, actual))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn a_rule_names_resources_and_subresources() {
        let rule = MatchRule::parse(&value!({ "resources": ["pods", "pods/*", "*/scale"] }));
        let names: Vec<(&str, &str)> = rule
            .resources
            .iter()
            .map(|(name, below)| (name.as_str(), below.as_str()))
            .collect();
        assert_eq!(names, [("pods", ""), ("pods", "*"), ("*", "scale")]);
    }
}
