//! Audit annotations of a slow store.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use mizzen_apiserver::Options;
use mizzen_registry::{
    AppendError, Journal, JournalEntry, OpenError, Revision, Saved, Store, StoreOptions,
};
use tokio::task::spawn_blocking;
use tokio::time::advance;

use super::{Audited, METADATA};
use crate::rig::CONFIG_MAPS;

/// A journal that blocks each write while it is slow.
struct Slow {
    is_slow: Arc<AtomicBool>,
    began: SyncSender<()>,
    permits: Receiver<()>,
}

impl Journal for Slow {
    fn replay(&mut self, _load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        Ok(None)
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        if self.is_slow.load(Ordering::Relaxed) {
            self.began.send(()).map_err(unknown)?;
            self.permits.recv().map_err(unknown)?;
        }
        Ok(())
    }
}

fn unknown(error: impl Error + Send + Sync + 'static) -> AppendError {
    AppendError::Unknown(io::Error::other(error))
}

/// Runs a future on paused time, although it waits for more than tasks.
async fn timeless<T>(work: impl Future<Output = T>) -> T {
    let (end, ended) = sync_channel::<()>(1);
    let held = spawn_blocking(move || ended.recv());
    let outcome = work.await;
    drop(end);
    assert!(held.await.unwrap().is_err(), "nothing is ever sent");
    outcome
}

#[tokio::test(start_paused = true)]
async fn the_latency_of_the_store_is_annotated() {
    timeless(async {
        let is_slow = Arc::<AtomicBool>::default();
        let ((began, has_begun), (permit, permits)) = (sync_channel(1), sync_channel(1));
        let journal = Slow {
            is_slow: is_slow.clone(),
            began,
            permits,
        };
        let store = Store::with_journal(journal, StoreOptions::default()).unwrap();
        let audited = Audited::on(store, METADATA, |_| {}, Options::default()).await;
        is_slow.store(true, Ordering::Relaxed);
        let rig = audited.rig.clone();
        let request = tokio::spawn(async move { rig.make("one", "x").await });
        spawn_blocking(move || has_begun.recv())
            .await
            .unwrap()
            .unwrap();
        advance(Duration::from_secs(2)).await;
        permit.send(()).unwrap();
        request.await.unwrap();
        let event = audited.last();
        let said: Vec<_> = event["annotations"]
            .entries()
            .map(|(name, text)| (name.to_owned(), text.str().to_owned()))
            .collect();
        let expected = |what: &str| (format!("apiserver.latency.k8s.io/{what}"), "2s".to_owned());
        assert!(
            said.contains(&expected("etcd")) && said.contains(&expected("total")),
            "{said:?}"
        );
        let latencies = said
            .iter()
            .filter(|(name, _)| name.starts_with("apiserver.latency"))
            .count();
        assert_eq!(latencies, 2, "nothing else took any time: {said:?}");

        is_slow.store(false, Ordering::Relaxed);
        audited
            .rig
            .get(&format!("{CONFIG_MAPS}/one"))
            .await
            .expect(200);
        assert_eq!(
            audited.last()["annotations"]["apiserver.latency.k8s.io/total"].str(),
            ""
        );
    })
    .await;
}
