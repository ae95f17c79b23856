//! Waits until the cache has a write, so that a controller does not repeat it.
//!
//! The server has acknowledged the write, so its event will arrive.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::cache::Version;
use mizzen_sdk::informer::Informer;
use tokio::time::timeout;

/// Waits until the cache has an object as it was written.
pub(crate) async fn wait_for_write(informer: &Informer<Object>, object: &Object) {
    let version = Version::parse(object.version());
    informer.wait_for(&object.key(), version).await;
}

/// The same for at most `limit`; whether the cache has it.
pub(crate) async fn has_write_within(
    limit: Duration,
    informer: &Informer<Object>,
    object: &Object,
) -> bool {
    timeout(limit, wait_for_write(informer, object))
        .await
        .is_ok()
}

/// Waits until the cache has the object's deletionTimestamp, or not the object.
pub(crate) async fn wait_for_deletion(informer: &Informer<Object>, object: &Object) {
    let (store, key) = (informer.store(), object.key());
    loop {
        let version = store.version();
        let known = store.get(&key).filter(|known| known.uid() == object.uid());
        if known.is_none_or(|known| known.object().is_ok_and(|known| known.is_terminating())) {
            return;
        }
        store.wait_for(Version(version.0 + 1)).await;
    }
}
