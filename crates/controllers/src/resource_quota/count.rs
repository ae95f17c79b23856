//! Computes the usage of a namespace for a quota.
//!
//! Pods, services and claims are in informers of other controllers. Of other kinds only the count
//! matters, for which the server does not send the objects.

use mizzen_component_helpers::amounts::{Amounts, add};
use mizzen_component_helpers::quota::{QuotaEvaluator, ScopeSelector, selectors};
use mizzen_sdk::dynamic::{DynamicClient, ListOptions};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES};
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::Value;
use mizzen_value::quantity::{Quantity, QuantityFormat};

use crate::metadata_informers::DiscoveredKinds;
use crate::{ControllerContext, Error};

/// Where objects are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageSource {
    /// From informers where possible.
    Caches,
    /// From the server.
    Server,
}

/// Computes usage.
pub(super) struct UsageCounter {
    api: DynamicClient,
    /// The informers by resource.
    cached: Vec<(ResourceType, Informer<Object>)>,
}

/// Which usage is computed.
pub(super) struct UsageQuery<'a> {
    pub quota: &'a Object,
    pub source: UsageSource,
    /// Seconds since 1970.
    pub now: i64,
}

impl UsageCounter {
    /// Uses the informers of `context` and its API.
    pub(super) fn new(context: &ControllerContext) -> UsageCounter {
        let cached = [PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS];
        let cached = cached
            .into_iter()
            .map(|resource| (resource.clone(), context.informer(&resource)))
            .collect();
        UsageCounter {
            api: context.api.clone(),
            cached,
        }
    }

    pub(super) fn cached(&self) -> &[(ResourceType, Informer<Object>)] {
        &self.cached
    }

    /// The usage of everything that a quota limits, and the errors.
    pub(super) async fn usage(
        &self,
        served: &DiscoveredKinds,
        query: &UsageQuery<'_>,
    ) -> (Amounts, Vec<Error>) {
        let (mut used, mut errors) = (Amounts::new(), Vec::new());
        for kind in served.preferred(&["create", "list", "watch", "delete"]) {
            let ResourceType {
                group,
                plural,
                namespaced,
                ..
            } = &kind.resource;
            let Some(counted) = QuotaEvaluator::of(group, plural).filter(|_| *namespaced) else {
                continue;
            };
            let limits = query.quota["spec"]["hard"].entries().map(|(name, _)| name);
            let names: Vec<&str> = limits.filter(|name| counted.counts_as(name)).collect();
            if names.is_empty() {
                continue;
            }
            match self.kind_usage(&kind.resource, &counted, query).await {
                Ok(amounts) => add(&mut used, &select_amounts(&names, amounts)),
                Err(error) => errors.push(error),
            }
        }
        (used, errors)
    }

    async fn kind_usage(
        &self,
        resource: &ResourceType,
        counted: &QuotaEvaluator,
        &UsageQuery { quota, source, now }: &UsageQuery<'_>,
    ) -> Result<Amounts, Error> {
        let (namespace, selectors) = (quota.namespace(), selectors(quota));
        let cached = self.cached.iter().find(|(known, _)| known == resource);
        if let Some((_, cache)) = cached.filter(|_| source == UsageSource::Caches) {
            let objects = cache.lister().namespaced(namespace).list()?;
            return Ok(total(
                counted,
                &selectors,
                objects.iter().map(|object| &object.0),
                now,
            ));
        }
        if *counted == QuotaEvaluator::DeviceClaim || cached.is_some() {
            let objects = self
                .api
                .list(resource, namespace, &ListOptions::default())
                .await?;
            return Ok(total(
                counted,
                &selectors,
                objects.iter().map(|object| &object.0),
                now,
            ));
        }
        // Other kinds match no scope.
        let n_objects = if selectors.is_empty() {
            self.api.count(resource, namespace).await?
        } else {
            0
        };
        let amount = Quantity::from_int(
            i64::try_from(n_objects).unwrap_or(i64::MAX),
            QuantityFormat::Decimal,
        );
        let one = counted.usage(&Value::Null, now);
        Ok(one.into_keys().map(|name| (name, amount)).collect())
    }
}

/// The sum of the usage of objects that match all scopes.
fn total<'a>(
    counted: &QuotaEvaluator,
    selectors: &[ScopeSelector],
    objects: impl Iterator<Item = &'a Value>,
    now: i64,
) -> Amounts {
    let mut used = Amounts::new();
    for object in objects.filter(|object| {
        selectors
            .iter()
            .all(|selector| counted.is_in(selector, object))
    }) {
        add(&mut used, &counted.usage(object, now));
    }
    used
}

/// The amounts of these names; 0 if there is none.
fn select_amounts(names: &[&str], amounts: Amounts) -> Amounts {
    names
        .iter()
        .map(|name| {
            (
                name.to_string(),
                amounts.get(*name).copied().unwrap_or_default(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(quota: &str, names: &[&str], expected: &str) {
        let pods = r#"[
            {"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"256Mi"}}}]}},
            {"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"256Mi"}}}]}},
            {"spec":{"containers":[{"name":"c"}]}},
            {"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Succeeded"}}]"#;
        let pods = json::parse(pods.as_bytes()).unwrap();
        let selectors = selectors(&json::parse(quota.as_bytes()).unwrap());
        let used = select_amounts(
            names,
            total(&QuotaEvaluator::Pod, &selectors, pods.list().iter(), 0),
        );
        let shown: Vec<String> = used
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn limited_usage_adds_up() {
        check(
            "{}",
            &["pods", "requests.memory", "count/pods"],
            "count/pods=4 pods=3 requests.memory=512Mi",
        );
        check("{}", &["limits.cpu"], "limits.cpu=0");
    }

    #[test]
    fn only_objects_in_scope_count() {
        check(r#"{"spec":{"scopes":["BestEffort"]}}"#, &["pods"], "pods=1");
        check(
            r#"{"spec":{"scopes":["NotBestEffort","NotTerminating"]}}"#,
            &["pods"],
            "pods=2",
        );
        check(
            r#"{"spec":{"scopes":["Terminating"]}}"#,
            &["pods"],
            "pods=0",
        );
    }
}
