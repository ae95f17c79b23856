//! What belongs to an object? Found by an index, so that no loop ever looks at everything.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, Entry, IndexFunction, by_owner};
use mizzen_sdk::informer::Informer;

const INDEX: &str = "controller";

/// Lets objects be found by the uid of what controls them, and those that nobody controls by their namespace.
/// To be called by every loop that asks for them, before the caches are filled.
pub(crate) fn index(informer: &Informer<Object>) {
    informer.add_index(INDEX, by_controller());
}

fn by_controller() -> IndexFunction<Object> {
    let owner = by_owner();
    Arc::new(move |entry| match owner(entry) {
        owners if owners.is_empty() => vec![orphanage(entry.key().namespace())],
        owners => owners,
    })
}

/// No uid has a slash in it.
fn orphanage(namespace: &str) -> String {
    format!("{namespace}/")
}

/// What the object with this uid controls.
pub(crate) fn of(informer: &Informer<Object>, uid: &str) -> Vec<Entry<Object>> {
    informer.store().by_index(INDEX, uid).unwrap_or_default()
}

/// What nobody controls.
pub(crate) fn orphans(informer: &Informer<Object>, namespace: &str) -> Vec<Entry<Object>> {
    informer
        .store()
        .by_index(INDEX, &orphanage(namespace))
        .unwrap_or_default()
}

/// What an object controls, or could adopt.
pub(crate) fn candidates(informer: &Informer<Object>, owner: &Object) -> Vec<Entry<Object>> {
    let mut found = of(informer, owner.uid());
    found.extend(orphans(informer, owner.namespace()));
    found
}

/// The objects themselves.
pub(crate) fn read(entries: Vec<Entry<Object>>) -> Result<Vec<Arc<Object>>, DecodeError> {
    entries.iter().map(Entry::object).collect()
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::cache::Store;

    use super::*;

    #[test]
    fn objects_are_found_by_who_controls_them_or_by_where_they_are() {
        let store: Store<Object> = Store::new();
        store.add_index(INDEX, by_controller());
        let texts = [
            r#"{"metadata":{"namespace":"a","name":"mine","ownerReferences":[{"uid":"x","controller":true}]}}"#,
            r#"{"metadata":{"namespace":"a","name":"seen","ownerReferences":[{"uid":"x"}]}}"#,
            r#"{"metadata":{"namespace":"b","name":"free"}}"#,
        ];
        for text in texts {
            store.insert(Entry::new(text.as_bytes()).expect("JSON"));
        }
        let names = |value: &str| -> Vec<String> {
            let found = store.by_index(INDEX, value).expect("the index").into_iter();
            found.map(|entry| entry.key().to_string()).collect()
        };
        assert_eq!(names("x"), ["a/mine"]);
        assert_eq!(
            (names("a/"), names("b/")),
            (vec!["a/seen".into()], vec!["b/free".into()])
        );
    }
}
