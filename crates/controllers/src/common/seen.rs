//! Waits until the cache has a write, so that a controller does not repeat it.
//!
//! The server has acknowledged the write, so its event will arrive.

use mizzen_sdk::Object;
use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::informer::Informer;

/// Waits until the cache has an object as it was written.
pub(crate) async fn wait_for_write(informer: &Informer<Object>, object: &Object) {
    informer
        .wait_for(&object.key(), Version::parse(object.version()))
        .await;
}

/// Waits until the cache has the object's deletionTimestamp, or not the object.
pub(crate) async fn wait_for_deletion(informer: &Informer<Object>, object: &Object) {
    let (store, key) = (informer.store(), object.key());
    loop {
        let version = store.version();
        let known = store.get(&key).filter(|known| known.uid() == object.uid());
        if known.is_none_or(|known| is_going(&known)) {
            return;
        }
        store.wait_for(Version(version.0 + 1)).await;
    }
}

fn is_going(entry: &Entry<Object>) -> bool {
    entry.object().is_ok_and(|object| object.is_going())
}
