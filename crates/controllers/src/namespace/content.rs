//! Deleting everything in a namespace: all kinds that the server has, pods before the others.

use futures_util::StreamExt as _;
use futures_util::stream;
use mizzen_kinds::pod_state::is_terminal;
use mizzen_sdk::api::{Api, DeleteOptions, ListOptions};
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::{Value, time};

use super::conditions::Progress;
use crate::census::{Served, ServedKind};

/// How many kinds are deleted at a time.
const AT_A_TIME: usize = 8;
/// How long finalizers are assumed to take.
const FINALIZER_SECONDS: i64 = 15;
/// Dependents are in the namespace as well, or are none of its business.
const DELETE: DeleteOptions<'static> = DeleteOptions {
    uid: None,
    version: None,
    propagation: Some("Background"),
    grace_seconds: None,
};

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How far it has come.
    pub progress: Progress,
    /// In how many seconds the rest may be gone; 0 if nothing is known to be left.
    pub estimate: i64,
}

/// Deletes what is in a namespace.
pub(super) struct Sweep<'a> {
    /// The way to the API.
    pub api: &'a Api,
    /// The namespace, which is being deleted.
    pub namespace: &'a Object,
    /// Now, in seconds since 1970.
    pub now: i64,
}

impl Sweep<'_> {
    /// Deletes everything that can be deleted now.
    pub(super) async fn all(&self, served: &Served) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(failure) = served.failure() {
            let n_failing = served.failures.len();
            outcome.progress.discovery = Some(format!(
                "Discovery failed for some groups, {n_failing} failing: {failure}"
            ));
        }
        let kinds: Vec<&ServedKind> = served
            .preferred(&["delete"])
            .filter(|kind| kind.resource.namespaced)
            .collect();
        let (pods, others): (Vec<&ServedKind>, Vec<&ServedKind>) =
            kinds.into_iter().partition(|kind| kind.resource == PODS);
        for kind in pods {
            let (resource, left) = self.kind(kind).await;
            outcome.add(resource, left);
        }
        if !outcome.progress.remaining.is_empty() {
            // Kubernetes: conditions do not count the pods while others wait for them
            // (namespaced_resources_deleter.go).
            outcome.progress.remaining.clear();
            outcome.progress.finalizers.clear();
            return outcome;
        }
        let mut sweeps = Vec::new();
        for kind in others {
            sweeps.push(self.kind(kind));
        }
        let mut sweeps = stream::iter(sweeps).buffer_unordered(AT_A_TIME);
        while let Some((resource, left)) = sweeps.next().await {
            outcome.add(resource, left);
        }
        outcome
    }

    async fn kind<'k>(&self, kind: &'k ServedKind) -> (&'k Resource, Left) {
        (&kind.resource, self.left(kind).await)
    }

    /// Deletes the objects of one kind; what is left of them.
    async fn left(&self, kind: &ServedKind) -> Left {
        let estimate = match self.estimate(&kind.resource).await {
            Ok(estimate) => estimate,
            Err(error) => {
                return Left {
                    error: Some(say(&error)),
                    ..Left::default()
                };
            }
        };
        let outcome = match self.delete(kind).await {
            Ok(()) if kind.can(&["list"]) => self.list(&kind.resource).await.map(Some),
            outcome => outcome.map(|()| None),
        };
        match outcome {
            Ok(Some(objects)) => Left::of(&objects, estimate, || self.unexpected(&kind.resource)),
            Err(error) if !is_unsupported(&error) => Left {
                estimate,
                error: Some(say(&error)),
                ..Left::default()
            },
            _ => Left {
                estimate,
                ..Left::default()
            },
        }
    }

    fn unexpected(
        &self,
        Resource {
            group,
            version,
            plural,
            ..
        }: &Resource,
    ) -> String {
        let name = self.namespace.name();
        format!(
            "unexpected items still remain in namespace: {name} for gvr: {group}/{version}, Resource={plural}"
        )
    }

    async fn delete(&self, kind: &ServedKind) -> Result<(), kube::Error> {
        let (resource, namespace) = (&kind.resource, self.namespace.name());
        if kind.can(&["deletecollection"]) {
            let outcome = self
                .api
                .delete_collection(resource, namespace, &ListOptions::default(), &DELETE)
                .await;
            match outcome {
                Err(error) if is_unsupported(&error) => {}
                outcome => return outcome,
            }
        }
        if !kind.can(&["list"]) {
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

    async fn list(&self, resource: &Resource) -> Result<Vec<Object>, kube::Error> {
        self.api
            .metadata_only()
            .list(resource, self.namespace.name(), &ListOptions::default())
            .await
    }

    /// How many seconds objects may take to go: pods have time to end, until their namespace has waited as long.
    async fn estimate(&self, resource: &Resource) -> Result<i64, kube::Error> {
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

/// The longest time that a pod takes to end.
fn longest_grace<'a>(pods: impl Iterator<Item = &'a Value>) -> i64 {
    pods.filter(|pod| !is_terminal(pod))
        .map(|pod| pod["spec"]["terminationGracePeriodSeconds"].int())
        .max()
        .unwrap_or_default()
        .max(0)
}

/// Whether a kind is in discovery but cannot be listed or deleted: there is nothing of it then.
fn is_unsupported(error: &kube::Error) -> bool {
    is_not_found(error) || matches!(error, kube::Error::Api(status) if status.code == 405)
}

/// What the server says.
fn say(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// What is left of a kind.
#[derive(Debug, Default, PartialEq)]
struct Left {
    n_objects: usize,
    finalizers: Vec<String>,
    estimate: i64,
    error: Option<String>,
}

impl Left {
    /// Objects that remain have time to go, or finalizers; others should not be there, as `unexpected` says.
    fn of(objects: &[Object], estimate: i64, unexpected: impl FnOnce() -> String) -> Left {
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
        Left {
            n_objects: objects.len(),
            finalizers,
            estimate,
            error,
        }
    }
}

impl Outcome {
    fn add(&mut self, resource: &Resource, left: Left) {
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
        let left = Left::of(&objects(list), estimate, || "why".into());
        assert_eq!(
            (left.n_objects, left.estimate, left.error.as_deref()),
            expected,
            "{list}"
        );
    }

    #[test]
    fn what_remains_needs_a_reason() {
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
    fn pods_that_have_ended_need_no_time() {
        let pods = objects(
            r#"[{"spec":{"terminationGracePeriodSeconds":30}},
                {"spec":{"terminationGracePeriodSeconds":60},"status":{"phase":"Succeeded"}},
                {"spec":{"terminationGracePeriodSeconds":-5}},{}]"#,
        );
        assert_eq!(longest_grace(pods.iter().map(|pod| &pod.0)), 30);
        assert_eq!(longest_grace(std::iter::empty()), 0);
    }
}
