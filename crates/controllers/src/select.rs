//! Label and selector indexes: objects by selector, and selectors by object, without a list of all.
//!
//! Objects are indexed by each label, selectors by one label and value that they require. A
//! selector that requires no value is indexed under its namespace.

use std::sync::Arc;

use mizzen_object::select::{LabelSelector, SelectorOperator};
use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, by_labels};
use mizzen_sdk::informer::Informer;
use mizzen_value::Value;

const LABELS: &str = "labels";
const SELECTORS: &str = "selectors";

/// Reads the selector of an object; none if it selects nothing.
pub(crate) type ReadSelector = fn(&Value) -> Option<LabelSelector>;

/// Indexes objects by label.
pub(crate) fn index_labels(objects: &Informer<Object>) {
    objects.add_index(LABELS, by_labels());
}

/// Indexes objects by their selector.
pub(crate) fn index_selectors(objects: &Informer<Object>, read: ReadSelector) {
    let under = move |object: Arc<Object>| Some(index_terms(object.namespace(), &read(&object)?));
    objects.add_index(
        SELECTORS,
        Arc::new(move |entry| entry.object().ok().and_then(under).unwrap_or_default()),
    );
}

/// The objects of a namespace that a selector matches, by name. `index_labels` must have been
/// called.
pub(crate) fn select_objects(
    objects: &Informer<Object>,
    namespace: &str,
    selector: &LabelSelector,
) -> Result<Vec<Arc<Object>>, DecodeError> {
    let is_meant = |object: &Arc<Object>| selector.matches(|label| object.label(label));
    let lister = objects.lister().namespaced(namespace);
    let mut found = Vec::new();
    for term in index_terms(namespace, selector) {
        match term.ends_with('/') {
            true => found.extend(lister.list()?),
            false => found.extend(
                lister
                    .by_index(LABELS, &term)
                    .unwrap_or_else(|| lister.list())?,
            ),
        }
    }
    found.retain(is_meant);
    Ok(found)
}

/// The objects of a namespace whose selector matches these labels. `index_selectors` must have been
/// called.
pub(crate) fn objects_selecting(
    objects: &Informer<Object>,
    namespace: &str,
    labels: &Value,
    read: ReadSelector,
) -> Vec<Arc<Object>> {
    let snapshot = objects.store().snapshot();
    let terms = labels
        .entries()
        .map(|(label, value)| format!("{namespace}/{label}={}", value.str()));
    let found = terms.chain([format!("{namespace}/")]).flat_map(|term| {
        let found = snapshot.by_index(SELECTORS, &term);
        found
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.object().ok())
            .collect::<Vec<_>>()
    });
    let is_meant = |object: &Arc<Object>| {
        read(object).is_some_and(|selector| selector.matches(|label| labels[label].as_str()))
    };
    found.filter(is_meant).collect()
}

/// The index keys of a selector.
fn index_terms(namespace: &str, selector: &LabelSelector) -> Vec<String> {
    let asks = selector
        .requirements
        .iter()
        .find_map(|requirement| match &requirement.operator {
            SelectorOperator::In(values) => Some((&requirement.key, values)),
            _ => None,
        });
    match asks {
        Some((label, values)) => values
            .iter()
            .map(|value| format!("{namespace}/{label}={value}"))
            .collect(),
        None => vec![format!("{namespace}/")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_terms(selector: &str, expect: &[&str]) {
        assert_eq!(
            index_terms("a", &LabelSelector::parse(selector).expect("it is one")),
            expect
        );
    }

    #[test]
    fn a_selector_is_indexed_by_a_required_label() {
        check_terms("app=web,tier=front", &["a/app=web"]);
        check_terms("!old,app in (b,c)", &["a/app=b", "a/app=c"]);
        check_terms("!old", &["a/"]);
        check_terms("", &["a/"]);
    }
}
