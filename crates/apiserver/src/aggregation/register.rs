//! An APIService for each version of a group that this server serves itself.
//!
//! Those of built-in groups are made at the start, and what an administrator does to them afterwards stays until the
//! next one. Those of custom groups come and go with them, and whoever deletes one sees it come back. Those of servers of this
//! process do so as well, but give way to an APIService that names a service.

use std::collections::HashSet;

use mizzen_value::{Str, Value, value};
use tokio::task::JoinSet;

use super::local::local_versions;
use super::table::Entry;
use crate::discovery::Priority;
use crate::{Server, discovery};

const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const AT_START: &str = "onstart";
const ALWAYS: &str = "true";

/// Makes what is missing of built-in groups, all at once: they share the disk's time.
pub(super) async fn built_in(server: &Server) -> Result<(), String> {
    let mut running = JoinSet::new();
    for wanted in wanted_built_in(server) {
        let server = server.clone();
        running.spawn(async move { ensure(&server, &wanted, AT_START).await });
    }
    while let Some(done) = running.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Makes what is missing of custom groups and removes what is too much.
pub(super) async fn custom(server: &Server) {
    let wanted = wanted_custom(server);
    for service in &wanted {
        if let Err(problem) = ensure(server, service, ALWAYS).await {
            tracing::warn!(%problem, "cannot keep an APIService");
        }
    }
    let names: HashSet<String> = wanted.iter().map(|service| service.name()).collect();
    let table = server.0.aggregation.configured.table(&server.0.registry);
    for entry in &table.entries {
        // One that names a service is an administrator's by now, whatever its label says.
        let is_ours = managed(entry) == ALWAYS && entry.service.is_none();
        if is_ours && !names.contains(entry.name.as_str()) {
            server.ask("DELETE", &path(&entry.name), None).await;
        }
    }
}

/// A version that this server serves, or another one of this process.
struct Wanted {
    group: Str,
    version: Str,
    priority: Priority,
    /// Whether an APIService that names a service stays as it is.
    yields: bool,
}

impl Wanted {
    fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// The versions that definitions and other servers of this process serve.
fn wanted_custom(server: &Server) -> Vec<Wanted> {
    let versions = server.0.catalog.custom_versions().into_iter();
    let versions = versions.filter(|(group, _)| !discovery::is_built_in(group));
    let versions = versions.map(|(group, version)| Wanted {
        priority: discovery::priority(&group, &version),
        group,
        version,
        yields: false,
    });
    let locals = local_versions(&server.0).into_iter().map(|local| Wanted {
        group: local.group,
        version: local.version,
        priority: local.priority,
        yields: true,
    });
    versions.chain(locals).collect()
}

/// The versions that are built in.
fn wanted_built_in(server: &Server) -> Vec<Wanted> {
    let groups = server.0.catalog.groups();
    // Kubernetes: the group of APIServices has none itself.
    let groups = groups
        .iter()
        .filter(|group| group.name != "apiregistration.k8s.io");
    let groups = groups.filter(|group| discovery::is_built_in(&group.name));
    let versions = groups.flat_map(|group| {
        group.versions.iter().map(|version| Wanted {
            group: group.name.clone(),
            version: version.name.clone(),
            priority: discovery::priority(&group.name, &version.name),
            yields: false,
        })
    });
    versions.collect()
}

fn managed(entry: &Entry) -> &str {
    entry.object["metadata"]["labels"][MANAGED].str()
}

fn path(name: &str) -> String {
    format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}")
}

/// Makes the APIService, or puts it right. One that is somebody else's is left alone.
async fn ensure(server: &Server, wanted: &Wanted, label: &str) -> Result<(), String> {
    let name = wanted.name();
    let mut spec = Value::object();
    if !wanted.group.is_empty() {
        spec.set("group", &wanted.group);
    }
    spec.set("version", &wanted.version);
    spec.set("groupPriorityMinimum", wanted.priority.group);
    spec.set("versionPriority", wanted.priority.version);
    let table = server.0.aggregation.configured.table(&server.0.registry);
    let (code, answer) = match table.named(&name) {
        None => {
            let mut object =
                value!({ "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1" });
            object.entry("metadata").set("name", name.as_str());
            object.entry("metadata").entry("labels").set(MANAGED, label);
            object.set("spec", spec);
            server
                .ask(
                    "POST",
                    "/apis/apiregistration.k8s.io/v1/apiservices",
                    Some(&object),
                )
                .await
        }
        Some(entry)
            if managed(entry).is_empty()
                || entry.object["spec"] == spec && managed(entry) == label
                || wanted.yields && entry.service.is_some() =>
        {
            return Ok(());
        }
        Some(entry) => {
            let mut object = entry.object.clone();
            object.entry("metadata").entry("labels").set(MANAGED, label);
            object.set("spec", spec);
            server.ask("PUT", &path(&name), Some(&object)).await
        }
    };
    // Somebody else was faster; the next look will tell.
    let fine = code < 400 || code == 409;
    if fine {
        Ok(())
    } else {
        Err(format!("APIService {name}: {}", answer["message"].str()))
    }
}
