//! Which labels does an object have?

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_value::{Str, Value};

/// Labels, ordered by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels(Box<[(Str, Str)]>);

impl Labels {
    pub(crate) fn of(labels: &Value) -> Labels {
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

/// A selector that means nothing: so it is where somebody does not say which pods.
pub(super) fn nothing() -> LabelSelector {
    LabelSelector {
        requirements: vec![Requirement {
            key: Str::default(),
            operator: SelectorOperator::In(Vec::new()),
        }],
    }
}
