//! Who is there? Looks for other API servers in the background, and writes down what it finds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::condition;
use mizzen_registry::{Resource, Watch, WatchOptions};
use mizzen_value::{Str, Value, json, value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::learn::{self, Learned};
use super::register;
use super::table::Entry;
use crate::Server;

/// Kubernetes: how often everybody is looked for.
const EVERY: Duration = Duration::from_secs(30);
/// How soon somebody who was not there is looked for again; the time doubles up to [`EVERY`].
const SOON: Duration = Duration::from_secs(1);
/// Kubernetes: how often somebody with many backends is asked before it counts as gone.
const ATTEMPTS: usize = 5;

/// Looks after other API servers until this one stops.
pub(super) async fn run(server: Server) {
    let mut stopping = server.0.stopping.subscribe();
    let mut keeper = Keeper::new(server);
    loop {
        keeper.pass().await;
        tokio::select! {
            () = keeper.wait() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// A condition's status, reason and message.
type Condition = (&'static str, &'static str, String);

/// What was found: the name, what it was found for, and the outcome.
type Found = (Str, String, Result<Learned, String>);

struct Keeper {
    server: Server,
    bells: Vec<Bell>,
    checks: HashMap<Str, Check>,
    running: JoinSet<Found>,
}

/// When somebody was and will be looked for.
struct Check {
    /// What they were looked for by: when that changes, they are looked for at once.
    basis: String,
    running: bool,
    failures: u32,
    due: Instant,
}

impl Keeper {
    fn new(server: Server) -> Keeper {
        let catalog = &server.0.catalog;
        let places = [
            ("apiregistration.k8s.io", "apiservices"),
            ("", "services"),
            ("discovery.k8s.io", "endpointslices"),
        ];
        let resources = places
            .iter()
            .filter_map(|(group, plural)| catalog.get(group, "v1", plural));
        let bells = resources
            .map(|resource| Bell::new(&server, resource))
            .collect();
        Keeper {
            server,
            bells,
            checks: HashMap::new(),
            running: JoinSet::new(),
        }
    }

    /// Compares what is stored with what is so.
    async fn pass(&mut self) {
        while let Some(done) = self.running.try_join_next() {
            if let Ok(found) = done {
                self.settle(found).await;
            }
        }
        register::custom(&self.server).await;
        let table = self
            .server
            .0
            .aggregation
            .configured
            .table(&self.server.0.registry);
        self.forget(|name| {
            table
                .named(name)
                .is_some_and(|entry| entry.service.is_some())
        });
        for entry in &table.entries {
            match entry.service {
                Some(_) => self.consider(entry).await,
                None => self.report(entry, local()).await,
            }
        }
    }

    /// Forgets those who are no others any more.
    fn forget(&mut self, is_known: impl Fn(&str) -> bool) {
        self.checks.retain(|name, _| is_known(name));
        let aggregation = &self.server.0.aggregation;
        let mut learned = aggregation.learned.write();
        learned.retain(|name, _| is_known(name));
    }

    /// Looks for one server: first at what is stored about it, then at the server itself, without waiting.
    async fn consider(&mut self, entry: &Arc<Entry>) {
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
            .or_insert_with(|| Check {
                basis: String::new(),
                running: false,
                failures: 0,
                due: now,
            });
        if check.basis != basis {
            *check = Check {
                basis: basis.clone(),
                running: false,
                failures: 0,
                due: now,
            };
        }
        if !check.running && check.due <= now {
            check.running = true;
            self.running
                .spawn(look(self.server.clone(), entry.clone(), basis));
        }
    }

    /// What a server is to be looked for by, or why it cannot be there.
    fn stored_basis(&self, entry: &Entry) -> Result<String, Condition> {
        let service = entry.service.clone().unwrap_or_default();
        let services = self.server.0.client.services();
        let (name, namespace) = (&service.name, json::quote(&service.namespace));
        let refuse = |reason, message| Err(("False", reason, message));
        let Ok(object) = services.find(&service) else {
            return refuse(
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
                return refuse("ServicePortError", message);
            };
            let slices = services.slices(&service);
            if slices.is_empty() {
                let message =
                    format!("cannot find endpointslices for service/{name} in {namespace}");
                return refuse("EndpointsNotFound", message);
            }
            let port_name = port["name"].str();
            if !slices.iter().any(|slice| has_endpoint(slice, port_name)) {
                let port_name = json::quote(port_name);
                let message = format!(
                    "endpointslices for service/{name} in {namespace} have no addresses with port name {port_name}"
                );
                return refuse("MissingEndpoints", message);
            }
            for slice in &slices {
                basis += &json::to_string(&slice["endpoints"]);
                basis += &json::to_string(&slice["ports"]);
            }
        }
        Ok(basis)
    }

    /// Takes note of what came of looking for a server.
    async fn settle(&mut self, (name, basis, outcome): Found) {
        let Some(check) = self
            .checks
            .get_mut(&name)
            .filter(|check| check.basis == basis)
        else {
            return;
        };
        check.running = false;
        check.failures = if outcome.is_ok() {
            0
        } else {
            check.failures + 1
        };
        check.due = Instant::now()
            + if outcome.is_ok() {
                EVERY
            } else {
                pause(check.failures)
            };
        let condition = match &outcome {
            Ok(_) => ("True", "Passed", "all checks passed".to_owned()),
            Err(why) => ("False", "FailedDiscoveryCheck", why.clone()),
        };
        self.keep(&name, outcome.ok());
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

    /// Keeps what a server said, or that it said nothing.
    fn keep(&self, name: &Str, said: Option<Learned>) {
        let mut learned = self.server.0.aggregation.learned.write();
        let now = match (said, learned.get(name)) {
            (Some(said), _) => said,
            (None, before) => {
                let before = before.map(|before| (**before).clone()).unwrap_or_default();
                Learned {
                    stale: true,
                    ..before
                }
            }
        };
        learned.insert(name.clone(), Arc::new(now));
    }

    /// Writes a condition down if it is not what is stored. A race is lost gladly: the next pass looks again.
    async fn report(&self, entry: &Entry, (status, reason, message): Condition) {
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

    /// Waits until there may be something to do.
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
        let due = waiting.min().unwrap_or_else(|| Instant::now() + EVERY);
        // Without others, services and their endpoints are of no interest.
        let n_bells = if table.has_remote() {
            self.bells.len()
        } else {
            1
        };
        let settled = tokio::select! {
            () = any(&mut self.bells[..n_bells]) => None,
            () = self.server.0.aggregation.changed.notified() => None,
            Some(done) = self.running.join_next() => done.ok(),
            () = sleep_until(due) => None,
        };
        if let Some(found) = settled {
            self.settle(found).await;
        }
    }
}

fn local() -> Condition {
    (
        "True",
        "Local",
        "Local APIServices are always available".into(),
    )
}

fn has_endpoint(slice: &Value, port_name: &str) -> bool {
    let ready = |endpoint: &Value| endpoint["conditions"]["ready"].as_bool() != Some(false);
    let fits = |port: &Value| port["name"].str() == port_name && !port["port"].is_null();
    slice["endpoints"].list().iter().any(ready) && slice["ports"].list().iter().any(fits)
}

fn pause(failures: u32) -> Duration {
    SOON.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)))
        .min(EVERY)
}

/// Looks for a server: once, and if it is not there some more times at once, for it may have many backends.
async fn look(server: Server, entry: Arc<Entry>, basis: String) -> Found {
    let client = &server.0.client;
    let mut outcome = learn::look(client, &entry).await;
    if outcome.is_err() {
        outcome = look_harder(&server, &entry, outcome).await;
    }
    let outcome = match outcome {
        Err(why) => Err(why),
        Ok(resources) => {
            let before = server.0.aggregation.said_before(&entry.name);
            let mut learned = Learned {
                resources,
                stale: false,
                ..before
            };
            learn::read_openapi(client, &entry, &mut learned).await;
            Ok(learned)
        }
    };
    (entry.name.clone(), basis, outcome)
}

async fn look_harder(
    server: &Server,
    entry: &Arc<Entry>,
    mut outcome: Result<Vec<Value>, String>,
) -> Result<Vec<Value>, String> {
    let mut running = JoinSet::new();
    for _ in 1..ATTEMPTS {
        let (server, entry) = (server.clone(), entry.clone());
        running.spawn(async move { learn::look(&server.0.client, &entry).await });
    }
    while let Some(done) = running.join_next().await {
        outcome = done.unwrap_or_else(|error| Err(error.to_string()));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Rings when a resource changes.
struct Bell {
    server: Server,
    resource: Resource,
    watch: Option<Watch>,
}

impl Bell {
    fn new(server: &Server, resource: Resource) -> Bell {
        Bell {
            server: server.clone(),
            resource,
            watch: None,
        }
    }

    async fn listen(&mut self) {
        let options = WatchOptions {
            initial: Some(false),
            ..WatchOptions::default()
        };
        self.watch = self
            .server
            .0
            .registry
            .watch(&self.resource, options)
            .await
            .ok();
    }

    /// Resolves after a change. A bell that has missed some rings too, as it does at first.
    async fn ring(&mut self) {
        let heard = match &mut self.watch {
            Some(watch) => watch.next().await.is_ok(),
            None => false,
        };
        if !heard {
            self.listen().await;
        }
    }
}

/// Resolves when one of the bells rings.
async fn any(bells: &mut [Bell]) {
    match bells {
        [] => std::future::pending().await,
        [one] => one.ring().await,
        [one, rest @ ..] => {
            tokio::select! {
                () = one.ring() => {}
                () = Box::pin(any(rest)) => {}
            }
        }
    }
}
