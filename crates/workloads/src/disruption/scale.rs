//! The expected number of pods, from the scale of their controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use kube::core::GroupVersionKind;
use mizzen_sdk::controller::{Context, Error};
use mizzen_sdk::discover::{MapError, Mapper};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS};
use mizzen_sdk::write::{is_not_found, message};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

/// Finds the scale of pods' controllers.
pub(crate) struct ScaleFinders {
    api: DynamicClient,
    mapper: Mapper,
    replication_controllers: Informer<Object>,
    replica_sets: Informer<Object>,
    deployments: Informer<Object>,
    stateful_sets: Informer<Object>,
}

/// The expected number of pods.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ExpectedPods {
    pub n_pods: i64,
    /// Whether some pods have no controller.
    pub has_unmanaged: bool,
}

impl ScaleFinders {
    /// Uses informers for the built-in kinds, and the scale subresource for other kinds.
    pub(crate) fn new(context: &Context) -> ScaleFinders {
        ScaleFinders {
            api: context.api.clone(),
            mapper: Mapper::new(context.api.client().clone()),
            replication_controllers: context.informer(&REPLICATION_CONTROLLERS),
            replica_sets: context.informer(&REPLICA_SETS),
            deployments: context.informer(&DEPLOYMENTS),
            stateful_sets: context.informer(&STATEFUL_SETS),
        }
    }

    /// The expected number of pods of all controllers of these pods.
    pub(crate) async fn expected_pods(&self, pods: &[Arc<Object>]) -> Result<ExpectedPods, Error> {
        let mut scales: BTreeMap<String, i64> = BTreeMap::new();
        let mut has_unmanaged = false;
        for pod in pods {
            let Some(owner) = pod.controller() else {
                has_unmanaged = true;
                continue;
            };
            if scales.contains_key(owner["uid"].str()) {
                continue;
            }
            let found = match self.find_cached(owner, pod.namespace())? {
                Some(found) => Some(found),
                None => self.find_scale_subresource(owner, pod.namespace()).await?,
            };
            let missing = || Error::other(format!("found no controllers for pod {:?}", pod.name()));
            let (uid, scale) = found.ok_or_else(missing)?;
            scales.insert(uid, scale);
        }
        Ok(ExpectedPods {
            n_pods: scales.values().sum(),
            has_unmanaged,
        })
    }

    /// The uid and scale of a controller of a built-in kind. For a ReplicaSet of a Deployment it is
    /// the Deployment's.
    fn find_cached(&self, owner: &Value, namespace: &str) -> Result<Option<(String, i64)>, Error> {
        let (group, _) = group_version(owner["apiVersion"].str())?;
        let found = match (group, owner["kind"].str()) {
            ("", "ReplicationController") => find(&self.replication_controllers, owner, namespace)?,
            ("apps", "StatefulSet") => find(&self.stateful_sets, owner, namespace)?,
            ("apps" | "extensions", "ReplicaSet") => {
                let set = find(&self.replica_sets, owner, namespace)?;
                match set.as_ref().and_then(|set| set.controller()) {
                    Some(above) if above["kind"].str() == "Deployment" => {
                        find(&self.deployments, above, namespace)?
                    }
                    _ => set,
                }
            }
            _ => None,
        };
        Ok(found.map(|found| (found.uid().to_string(), found["spec"]["replicas"].int())))
    }

    /// The uid and scale of a controller of any kind.
    async fn find_scale_subresource(
        &self,
        owner: &Value,
        namespace: &str,
    ) -> Result<Option<(String, i64)>, Error> {
        let (group, version) = group_version(owner["apiVersion"].str())?;
        let gvk = GroupVersionKind::gvk(group, version, owner["kind"].str());
        let mapping = self
            .mapper
            .by_kind(&gvk)
            .await
            .map_err(|error| match error {
                MapError::Unknown(_) => {
                    let (kind, version) = (owner["kind"].str(), owner["apiVersion"].str());
                    Error::other(format!(
                        "no matches for kind {kind:?} in version {version:?}"
                    ))
                }
                MapError::Client(error) => error.into(),
            })?;
        let path = format!(
            "{}/{}/scale",
            mapping.path(Some(namespace)),
            owner["name"].str()
        );
        match self.api.raw(Method::GET, &path, None).await {
            Ok(scale) if scale.uid() != owner["uid"].str() => Ok(None),
            Ok(scale) => Ok(Some((scale.uid().into(), scale["spec"]["replicas"].int()))),
            Err(error) if !is_not_found(&error) => Err(Error::other(message(&error))),
            Err(_) if mapping.subresources.iter().any(|name| name == "scale") => Ok(None),
            Err(_) => {
                let group = if group.is_empty() {
                    String::new()
                } else {
                    format!(".{group}")
                };
                let plural = &mapping.resource.plural;
                Err(Error::other(format!(
                    "{plural}{group} does not implement the scale subresource"
                )))
            }
        }
    }
}

fn find(
    of: &Informer<Object>,
    owner: &Value,
    namespace: &str,
) -> Result<Option<Arc<Object>>, Error> {
    let found = of
        .lister()
        .by_key(&Key::new(namespace, owner["name"].str()))?;
    Ok(found.filter(|found| found.uid() == owner["uid"].str()))
}

/// Splits an `apiVersion`; the error is Go's message.
pub fn group_version(text: &str) -> Result<(&str, &str), Error> {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    match version.contains('/') {
        true => Err(Error::other(format!(
            "unexpected GroupVersion string: {text}"
        ))),
        false => Ok((group, version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(&str, &str), &str>) {
        assert_eq!(
            group_version(text).map_err(|error| error.to_string()),
            expect.map_err(String::from)
        );
    }

    #[test]
    fn the_core_has_no_group() {
        check("v1", Ok(("", "v1")));
        check("apps/v1", Ok(("apps", "v1")));
        check("a/b/c", Err("unexpected GroupVersion string: a/b/c"));
    }
}
