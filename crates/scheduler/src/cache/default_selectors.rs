//! Default selectors for pod topology spread: those of the Services and controllers of a pod.

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use crate::HashMap;
use crate::model::PodInfo;

/// Selectors of Services and of pod controllers.
#[derive(Debug, Default)]
pub(crate) struct DefaultSelectors {
    services: HashMap<Str, HashMap<Str, LabelSelector>>,
    controllers: HashMap<(&'static str, Key), LabelSelector>,
}

impl DefaultSelectors {
    /// Sets or removes a Service.
    pub(crate) fn set_service(&mut self, key: &Key, service: Option<&Object>) {
        let selector = service
            .map(|service| &service["spec"]["selector"])
            .filter(|selector| !selector.is_null());
        let services = self.services.entry(key.namespace().into()).or_default();
        match selector {
            Some(selector) => services.insert(key.name().into(), exact_selector(selector)),
            None => services.remove(key.name()),
        };
    }

    /// Sets or removes a controller.
    pub(crate) fn set_controller(
        &mut self,
        kind: &'static str,
        key: &Key,
        controller: Option<&Object>,
    ) {
        let selector = controller
            .map(|controller| &controller["spec"]["selector"])
            .and_then(|selector| match kind {
                "ReplicationController" => Some(exact_selector(selector)),
                _ => LabelSelector::from_value(selector),
            });
        match selector {
            Some(selector) => self.controllers.insert((kind, key.clone()), selector),
            None => self.controllers.remove(&(kind, key.clone())),
        };
    }

    /// The selector of the Services and the controller of a pod; empty if there are none (upstream:
    /// DefaultSelector).
    pub(crate) fn for_pod(&self, pod: &PodInfo) -> LabelSelector {
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
        if let Some(controller) = self.controller_selector(pod) {
            requirements.extend(controller.requirements.iter().cloned());
        }
        requirements.dedup();
        LabelSelector { requirements }
    }

    fn controller_selector(&self, pod: &PodInfo) -> Option<&LabelSelector> {
        let owner = pod.owner.as_ref()?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => "ReplicationController",
            ("apps/v1", "ReplicaSet") => "ReplicaSet",
            ("apps/v1", "StatefulSet") => "StatefulSet",
            _ => return None,
        };
        self.controllers
            .get(&(kind, Key::new(pod.namespace.as_str(), owner.name.as_str())))
    }
}

/// A selector of exact labels.
fn exact_selector(labels: &Value) -> LabelSelector {
    let requirement = |(key, value): (&str, &Value)| Requirement {
        key: key.into(),
        operator: SelectorOperator::In(vec![value.str().into()]),
    };
    LabelSelector {
        requirements: labels.entries().map(requirement).collect(),
    }
}
