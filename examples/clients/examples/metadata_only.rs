//! Metadata alone: names, labels and owners of objects whose content stays at the server.

use std::io::Write;

use clients::{Error, Shirts};
use kube::api::ListParams;
use kube::{Client, Config, ResourceExt as _};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Lists the metadata of ConfigMaps.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client, "metadata-only");
    shirts.create("red").await?;
    shirts.create("blue").await?;

    // PartialObjectMetadata: the type has no `data`, and no data was sent.
    let selected = ListParams::default().labels(&shirts.selector());
    for shirt in shirts.api.list_metadata(&selected).await? {
        writeln!(out, "{} {:?}", shirt.name_any(), shirt.labels())?;
    }
    shirts.delete_all().await?;
    Ok(())
}
