//! Which pods belong together? Those that a service, or what made them, selects.

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use crate::HashMap;
use crate::model::Pod;

/// Selectors of services and of what makes pods.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    services: HashMap<Str, HashMap<Str, LabelSelector>>,
    makers: HashMap<(&'static str, Key), LabelSelector>,
}

impl Owners {
    /// Follows a service; none if it is gone.
    pub(crate) fn set_service(&mut self, key: &Key, service: Option<&Object>) {
        let selector = service
            .map(|service| &service["spec"]["selector"])
            .filter(|selector| !selector.is_null());
        let services = self.services.entry(key.namespace().into()).or_default();
        match selector {
            Some(selector) => services.insert(key.name().into(), exact(selector)),
            None => services.remove(key.name()),
        };
    }

    /// Follows something that makes pods; none if it is gone.
    pub(crate) fn set_maker(&mut self, kind: &'static str, key: &Key, maker: Option<&Object>) {
        let selector =
            maker
                .map(|maker| &maker["spec"]["selector"])
                .and_then(|selector| match kind {
                    "ReplicationController" => Some(exact(selector)),
                    _ => LabelSelector::of(selector),
                });
        match selector {
            Some(selector) => self.makers.insert((kind, key.clone()), selector),
            None => self.makers.remove(&(kind, key.clone())),
        };
    }

    /// What selects the pods that belong together with this one; empty if nothing does.
    pub(crate) fn selector(&self, pod: &Pod) -> LabelSelector {
        let services = self
            .services
            .get(&pod.namespace)
            .into_iter()
            .flat_map(HashMap::values);
        let services = services.filter(|selector| pod.labels.match_selector(selector));
        let mut requirements: Vec<Requirement> = services
            .flat_map(|selector| selector.requirements.iter().cloned())
            .collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        if let Some(maker) = self.maker(pod) {
            requirements.extend(maker.requirements.iter().cloned());
        }
        requirements.dedup();
        LabelSelector { requirements }
    }

    fn maker(&self, pod: &Pod) -> Option<&LabelSelector> {
        let owner = pod.owner.as_ref()?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => "ReplicationController",
            ("apps/v1", "ReplicaSet") => "ReplicaSet",
            ("apps/v1", "StatefulSet") => "StatefulSet",
            _ => return None,
        };
        self.makers
            .get(&(kind, Key::new(pod.namespace.as_str(), owner.name.as_str())))
    }
}

/// A selector of exact labels.
fn exact(labels: &Value) -> LabelSelector {
    let requirement = |(key, value): (&str, &Value)| Requirement {
        key: key.into(),
        operator: SelectorOperator::In(vec![value.str().into()]),
    };
    LabelSelector {
        requirements: labels.entries().map(requirement).collect(),
    }
}
