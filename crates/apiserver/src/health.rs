//! `/healthz`, `/livez` and `/readyz`, whole or one check at a time.
//!
//! The checks are kube-apiserver's, in its order. A check of the boot sequence (a post-start hook,
//! mostly) fails until [`Server::complete`](crate::Server::complete) names it.

use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use http::header;
use mizzen_registry::{BoxFuture, EngineCheck, Health};
use mizzen_value::json::quote;
use tokio::sync::watch;

use crate::request::{Request, RequestQuery};
use crate::response::{self, Response};
use crate::server::ServerParts;

/// A health check of a dependency.
pub trait HealthCheck: fmt::Debug + Send + Sync {
    /// The name under which it is listed.
    fn name(&self) -> &str;

    /// The problem, if there is one. Returns in bounded time.
    fn check(&self) -> BoxFuture<'_, Result<(), String>>;

    /// The endpoint beside `/healthz` that runs it. Usually `/readyz` and not `/livez`: a restart
    /// would not help.
    fn endpoint(&self) -> HealthEndpoint {
        HealthEndpoint::Readyz
    }
}

/// A health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEndpoint {
    /// The older one, which runs nearly all checks.
    Healthz,
    /// Whether the process must be restarted.
    Livez,
    /// Whether it is ready for requests.
    Readyz,
}

impl HealthEndpoint {
    pub(crate) const ALL: [HealthEndpoint; 3] = [
        HealthEndpoint::Healthz,
        HealthEndpoint::Livez,
        HealthEndpoint::Readyz,
    ];

    fn named(name: &str) -> Option<HealthEndpoint> {
        HealthEndpoint::ALL
            .into_iter()
            .find(|endpoint| endpoint.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            HealthEndpoint::Healthz => "healthz",
            HealthEndpoint::Livez => "livez",
            HealthEndpoint::Readyz => "readyz",
        }
    }
}

/// The boot sequence of [`Server::start`](crate::Server::start), which every server has.
pub(crate) const START: [&str; 5] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
];
/// The boot sequence of CustomResourceDefinitions, which [`Server::start`](crate::Server::start)
/// follows as well.
pub(crate) const DEFINITIONS: [&str; 3] = [
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
];
/// The boot sequence of [`Server::aggregate`](crate::Server::aggregate).
pub(crate) const AGGREGATE: [&str; 9] = [
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The boot sequence of [`Server::follow_peers`](crate::Server::follow_peers).
pub(crate) const PEERS: [&str; 3] = [
    "poststarthook/mixed-version-proxy-handler",
    "poststarthook/local-discovery-cache-sync",
    "poststarthook/peer-discovery-workers",
];

/// The boot sequence of a kube-apiserver, in its order. Only one that proxies requests to peers has steps for that.
pub fn kube_apiserver_boot_sequence(proxies_to_peers: bool) -> Vec<&'static str> {
    const PEER_ENDPOINT: [&str; 2] = [
        "poststarthook/start-system-namespaces-controller",
        "poststarthook/peer-endpoint-reconciler-controller",
    ];
    const CONTROL_PLANE: [&str; 11] = [
        "poststarthook/start-cluster-authentication-info-controller",
        "poststarthook/start-kube-apiserver-identity-lease-controller",
        "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
        "poststarthook/storage-readiness",
        "poststarthook/start-legacy-token-tracking-controller",
        "poststarthook/start-service-ip-repair-controllers",
        "poststarthook/rbac/bootstrap-roles",
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        "poststarthook/priority-and-fairness-config-producer",
        "poststarthook/bootstrap-controller",
        "poststarthook/start-kubernetes-service-cidr-controller",
    ];
    let peers: &[&str] = if proxies_to_peers { &PEERS } else { &[] };
    [
        &START[..],
        &DEFINITIONS,
        &PEER_ENDPOINT,
        peers,
        &CONTROL_PLANE,
        &AGGREGATE,
    ]
    .concat()
}

/// The completed checks of the boot sequence. None fails again.
#[derive(Debug)]
pub(crate) struct BootSequence(watch::Sender<BTreeSet<&'static str>>);

impl Default for BootSequence {
    fn default() -> BootSequence {
        BootSequence(watch::Sender::new(BTreeSet::new()))
    }
}

impl BootSequence {
    pub(crate) fn complete(&self, names: &[&'static str]) {
        self.0.send_modify(|passed| passed.extend(names));
    }

    fn is_complete(&self, name: &str) -> bool {
        self.0.borrow().contains(name)
    }

    /// Waits until all of these are complete.
    pub(crate) async fn wait_for(&self, names: &[&'static str]) {
        let all = |passed: &BTreeSet<&'static str>| names.iter().all(|name| passed.contains(name));
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(all).await;
    }
}

/// The health endpoints of a component that serves no API: a controller manager, a scheduler. Cheap
/// to clone.
#[derive(Debug, Clone, Default)]
pub struct ComponentHealth(Arc<RwLock<Vec<EndpointChecks>>>);

/// An endpoint and its checks.
type EndpointChecks = (HealthEndpoint, Vec<Arc<dyn HealthCheck>>);

impl ComponentHealth {
    /// Adds an endpoint, or checks to it.
    pub fn add(&self, endpoint: HealthEndpoint, checks: Vec<Arc<dyn HealthCheck>>) {
        let mut endpoints = self.0.write();
        match endpoints.iter_mut().find(|(known, _)| *known == endpoint) {
            Some((_, known)) => known.extend(checks),
            None => endpoints.push((endpoint, checks)),
        }
    }

    /// The checks of an endpoint; none if it is not served. Kubernetes: without checks there is a
    /// ping (server/healthz/healthz.go, InstallPathHandler).
    fn checks(&self, endpoint: HealthEndpoint) -> Option<Vec<EndpointCheck<'static>>> {
        let endpoints = self.0.read();
        let (_, checks) = endpoints.iter().find(|(known, _)| *known == endpoint)?;
        Some(match checks.is_empty() {
            true => vec![EndpointCheck::Own(PING)],
            false => checks
                .iter()
                .cloned()
                .map(EndpointCheck::OfComponent)
                .collect(),
        })
    }
}

/// A check of the server itself.
type Own = (&'static str, fn(&ServerParts) -> Result<(), String>);

const PING: Own = ("ping", |_| Ok(()));
const LOG: Own = ("log", |_| Ok(()));
/// `Server::start` starts what follows the store, after a first full read.
const INFORMERS: Own = ("informer-sync", |server| {
    match server.boot_sequence.is_complete(START[1]) {
        true => Ok(()),
        false => Err("informers not started yet".into()),
    }
});
const SHUTDOWN: Own = ("shutdown", |server| match server.is_leaving() {
    true => Err("process is shutting down".into()),
    false => Ok(()),
});

/// A check of the store, or of one of the clusters that have its data. They have kube-apiserver's names
/// (server/options/etcd.go, addEtcdHealthEndpoint).
struct StoreCheck {
    name: String,
    check: EngineCheck,
    cluster: usize,
}

impl StoreCheck {
    fn new(check: EngineCheck, cluster: usize) -> StoreCheck {
        let name = match (check, cluster.checked_sub(1)) {
            (EngineCheck::Health, None) => "etcd".into(),
            (EngineCheck::Health, Some(number)) => format!("etcd-override-{number}"),
            (EngineCheck::Readiness, None) => "etcd-readiness".into(),
            (EngineCheck::Readiness, Some(number)) => format!("etcd-override-readiness-{number}"),
        };
        StoreCheck {
            name,
            check,
            cluster,
        }
    }

    /// All of a store.
    fn all(server: &ServerParts, endpoint: HealthEndpoint) -> Vec<StoreCheck> {
        let kinds = match endpoint {
            HealthEndpoint::Readyz => &[EngineCheck::Health, EngineCheck::Readiness][..],
            HealthEndpoint::Healthz | HealthEndpoint::Livez => &[EngineCheck::Health],
        };
        let of_cluster = |cluster| {
            kinds
                .iter()
                .map(move |kind| StoreCheck::new(*kind, cluster))
        };
        let n_clusters = server.registry.store().n_clusters();
        (0..n_clusters).flat_map(of_cluster).collect()
    }

    /// The group with which it is excluded.
    fn group(&self) -> &'static str {
        match self.check {
            EngineCheck::Health => "etcd",
            EngineCheck::Readiness => "etcd-readiness",
        }
    }

    async fn run(&self, server: &ServerParts) -> Result<(), String> {
        let store = server.registry.store();
        match (store.health(), self.check) {
            (Health::Failed(problem), _) => return Err(format!("the store has failed: {problem}")),
            // A full disk fails readiness alone: a restart would not help.
            (Health::Full(problem), EngineCheck::Readiness) => {
                return Err(format!("the store is full: {problem}"));
            }
            _ => {}
        }
        let checked = store.check(self.check, self.cluster).await;
        checked.map_err(|error| error.to_string())
    }
}

enum EndpointCheck<'a> {
    Own(Own),
    Store(StoreCheck),
    Boot(&'static str),
    Outside(&'a dyn HealthCheck),
    OfComponent(Arc<dyn HealthCheck>),
}

impl EndpointCheck<'_> {
    fn name(&self) -> &str {
        match self {
            EndpointCheck::Own((name, _)) | EndpointCheck::Boot(name) => name,
            EndpointCheck::Store(check) => &check.name,
            EndpointCheck::Outside(check) => check.name(),
            EndpointCheck::OfComponent(check) => check.name(),
        }
    }

    /// The name with which it is excluded: its own, or that of its group.
    fn excluded_with<'e>(&self, excluded: &BTreeSet<&'e str>) -> Option<&'e str> {
        let group = match self {
            EndpointCheck::Store(check) => check.group(),
            _ => self.name(),
        };
        let found = excluded.get(self.name()).or_else(|| excluded.get(group));
        found.copied()
    }

    async fn run(&self, server: &ServerParts) -> Result<(), String> {
        match self {
            EndpointCheck::Own((_, check)) => check(server),
            EndpointCheck::Store(check) => check.run(server).await,
            EndpointCheck::Boot(name) if server.boot_sequence.is_complete(name) => Ok(()),
            EndpointCheck::Boot(_) => Err("not finished".into()),
            EndpointCheck::Outside(check) => check.check().await,
            EndpointCheck::OfComponent(check) => check.check().await,
        }
    }
}

/// The checks of an endpoint, in kube-apiserver's order.
fn checks(server: &ServerParts, endpoint: HealthEndpoint) -> Vec<EndpointCheck<'_>> {
    let outside = server.options.health.iter().map(|check| &**check);
    let outside: Vec<&dyn HealthCheck> = outside
        .filter(|check| endpoint == HealthEndpoint::Healthz || check.endpoint() == endpoint)
        .collect();
    let is_early = |check: &&&dyn HealthCheck| check.endpoint() == HealthEndpoint::Livez;
    let early = outside
        .iter()
        .filter(is_early)
        .map(|check| EndpointCheck::Outside(*check));
    let late = outside
        .iter()
        .filter(|check| !is_early(check))
        .map(|check| EndpointCheck::Outside(*check));
    let boot = server
        .options
        .boot_sequence
        .iter()
        .copied()
        .map(EndpointCheck::Boot);
    let mut checks: Vec<EndpointCheck> = [PING, LOG]
        .map(EndpointCheck::Own)
        .into_iter()
        .chain(early)
        .collect();
    let store = StoreCheck::all(server, endpoint).into_iter();
    checks.extend(store.map(EndpointCheck::Store));
    checks.extend(late);
    if endpoint == HealthEndpoint::Readyz {
        checks.push(EndpointCheck::Own(INFORMERS));
    }
    checks.extend(boot);
    if endpoint == HealthEndpoint::Readyz {
        checks.push(EndpointCheck::Own(SHUTDOWN));
    }
    checks
}

/// The paths of all checks of all endpoints.
pub(crate) fn paths(server: &ServerParts) -> Vec<String> {
    let of = |endpoint: HealthEndpoint| {
        let root = format!("/{}", endpoint.name());
        let checks = checks(server, endpoint);
        let each = checks
            .iter()
            .map(|check| format!("{root}/{}", check.name()));
        each.chain([root.clone()]).collect::<Vec<_>>()
    };
    HealthEndpoint::ALL.into_iter().flat_map(of).collect()
}

/// `/livez?verbose`, `/readyz/ping`, …
pub(crate) async fn serve_health(
    server: &Arc<ServerParts>,
    request: &Request,
    parts: &[&str],
) -> Response {
    let not_found = || response::text(404, "404 page not found\n");
    let Some(endpoint) = HealthEndpoint::named(parts[0]) else {
        return not_found();
    };
    let checks = match &server.options.component {
        Some(component) => component.checks(endpoint),
        None => Some(checks(server, endpoint)),
    };
    let Some(checks) = checks else {
        return not_found();
    };
    if parts.len() == 1 {
        return report(endpoint, &checks, server, &request.query).await;
    }
    let name = parts[1..].join("/");
    let Some(check) = checks.iter().find(|check| check.name() == name) else {
        return not_found();
    };
    match check.run(server).await {
        Ok(()) => {
            let mut answer = response::text(200, "ok");
            answer.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
            answer
        }
        Err(problem) => response::text(500, format!("internal server error: {problem}\n")),
    }
}

/// What became of a check.
enum Outcome<'a> {
    /// It was not run, because of this name.
    Excluded(&'a str),
    Checked(Result<(), String>),
}

/// Runs all checks that are not excluded at the same time, so that those that wait for etcd wait together.
async fn run_all<'e>(
    checks: &[EndpointCheck<'_>],
    excluded: &BTreeSet<&'e str>,
    server: &ServerParts,
) -> Vec<Outcome<'e>> {
    let run = async |check: &EndpointCheck<'_>| match check.excluded_with(excluded) {
        Some(name) => Outcome::Excluded(name),
        None => Outcome::Checked(check.run(server).await),
    };
    join_all(checks.iter().map(run)).await
}

async fn report(
    endpoint: HealthEndpoint,
    checks: &[EndpointCheck<'_>],
    server: &ServerParts,
    query: &RequestQuery,
) -> Response {
    let root = endpoint.name();
    let excluded: BTreeSet<&str> = query.all("exclude").into_iter().collect();
    let mut unknown = excluded.clone();
    let (mut lines, mut failed) = (String::new(), Vec::new());
    for (check, outcome) in checks.iter().zip(run_all(checks, &excluded, server).await) {
        let name = check.name();
        let result = match outcome {
            Outcome::Excluded(with) => {
                unknown.remove(with);
                lines += &match with == name {
                    true => format!("[+]{name} excluded: ok\n"),
                    false => format!("[+]{name} excluded with {with}: ok\n"),
                };
                continue;
            }
            Outcome::Checked(result) => result,
        };
        server
            .metrics
            .health_checks
            .observe(name, root, result.is_ok());
        match result {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(problem) => {
                lines += &format!("[-]{name} failed: reason withheld\n");
                failed.push(format!("{name}: {problem}"));
            }
        }
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| quote(name)).collect();
        let names = names.join(",");
        lines += &format!("warn: some health checks cannot be excluded: no matches for {names}\n");
    }
    if !failed.is_empty() {
        tracing::debug!(
            endpoint = root,
            failed = failed.join("; "),
            "health check failed"
        );
        return response::text(500, format!("{lines}{root} check failed\n"));
    }
    if query.get("verbose").is_some() {
        return response::text(200, format!("{lines}{root} check passed\n"));
    }
    response::text(200, "ok")
}
