//! What clients are answered when the store cannot write.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http_body_util::BodyExt as _;
use mizzen_apiserver::Options;
use mizzen_registry::{
    AppendError, Journal, JournalEntry, OpenError, Revision, Saved, Store, StoreOptions,
};

use crate::rig::{CONFIG_MAPS, Rig};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A disk that a test fills, empties and breaks.
#[derive(Clone, Default)]
struct Disk(Arc<AtomicU8>);

const FULL: u8 = 1;
const BROKEN: u8 = 2;

impl Disk {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }
}

impl Journal for Disk {
    fn replay(&mut self, _load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        Ok(None)
    }

    fn allocate(&mut self, _bytes: u64, _live_bytes: u64) -> io::Result<()> {
        if self.is(FULL) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        let broken = || AppendError::Unknown(io::Error::other("input/output error"));
        if self.is(BROKEN) {
            Err(broken())
        } else {
            Ok(())
        }
    }
}

async fn rig() -> (Rig, Disk) {
    let disk = Disk::default();
    let store = Store::with_journal(disk.clone(), StoreOptions::default()).unwrap();
    (Rig::on(store, Options::default()).await, disk)
}

/// The code and the text of a page.
async fn page(rig: &Rig, path: &str) -> (u16, String) {
    let answer = rig.send("GET", path, "").await;
    let code = answer.status().as_u16();
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("no failure")
        .to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_full_disk_rejects_writes_with_retry_after_and_accepts_deletes() {
    let (rig, disk) = rig().await;
    rig.make("a", "").await;
    let held = r#"{"metadata":{"name":"held","finalizers":["example.com/hold"]}}"#;
    rig.post(CONFIG_MAPS, held).await.expect(201);
    let pod = r#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}"#;
    rig.post(PODS, pod).await.expect(201);
    disk.set(FULL);

    let refused = rig
        .post(CONFIG_MAPS, r#"{"metadata":{"name":"b"}}"#)
        .await
        .expect(503);
    assert_eq!(refused.body["reason"].str(), "ServiceUnavailable");
    assert_eq!(refused.body.at("details.retryAfterSeconds").int(), 5);
    assert!(
        refused.message().starts_with("nothing was stored"),
        "{}",
        refused.message()
    );
    rig.patch(&format!("{CONFIG_MAPS}/a"), r#"{"data":{"x":"y"}}"#)
        .await
        .expect(503);
    assert_eq!(
        rig.get(CONFIG_MAPS).await.expect(200).names(),
        ["a", "held"]
    );

    // A restart would not help, so it is alive; it should get no traffic, so it is not ready.
    assert_eq!(page(&rig, "/livez").await.0, 200);
    assert!(
        page(&rig, "/readyz")
            .await
            .1
            .contains("[-]etcd-readiness failed")
    );
    const STORE: &str = "/api/v1/componentstatuses/etcd-0";
    let is_healthy = async || {
        let store = rig.get(STORE).await.expect(200).body;
        store["conditions"][0]["status"].str().to_owned()
    };
    assert_eq!(is_healthy().await, "False");
    let metrics = page(&rig, "/metrics").await.1;
    assert!(metrics.contains("\nmizzen_store_writable 0\n"));
    assert!(metrics.contains("\nmizzen_store_refused_writes_total 2\n"));

    // All that leads to a delete is written: at once, with a grace period, and with finalizers.
    rig.delete(&format!("{CONFIG_MAPS}/a"), "")
        .await
        .expect(200);
    rig.delete(&format!("{CONFIG_MAPS}/held"), "")
        .await
        .expect(200);
    rig.patch(
        &format!("{CONFIG_MAPS}/held"),
        r#"{"metadata":{"finalizers":null}}"#,
    )
    .await
    .expect(200);
    rig.delete(&format!("{PODS}/p"), "").await.expect(200);
    rig.delete(&format!("{PODS}/p"), r#"{"gracePeriodSeconds":0}"#)
        .await
        .expect(200);
    assert_eq!(
        rig.get(CONFIG_MAPS).await.names().len() + rig.get(PODS).await.names().len(),
        0
    );

    disk.set(0);
    rig.make("b", "").await;
    assert_eq!(page(&rig, "/readyz").await.0, 200);
    assert_eq!(is_healthy().await, "True");
}

#[tokio::test]
async fn a_failed_fsync_is_reported_as_unknown_and_later_writes_are_rejected() {
    let (rig, disk) = rig().await;
    rig.make("a", "").await;
    disk.set(BROKEN);
    let unknown = rig
        .post(CONFIG_MAPS, r#"{"metadata":{"name":"b"}}"#)
        .await
        .expect(500);
    assert_eq!(unknown.body["reason"].str(), "InternalError");
    assert!(
        unknown
            .message()
            .contains("the outcome of the write is unknown"),
        "{}",
        unknown.message()
    );
    disk.set(0);
    let refused = rig
        .delete(&format!("{CONFIG_MAPS}/a"), "")
        .await
        .expect(500);
    assert!(
        refused.message().contains("nothing was stored"),
        "{}",
        refused.message()
    );
    assert_eq!(rig.get(CONFIG_MAPS).await.expect(200).names(), ["a"]);
    for root in ["/livez", "/readyz", "/healthz"] {
        assert!(
            page(&rig, root).await.1.contains("[-]etcd failed"),
            "a restart helps"
        );
    }
}
