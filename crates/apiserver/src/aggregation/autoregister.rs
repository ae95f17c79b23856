//! An APIService for each version of a group that this server serves itself.
//!
//! Those of built-in groups are created at the start; changes by an administrator stay until the next start. Those of custom
//! groups are created and deleted with the groups, and restored if they are deleted. So are those of other servers in this
//! process, but an APIService with a Service takes precedence.

use std::collections::HashSet;

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
        let server = server.clone();
        running.spawn(async move { ensure(&server, &desired, AT_START).await });
    }
    while let Some(done) = running.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
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
        if let Err(problem) = ensure(server, service, ALWAYS).await {
            tracing::warn!(%problem, "failed to register an APIService");
        }
    }
    let names: HashSet<String> = desired.iter().map(|service| service.name()).collect();
    let table = server.0.aggregation.configured.table(&server.0.registry);
    for entry in &table.entries {
        // One with a Service belongs to an administrator, whatever its label says.
        let is_ours = managed_label(entry) == ALWAYS && entry.service.is_none();
        if is_ours && !names.contains(entry.name.as_str()) {
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
