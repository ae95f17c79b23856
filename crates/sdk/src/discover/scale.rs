//! The scale subresource of any kind.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::mapper::{MapError, Mapper};
use crate::key::Key;

/// Why something cannot be scaled.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::Key;
/// use mizzen_sdk::discover::{Mapper, ScaleClient, ScaleError};
///
/// let scales = ScaleClient::new(client.clone(), Mapper::new(client));
/// let error = scales.set("configmaps", &Key::new("default", "web"), 3).await.unwrap_err();
/// assert!(matches!(error, ScaleError::NotScalable(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The kind is unknown.
    #[error(transparent)]
    Unknown(#[from] MapError),
    /// The kind has no `/scale`.
    #[error("{0} cannot be scaled")]
    NotScalable(String),
    /// The request failed.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// Reads and sets the replicas of any kind with a `/scale`.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let web = br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web"}]}}}}"#;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::DEPLOYMENTS, &mizzen_sdk::Object::parse(web)?.0).await?;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::discover::{Mapper, ScaleClient};
///
/// let scales = ScaleClient::new(client.clone(), Mapper::new(client));
/// let key = Key::new("default", "web");
/// scales.set("deploy", &key, 3).await?;
/// let scale = scales.get("deploy", &key).await?;
/// assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ScaleClient {
    client: Client,
    mapper: Mapper,
}

impl ScaleClient {
    /// Resolves kinds by `mapper`.
    pub fn new(client: Client, mapper: Mapper) -> ScaleClient {
        ScaleClient { client, mapper }
    }

    /// The scale of an object: `kind` is any name that [`Mapper::find`] resolves.
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
