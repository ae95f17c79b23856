//! The availability controller: checks aggregated API servers in the background and writes the `Available` condition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::condition;
use mizzen_value::{Str, Value, json, value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::api_services::ApiService;
use super::autoregister;
use super::fetch::{self, RemoteDocuments};
use crate::Server;
use crate::change_watcher::{ChangeWatcher, any_changed};

/// Kubernetes: how often every server is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The first back-off after a failed check; it doubles up to [`CHECK_INTERVAL`].
const BACKOFF: Duration = Duration::from_secs(1);
/// Kubernetes: how many attempts fail before a server is unavailable; it may have several backends.
const ATTEMPTS: usize = 5;

/// Runs the controller until the server stops.
pub(super) async fn run(server: Server) {
    let mut stopping = server.0.stopping.subscribe();
    let mut controller = AvailabilityController::new(server);
    loop {
        controller.sync().await;
        tokio::select! {
            () = controller.wait() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// A condition's status, reason and message.
type Condition = (&'static str, &'static str, String);

/// The result of a check: the name of the APIService, the basis of the check, and the outcome.
type CheckResult = (Str, String, Result<RemoteDocuments, String>);

struct AvailabilityController {
    server: Server,
    watchers: Vec<ChangeWatcher>,
    /// Changes with the versions that this server serves.
    served: watch::Receiver<()>,
    checks: HashMap<Str, AvailabilityCheck>,
    running: JoinSet<CheckResult>,
}

/// The state of the checks of one server.
struct AvailabilityCheck {
    /// The spec and the endpoints of the last check. When they change, the server is checked at once.
    basis: String,
    running: bool,
    failures: u32,
    due: Instant,
}

impl AvailabilityController {
    fn new(server: Server) -> AvailabilityController {
        let catalog = &server.0.catalog;
        let watched = [
            ("apiregistration.k8s.io", "apiservices"),
            ("", "services"),
            ("discovery.k8s.io", "endpointslices"),
        ];
        let resources = watched
            .iter()
            .filter_map(|(group, plural)| catalog.get(group, "v1", plural));
        let watchers = resources
            .map(|resource| ChangeWatcher::new(&server, resource))
            .collect();
        let served = server.0.aggregation.changes();
        AvailabilityController {
            server,
            watchers,
            served,
            checks: HashMap::new(),
            running: JoinSet::new(),
        }
    }

    /// Starts the checks that are due and updates conditions.
    async fn sync(&mut self) {
        while let Some(done) = self.running.try_join_next() {
            if let Ok(result) = done {
                self.finish_check(result).await;
            }
        }
        autoregister::custom(&self.server).await;
        let table = self
            .server
            .0
            .aggregation
            .configured
            .table(&self.server.0.registry);
        let is_remote = |name: &str| {
            table
                .named(name)
                .is_some_and(|entry| entry.service.is_some())
        };
        self.checks.retain(|name, _| is_remote(name));
        let fetched = &self.server.0.aggregation.fetched;
        fetched.write().retain(|name, _| is_remote(name));
        for entry in &table.entries {
            match entry.service {
                Some(_) => self.check(entry).await,
                None => {
                    let message = "Local APIServices are always available".into();
                    self.report(entry, ("True", "Local", message)).await;
                }
            }
        }
    }

    /// Checks the Service and endpoints of a server, then starts a request to the server itself if that is due.
    async fn check(&mut self, entry: &Arc<ApiService>) {
        let basis = match self.stored_basis(entry) {
            Ok(basis) => basis,
            Err(condition) => {
                self.checks.remove(&entry.name);
                return self.report(entry, condition).await;
            }
        };
        let now = Instant::now();
        let check = self
            .checks
            .entry(entry.name.clone())
            .or_insert_with(|| AvailabilityCheck {
                basis: String::new(),
                running: false,
                failures: 0,
                due: now,
            });
        if check.basis != basis {
            *check = AvailabilityCheck {
                basis: basis.clone(),
                running: false,
                failures: 0,
                due: now,
            };
        }
        if !check.running && check.due <= now {
            check.running = true;
            self.running
                .spawn(check_server(self.server.clone(), entry.clone(), basis));
        }
    }

    /// The basis of a check, or the condition if Service or endpoints are missing.
    fn stored_basis(&self, entry: &ApiService) -> Result<String, Condition> {
        let service = entry.service.clone().unwrap_or_default();
        let services = self.server.0.client.services();
        let (name, namespace) = (&service.name, json::quote(&service.namespace));
        let unavailable = |reason, message| Err(("False", reason, message));
        let Ok(object) = services.find(&service) else {
            return unavailable(
                "ServiceNotFound",
                format!("service/{name} in {namespace} is not present"),
            );
        };
        let spec = &object["spec"];
        let mut basis = json::to_string(&entry.object["spec"]);
        if spec["type"].str() == "ClusterIP" {
            let port = spec["ports"]
                .list()
                .iter()
                .find(|port| port["port"].int() == i64::from(service.port));
            let Some(port) = port else {
                let message = format!(
                    "service/{name} in {namespace} is not listening on port {}",
                    service.port
                );
                return unavailable("ServicePortError", message);
            };
            let slices = services.slices(&service);
            if slices.is_empty() {
                let message =
                    format!("cannot find endpointslices for service/{name} in {namespace}");
                return unavailable("EndpointsNotFound", message);
            }
            let port_name = port["name"].str();
            let is_ready =
                |endpoint: &Value| endpoint["conditions"]["ready"].as_bool() != Some(false);
            let has_port =
                |port: &Value| port["name"].str() == port_name && !port["port"].is_null();
            let has_endpoint = |slice: &Value| {
                slice["endpoints"].list().iter().any(is_ready)
                    && slice["ports"].list().iter().any(has_port)
            };
            if !slices.iter().any(has_endpoint) {
                let port_name = json::quote(port_name);
                let message = format!(
                    "endpointslices for service/{name} in {namespace} have no addresses with port name {port_name}"
                );
                return unavailable("MissingEndpoints", message);
            }
            for slice in &slices {
                basis += &json::to_string(&slice["endpoints"]);
                basis += &json::to_string(&slice["ports"]);
            }
        }
        Ok(basis)
    }

    /// Records the result of a check.
    async fn finish_check(&mut self, (name, basis, outcome): CheckResult) {
        let Some(check) = self
            .checks
            .get_mut(&name)
            .filter(|check| check.basis == basis)
        else {
            return;
        };
        check.running = false;
        let backoff = BACKOFF.saturating_mul(2u32.saturating_pow(check.failures));
        let (failures, delay) = match outcome.is_ok() {
            true => (0, CHECK_INTERVAL),
            false => (check.failures + 1, backoff.min(CHECK_INTERVAL)),
        };
        (check.failures, check.due) = (failures, Instant::now() + delay);
        let condition = match &outcome {
            Ok(_) => ("True", "Passed", "all checks passed".to_owned()),
            Err(why) => ("False", "FailedDiscoveryCheck", why.clone()),
        };
        self.store_documents(&name, outcome.ok());
        let table = self
            .server
            .0
            .aggregation
            .configured
            .table(&self.server.0.registry);
        if let Some(entry) = table.named(&name) {
            self.report(entry, condition).await;
        }
    }

    /// Stores the documents of a server, or marks the previous ones as stale.
    fn store_documents(&self, name: &Str, documents: Option<RemoteDocuments>) {
        let mut fetched = self.server.0.aggregation.fetched.write();
        let now = match (documents, fetched.get(name)) {
            (Some(documents), _) => documents,
            (None, before) => {
                let before = before.map(|before| (**before).clone()).unwrap_or_default();
                RemoteDocuments {
                    stale: true,
                    ..before
                }
            }
        };
        fetched.insert(name.clone(), Arc::new(now));
    }

    /// Writes a condition if it has changed. A conflict is ignored: the next sync tries again.
    async fn report(&self, entry: &ApiService, (status, reason, message): Condition) {
        let now = self.server.0.registry.timestamp();
        let new = value!({
            "type": "Available", "status": status, "lastTransitionTime": now, "reason": reason, "message": message
        });
        let Some(new) = condition::updated(&entry.object["status"]["conditions"], new) else {
            return;
        };
        let mut object = entry.object.clone();
        let conditions = object.entry("status").entry("conditions").make_list();
        condition::set(conditions, new);
        let path = format!(
            "/apis/apiregistration.k8s.io/v1/apiservices/{}/status",
            entry.name
        );
        self.server.ask("PUT", &path, Some(&object)).await;
    }

    /// Waits for a change, a result or the next check.
    async fn wait(&mut self) {
        let table = self
            .server
            .0
            .aggregation
            .configured
            .table(&self.server.0.registry);
        let waiting = self
            .checks
            .values()
            .filter(|check| !check.running)
            .map(|check| check.due);
        let due = waiting
            .min()
            .unwrap_or_else(|| Instant::now() + CHECK_INTERVAL);
        // Without aggregated servers, Services and EndpointSlices do not matter.
        let n_watchers = if table.has_remote() {
            self.watchers.len()
        } else {
            1
        };
        let finished = tokio::select! {
            () = any_changed(&mut self.watchers[..n_watchers]) => None,
            Ok(()) = self.served.changed() => None,
            Some(done) = self.running.join_next() => done.ok(),
            () = sleep_until(due) => None,
        };
        if let Some(result) = finished {
            self.finish_check(result).await;
        }
    }
}

/// Requests the discovery document of a server: once, and after a failure some more times at once, for other backends.
async fn check_server(server: Server, entry: Arc<ApiService>, basis: String) -> CheckResult {
    let client = &server.0.client;
    let mut outcome = fetch::fetch_resources(client, &entry).await;
    if outcome.is_err() {
        let mut running = JoinSet::new();
        for _ in 1..ATTEMPTS {
            let (server, entry) = (server.clone(), entry.clone());
            running.spawn(async move { fetch::fetch_resources(&server.0.client, &entry).await });
        }
        while let Some(done) = running.join_next().await {
            outcome = done.unwrap_or_else(|error| Err(error.to_string()));
            if outcome.is_ok() {
                break;
            }
        }
    }
    let outcome = match outcome {
        Err(why) => Err(why),
        Ok(resources) => {
            let mut documents = RemoteDocuments {
                resources,
                stale: false,
                ..server.0.aggregation.last_documents(&entry.name)
            };
            fetch::fetch_openapi(client, &entry, &mut documents).await;
            Ok(documents)
        }
    };
    (entry.name.clone(), basis, outcome)
}
