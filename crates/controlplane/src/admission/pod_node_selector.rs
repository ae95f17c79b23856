//! PodNodeSelector: node selectors per namespace.
//!
//! The namespace's annotation, or the cluster's default, is added to the node selector of each pod. A list in the
//! plug-in's configuration limits the labels that the pods of a namespace may select.

use std::collections::BTreeMap;

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::validate::names;
use mizzen_value::{Value, json};

use super::{Attributes, admission};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The configuration's key for namespaces without the annotation.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

/// Selectors by namespace, as `key=value,key=value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSelectors(BTreeMap<String, String>);

type Labels = BTreeMap<String, String>;

impl NodeSelectors {
    pub(super) fn read(configuration: &Value) -> NodeSelectors {
        let selectors = configuration["podNodeSelectorPluginConfig"].entries();
        NodeSelectors(
            selectors
                .map(|(name, selector)| (name.into(), selector.str().into()))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Result<Labels, Status> {
        parse(self.0.get(name).map(String::as_str).unwrap_or_default())
    }
}

/// Adds the selector of the namespace to a new pod.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let (own, namespace) = (selector(pod), namespace_selector(attributes)?);
    if conflicts(&own, &namespace) {
        return Err(conflict(attributes, pod));
    }
    let mut merged = namespace;
    merged.extend(own);
    if !merged.is_empty() {
        let labels = pod.entry("spec").entry("nodeSelector");
        merged
            .iter()
            .for_each(|(key, value)| labels.set(key, value.as_str()));
    }
    check(attributes, pod)
}

/// Rejects a new pod that selects other nodes than its namespace allows.
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let own = selector(pod);
    if conflicts(&own, &namespace_selector(attributes)?) {
        return Err(conflict(attributes, pod));
    }
    let allowed = selectors(attributes).get(attributes.namespace())?;
    let is_allowed = |(key, value): (&String, &String)| allowed.get(key) == Some(value);
    match allowed.is_empty() || own.iter().all(is_allowed) {
        true => Ok(()),
        false => {
            let why = "pod node label selector labels conflict with its namespace whitelist";
            Err(attributes.forbidden(pod, why))
        }
    }
}

fn concerns(attributes: &Attributes) -> bool {
    attributes.is_main("", "pods") && attributes.is_create()
}

fn selectors<'a>(attributes: &'a Attributes) -> &'a NodeSelectors {
    &admission(attributes).node_selectors
}

fn selector(pod: &Value) -> Labels {
    let labels = pod["spec"]["nodeSelector"].entries();
    labels
        .map(|(key, value)| (key.to_owned(), value.str().to_owned()))
        .collect()
}

fn namespace_selector(attributes: &Attributes) -> Result<Labels, Status> {
    let name = attributes.namespace();
    let namespace = attributes.find("", "namespaces", "", name);
    let namespace =
        namespace.ok_or_else(|| Status::internal(format!("namespace {name} does not exist")))?;
    match namespace["metadata"]["annotations"].get(ANNOTATION) {
        Some(selector) => parse(selector.str()),
        None => selectors(attributes).get(CLUSTER_DEFAULT),
    }
}

fn conflicts(first: &Labels, second: &Labels) -> bool {
    first
        .iter()
        .any(|(key, value)| second.get(key).is_some_and(|other| other != value))
}

fn conflict(attributes: &Attributes, pod: &Value) -> Status {
    attributes.forbidden(
        pod,
        "pod node label selector conflicts with its namespace node label selector",
    )
}

/// The labels of a selector. Kubernetes: a malformed one is a 500 with the problem alone (labels/labels.go).
fn parse(selector: &str) -> Result<Labels, Status> {
    let mut labels = Labels::new();
    for part in selector.split(',').filter(|_| !selector.is_empty()) {
        let sides: Vec<&str> = part.split('=').collect();
        let [key, value] = sides[..] else {
            return Err(Status::unknown(format!(
                "invalid selector: [{}]",
                sides.join(" ")
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        let check = |path: &str, text: &str, problems: Vec<String>| match problems.is_empty() {
            true => Ok(()),
            false => {
                let (text, problems) = (json::quote(text), problems.join("; "));
                Err(Status::unknown(format!(
                    "{path}: Invalid value: {text}: {problems}"
                )))
            }
        };
        check("<nil>", key, names::is_label_key(key))?;
        check(&format!("[{key}]"), value, names::is_label_value(value))?;
        labels.insert(key.into(), value.into());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_parse(selector: &str, expected: Result<&[(&str, &str)], &str>) {
        let found = parse(selector).map_err(|status| status.message);
        let expected = expected.map(|labels| {
            labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect()
        });
        assert_eq!(found, expected.map_err(String::from), "{selector}");
    }

    #[test]
    fn a_selector_is_a_list_of_labels() {
        check_parse("", Ok(&[]));
        check_parse("a=b, c = d", Ok(&[("a", "b"), ("c", "d")]));
        check_parse("a=", Ok(&[("a", "")]));
        check_parse("a", Err("invalid selector: [a]"));
        check_parse("a=b=c", Err("invalid selector: [a b c]"));
        assert!(
            parse("-=b")
                .unwrap_err()
                .message
                .starts_with("<nil>: Invalid value: \"-\": ")
        );
    }
}
