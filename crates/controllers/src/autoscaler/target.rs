//! The scale subresource of an autoscaler's target.

use std::time::Duration;

use http::Method;
use mizzen_sdk::Object;
use mizzen_sdk::discover::{MapError, Mapper, Mapping};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::write::is_conflict;
use mizzen_workloads::disruption::group_version;
use tokio::time::sleep;

use super::go_errors::go_message;

/// How often a conflicting update is tried, and the delay between tries.
const TRIES: usize = 5;
const WAIT: Duration = Duration::from_millis(10);

/// The scale of a target.
#[derive(Debug)]
pub(crate) struct ScaleTarget {
    scale: Object,
    path: String,
    resource: String,
}

impl ScaleTarget {
    /// Reads the scale of `spec.scaleTargetRef`; the error is the message of the condition.
    pub(super) async fn find(
        api: &DynamicClient,
        mapper: &Mapper,
        autoscaler: &Object,
    ) -> Result<ScaleTarget, String> {
        let named = &autoscaler["spec"]["scaleTargetRef"];
        let (group, _) =
            group_version(named["apiVersion"].str()).map_err(|error| error.to_string())?;
        let mapping = preferred_mapping(mapper, group, named["kind"].str()).await?;
        let plural = &mapping.resource.plural;
        let resource = if group.is_empty() {
            plural.clone()
        } else {
            format!("{plural}.{group}")
        };
        let path = format!(
            "{}/{}/scale",
            mapping.path(Some(autoscaler.namespace())),
            named["name"].str()
        );
        match api.raw(Method::GET, &path, None).await {
            Ok(scale) => Ok(ScaleTarget {
                scale,
                path,
                resource,
            }),
            Err(error) => Err(go_message(&error, &resource, named["name"].str())),
        }
    }

    /// `spec.replicas`.
    pub(super) fn replicas(&self) -> i64 {
        self.scale["spec"]["replicas"].int()
    }

    /// `status.replicas`.
    pub(super) fn actual(&self) -> i64 {
        self.scale["status"]["replicas"].int()
    }

    /// The selector of its pods.
    pub(super) fn selector(&self) -> &str {
        self.scale["status"]["selector"].str()
    }

    /// Sets `spec.replicas`; retries on conflict.
    pub(super) async fn scale(&mut self, api: &DynamicClient, replicas: i64) -> Result<(), String> {
        for attempt in 1.. {
            self.scale.entry("spec").set("replicas", replicas);
            match api.raw(Method::PUT, &self.path, Some(&self.scale)).await {
                Ok(_) => break,
                Err(error) if is_conflict(&error) && attempt < TRIES => sleep(WAIT).await,
                Err(error) => return Err(go_message(&error, &self.resource, self.scale.name())),
            }
            if let Ok(latest) = api.raw(Method::GET, &self.path, None).await {
                self.scale = latest;
            }
        }
        Ok(())
    }
}

/// The mapping of a kind in the group's preferred version; the error is upstream's message.
pub(crate) async fn preferred_mapping(
    mapper: &Mapper,
    group: &str,
    kind: &str,
) -> Result<Mapping, String> {
    let to_message = |error: MapError| match error {
        MapError::Client(error) => go_message(&error, "", ""),
        error => error.to_string(),
    };
    let is_it =
        |mapping: &&Mapping| mapping.resource.group == group && mapping.resource.kind == kind;
    if let Some(found) = mapper.all().await.map_err(to_message)?.iter().find(is_it) {
        return Ok(found.clone());
    }
    let all = mapper.refresh().await.map_err(to_message)?;
    all.iter()
        .find(is_it)
        .cloned()
        .ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))
}
