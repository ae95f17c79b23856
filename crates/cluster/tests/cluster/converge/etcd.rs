//! The same scenarios with objects in a real etcd, on virtual time.
//!
//! The engine runs in a runtime of its own, on real time. While one of its calls is executed the thread of the cluster
//! waits, and with it virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use mizzen_etcd::EngineOptions;
use mizzen_etcd::messages::RangeRequest;
use mizzen_registry::{StorageCodec, Store};
use mizzen_store::{
    BoxFuture, CommitResult, Engine, EngineCheck, Expired, Feed, Keyspace, ReadError, Record,
    Revision, Snapshot, WindowLimits, Write, WriteError,
};
use mizzen_testing::Cluster;
use mizzen_value::clock::Clock;
use tokio::runtime::{self, Handle};

use super::explore;
use super::scenario::{self, Scenario};
use crate::etcd_server::{Options, installed};

/// Each run with faults takes seconds; `MIZZEN_SEEDS` plays more.
const SEEDS: u64 = 1;
/// The time at which virtual time begins, so that the lease of an object that expires outlasts the test.
const BEGIN: i64 = 1_700_000_000;

/// An engine that executes its calls in another runtime.
struct BlockingEngine {
    engine: Arc<dyn Engine>,
    runtime: Handle,
}

impl BlockingEngine {
    /// Waits for a future of the other runtime.
    fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The receiver waits, unless the test has failed.
            let _ = sender.send(future.await);
        });
        receiver.recv().expect("a call to the engine ends")
    }
}

impl Engine for BlockingEngine {
    fn open(&self, feed: Feed) {
        let space = feed.space().clone();
        let entered = self.runtime.enter();
        self.engine.open(feed);
        drop(entered);
        self.wait(async move { space.reached(Revision::FIRST).await });
    }

    fn release(&self, space: &Keyspace) {
        self.engine.release(space);
    }

    fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, CommitResult> {
        Box::pin(async {
            let engine = self.engine.clone();
            self.wait(async move { engine.commit(writes).await })
        })
    }

    fn get<'a>(
        &'a self,
        space: &'a Keyspace,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, ReadError>> {
        Box::pin(async {
            let (engine, space, key) = (self.engine.clone(), space.clone(), key.to_owned());
            self.wait(async move { engine.get(&space, &key).await })
        })
    }

    fn latest<'a>(
        &'a self,
        space: &'a Keyspace,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        Box::pin(async {
            let (engine, space, prefix) = (self.engine.clone(), space.clone(), prefix.to_owned());
            self.wait(async move { engine.latest(&space, &prefix).await })
        })
    }

    fn snapshot_at<'a>(
        &'a self,
        space: &'a Keyspace,
        prefix: &'a str,
        revision: Revision,
        expired: Expired,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        Box::pin(async move {
            let (engine, space, prefix) = (self.engine.clone(), space.clone(), prefix.to_owned());
            let read = async move { engine.snapshot_at(&space, &prefix, revision, expired).await };
            self.wait(read)
        })
    }

    fn expire(&self, now: u64) -> BoxFuture<'_, Result<usize, WriteError>> {
        self.engine.expire(now)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let engine = self.engine.clone();
            self.wait(async move { engine.compact(revision).await })
        })
    }

    fn compacted(&self, space: &str, revision: Revision) -> Revision {
        self.engine.compacted(space, revision)
    }

    fn is_stale(&self, space: &str, record: &Record) -> bool {
        self.engine.is_stale(space, record)
    }

    fn n_clusters(&self) -> usize {
        self.engine.n_clusters()
    }

    fn check(&self, check: EngineCheck, cluster: usize) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            let engine = self.engine.clone();
            self.wait(async move { engine.check(check, cluster).await })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.engine.close()
    }
}

/// The time at which virtual time begins.
struct BeginOfTime;

impl Clock for BeginOfTime {
    fn now(&self) -> (i64, u32) {
        (BEGIN, 0)
    }
}

#[track_caller]
fn check(scenario: &Scenario) {
    let Some(etcd) = installed().into_iter().last() else {
        return;
    };
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let etcd = runtime.block_on(etcd.start(Options::default()));
    let client = runtime.block_on(async { etcd.client() });
    let all_keys = RangeRequest {
        key: "/registry-".into(),
        range_end: "/registry.".into(),
        count_only: true,
        ..RangeRequest::default()
    };
    let (handle, n_stores, own) = (
        runtime.handle().clone(),
        AtomicUsize::new(0),
        client.clone(),
    );
    let open = move || {
        let prefix = format!("/registry-{}", n_stores.fetch_add(1, Ordering::Relaxed));
        let codec = StorageCodec::new(&prefix, mizzen_kinds::storage_catalog().stored_kinds())
            .with_keyspace("ranges", &mizzen_kinds::range_allocation());
        let options = EngineOptions::new(Arc::new(codec), Arc::new(BeginOfTime));
        let entered = handle.enter();
        let engine = mizzen_etcd::engine(own.clone(), options);
        drop(entered);
        let engine = BlockingEngine {
            engine: engine.into(),
            runtime: handle.clone(),
        };
        Store::with_engine(Box::new(engine), WindowLimits::default())
    };
    explore(Cluster::builder().store(open), SEEDS, scenario);
    let kept = runtime.block_on(client.range(all_keys)).unwrap();
    assert!(kept.count > 0, "nothing was kept in etcd");
}

#[test]
fn a_deployment_is_rolled_out_updated_and_scaled() {
    check(&scenario::DEPLOYMENT);
}

#[test]
fn a_stateful_set_is_updated_and_scaled() {
    check(&scenario::STATEFUL_SET);
}

#[test]
fn a_daemon_set_is_updated() {
    check(&scenario::DAEMON_SET);
}

#[test]
fn a_job_counts_to_four() {
    check(&scenario::JOB);
}

#[test]
fn owners_are_deleted_with_dependents_or_without() {
    check(&scenario::OWNERS);
}

#[test]
fn a_namespace_is_deleted_with_its_content() {
    check(&scenario::NAMESPACE);
}

#[test]
fn a_quota_admits_three_of_five() {
    check(&scenario::QUOTA);
}

#[test]
fn a_stateful_set_keeps_its_volumes() {
    check(&scenario::VOLUMES);
}

#[test]
fn a_cron_job_runs_every_minute_until_it_is_suspended() {
    check(&scenario::CRON_JOB);
}

#[test]
fn an_autoscaler_follows_the_load() {
    check(&scenario::AUTOSCALER);
}

#[test]
fn a_service_selects_other_pods() {
    check(&scenario::SERVICE);
}

#[test]
fn a_budget_lets_pods_be_evicted_one_by_one() {
    check(&scenario::BUDGET);
}
