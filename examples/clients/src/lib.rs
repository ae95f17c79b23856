//! What the programs share: ConfigMaps to list, watch and index.
//!
//! ```no_run
//! # async fn create(client: kube::Client) -> Result<(), clients::Error> {
//! let shirts = clients::Shirts::new(client, "reflector");
//! shirts.create("red").await?; // the ConfigMap reflector-red, with the label example=reflector
//! shirts.delete_all().await?;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta};
use mizzen_sdk::cache::Version;
use mizzen_sdk::write::{self, Applier};

/// Why a program failed.
pub type Error = Box<dyn std::error::Error>;

/// The ConfigMaps of one program, in the default namespace of its client. Their field `data.colour`
/// can change.
pub struct Shirts {
    /// The typed client of the ConfigMaps.
    pub api: Api<ConfigMap>,
    example: &'static str,
}

impl Shirts {
    /// None yet. The names of all begin with `example`.
    pub fn new(client: Client, example: &'static str) -> Shirts {
        let api = Api::default_namespaced(client);
        Shirts { api, example }
    }

    /// The label selector of these ConfigMaps.
    pub fn selector(&self) -> String {
        format!("example={}", self.example)
    }

    /// The name of a shirt.
    pub fn name(&self, shirt: &str) -> String {
        format!("{}-{shirt}", self.example)
    }

    /// Creates a shirt of the colour that it is named after. Returns the resource version of the write.
    pub async fn create(&self, shirt: &str) -> Result<Version, kube::Error> {
        self.dye(shirt, shirt).await
    }

    /// Gives a shirt another colour. Returns the resource version of the write.
    pub async fn dye(&self, shirt: &str, colour: &str) -> Result<Version, kube::Error> {
        let text = |value: &str| value.to_owned();
        let config = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name(shirt)),
                labels: Some(BTreeMap::from([(text("example"), text(self.example))])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(text("colour"), text(colour))])),
            ..ConfigMap::default()
        };
        let applier = Applier::new("clients");
        let written = applier.apply(&self.api, &self.name(shirt), &config).await?;
        let version = written.metadata.resource_version.unwrap_or_default();
        Ok(Version::parse(&version))
    }

    /// Deletes a shirt.
    pub async fn delete(&self, shirt: &str) -> Result<(), kube::Error> {
        let name = self.name(shirt);
        write::ignore_not_found(self.api.delete(&name, &DeleteParams::default()).await)
    }

    /// Deletes all shirts of the program.
    pub async fn delete_all(&self) -> Result<(), kube::Error> {
        let all = ListParams::default().labels(&self.selector());
        let options = DeleteParams::default();
        self.api.delete_collection(&options, &all).await.map(drop)
    }
}
