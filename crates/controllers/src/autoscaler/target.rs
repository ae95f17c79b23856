//! How many replicas does the target have, and how is that changed?

use std::time::Duration;

use http::Method;
use mizzen_sdk::Object;
use mizzen_sdk::api::Api;
use mizzen_sdk::discover::{MapError, Mapper, Mapping};
use mizzen_sdk::write::is_conflict;
use tokio::time::sleep;

use super::refusal::go_message;
use crate::disruption::scale::group_version;

/// How often a change that lost a race is tried again, and how long each waits.
const TRIES: usize = 5;
const WAIT: Duration = Duration::from_millis(10);

/// The scale of a target.
#[derive(Debug)]
pub(crate) struct Target {
    scale: Object,
    path: String,
    resource: String,
}

impl Target {
    /// The target that an autoscaler names; or why there is none.
    pub(super) async fn find(
        api: &Api,
        mapper: &Mapper,
        autoscaler: &Object,
    ) -> Result<Target, String> {
        let named = &autoscaler["spec"]["scaleTargetRef"];
        let (group, _) =
            group_version(named["apiVersion"].str()).map_err(|error| error.to_string())?;
        let mapping = mapping(mapper, group, named["kind"].str()).await?;
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
            Ok(scale) => Ok(Target {
                scale,
                path,
                resource,
            }),
            Err(error) => Err(go_message(&error, &resource, named["name"].str())),
        }
    }

    /// How many replicas it should have.
    pub(super) fn replicas(&self) -> i64 {
        self.scale["spec"]["replicas"].int()
    }

    /// How many replicas it has.
    pub(super) fn actual(&self) -> i64 {
        self.scale["status"]["replicas"].int()
    }

    /// Which pods are its.
    pub(super) fn selector(&self) -> &str {
        self.scale["status"]["selector"].str()
    }

    /// Says how many replicas it should have, even if others write it meanwhile.
    pub(super) async fn scale(&mut self, api: &Api, replicas: i64) -> Result<(), String> {
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

/// A kind in the version that its group prefers; or why there is none, in Go's words.
pub(crate) async fn mapping(mapper: &Mapper, group: &str, kind: &str) -> Result<Mapping, String> {
    let said = |error: MapError| match error {
        MapError::Client(error) => go_message(&error, "", ""),
        error => error.to_string(),
    };
    let is_it =
        |mapping: &&Mapping| mapping.resource.group == group && mapping.resource.kind == kind;
    if let Some(found) = mapper.all().await.map_err(said)?.iter().find(is_it) {
        return Ok(found.clone());
    }
    let all = mapper.refresh().await.map_err(said)?;
    all.iter()
        .find(is_it)
        .cloned()
        .ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))
}
