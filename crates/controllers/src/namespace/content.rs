//! Deletes all content of a namespace, pods before other kinds.

use futures_util::StreamExt as _;
use futures_util::stream;
use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, ListOptions};
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::{Value, time};

use super::conditions::DeletionProgress;
use crate::metadata_informers::{DiscoveredKind, DiscoveredKinds};

/// How many kinds are deleted concurrently.
const AT_A_TIME: usize = 8;
/// How long finalizers are estimated to take, in seconds.
const FINALIZER_SECONDS: i64 = 15;
/// Background propagation: dependents are in the namespace too.
const DELETE: DeleteOptions<'static> = DeleteOptions {
    uid: None,
    version: None,
    propagation: Some("Background"),
    grace_seconds: None,
};

/// The result of a deletion.
#[derive(Debug, Default)]
pub(super) struct ContentDeletion {
    pub progress: DeletionProgress,
    /// The estimate until the rest is gone, in seconds; 0 if nothing remains.
    pub estimate: i64,
}

/// Deletes the content of a namespace.
pub(super) struct ResourcesDeleter<'a> {
    pub api: &'a DynamicClient,
    /// The namespace, which is being deleted.
    pub namespace: &'a Object,
    /// The wall clock, in seconds since 1970.
    pub now: i64,
}

impl ResourcesDeleter<'_> {
    /// Deletes everything that can be deleted now.
    pub(super) async fn delete_all_content(&self, served: &DiscoveredKinds) -> ContentDeletion {
        let mut outcome = ContentDeletion::default();
        if let Some(failure) = served.failure() {
            let n_failing = served.failures.len();
            outcome.progress.discovery = Some(format!(
                "Discovery failed for some groups, {n_failing} failing: {failure}"
            ));
        }
        let kinds: Vec<&DiscoveredKind> = served
            .preferred(&["delete"])
            .filter(|kind| kind.resource.namespaced)
            .collect();
        let (pods, others): (Vec<&DiscoveredKind>, Vec<&DiscoveredKind>) =
            kinds.into_iter().partition(|kind| kind.resource == PODS);
        for kind in pods {
            let (resource, left) = self.delete_kind(kind).await;
            outcome.add(resource, left);
        }
        if !outcome.progress.remaining.is_empty() {
            // Kubernetes: conditions do not count the pods while other kinds wait for them
            // (namespaced_resources_deleter.go).
            outcome.progress.remaining.clear();
            outcome.progress.finalizers.clear();
            return outcome;
        }
        let mut sweeps = Vec::new();
        for kind in others {
            sweeps.push(self.delete_kind(kind));
        }
        let mut sweeps = stream::iter(sweeps).buffer_unordered(AT_A_TIME);
        while let Some((resource, left)) = sweeps.next().await {
            outcome.add(resource, left);
        }
        outcome
    }

    async fn delete_kind<'k>(
        &self,
        kind: &'k DiscoveredKind,
    ) -> (&'k ResourceType, RemainingContent) {
        (&kind.resource, self.delete_and_list(kind).await)
    }

    /// Deletes the objects of one kind; what remains.
    async fn delete_and_list(&self, kind: &DiscoveredKind) -> RemainingContent {
        let estimate = match self.estimate(&kind.resource).await {
            Ok(estimate) => estimate,
            Err(error) => {
                return RemainingContent {
                    error: Some(error_message(&error)),
                    ..RemainingContent::default()
                };
            }
        };
        let outcome = match self.delete(kind).await {
            Ok(()) if kind.supports(&["list"]) => self.list(&kind.resource).await.map(Some),
            outcome => outcome.map(|()| None),
        };
        match outcome {
            Ok(Some(objects)) => RemainingContent::from_objects(&objects, estimate, || {
                self.unexpected(&kind.resource)
            }),
            Err(error) if !is_unsupported(&error) => RemainingContent {
                estimate,
                error: Some(error_message(&error)),
                ..RemainingContent::default()
            },
            _ => RemainingContent {
                estimate,
                ..RemainingContent::default()
            },
        }
    }

    fn unexpected(
        &self,
        ResourceType {
            group,
            version,
            plural,
            ..
        }: &ResourceType,
    ) -> String {
        let name = self.namespace.name();
        format!(
            "unexpected items still remain in namespace: {name} for gvr: {group}/{version}, Resource={plural}"
        )
    }

    async fn delete(&self, kind: &DiscoveredKind) -> Result<(), kube::Error> {
        let (resource, namespace) = (&kind.resource, self.namespace.name());
        if kind.supports(&["deletecollection"]) {
            let outcome = self
                .api
                .delete_collection(resource, namespace, &ListOptions::default(), &DELETE)
                .await;
            match outcome {
                Err(error) if is_unsupported(&error) => {}
                outcome => return outcome,
            }
        }
        if !kind.supports(&["list"]) {
            return Ok(());
        }
        for object in self.list(resource).await? {
            match self
                .api
                .delete(resource, &Key::new(namespace, object.name()), &DELETE)
                .await
            {
                Err(error) if !is_unsupported(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn list(&self, resource: &ResourceType) -> Result<Vec<Object>, kube::Error> {
        self.api
            .metadata_only()
            .list(resource, self.namespace.name(), &ListOptions::default())
            .await
    }

    /// The estimate for a kind, in seconds: pods have their grace period, minus the time since the
    /// namespace was deleted.
    async fn estimate(&self, resource: &ResourceType) -> Result<i64, kube::Error> {
        if *resource != PODS {
            return Ok(0);
        }
        let pods = self
            .api
            .list(&PODS, self.namespace.name(), &ListOptions::default())
            .await?;
        let deleted = time::to_unix(self.namespace["metadata"]["deletionTimestamp"].str())
            .unwrap_or_default();
        let longest = longest_grace(pods.iter().map(|pod| &pod.0));
        Ok(if self.now - deleted >= longest {
            0
        } else {
            longest
        })
    }
}

/// The longest grace period of pods that are not finished.
fn longest_grace<'a>(pods: impl Iterator<Item = &'a Value>) -> i64 {
    pods.filter(|pod| !is_terminal(pod))
        .map(|pod| pod["spec"]["terminationGracePeriodSeconds"].int())
        .max()
        .unwrap_or_default()
        .max(0)
}

/// Whether a kind cannot be listed or deleted although discovery has it: then it has no objects.
fn is_unsupported(error: &kube::Error) -> bool {
    is_not_found(error) || matches!(error, kube::Error::Api(status) if status.code == 405)
}

fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// What remains of a kind.
#[derive(Debug, Default, PartialEq)]
struct RemainingContent {
    n_objects: usize,
    finalizers: Vec<String>,
    estimate: i64,
    error: Option<String>,
}

impl RemainingContent {
    /// Remaining objects must have time left or finalizers; otherwise `unexpected` is the error.
    fn from_objects(
        objects: &[Object],
        estimate: i64,
        unexpected: impl FnOnce() -> String,
    ) -> RemainingContent {
        let held = objects
            .iter()
            .flat_map(|object| object["metadata"]["finalizers"].list());
        let finalizers: Vec<String> = held.map(|finalizer| finalizer.str().to_string()).collect();
        let (estimate, error) = match (objects.len(), estimate, finalizers.len()) {
            (0, _, _) => (0, None),
            (_, 0, 0) => (0, Some(unexpected())),
            (_, 0, _) => (FINALIZER_SECONDS, None),
            (_, estimate, _) => (estimate, None),
        };
        RemainingContent {
            n_objects: objects.len(),
            finalizers,
            estimate,
            error,
        }
    }
}

impl ContentDeletion {
    fn add(&mut self, resource: &ResourceType, left: RemainingContent) {
        self.estimate = self.estimate.max(left.estimate);
        self.progress.errors.extend(left.error);
        if left.n_objects > 0 {
            let name = (resource.plural.to_string(), resource.group.to_string());
            self.progress.remaining.insert(name, left.n_objects);
        }
        for finalizer in left.finalizers {
            *self.progress.finalizers.entry(finalizer).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn objects(text: &str) -> Vec<Object> {
        json::parse(text.as_bytes())
            .unwrap()
            .list()
            .iter()
            .cloned()
            .map(Object)
            .collect()
    }

    #[track_caller]
    fn check(list: &str, estimate: i64, expected: (usize, i64, Option<&str>)) {
        let left = RemainingContent::from_objects(&objects(list), estimate, || "why".into());
        assert_eq!(
            (left.n_objects, left.estimate, left.error.as_deref()),
            expected,
            "{list}"
        );
    }

    #[test]
    fn remaining_objects_need_time_or_a_finalizer() {
        check("[]", 30, (0, 0, None));
        check(r#"[{"metadata":{"finalizers":["a"]}}]"#, 0, (1, 15, None));
        check(
            r#"[{"metadata":{"finalizers":["a"]}},{}]"#,
            30,
            (2, 30, None),
        );
        check("[{}]", 30, (1, 30, None));
        check("[{}]", 0, (1, 0, Some("why")));
    }

    #[test]
    fn finished_pods_have_no_grace_period() {
        let pods = objects(
            r#"[{"spec":{"terminationGracePeriodSeconds":30}},
                {"spec":{"terminationGracePeriodSeconds":60},"status":{"phase":"Succeeded"}},
                {"spec":{"terminationGracePeriodSeconds":-5}},{}]"#,
        );
        assert_eq!(longest_grace(pods.iter().map(|pod| &pod.0)), 30);
        assert_eq!(longest_grace(std::iter::empty()), 0);
    }
}
