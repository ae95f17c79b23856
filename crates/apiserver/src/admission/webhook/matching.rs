//! Does a webhook or policy concern a request? Its rules, its selectors, and other versions of the same resource.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::{Key, Resource};
use mizzen_value::{Str, Value};

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
    if found.is_empty() || is_exempt(&attributes.kind) {
        Vec::new()
    } else {
        found
    }
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

/// How the webhook is to be called, if it is.
pub(super) async fn invocation(
    webhook: &Arc<Webhook>,
    attributes: &Attributes<'_>,
) -> Result<Option<Invocation>, Status> {
    let Some(version) = webhook.matching.find(attributes)? else {
        return Ok(None);
    };
    match webhook.conditions.hold(attributes, &version).await? {
        Ok(true) => {
            let Version { resource, kind } = version;
            Ok(Some(Invocation {
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

/// The version of a resource in which somebody wants to see a request, and what its kind is called there.
#[derive(Clone)]
pub(crate) struct Version {
    pub resource: Resource,
    pub kind: GroupVersionKind,
}

/// What a webhook or policy is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matching {
    /// One of them must match; none means that all do.
    rules: Option<Vec<Rule>>,
    /// None of them may match.
    excluded: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Whether rules for another version of the resource count too.
    equivalent: bool,
}

impl Matching {
    /// As a webhook says it.
    pub(crate) fn of_webhook(webhook: &Value) -> Matching {
        Matching {
            rules: Some(rules(&webhook["rules"])),
            ..Matching::parse(webhook)
        }
    }

    /// As a policy or its binding says it.
    pub(crate) fn parse(constraints: &Value) -> Matching {
        let selector = |field: &str| LabelSelector::of(&constraints[field]).unwrap_or_default();
        Matching {
            rules: Some(rules(&constraints["resourceRules"])).filter(|rules| !rules.is_empty()),
            excluded: rules(&constraints["excludeResourceRules"]),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: constraints["matchPolicy"].str() == "Equivalent",
        }
    }

    /// The version in which a request is wanted, if it is. Trouble with selectors counts only if the rules match.
    pub(crate) fn find(&self, attributes: &Attributes) -> Result<Option<Version>, Status> {
        let in_namespace = matches_namespace(&self.namespaces, attributes);
        if in_namespace == Ok(false) || !matches_object(&self.objects, attributes) {
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

    /// The version of the resource that rules name: the one that was asked for if possible.
    fn version(&self, rules: &[Rule], attributes: &Attributes) -> Option<Version> {
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
        let fits = |rule: &Rule| {
            others
                .iter()
                .find(|other| rule.matches(attributes, &other.resource))
        };
        rules.iter().find_map(fits).cloned()
    }

    /// The names of the resources that it may be about; none if it may be about any.
    fn resources(&self) -> Option<Vec<&Str>> {
        let mut names: Vec<&Str> = self
            .rules
            .as_ref()?
            .iter()
            .flat_map(Rule::resources)
            .collect();
        names.sort();
        names.dedup();
        (!names.iter().any(|name| *name == "*")).then_some(names)
    }
}

/// Which of many are about a resource?
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Where those are that name a resource.
    by_resource: HashMap<Str, Vec<usize>>,
    /// Where those are that want any resource.
    anywhere: Vec<usize>,
}

impl Index {
    pub(crate) fn new<'a>(all: impl Iterator<Item = &'a Matching>) -> Index {
        let mut index = Index::default();
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

    /// Where those are that may be about a resource, in order.
    pub(crate) fn about(&self, plural: &str) -> Vec<usize> {
        let named = self.by_resource.get(plural).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<usize> = named.iter().chain(&self.anywhere).copied().collect();
        found.sort_unstable();
        found
    }
}

/// Other versions of the resource, and what the request's kind is called there.
fn equivalents(attributes: &Attributes) -> Vec<Version> {
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
            Some(Version { resource, kind })
        });
    found.collect()
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq)]
struct Rule {
    operations: Vec<Str>,
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Resource and subresource.
    resources: Vec<(Str, Str)>,
    scope: Scope,
    /// The objects, if not all.
    names: Vec<Str>,
}

fn rules(rules: &Value) -> Vec<Rule> {
    rules.list().iter().map(Rule::parse).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    Any,
    Namespaced,
    Cluster,
}

impl Rule {
    fn parse(rule: &Value) -> Rule {
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
            names: texts("resourceNames"),
        }
    }

    /// The resources that it names; `*` for any.
    fn resources(&self) -> impl Iterator<Item = &Str> {
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
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name()))
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
    let written = attributes
        .object
        .filter(|_| is_namespace && attributes.call.path.subresource.is_empty());
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
    let namespaces = server
        .catalog
        .get("", "v1", "namespaces")
        .ok_or_else(Status::no_such_resource)?;
    Ok(server
        .registry
        .get(&namespaces, &Key::new("", attributes.namespace()), "")?
        .value())
}

/// Whether the object as it is or as it shall be is selected.
fn matches_object(selector: &LabelSelector, attributes: &Attributes) -> bool {
    let selects = |object: &Value| {
        let labels = &object["metadata"]["labels"];
        selector.matches(|key| labels[key].as_str())
    };
    selector.is_empty()
        || attributes.object.is_some_and(selects)
        || attributes.old.is_some_and(selects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn a_rule_names_resources_and_what_is_below_them() {
        let rule = Rule::parse(&value!({ "resources": ["pods", "pods/*", "*/scale"] }));
        let names: Vec<(&str, &str)> = rule
            .resources
            .iter()
            .map(|(name, below)| (name.as_str(), below.as_str()))
            .collect();
        assert_eq!(names, [("pods", ""), ("pods", "*"), ("*", "scale")]);
    }
}
