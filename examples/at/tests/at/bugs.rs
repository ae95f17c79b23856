//! Copies of the controller with one bug each. Exploration finds them, and its story names the step.

use std::sync::Arc;
use std::time::Duration;

use at::{At, AtStatus, Phase};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt as _, ResourceExt as _};
use mizzen_sdk::controller::{
    Action, Context, ContextOptions, Controller, Error, ReconcileObject, resource_version_changed,
    typed,
};
use mizzen_sdk::{owner, write};
use mizzen_testing::{Cluster, Explore};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// The pod is looked up in a cache, and created under a random name.
    StaleCache,
    /// The phase is RUNNING before there is a pod, and a pod is created only for PENDING.
    StatusFirst,
    /// The pod gets its owner after it was created, and only then.
    LateOwner,
    /// A conflict counts as success.
    IgnoredConflict,
    /// Only the reconcile that writes PENDING requests a requeue.
    LostRequeue,
}

struct Buggy(Bug);

impl ReconcileObject<At> for Buggy {
    async fn reconcile(&self, at: Arc<At>, context: &Context) -> Result<Action, Error> {
        let phase = at.status.as_ref().map(|status| status.phase);
        if owner::is_terminating(&*at) || phase == Some(Phase::Done) {
            return Ok(Action::done());
        }
        let due: Timestamp = at.spec.schedule.parse().map_err(Error::terminal)?;
        let wait = due.duration_since(context.now());
        if let Ok(wait) = Duration::try_from(wait)
            && !wait.is_zero()
        {
            if self.0 == Bug::LostRequeue && phase.is_some() {
                return Ok(Action::done());
            }
            self.set_phase(&at, context, Phase::Pending).await?;
            return Ok(Action::requeue_after(wait));
        }
        let pods: Api<Pod> = Api::default_namespaced(context.client());
        if self.0 == Bug::StatusFirst && phase != Some(Phase::Running) {
            self.set_phase(&at, context, Phase::Running).await?;
            self.ensure_pod(&at, &pods).await?;
            return Ok(Action::done());
        }
        let pod = match self.0 {
            Bug::StatusFirst => pods.get_opt(&format!("{}-pod", at.name_any())).await?,
            _ => Some(self.ensure_pod(&at, &pods).await?),
        };
        let pod_phase = pod.and_then(|pod| pod.status?.phase);
        let phase = match pod_phase.as_deref() {
            Some("Succeeded" | "Failed") => Phase::Done,
            _ => Phase::Running,
        };
        self.set_phase(&at, context, phase).await?;
        Ok(Action::done())
    }
}

impl Buggy {
    async fn ensure_pod(&self, at: &At, pods: &Api<Pod>) -> Result<Pod, Error> {
        let name = format!("{}-pod", at.name_any());
        let command = at.spec.command.split_whitespace().map(str::to_owned);
        let mut pod = Pod {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: at.namespace(),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "busybox".into(),
                    image: Some("busybox".into()),
                    command: Some(command.collect()),
                    ..Container::default()
                }],
                restart_policy: Some("OnFailure".into()),
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        owner::set_controller(at, &(), &mut pod)?;
        if self.0 == Bug::StaleCache {
            let cached = pods.list(&ListParams::default().match_any()).await?;
            let mut own = cached.into_iter();
            if let Some(pod) = own.find(|pod| owner::is_controlled_by(pod, at)) {
                return Ok(pod);
            }
            pod.metadata.generate_name = pod.metadata.name.take();
        }
        let owners = match self.0 {
            Bug::LateOwner => pod.metadata.owner_references.take(),
            _ => None,
        };
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) if owners.is_some() => {
                let patch = serde_json::json!({"metadata": {"ownerReferences": owners}});
                let patch = Patch::Merge(patch);
                Ok(pods.patch(&name, &PatchParams::default(), &patch).await?)
            }
            Err(error) if write::is_already_exists(&error) => Ok(pods.get(&name).await?),
            outcome => Ok(outcome?),
        }
    }

    async fn set_phase(&self, at: &At, context: &Context, phase: Phase) -> Result<(), Error> {
        let status = Some(AtStatus { phase });
        if at.status == status {
            return Ok(());
        }
        let ats: Api<At> = Api::default_namespaced(context.client());
        if self.0 != Bug::IgnoredConflict {
            write::update_status(&ats, &at.name_any(), |at| at.status = status.clone()).await?;
            return Ok(());
        }
        let at = At {
            status,
            ..at.clone()
        };
        match ats
            .replace_status(&at.name_any(), &PostParams::default(), &at)
            .await
        {
            Err(error) if write::is_conflict(&error) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }
}

async fn scenario(cluster: &Cluster, bug: Bug) {
    cluster
        .apply(&serde_json::to_string(&At::crd()).unwrap())
        .await;
    let clock = cluster.wall_clock();
    cluster.run("at", move |client: Client| {
        let options = ContextOptions {
            clock: clock.clone(),
            ..ContextOptions::new(Arc::new(move |_| client.clone()))
        };
        // Resyncs enqueue nothing, as with controller-runtime's ResourceVersionChangedPredicate.
        let context = Context::with(options).named("at");
        let controller =
            Controller::for_kind(&context, typed::<At>().filter(resource_version_changed()))
                .owns(typed::<Pod>().filter(resource_version_changed()))
                .reconcile_objects(Buggy(bug));
        controller.run(std::future::pending())
    });
    for (name, seconds) in [("breakfast", 4), ("lunch", 8), ("dinner", 12)] {
        super::create_at(cluster, name, Duration::from_secs(seconds)).await;
    }
    cluster.advance(Duration::from_secs(20)).await;
}

/// Few faults are enough, and the story names the steps between which the controller went wrong.
#[track_caller]
fn is_found(bug: Bug, steps: &[&str]) {
    let finding = Explore::new(super::running_pods())
        .seeds(0..100)
        .expect_finding(
            async |cluster: &Cluster| scenario(cluster, bug).await,
            steps,
        );
    let story = finding.story();
    println!("{bug:?}: {story}");
    assert!((1..=6).contains(&finding.faults.len()), "{story}");
}

#[test]
fn a_pod_that_is_created_twice_is_found() {
    is_found(
        Bug::StaleCache,
        &[
            "+ Pod default/lunch-pod* of lunch",
            "at FAULT LIST pods sees a state",
            "at pods/lunch-pod created",
        ],
    );
}

#[test]
fn a_phase_that_is_written_before_the_pod_exists_is_found() {
    is_found(
        Bug::StatusFirst,
        &[
            "- Pod default/breakfast-pod of breakfast",
            "at ats/breakfast status.phase PENDING → RUNNING",
            "at FAULT POST pods (breakfast-pod) is answered",
        ],
    );
}

#[test]
fn a_pod_without_an_owner_is_found() {
    is_found(
        Bug::LateOwner,
        &[
            "- Pod default/lunch-pod of lunch",
            "at FAULT POST pods (lunch-pod) is applied and answered 500",
            "at pods/lunch-pod created",
            "at pods/lunch-pod POST answered 409",
        ],
    );
}

#[test]
fn a_conflict_that_is_ignored_is_found() {
    is_found(
        Bug::IgnoredConflict,
        &[
            "- At default/lunch",
            "at FAULT PUT ats/status (lunch) gets 409 Conflict, not applied",
        ],
    );
}

#[test]
fn a_requeue_that_is_lost_is_found() {
    is_found(
        Bug::LostRequeue,
        &[
            "- Pod default/dinner-pod of dinner",
            "at ats/dinner status",
            "at FAULT POST pods (lunch-pod) is applied, and the component is killed",
        ],
    );
}
