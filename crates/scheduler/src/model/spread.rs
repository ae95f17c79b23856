//! Topology spread constraints.

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_value::{Str, Value};

use super::labels::{Labels, matches_nothing};

/// How evenly the pods that match a selector are spread over topology domains.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: Str,
    /// `whenUnsatisfiable: DoNotSchedule`.
    pub hard: bool,
    pub selector: LabelSelector,
    pub min_domains: i64,
    /// `nodeAffinityPolicy: Honor`.
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor`.
    pub honor_taints: bool,
}

impl SpreadConstraint {
    pub(crate) fn list(constraints: &Value, labels: &Labels) -> Box<[SpreadConstraint]> {
        constraints
            .list()
            .iter()
            .map(|constraint| SpreadConstraint::from_value(constraint, labels))
            .collect()
    }

    fn from_value(constraint: &Value, labels: &Labels) -> SpreadConstraint {
        let mut selector =
            LabelSelector::from_value(&constraint["labelSelector"]).unwrap_or_else(matches_nothing);
        for key in constraint["matchLabelKeys"].list() {
            if let Some(value) = labels.get(key.str()) {
                let operator = SelectorOperator::In(vec![value.into()]);
                selector.requirements.push(Requirement {
                    key: key.str().into(),
                    operator,
                });
            }
        }
        SpreadConstraint {
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
