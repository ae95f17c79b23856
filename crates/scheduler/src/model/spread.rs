//! How evenly shall pods be spread?

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_value::{Str, Value};

use super::labels::{Labels, nothing};

/// How evenly pods that a selector means shall be spread over nodes that differ in a label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constraint {
    pub max_skew: i64,
    pub topology_key: Str,
    /// Whether a pod is rather not placed at all.
    pub hard: bool,
    pub selector: LabelSelector,
    pub min_domains: i64,
    /// Whether only nodes count on which the pod may be by its node affinity.
    pub honor_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honor_taints: bool,
}

impl Constraint {
    pub(crate) fn list(constraints: &Value, labels: &Labels) -> Box<[Constraint]> {
        constraints
            .list()
            .iter()
            .map(|constraint| Constraint::of(constraint, labels))
            .collect()
    }

    fn of(constraint: &Value, labels: &Labels) -> Constraint {
        let mut selector = LabelSelector::of(&constraint["labelSelector"]).unwrap_or_else(nothing);
        for key in constraint["matchLabelKeys"].list() {
            if let Some(value) = labels.get(key.str()) {
                let operator = SelectorOperator::In(vec![value.into()]);
                selector.requirements.push(Requirement {
                    key: key.str().into(),
                    operator,
                });
            }
        }
        Constraint {
            max_skew: constraint["maxSkew"].int(),
            topology_key: constraint["topologyKey"].str().into(),
            hard: constraint["whenUnsatisfiable"].str() == "DoNotSchedule",
            selector,
            min_domains: constraint["minDomains"].as_int().unwrap_or(1),
            honor_affinity: constraint["nodeAffinityPolicy"].str() != "Ignore",
            honor_taints: constraint["nodeTaintsPolicy"].str() == "Honor",
        }
    }
}
