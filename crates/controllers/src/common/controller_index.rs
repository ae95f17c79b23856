//! The controller index: objects by the uid of their controller, orphans by their namespace.
//!
//! No controller has to list all objects.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, Entry, IndexFunction, by_owner};
use mizzen_sdk::informer::Informer;

const CONTROLLER_INDEX: &str = "controller";

/// Adds the index. Must be called before the informers start.
pub(crate) fn add_controller_index(informer: &Informer<Object>) {
    informer.add_index(CONTROLLER_INDEX, by_controller());
}

fn by_controller() -> IndexFunction<Object> {
    let owner = by_owner();
    Arc::new(move |entry| match owner(entry) {
        owners if owners.is_empty() => vec![orphans_key(entry.key().namespace())],
        owners => owners,
    })
}

/// A uid has no slash, so the keys cannot collide.
fn orphans_key(namespace: &str) -> String {
    format!("{namespace}/")
}

/// The objects that the object with this uid controls.
pub(crate) fn controlled_by(informer: &Informer<Object>, uid: &str) -> Vec<Entry<Object>> {
    informer
        .store()
        .by_index(CONTROLLER_INDEX, uid)
        .unwrap_or_default()
}

/// The objects of a namespace without a controller.
pub(crate) fn orphans(informer: &Informer<Object>, namespace: &str) -> Vec<Entry<Object>> {
    informer
        .store()
        .by_index(CONTROLLER_INDEX, &orphans_key(namespace))
        .unwrap_or_default()
}

/// The objects that `owner` controls or may adopt.
pub(crate) fn candidates(informer: &Informer<Object>, owner: &Object) -> Vec<Entry<Object>> {
    let mut found = controlled_by(informer, owner.uid());
    found.extend(orphans(informer, owner.namespace()));
    found
}

/// Decodes entries.
pub(crate) fn decode(entries: Vec<Entry<Object>>) -> Result<Vec<Arc<Object>>, DecodeError> {
    entries.iter().map(Entry::object).collect()
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::cache::Store;

    use super::*;

    #[test]
    fn objects_are_indexed_by_controller_and_orphans_by_namespace() {
        let store: Store<Object> = Store::new();
        store.add_index(CONTROLLER_INDEX, by_controller());
        let texts = [
            r#"{"metadata":{"namespace":"a","name":"mine","ownerReferences":[{"uid":"x","controller":true}]}}"#,
            r#"{"metadata":{"namespace":"a","name":"seen","ownerReferences":[{"uid":"x"}]}}"#,
            r#"{"metadata":{"namespace":"b","name":"free"}}"#,
        ];
        for text in texts {
            store.insert(Entry::new(text.as_bytes()).expect("JSON"));
        }
        let names = |value: &str| -> Vec<String> {
            let found = store
                .by_index(CONTROLLER_INDEX, value)
                .expect("the index")
                .into_iter();
            found.map(|entry| entry.key().to_string()).collect()
        };
        assert_eq!(names("x"), ["a/mine"]);
        assert_eq!(
            (names("a/"), names("b/")),
            (vec!["a/seen".into()], vec!["b/free".into()])
        );
    }
}
