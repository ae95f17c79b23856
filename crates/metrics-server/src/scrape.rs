//! When is a kubelet read? When a client asks for what its node or pods use, and nothing recent is known.
//!
//! CPU usage needs two reports. Where the last one is too old to measure from, two are read, one second apart.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mizzen_apiserver::{Server, User};
use mizzen_controlplane::get_from_kubelet;
use mizzen_object::Status;
use mizzen_value::Value;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::SERVICE_ACCOUNT;
use crate::decode::decode;
use crate::history::UsageHistory;

/// How long a report is recent: the period of autoscalers is longer.
pub(crate) const FRESH: Duration = Duration::from_secs(10);
/// How long CPU usage can be measured from a report. The average of a longer time would say little of the present.
const MEASURABLE: Duration = Duration::from_secs(60);
/// How far two reports are apart of which the first had nothing to be measured from.
const FIRST_WINDOW: Duration = Duration::from_secs(1);
/// Kubernetes: how long a kubelet may take to answer (`--kubelet-request-timeout`).
const PATIENCE: Duration = Duration::from_secs(10);
/// How many kubelets are read at a time.
const AT_A_TIME: usize = 32;
/// Kubernetes: by this annotation a node says where its metrics are (pkg/scraper/client/resource/client.go).
const PATH_ANNOTATION: &str = "metrics.k8s.io/resource-metrics-path";
const USUAL_PATH: &str = "/metrics/resource";

/// Reads kubelets, and remembers what they reported.
pub(crate) struct Scraper {
    main: Server,
    nodes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<NodeReports>>>>,
}

/// The reports of one node's kubelet.
#[derive(Default)]
pub(crate) struct NodeReports {
    pub history: UsageHistory,
    scraped: Option<Instant>,
}

impl Scraper {
    pub(crate) fn new(main: Server) -> Scraper {
        Scraper {
            main,
            nodes: Mutex::default(),
        }
    }

    /// The time of day, as objects have it.
    pub(crate) fn timestamp(&self) -> String {
        self.main.registry().timestamp()
    }

    /// What the main API server has at a path.
    pub(crate) async fn read(&self, path: &str) -> Result<Value, Status> {
        let user = User::service_account("kube-system", SERVICE_ACCOUNT);
        self.main.read_as(user, path).await
    }

    /// The reports of nodes, which are recent. A node whose kubelet cannot be read has none.
    pub(crate) async fn reports(
        &self,
        nodes: BTreeSet<String>,
    ) -> HashMap<String, Arc<tokio::sync::Mutex<NodeReports>>> {
        let known: Vec<_> = {
            let mut known = self.nodes.lock();
            // One that another request works with stays.
            known.retain(|_, reports| match reports.try_lock() {
                Ok(reports) => reports.age().is_some_and(|age| age <= MEASURABLE),
                Err(_) => true,
            });
            let entries = nodes.into_iter().map(|node| {
                let reports = known.entry(node.clone()).or_default().clone();
                (node, reports)
            });
            entries.collect()
        };
        let refreshed = stream::iter(known).map(|(node, reports)| async move {
            self.refresh(&node, &mut *reports.lock().await).await;
            (node, reports)
        });
        refreshed.buffer_unordered(AT_A_TIME).collect().await
    }

    async fn refresh(&self, node: &str, reports: &mut NodeReports) {
        match reports.age() {
            Some(age) if age < FRESH => return,
            Some(age) if age <= MEASURABLE => {}
            _ => {
                *reports = NodeReports::default();
                if !self.scrape(node, reports).await {
                    return;
                }
                sleep(FIRST_WINDOW).await;
            }
        }
        self.scrape(node, reports).await;
    }

    /// Adds a report of a node's kubelet; whether there is one.
    async fn scrape(&self, node: &str, reports: &mut NodeReports) -> bool {
        let report = timeout(PATIENCE, self.report(node)).await;
        let report = report.unwrap_or_else(|_| Err("context deadline exceeded".into()));
        let now = self.main.registry().now();
        let batch = report.and_then(|text| decode(&text, now * 1000));
        match batch {
            Ok(batch) => {
                reports.history.add(batch);
                reports.scraped = Some(Instant::now());
                true
            }
            Err(error) => {
                tracing::warn!(node, error, "failed to scrape node");
                *reports = NodeReports::default();
                false
            }
        }
    }

    async fn report(&self, node: &str) -> Result<String, String> {
        let said = |status: Status| status.message;
        let object = self.read(&format!("/api/v1/nodes/{node}")).await;
        let object = object.map_err(said)?;
        let path = match object["metadata"]["annotations"][PATH_ANNOTATION].str() {
            path if path.starts_with('/') => path,
            _ => USUAL_PATH,
        };
        let report = get_from_kubelet(&self.main, node, path).await;
        String::from_utf8(report.map_err(said)?.into()).map_err(|error| error.to_string())
    }
}

impl NodeReports {
    fn age(&self) -> Option<Duration> {
        self.scraped.map(|scraped| scraped.elapsed())
    }
}
