//! Does a webhook concern a request? Its rules, its selectors, and other versions of the same resource.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_object::{GroupVersionKind, Status, Str, Value};
use mizzen_registry::{Key, Resource};

use super::attributes::Attributes;
use super::configuration::{Hooks, Webhook};

/// A webhook that is to be called, and the version in which it wants to see the object.
pub(super) struct Invocation {
    pub webhook: Arc<Webhook>,
    pub resource: Resource,
    pub kind: GroupVersionKind,
}

/// The webhooks that may have a say in a request; most have none.
pub(super) fn candidates(hooks: &Hooks, attributes: &Attributes) -> Vec<Arc<Webhook>> {
    let found = hooks.about(&attributes.call.resource.kind().plural);
    if found.is_empty() || is_exempt(&attributes.kind) { Vec::new() } else { found }
}

/// Kubernetes: what configures admission is not subject to it (predicates/rules/rules.go).
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

/// How the webhook is to be called, if it is. Trouble with selectors counts only if the rules match.
pub(super) async fn invocation(
    webhook: &Arc<Webhook>,
    attributes: &Attributes<'_>,
) -> Result<Option<Invocation>, Status> {
    let in_namespace = matches_namespace(&webhook.namespaces, attributes);
    if in_namespace == Ok(false) || !matches_object(&webhook.objects, attributes) {
        return Ok(None);
    }
    let Some((resource, kind)) = version_of(webhook, attributes) else { return Ok(None) };
    in_namespace?;
    let invocation = Invocation { webhook: webhook.clone(), resource, kind };
    Ok(webhook.conditions.hold(attributes, &invocation).await?.then_some(invocation))
}

/// The version of the resource that the rules name: the one that was asked for if possible.
fn version_of(webhook: &Webhook, attributes: &Attributes) -> Option<(Resource, GroupVersionKind)> {
    let asked = attributes.call.resource;
    if webhook.rules.iter().any(|rule| rule.matches(attributes, asked)) {
        return Some((asked.clone(), attributes.kind.clone()));
    }
    if !webhook.equivalent {
        return None;
    }
    let others = equivalents(attributes);
    let matching = webhook
        .rules
        .iter()
        .find_map(|rule| others.iter().find(|(resource, _)| rule.matches(attributes, resource)));
    matching.cloned()
}

/// Other versions of the resource, and what the request's kind is called there.
fn equivalents(attributes: &Attributes) -> Vec<(Resource, GroupVersionKind)> {
    let (catalog, own) = (&attributes.call.server.catalog, attributes.call.resource.kind());
    let subresource = attributes.call.path.subresource.as_str();
    let versions = catalog.versions(attributes.call.resource);
    let found =
        versions.into_iter().filter(|resource| resource.kind().gvk != own.gvk).filter_map(|resource| {
            let kind = resource.kind();
            let name = match subresource {
                "" => kind.gvk.clone(),
                name => kind.subresource(name)?.kind.clone().unwrap_or_else(|| kind.gvk.clone()),
            };
            Some((resource, name))
        });
    found.collect()
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    operations: Vec<Str>,
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Resource and subresource.
    resources: Vec<(Str, Str)>,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    Any,
    Namespaced,
    Cluster,
}

impl Rule {
    pub fn parse(rule: &Value) -> Rule {
        let texts = |field: &str| rule[field].list().iter().map(|text| text.str().into()).collect();
        let resources = rule["resources"].list().iter().map(|resource| {
            let (name, below) = resource.str().split_once('/').unwrap_or((resource.str(), ""));
            (name.into(), below.into())
        });
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: resources.collect(),
            scope: match rule["scope"].str() {
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::Any,
            },
        }
    }

    /// The resources that it names; `*` for any.
    pub fn resources(&self) -> impl Iterator<Item = &Str> {
        self.resources.iter().map(|(name, _)| name)
    }

    /// Whether the rule is about the request if its resource is taken for `resource`.
    fn matches(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let kind = resource.kind();
        let below = attributes.call.path.subresource.as_str();
        let mut resources = self.resources.iter();
        self.matches_scope(attributes)
            && has(&self.operations, attributes.operation.word())
            && has(&self.groups, &kind.gvk.group)
            && has(&self.versions, &kind.gvk.version)
            && resources.any(|(name, sub)| is(name, &kind.plural) && is(sub, below))
    }

    fn matches_scope(&self, attributes: &Attributes) -> bool {
        let in_none = attributes.is_namespace() || attributes.namespace().is_empty();
        match self.scope {
            Scope::Any => true,
            Scope::Namespaced => !in_none,
            Scope::Cluster => in_none,
        }
    }
}

fn is(wanted: &str, actual: &str) -> bool {
    wanted == "*" || wanted == actual
}

fn has(wanted: &[Str], actual: &str) -> bool {
    wanted.iter().any(|wanted| is(wanted, actual))
}

/// Whether the request's namespace is selected. What is in no namespace always is.
fn matches_namespace(selector: &LabelSelector, attributes: &Attributes) -> Result<bool, Status> {
    let is_namespace = attributes.call.resource.kind().plural == "namespaces";
    if selector.is_empty() || attributes.namespace().is_empty() && !is_namespace {
        return Ok(true);
    }
    let written = attributes.object.filter(|_| is_namespace && attributes.call.path.subresource.is_empty());
    let namespace = match written {
        // It is about to be as it is written here.
        Some(namespace) => namespace.clone(),
        None => stored_namespace(attributes)?,
    };
    let labels = &namespace["metadata"]["labels"];
    Ok(selector.matches(|key| labels[key].as_str()))
}

fn stored_namespace(attributes: &Attributes) -> Result<Value, Status> {
    let server = attributes.call.server;
    let namespaces = server.catalog.get("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
    Ok(server.registry.get(&namespaces, &Key::new("", attributes.namespace()), "")?.value())
}

/// Whether the object as it is or as it shall be is selected.
fn matches_object(selector: &LabelSelector, attributes: &Attributes) -> bool {
    let selects = |object: &Value| {
        let labels = &object["metadata"]["labels"];
        selector.matches(|key| labels[key].as_str())
    };
    selector.is_empty() || attributes.object.is_some_and(selects) || attributes.old.is_some_and(selects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::value;

    #[test]
    fn a_rule_names_resources_and_what_is_below_them() {
        let rule = Rule::parse(&value!({ "resources": ["pods", "pods/*", "*/scale"] }));
        let names: Vec<(&str, &str)> =
            rule.resources.iter().map(|(name, below)| (name.as_str(), below.as_str())).collect();
        assert_eq!(names, [("pods", ""), ("pods", "*"), ("*", "scale")]);
    }
}
