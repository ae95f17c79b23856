//! Labels of an object.

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_value::{Str, Value};

/// Labels, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels(Box<[(Str, Str)]>);

impl Labels {
    pub(crate) fn from_value(labels: &Value) -> Labels {
        let mut labels: Vec<(Str, Str)> = labels
            .entries()
            .map(|(key, value)| (key.into(), value.str().into()))
            .collect();
        labels.sort_unstable();
        Labels(labels.into())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn match_selector(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.get(key))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A selector that matches nothing: the meaning of a missing `labelSelector`.
pub(super) fn matches_nothing() -> LabelSelector {
    LabelSelector {
        requirements: vec![Requirement {
            key: Str::default(),
            operator: SelectorOperator::In(Vec::new()),
        }],
    }
}
