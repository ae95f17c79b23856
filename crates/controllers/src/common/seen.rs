//! Does the cache know what I did? Waiting for that keeps a loop from doing it twice.
//!
//! The server has acknowledged it, so that it is on its way; nobody waits for ever.

use mizzen_sdk::Object;
use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::informer::Informer;

/// Waits until the cache has an object as it was written.
pub(crate) async fn written(informer: &Informer<Object>, object: &Object) {
    informer
        .wait_for(&object.key(), Version::parse(object.version()))
        .await;
}

/// Waits until the cache knows that an object goes, or that it is gone.
pub(crate) async fn deleted(informer: &Informer<Object>, object: &Object) {
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
