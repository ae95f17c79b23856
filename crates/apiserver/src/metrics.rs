//! Metrics of requests and watches, under upstream's names where the meaning is the same
//! (endpoints/metrics/metrics.go).

mod health_checks;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use mizzen_metrics::{Collector as _, Families, GaugeVec, Histogram, HistogramVec, exponential};
use mizzen_object::KindData;
use mizzen_registry::Health;
use mizzen_value::Str;

use crate::admission::{AdmissionMetrics, Plugin};
use crate::discovery;
use crate::request::{Request, RequestTarget, ResourcePath};
use crate::response::Response;
use crate::server::ServerParts;
use health_checks::HealthChecks;

/// The upper bounds of the duration buckets, in seconds, as upstream has them.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// The upper bounds of response sizes, in bytes.
const SIZES: [f64; 7] = exponential(1000.0, 10.0);
/// The upper bounds of the time until the initial events of a watch were sent, in seconds.
const WATCH_LIST_BOUNDS: [f64; 17] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// The non-resource paths that have a label of their own.
const PAGES: [&str; 7] = [
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/version",
];

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestLabels {
    verb: &'static str,
    dry_run: &'static str,
    group: Str,
    version: Str,
    resource: Str,
    subresource: Str,
    scope: &'static str,
    component: &'static str,
}

impl RequestLabels {
    /// Invariant: the number of series is bounded, whatever clients send: unknown resources and
    /// paths have no labels.
    pub(crate) fn new(request: &Request) -> RequestLabels {
        let verb = RequestLabels::verb(request);
        let is_served = |path: &ResourcePath| {
            request.resource().is_some_and(|resource| {
                path.subresource.is_empty()
                    || resource.kind().subresource(&path.subresource).is_some()
            })
        };
        match request.info.target() {
            RequestTarget::NonResource(path) => RequestLabels::of_page(verb, path),
            RequestTarget::Resource(path) if !is_served(path) => RequestLabels::of_page(verb, ""),
            RequestTarget::Resource(path) => RequestLabels {
                verb,
                dry_run: if request.query.all("dryRun") == ["All"] {
                    "All"
                } else {
                    ""
                },
                group: path.group.clone(),
                version: path.version.clone(),
                resource: path.resource.clone(),
                subresource: path.subresource.clone(),
                scope: match (path.name.is_empty(), path.namespace.is_empty()) {
                    _ if request.info.verb() == "create" => "resource",
                    (false, _) => "resource",
                    (true, false) => "namespace",
                    (true, true) => "cluster",
                },
                component: "apiserver",
            },
        }
    }

    /// The verb label: by the method, so that a deletecollection is a DELETE. Kubernetes: `cleanVerb`.
    fn verb(request: &Request) -> &'static str {
        let is_resource = matches!(request.info.target(), RequestTarget::Resource(_));
        match (request.method.as_str(), request.info.verb()) {
            ("GET" | "HEAD", "list") if is_resource => "LIST",
            ("GET" | "HEAD", "watch") if is_resource => "WATCH",
            ("GET" | "HEAD", _) => "GET",
            ("POST", _) => "POST",
            ("PUT", _) => "PUT",
            ("PATCH", _)
                if request
                    .header("content-type")
                    .starts_with("application/apply-patch") =>
            {
                "APPLY"
            }
            ("PATCH", _) => "PATCH",
            ("DELETE", _) => "DELETE",
            _ => "other",
        }
    }

    /// A request for a non-resource path, or for an unknown resource.
    fn of_page(verb: &'static str, path: &str) -> RequestLabels {
        let root = PAGES.iter().find(|page| {
            path.strip_prefix(**page)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        // Kubernetes: these two are registered without a slash (kube-openapi/pkg/handler).
        let subresource = root.map_or("", |root| match *root {
            "/openapi/v2" | "/openapi/v3" => &root[1..],
            root => root,
        });
        let none = Str::default;
        RequestLabels {
            verb,
            dry_run: "",
            group: none(),
            version: none(),
            resource: none(),
            subresource: subresource.into(),
            scope: "",
            component: "",
        }
    }

    fn is_write(&self) -> bool {
        !matches!(self.verb, "GET" | "LIST" | "WATCH")
    }

    /// The labels that all request metrics have.
    fn labels(&self) -> [(&'static str, &str); 7] {
        [
            ("component", self.component),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
    }

    /// Those and `dry_run`.
    fn labels_with_dry_run(&self) -> Vec<(&'static str, &str)> {
        let mut labels = vec![("dry_run", self.dry_run)];
        labels.extend(self.labels());
        labels
    }
}

/// The resource labels of watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WatchedResource {
    group: Str,
    version: Str,
    resource: Str,
}

/// The metrics of a server.
pub(crate) struct ServerMetrics {
    /// When the server started, in Unix seconds.
    pub started: i64,
    pub admission: AdmissionMetrics,
    deprecated: GaugeVec<5>,
    watch_lists: HistogramVec<4>,
    pub health_checks: HealthChecks,
    requests: Mutex<BTreeMap<(RequestLabels, u16), u64>>,
    durations: Mutex<BTreeMap<RequestLabels, Histogram>>,
    sizes: Mutex<BTreeMap<RequestLabels, Histogram>>,
    terminations: Mutex<BTreeMap<(RequestLabels, u16), u64>>,
    inflight: [AtomicI64; 2],
    watches: Mutex<BTreeMap<WatchedResource, Arc<AtomicI64>>>,
    events: Mutex<BTreeMap<WatchedResource, Arc<AtomicI64>>>,
    nopeer_discovery: AtomicU64,
    /// Connections that ended before TLS was set up.
    pub tls_handshake_errors: AtomicU64,
}

/// Marks the response to a request that the server terminated to protect itself: it took too long,
/// or there were too many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminated;

/// Counts a request as in flight until it is dropped.
pub(crate) struct InflightGuard<'a>(&'a AtomicI64);

impl Drop for InflightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a watch until it is dropped, and its events.
pub(crate) struct WatchGauge {
    count: Arc<AtomicI64>,
    events: Arc<AtomicI64>,
}

impl WatchGauge {
    pub(crate) fn sent(&self, events: usize) {
        self.events
            .fetch_add(i64::try_from(events).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Drop for WatchGauge {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerMetrics {
    pub(crate) fn new(started: i64, plugins: &[&'static Plugin]) -> ServerMetrics {
        ServerMetrics {
            started,
            health_checks: HealthChecks::new(started),
            admission: AdmissionMetrics::new(plugins),
            deprecated: GaugeVec::new(
                "apiserver_requested_deprecated_apis",
                "Deprecated APIs that were requested.",
                [
                    "group",
                    "version",
                    "resource",
                    "subresource",
                    "removed_release",
                ],
            ),
            watch_lists: HistogramVec::new(
                "apiserver_watch_list_duration_seconds",
                "How long it took to send the initial events of watches.",
                ["group", "version", "resource", "scope"],
                &WATCH_LIST_BOUNDS,
            ),
            requests: Mutex::default(),
            durations: Mutex::default(),
            sizes: Mutex::default(),
            terminations: Mutex::default(),
            inflight: Default::default(),
            watches: Mutex::default(),
            events: Mutex::default(),
            nopeer_discovery: AtomicU64::default(),
            tls_handshake_errors: AtomicU64::default(),
        }
    }

    /// Counts a request as in flight until the result is dropped.
    pub(crate) fn begin(&self, observed: &RequestLabels) -> InflightGuard<'_> {
        let count = &self.inflight[usize::from(observed.is_write())];
        count.fetch_add(1, Ordering::Relaxed);
        InflightGuard(count)
    }

    /// Records a response.
    pub(crate) fn end(&self, observed: &RequestLabels, took: Duration, answer: &Response) {
        let code = answer.status().as_u16();
        *self
            .requests
            .lock()
            .entry((observed.clone(), code))
            .or_default() += 1;
        let mut durations = self.durations.lock();
        let histogram = durations
            .entry(observed.clone())
            .or_insert_with(|| Histogram::new(&BUCKETS));
        histogram.observe(took.as_secs_f64());
        drop(durations);
        if answer.extensions().get::<Terminated>().is_some() {
            *self
                .terminations
                .lock()
                .entry((observed.clone(), code))
                .or_default() += 1;
        }
        // Kubernetes: only of reads.
        if matches!(observed.verb, "GET" | "LIST")
            && let Some(size) = http_body::Body::size_hint(answer.body()).exact()
        {
            let mut sizes = self.sizes.lock();
            let histogram = sizes.entry(observed.clone());
            histogram
                .or_insert_with(|| Histogram::new(&SIZES))
                .observe(size as f64);
        }
    }

    /// Counts a request for the discovery of this server alone.
    pub(crate) fn count_nopeer_discovery(&self) {
        self.nopeer_discovery.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a request for a deprecated API.
    pub(crate) fn note_deprecated(&self, path: &ResourcePath, removed_release: &str) {
        let labels = [
            path.group.to_string().into(),
            path.version.to_string().into(),
            path.resource.to_string().into(),
            path.subresource.to_string().into(),
            removed_release.to_owned().into(),
        ];
        self.deprecated.set(labels, 1.0);
    }

    /// Observes how long it took to send the initial events of a watch.
    pub(crate) fn observe_watch_list(&self, kind: &KindData, scope: &'static str, took: Duration) {
        let labels = [
            kind.gvk.group.to_string().into(),
            kind.gvk.version.to_string().into(),
            kind.plural.to_string().into(),
            scope.into(),
        ];
        self.watch_lists.observe(labels, took.as_secs_f64());
    }

    /// Counts a watch until the result is dropped.
    pub(crate) fn watching(&self, kind: &KindData) -> WatchGauge {
        let resource = WatchedResource {
            group: kind.gvk.group.clone(),
            version: kind.gvk.version.clone(),
            resource: kind.plural.clone(),
        };
        let count = self
            .watches
            .lock()
            .entry(resource.clone())
            .or_default()
            .clone();
        count.fetch_add(1, Ordering::Relaxed);
        let events = self.events.lock().entry(resource).or_default().clone();
        WatchGauge { count, events }
    }

    /// Resets the counters of requests and watches. Gauges are kept.
    pub(crate) fn reset(&self) {
        self.requests.lock().clear();
        self.durations.lock().clear();
        self.sizes.lock().clear();
        self.terminations.lock().clear();
        self.nopeer_discovery.store(0, Ordering::Relaxed);
        self.tls_handshake_errors.store(0, Ordering::Relaxed);
        self.events
            .lock()
            .values()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// The families of a scrape.
    pub(crate) fn families(&self, server: &ServerParts) -> Families {
        let mut families = Families::default();
        let out = &mut families;
        self.collect_requests(out);
        self.collect_gauges(out);
        server.audit.collect(out);
        server.flow_control.collect(out);
        server.unsent.collect(out);
        collect_store(server, out);
        server.authenticator.collect(out);
        self.admission.collect(out);
        self.deprecated.collect(out);
        self.watch_lists.collect(out);
        if let Some(peers) = &server.peer_proxy {
            peers.collect(out);
        }
        collect_version(out);
        server.authorization.collect(out);
        server.options.metrics.collect(out);
        families
    }

    fn collect_requests(&self, out: &mut Families) {
        let total = out.counter(
            "apiserver_request_total",
            "Requests by verb, resource and response code.",
        );
        for ((observed, code), count) in self.requests.lock().iter() {
            let (code, mut labels) = (code.to_string(), observed.labels_with_dry_run());
            labels.push(("code", &code));
            total.add(&labels, *count);
        }
        let took = out.histogram(
            "apiserver_request_duration_seconds",
            "How long requests took.",
        );
        for (observed, histogram) in self.durations.lock().iter() {
            took.add_histogram(&observed.labels_with_dry_run(), histogram);
        }
        let sizes = out.histogram(
            "apiserver_response_sizes",
            "The sizes of responses to reads, in bytes.",
        );
        for (observed, histogram) in self.sizes.lock().iter() {
            sizes.add_histogram(&observed.labels(), histogram);
        }
        let terminated = out.counter(
            "apiserver_request_terminations_total",
            "Requests that the server gave up to protect itself.",
        );
        for ((observed, code), count) in self.terminations.lock().iter() {
            let (code, mut labels) = (code.to_string(), observed.labels().to_vec());
            labels.push(("code", &code));
            terminated.add(&labels, *count);
        }
    }

    fn collect_gauges(&self, out: &mut Families) {
        out.counter(
            "apiserver_tls_handshake_errors_total",
            "Connections that ended before TLS was set up.",
        )
        .add(&[], self.tls_handshake_errors.load(Ordering::Relaxed));
        out.counter(
            "aggregator_discovery_nopeer_requests_total",
            "Requests for the aggregated discovery of this server alone.",
        )
        .add(&[], self.nopeer_discovery.load(Ordering::Relaxed));
        out.gauge(
            "process_start_time_seconds",
            "When the server started, in Unix seconds.",
        )
        .add(&[], self.started);
        let inflight = out.gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being served.",
        );
        for (kind, count) in ["readOnly", "mutating"].iter().zip(&self.inflight) {
            inflight.add(&[("request_kind", kind)], count.load(Ordering::Relaxed));
        }
        let long = out.gauge(
            "apiserver_longrunning_requests",
            "Watches that are being served.",
        );
        for (resource, count) in self.watches.lock().iter() {
            let labels: [(&str, &str); 7] = [
                ("component", "apiserver"),
                ("group", &resource.group),
                ("resource", &resource.resource),
                ("scope", ""),
                ("subresource", ""),
                ("verb", "WATCH"),
                ("version", &resource.version),
            ];
            long.add(&labels, count.load(Ordering::Relaxed));
        }
        let events = out.counter(
            "apiserver_watch_events_total",
            "Events that were sent to watches.",
        );
        for (resource, count) in self.events.lock().iter() {
            let labels: [(&str, &str); 3] = [
                ("group", &resource.group),
                ("resource", &resource.resource),
                ("version", &resource.version),
            ];
            events.add(&labels, count.load(Ordering::Relaxed));
        }
    }
}

/// The version, as `/version` has it.
fn collect_version(out: &mut Families) {
    let version = discovery::version();
    let labels = [
        ("build_date", "buildDate"),
        ("compiler", "compiler"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("git_version", "gitVersion"),
        ("go_version", "goVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ];
    let labels = labels.map(|(label, field)| (label, version[field].str()));
    out.gauge(
        "kubernetes_build_info",
        "The version of this process; always 1.",
    )
    .add(&labels, 1);
    let labels: &[_] = &[
        ("binary", discovery::GIT_VERSION.trim_start_matches('v')),
        ("component", "kube"),
        ("emulation", "1.36"),
        ("min_compat", "1.35"),
    ];
    out.gauge(
        "version_info",
        "The versions that this process is compatible with; always 1.",
    )
    .add(labels, 1);
}

fn collect_store(server: &ServerParts, out: &mut Families) {
    let store = server.registry.store();
    for space in &store.stats() {
        let labels: &[_] = &[("resource", &*space.name)];
        let (group, resource) = space.name.split_once('/').unwrap_or(("", &space.name));
        let group_resource: &[_] = &[("group", group), ("resource", resource)];
        out.gauge(
            "apiserver_resource_objects",
            "Objects that are stored, by resource.",
        )
        .add(group_resource, space.records);
        out.gauge(
            "apiserver_resource_size_estimate_bytes",
            "The size of stored objects, by resource.",
        )
        .add(group_resource, space.bytes);
        out.counter(
            "apiserver_storage_events_received_total",
            "Changes of stored objects, by resource.",
        )
        .add(group_resource, space.n_published);
        if space.decode_errors > 0 {
            out.counter(
                "apiserver_storage_decode_errors_total",
                "Number of stored object decode errors split by object type",
            )
            .add(group_resource, space.decode_errors);
        }
        out.gauge("apiserver_storage_objects", "Objects that are stored.")
            .add(labels, space.records);
        out.gauge("mizzen_store_bytes", "Bytes of stored objects.")
            .add(labels, space.bytes);
        out.gauge(
            "mizzen_store_window_bytes",
            "Bytes that only the window of watch events keeps in memory.",
        )
        .add(labels, space.superseded);
    }
    let is_writable = matches!(store.health(), Health::Writable);
    out.gauge(
        "mizzen_store_writable",
        "Whether all writes are taken: 0 while the disk is full.",
    )
    .add(&[], u8::from(is_writable));
    let failures = store.failures();
    out.counter(
        "mizzen_store_refused_writes_total",
        "Writes that the disk did not take.",
    )
    .add(&[], failures.refused_writes);
    out.counter(
        "mizzen_store_failed_compactions_total",
        "Compactions of the log that failed.",
    )
    .add(&[], failures.compactions);
    out.gauge("mizzen_store_revision", "The latest revision.")
        .add(&[], store.revision().0);
}
