//! Discovery: the groups, versions and resources of a server, and the mapping from names to them.

use std::io::Write;

use clients::Error;
use kube::{Client, Config};
use mizzen_sdk::discover::Mapper;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Looks at the group `apps`.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let version = client.apiserver_version().await?;
    writeln!(out, "server {}.{}", version.major, version.minor)?;

    let groups = client.list_api_groups().await?.groups;
    let apps = groups.iter().find(|group| group.name == "apps");
    let apps = apps.ok_or("the server has no group apps")?;
    for version in &apps.versions {
        writeln!(out, "version {}", version.group_version)?;
    }
    let resources = client.list_api_group_resources("apps/v1").await?.resources;
    for resource in &resources {
        writeln!(out, "resource {} of kind {}", resource.name, resource.kind)?;
    }

    // The REST mapper finds resources by plural, singular, short name or kind, and keeps what it read.
    let mapper = Mapper::new(client);
    for name in ["deploy", "pods", "Node"] {
        let path = mapper.find(name).await?.path(Some("shop"));
        writeln!(out, "{name} is at {path}")?;
    }
    Ok(())
}
