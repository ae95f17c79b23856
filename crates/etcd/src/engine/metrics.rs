//! What the engine asks of etcd, in figures.
//!
//! Kubernetes: the families of storage/etcd3/metrics that there are events for. `apiserver_storage_list_evaluated_objects_total`
//! and `…_returned_objects_total` are left out: selectors are evaluated above the engine.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mizzen_metrics::{Collector, CounterVec, Families, GaugeVec, HistogramVec};
use tokio::time::{Instant, sleep};

use crate::client::{CallError, Client};

/// Kubernetes: the bounds of `etcd_request_duration_seconds`.
const REQUEST_BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Kubernetes: the bounds of `etcd_lease_object_counts`.
const LEASE_BOUNDS: [f64; 7] = [10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];

/// The metrics of an engine.
#[derive(Debug)]
pub struct EtcdMetrics {
    requests: HistogramVec<3>,
    errors: CounterVec<3>,
    bookmarks: CounterVec<2>,
    lease_objects: HistogramVec<0>,
    lists: CounterVec<2>,
    fetched: CounterVec<2>,
    sizes: GaugeVec<1>,
}

impl Default for EtcdMetrics {
    fn default() -> EtcdMetrics {
        let group_resource = ["group", "resource"];
        let operation = ["operation", "group", "resource"];
        EtcdMetrics {
            requests: HistogramVec::new(
                "etcd_request_duration_seconds",
                "How long requests to etcd take, by operation and resource.",
                operation,
                &REQUEST_BOUNDS,
            ),
            errors: CounterVec::new(
                "etcd_request_errors_total",
                "Requests to etcd that failed, by operation and resource.",
                operation,
            ),
            bookmarks: CounterVec::new(
                "etcd_bookmark_total",
                "Answers of etcd about the progress of a watch, by resource.",
                group_resource,
            ),
            lease_objects: HistogramVec::new(
                "etcd_lease_object_counts",
                "Objects that share a lease of etcd.",
                [],
                &LEASE_BOUNDS,
            ),
            lists: CounterVec::new(
                "apiserver_storage_list_total",
                "Lists that are read from etcd, by resource.",
                group_resource,
            ),
            fetched: CounterVec::new(
                "apiserver_storage_list_fetched_objects_total",
                "Objects that are read from etcd by lists, by resource.",
                group_resource,
            ),
            sizes: GaugeVec::new(
                "apiserver_storage_size_bytes",
                "The size of the files of the store.",
                ["storage_cluster_id"],
            ),
        }
    }
}

impl EtcdMetrics {
    /// Takes note of a request that began at `began` and has ended.
    pub(super) fn requested<T>(
        &self,
        operation: &'static str,
        space: &str,
        began: Instant,
        answer: &Result<T, CallError>,
    ) {
        let [group, resource] = group_resource(space);
        let labels = [operation.into(), group, resource];
        if answer.is_err() {
            self.errors.add(labels.clone(), 1);
        }
        let took = began.elapsed().as_secs_f64();
        self.requests.observe(labels, took);
    }

    pub(super) fn listed(&self, space: &str, n_objects: usize) {
        self.lists.add(group_resource(space), 1);
        self.fetched(space, n_objects);
    }

    /// Takes note of objects, or of their keys, that a list reads.
    pub(super) fn fetched(&self, space: &str, n_objects: usize) {
        self.fetched.add(group_resource(space), n_objects as u64);
    }

    pub(super) fn progressed(&self, space: &str) {
        self.bookmarks.add(group_resource(space), 1);
    }

    pub(super) fn lease_ended(&self, n_objects: usize) {
        self.lease_objects.observe([], n_objects as f64);
    }
}

/// The labels of a keyspace, whose name is that of its resource, with the group in front.
fn group_resource(space: &str) -> [Cow<'static, str>; 2] {
    let (group, resource) = space.split_once('/').unwrap_or(("", space));
    [group.to_owned().into(), resource.to_owned().into()]
}

impl Collector for EtcdMetrics {
    fn collect(&self, families: &mut Families) {
        let all: [&dyn Collector; 7] = [
            &self.requests,
            &self.errors,
            &self.bookmarks,
            &self.lease_objects,
            &self.lists,
            &self.fetched,
            &self.sizes,
        ];
        all.iter().for_each(|one| one.collect(families));
        let counts = "Requests to etcd, by operation and resource.";
        self.requests
            .collect_counts("etcd_requests_total", counts, families);
    }
}

/// Asks a cluster for its size every `interval`, for ever. That of the largest member counts.
pub(super) async fn follow_size(
    client: Client,
    number: usize,
    metrics: Arc<EtcdMetrics>,
    interval: Duration,
) {
    loop {
        let answers = client.status().await.into_iter();
        let sizes = answers.filter_map(|answer| Some(answer.status.ok()?.db_size));
        if let Some(size) = sizes.max() {
            let id = format!("etcd-{number}");
            metrics.sizes.set([id.into()], size as f64);
        }
        sleep(interval).await;
    }
}
