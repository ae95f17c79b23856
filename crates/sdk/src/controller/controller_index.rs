//! The controller index: objects by the uid of their controller, orphans by their namespace.
//!
//! No controller has to list all objects.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::accessor::Accessor;
use crate::cache::{DecodeError, Entry, IndexFunction, by_owner};
use crate::informer::Informer;

const CONTROLLER_INDEX: &str = "controller";

/// Indexes the objects of an informer by their controller, for [`controlled_by`] and
/// [`candidates`].
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::controller::{Context, index_controllers, orphans};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let configs = Context::new(client).informer(&CONFIG_MAPS);
/// index_controllers(&configs); // before it starts, or later
/// assert!(orphans(&configs, "default").is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn index_controllers<K: DeserializeOwned + Send + Sync + 'static>(informer: &Informer<K>) {
    informer.add_index(CONTROLLER_INDEX, by_controller());
}

fn by_controller<K: 'static>() -> IndexFunction<K> {
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

/// The objects that the object with this uid controls. [`index_controllers`] must have been called.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"7f3c","controller":true}]}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::controller::{Context, controlled_by, index_controllers, metadata};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let context = Context::new(client);
/// let configs = context.informer(metadata(&CONFIG_MAPS));
/// index_controllers(&configs);
/// configs.start();
/// configs.wait_for_sync().await;
/// assert_eq!(controlled_by(&configs, "7f3c").len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn controlled_by<K>(informer: &Informer<K>, uid: &str) -> Vec<Entry<K>>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    informer
        .store()
        .by_index(CONTROLLER_INDEX, uid)
        .unwrap_or_default()
}

/// The objects of a namespace without a controller.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::controller::{Context, index_controllers, orphans};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let configs = Context::new(client).informer(&CONFIG_MAPS);
/// index_controllers(&configs);
/// configs.start();
/// configs.wait_for_sync().await;
/// assert!(orphans(&configs, "default").iter().any(|config| config.key().name() == "web"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn orphans<K>(informer: &Informer<K>, namespace: &str) -> Vec<Entry<K>>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    controlled_by(informer, &orphans_key(namespace))
}

/// The objects that `owner` controls or may adopt.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// # let owner = mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::controller::{Context, candidates, index_controllers};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let configs = Context::new(client).informer(&CONFIG_MAPS);
/// index_controllers(&configs);
/// configs.start();
/// configs.wait_for_sync().await;
/// assert!(!candidates(&configs, &owner).is_empty()); // the owner is an orphan itself
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn candidates<K>(informer: &Informer<K>, owner: &impl Accessor) -> Vec<Entry<K>>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    let mut found = controlled_by(informer, owner.uid());
    found.extend(orphans(informer, owner.key().namespace()));
    found
}

/// Decodes entries.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::decode_entries;
///
/// let entry: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
/// assert_eq!(decode_entries(vec![entry])?[0].name(), "web");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn decode_entries<K: DeserializeOwned>(
    entries: Vec<Entry<K>>,
) -> Result<Vec<Arc<K>>, DecodeError> {
    entries.iter().map(Entry::object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Store;
    use crate::object::Object;

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
