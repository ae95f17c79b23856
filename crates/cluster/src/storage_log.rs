//! Logs that the store rejects writes: when it begins, with back-off while it lasts, and when it ends.

use std::time::Duration;

use mizzen_store::{Health, Store};
use tokio::time::{sleep, timeout};

/// The back-off between lines: it doubles from the first to the maximum.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// How often failed compactions are checked.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(60);

/// Resolves when a sync has failed.
pub(crate) async fn failed(store: &Store) {
    let mut health = store.watch_health();
    let failed = health.wait_for(|health| matches!(health, Health::Failed(_)));
    if failed.await.is_err() {
        // A store that is closed does not fail any more.
        std::future::pending().await
    }
}

/// Logs until the store is closed.
pub(crate) async fn report(store: Store) {
    tokio::join!(report_health(&store), report_compactions(&store));
}

async fn report_health(store: &Store) {
    let mut health = store.watch_health();
    loop {
        let current = health.borrow_and_update().clone();
        match current {
            Health::Writable => {
                if health.changed().await.is_err() {
                    return;
                }
            }
            Health::Full(error) => {
                let mut backoff = FIRST_BACKOFF;
                loop {
                    let refused_writes = store.failures().refused_writes;
                    tracing::warn!(%error, refused_writes, "no space for the log, only deletes are written");
                    let over = health.wait_for(|health| !matches!(health, Health::Full(_)));
                    if timeout(backoff, over).await.is_ok() {
                        break;
                    }
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                if let Health::Writable = store.health() {
                    tracing::info!("there is space for the log again, all writes are accepted");
                }
            }
            Health::Failed(error) => {
                tracing::error!(%error, "the log could not be synced, the server stops");
                return;
            }
        }
    }
}

async fn report_compactions(store: &Store) {
    let mut n_logged = 0;
    loop {
        sleep(COMPACTION_INTERVAL).await;
        let failed = store.failures().compactions;
        if failed > std::mem::replace(&mut n_logged, failed) {
            tracing::warn!(
                failed,
                "compaction of the log failed, it is retried when the log has grown"
            );
        }
    }
}
