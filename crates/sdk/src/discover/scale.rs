//! How many replicas of anything that has them?

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::mapper::{MapError, Mapper};
use crate::key::Key;

/// Why something cannot be scaled.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// There is no such kind.
    #[error(transparent)]
    Unknown(#[from] MapError),
    /// Its objects have no number of replicas.
    #[error("{0} cannot be scaled")]
    NotScalable(String),
    /// The server refused.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// Reads and sets the replicas of any kind that has a `/scale`.
#[derive(Clone)]
pub struct ScaleClient {
    client: Client,
    mapper: Mapper,
}

impl ScaleClient {
    /// Asks `mapper` what is meant.
    pub fn new(client: Client, mapper: Mapper) -> ScaleClient {
        ScaleClient { client, mapper }
    }

    /// The scale of an object: `kind` is whatever [`Mapper::find`] understands.
    pub async fn get(&self, kind: &str, key: &Key) -> Result<Scale, ScaleError> {
        Ok(self.api(kind, key).await?.get_scale(key.name()).await?)
    }

    /// Sets the number of replicas.
    pub async fn set(&self, kind: &str, key: &Key, replicas: i32) -> Result<Scale, ScaleError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        Ok(self
            .api(kind, key)
            .await?
            .patch_scale(key.name(), &PatchParams::default(), &patch)
            .await?)
    }

    async fn api(&self, kind: &str, key: &Key) -> Result<Api<DynamicObject>, ScaleError> {
        let mapping = self.mapper.find(kind).await?;
        if !mapping
            .subresources
            .iter()
            .any(|subresource| subresource == "scale")
        {
            return Err(ScaleError::NotScalable(kind.into()));
        }
        Ok(match mapping.namespaced {
            true => Api::namespaced_with(self.client.clone(), key.namespace(), &mapping.resource),
            false => Api::all_with(self.client.clone(), &mapping.resource),
        })
    }
}
