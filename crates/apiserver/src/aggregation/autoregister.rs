//! An APIService for each version of a group that this server serves itself.
//!
//! Those of built-in groups are created at the start; changes by an administrator stay until the next start. Those of custom
//! groups are created and deleted with the groups, and restored if they are deleted. Those of other servers in this process
//! are restored, too, but an APIService with a Service takes precedence.
//!
//! Kubernetes: every server of a cluster deletes APIServices with the label `true` that it does not know, and with
//! `onstart` only those that were there when it started (kube-aggregator/pkg/controllers/autoregister). Only this process
//! knows the servers in it, so theirs have `onstart`.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_value::{Str, Value, value};
use tokio::task::JoinSet;

use super::api_services::ApiService;
use super::local::local_versions;
use crate::discovery::Priority;
use crate::{Server, discovery};

const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const AT_START: &str = "onstart";
const ALWAYS: &str = "true";

/// Creates the missing APIServices of built-in groups, concurrently, so that they share one disk sync.
pub(super) async fn built_in(server: &Server) -> Result<(), String> {
    let mut running = JoinSet::new();
    let mut names = HashSet::new();
    // Kubernetes: the group of APIServices itself has no APIService.
    let groups = server.0.catalog.groups();
    let groups = groups.iter().filter(|group| {
        group.name != "apiregistration.k8s.io" && discovery::is_built_in(&group.name)
    });
    for (group, version) in
        groups.flat_map(|group| group.versions.iter().map(move |version| (group, version)))
    {
        let desired = DesiredApiService {
            group: group.name.clone(),
            version: version.name.clone(),
            priority: discovery::priority(&group.name, &version.name),
            yields: false,
        };
        names.insert(desired.name());
        let server = server.clone();
        running.spawn(async move { ensure(&server, &desired, AT_START).await });
    }
    while let Some(done) = running.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    delete_superfluous(server, AT_START, &names).await;
    Ok(())
}

/// Creates the missing APIServices of custom groups and of servers in this process, and deletes superfluous ones.
pub(super) async fn custom(server: &Server) {
    let versions = server.0.catalog.custom_versions().into_iter();
    let versions = versions.filter(|(group, _)| !discovery::is_built_in(group));
    let versions = versions.map(|(group, version)| DesiredApiService {
        priority: discovery::priority(&group, &version),
        group,
        version,
        yields: false,
    });
    let locals = local_versions(&server.0).into_iter();
    let locals = locals.map(|local| DesiredApiService {
        group: local.group,
        version: local.version,
        priority: local.priority,
        yields: true,
    });
    let desired: Vec<DesiredApiService> = versions.chain(locals).collect();
    for service in &desired {
        let label = if service.yields { AT_START } else { ALWAYS };
        if let Err(problem) = ensure(server, service, label).await {
            tracing::warn!(%problem, "failed to register an APIService");
        }
    }
    let names: HashSet<String> = desired.iter().map(|service| service.name()).collect();
    delete_superfluous(server, ALWAYS, &names).await;
}

/// Deletes APIServices with a label that are none of `names`. One with a Service belongs to an administrator, whatever its
/// label says.
async fn delete_superfluous(server: &Server, label: &str, names: &HashSet<String>) {
    let table = server.0.aggregation.configured.table(&server.0.registry);
    let is_managed =
        |entry: &&Arc<ApiService>| managed_label(entry) == label && entry.service.is_none();
    for entry in table.entries.iter().filter(is_managed) {
        if !names.contains(entry.name.as_str()) {
            server.ask("DELETE", &path(&entry.name), None).await;
        }
    }
}

/// The APIService of a version that this server, or another one of this process, serves.
struct DesiredApiService {
    group: Str,
    version: Str,
    priority: Priority,
    /// Whether an existing APIService with a Service is left alone.
    yields: bool,
}

impl DesiredApiService {
    fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

fn managed_label(entry: &ApiService) -> &str {
    entry.object["metadata"]["labels"][MANAGED].str()
}

fn path(name: &str) -> String {
    format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}")
}

/// Creates or updates an APIService. One without our label is left alone.
async fn ensure(server: &Server, desired: &DesiredApiService, label: &str) -> Result<(), String> {
    let name = desired.name();
    let mut spec = Value::object();
    if !desired.group.is_empty() {
        spec.set("group", &desired.group);
    }
    spec.set("version", &desired.version);
    spec.set("groupPriorityMinimum", desired.priority.group);
    spec.set("versionPriority", desired.priority.version);
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
            if managed_label(entry).is_empty()
                || entry.object["spec"] == spec && managed_label(entry) == label
                || desired.yields && entry.service.is_some() =>
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
    // After a conflict the next sync tries again.
    match code < 400 || code == 409 {
        true => Ok(()),
        false => Err(format!("APIService {name}: {}", answer["message"].str())),
    }
}
