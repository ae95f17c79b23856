//! Logs that a store does not take writes: when that begins, with back-off while it lasts, and when it is over.

use std::time::Duration;

use mizzen_store::{Health, Store};
use tokio::time::{sleep, timeout};

/// How long after the first line the second follows; each waits twice as long as the one before, up to the last.
const FIRST: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(600);

/// How often it is checked whether a compaction has failed.
const COMPACTIONS: Duration = Duration::from_secs(60);

/// Runs as long as the store is there.
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
                let mut pause = FIRST;
                loop {
                    let refused_writes = store.failures().refused_writes;
                    tracing::warn!(%error, refused_writes, "no space for the log, only deletes are written");
                    let over = health.wait_for(|health| !matches!(health, Health::Full(_)));
                    if timeout(pause, over).await.is_ok() {
                        break;
                    }
                    pause = (pause * 2).min(LAST);
                }
                if let Health::Writable = store.health() {
                    tracing::info!("there is space for the log again, all writes are taken");
                }
            }
            Health::Failed(error) => {
                tracing::error!(%error, "the log could not be synced, no write is taken until the server is restarted");
                return;
            }
        }
    }
}

async fn report_compactions(store: &Store) {
    let mut known = 0;
    loop {
        sleep(COMPACTIONS).await;
        let failed = store.failures().compactions;
        if failed > std::mem::replace(&mut known, failed) {
            tracing::warn!(
                failed,
                "compacting the log failed, it is tried again when the log has grown"
            );
        }
    }
}
