//! The ReplicaSet loop as a program of the test, which scales up, and copies of it with one bug each, which exploration
//! finds. A conflict that is ignored would heal: the events of the pods repeat the report.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use mizzen_sdk::controller::{
    Action, Context, Controller, Error, ReconcileObject, resource_version_changed, typed,
};
use mizzen_sdk::{owner, write};
use mizzen_testing::{Cluster, Explore, FaultRates};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// Pods are counted in a cache, and created under random names.
    StaleCache,
    /// The status has the replicas before they exist, and decides whether there is something to do.
    StatusFirst,
    /// A pod gets its owner after it was created, and only then.
    LateOwner,
    /// A failed reconcile is not requeued.
    LostRequeue,
}

struct ReplicaSets(Bug);

impl ReconcileObject<ReplicaSet> for ReplicaSets {
    async fn reconcile(&self, set: Arc<ReplicaSet>, context: &Context) -> Result<Action, Error> {
        match self.sync(&set, context).await {
            Err(_) if self.0 == Bug::LostRequeue => Ok(Action::done()),
            outcome => outcome.map(|()| Action::done()),
        }
    }
}

impl ReplicaSets {
    async fn sync(&self, set: &ReplicaSet, context: &Context) -> Result<(), Error> {
        let wanted = set
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let reported = set.status.as_ref().map_or(0, |status| status.replicas);
        if self.0 == Bug::StatusFirst {
            if reported == wanted {
                return Ok(());
            }
            self.report(set, wanted, context).await?;
        }
        let pods: Api<Pod> = Api::default_namespaced(context.client());
        let params = match self.0 {
            Bug::StaleCache => ListParams::default().match_any(),
            _ => ListParams::default(),
        };
        let listed = pods.list(&params).await?.items;
        let own = listed.iter();
        let n_own = own.filter(|pod| owner::is_controlled_by(*pod, set)).count();
        for n in n_own..usize::try_from(wanted).unwrap_or(0) {
            self.create_pod(set, &pods, n).await?;
        }
        if self.0 != Bug::StatusFirst && reported != wanted {
            self.report(set, wanted, context).await?;
        }
        Ok(())
    }

    async fn create_pod(&self, set: &ReplicaSet, pods: &Api<Pod>, n: usize) -> Result<(), Error> {
        let template = set.spec.as_ref().and_then(|spec| spec.template.clone());
        let template = template.unwrap_or_default();
        let mut pod = Pod {
            metadata: template.metadata.unwrap_or_default(),
            spec: template.spec,
            ..Pod::default()
        };
        let name = format!("{}-{n}", set.name_any());
        pod.metadata.namespace = set.namespace();
        match self.0 {
            Bug::StaleCache => pod.metadata.generate_name = Some(name.clone()),
            _ => pod.metadata.name = Some(name.clone()),
        }
        owner::set_controller(set, &(), &mut pod)?;
        let owners = match self.0 {
            Bug::LateOwner => pod.metadata.owner_references.take(),
            _ => None,
        };
        match pods.create(&PostParams::default(), &pod).await {
            Err(error) if write::is_already_exists(&error) => Ok(()),
            Ok(_) if owners.is_some() => {
                let patch = serde_json::json!({"metadata": {"ownerReferences": owners}});
                let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                Ok(pods.patch(&name, &params, &patch).await.map(drop)?)
            }
            outcome => Ok(outcome.map(drop)?),
        }
    }

    async fn report(
        &self,
        set: &ReplicaSet,
        replicas: i32,
        context: &Context,
    ) -> Result<(), Error> {
        let sets: Api<ReplicaSet> = Api::default_namespaced(context.client());
        let status = ReplicaSetStatus {
            replicas,
            ..ReplicaSetStatus::default()
        };
        let write = |set: &mut ReplicaSet| set.status = Some(status.clone());
        write::update_status(&sets, &set.name_any(), write).await?;
        Ok(())
    }
}

async fn scenario(cluster: &Cluster, bug: Bug) {
    cluster.run("replica-sets", move |client: Client| {
        let context = Context::new(client).named("replica-sets");
        // Resyncs enqueue nothing, as with controller-runtime's ResourceVersionChangedPredicate.
        let sets = typed::<ReplicaSet>().filter(resource_version_changed());
        let controller = Controller::for_kind(&context, sets)
            .owns(typed::<Pod>().filter(resource_version_changed()))
            .reconcile_objects(ReplicaSets(bug));
        controller.run(std::future::pending())
    });
    for n in [1, 2, 3] {
        for name in ["web", "api"] {
            let text = format!(
                "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {name}}}, spec: {{replicas: {n}, \
                 selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, \
                 spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
            );
            cluster.apply(&text).await;
        }
        cluster.advance(Duration::from_secs(3)).await;
    }
}

/// Few faults are enough, and the story names the steps between which the loop went wrong.
#[track_caller]
fn is_found(bug: Bug, steps: &[&str]) {
    let finding = Explore::new(Cluster::builder().server_only())
        .seeds(0..100)
        .expect_finding(
            async |cluster: &Cluster| scenario(cluster, bug).await,
            steps,
        );
    let story = finding.story();
    println!("{bug:?}: {story}");
    assert!((1..=4).contains(&finding.faults.len()), "{story}");
}

#[tokio::test]
async fn a_seed_has_the_same_steps_every_time() {
    let mut first = None;
    for _ in 0..10 {
        let builder = Cluster::builder().server_only().seed(1);
        let cluster = builder.faults(FaultRates::default()).start().await;
        cluster.set_faults(true);
        scenario(&cluster, Bug::StaleCache).await;
        let steps = cluster.last_steps(usize::MAX);
        assert_eq!(first.get_or_insert_with(|| steps.clone()), &steps);
    }
}

#[test]
fn a_loop_without_a_bug_survives() {
    Explore::new(Cluster::builder().server_only())
        .seeds(0..20)
        .run(async |cluster: &Cluster| scenario(cluster, Bug::None).await);
}

#[test]
fn a_replica_that_is_counted_in_a_stale_cache_is_found() {
    is_found(
        Bug::StaleCache,
        &[
            "+ Pod default/",
            "replica-sets FAULT LIST pods sees a state",
            "replica-sets pods/ created",
        ],
    );
}

#[test]
fn a_status_that_is_written_before_the_pods_exist_is_found() {
    is_found(
        Bug::StatusFirst,
        &[
            "- Pod default/web-1 of web",
            "replica-sets replicasets/web status.replicas 2 → 3",
            "replica-sets FAULT POST pods (web-0) is applied and answered 500",
        ],
    );
}

#[test]
fn a_pod_without_an_owner_is_found() {
    is_found(
        Bug::LateOwner,
        &[
            "- Pod default/web-1 of web",
            "replica-sets FAULT POST pods (web-1) is applied and answered 500",
            "replica-sets pods/web-1 created",
            "replica-sets pods/web-1 POST answered 409",
        ],
    );
}

#[test]
fn a_requeue_that_is_lost_is_found() {
    is_found(
        Bug::LostRequeue,
        &[
            "- Pod default/web-2 of web",
            "test replicasets/web spec.replicas 2 → 3",
            "replica-sets FAULT GET pods gets 503, not applied",
        ],
    );
}
