//! Waiting for a store that is filled from etcd.

use std::time::Duration;

use futures_util::future::try_join_all;
use mizzen_store::{EngineCheck, Store};
use tokio::time::timeout;

/// Waits until the objects of all resources that are used so far have been read, at most `limit`.
pub(crate) async fn filled_within(store: &Store, limit: Duration) -> Result<(), String> {
    within(store, limit, store.filled()).await
}

/// The output of a future that waits for the etcd of the store, at most `limit`.
pub(crate) async fn within<T>(
    store: &Store,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, String> {
    if let Ok(output) = timeout(limit, future).await {
        return Ok(output);
    }
    let check = |cluster| store.check(EngineCheck::Health, cluster);
    let why = match try_join_all((0..store.n_clusters()).map(check)).await {
        Ok(_) => "it is slow".into(),
        Err(error) => error.to_string(),
    };
    let seconds = limit.as_secs();
    Err(format!("etcd could not be read within {seconds} s: {why}"))
}
