//! Copies of the controller with one bug each. Exploration finds them, and its story names the step.

use std::sync::Arc;
use std::time::Duration;

use foo::{Foo, FooStatus};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt as _, ResourceExt as _};
use mizzen_sdk::controller::{
    Action, Context, Controller, Error, ReconcileObject, resource_version_changed, typed,
};
use mizzen_sdk::{owner, write};
use mizzen_testing::{Cluster, Explore};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// The Deployment is looked up in a cache, and created under a random name.
    StaleCache,
    /// The status has the new replicas before the Deployment has them, and decides whether there is something to do.
    StatusFirst,
    /// The Deployment gets its owner after it was created, and only then.
    LateOwner,
    /// A conflict counts as success.
    IgnoredConflict,
    /// A failed reconcile is not requeued.
    LostRequeue,
}

struct Buggy(Bug);

impl ReconcileObject<Foo> for Buggy {
    async fn reconcile(&self, foo: Arc<Foo>, context: &Context) -> Result<Action, Error> {
        match self.sync(&foo, context).await {
            Err(_) if self.0 == Bug::LostRequeue => Ok(Action::done()),
            outcome => outcome.map(|()| Action::done()),
        }
    }
}

impl Buggy {
    async fn sync(&self, foo: &Foo, context: &Context) -> Result<(), Error> {
        let replicas = foo.spec.replicas;
        let deployments: Api<Deployment> = Api::default_namespaced(context.client());
        if self.0 == Bug::StatusFirst {
            if foo.status.as_ref().map(|status| status.available_replicas) == Some(replicas) {
                return Ok(());
            }
            let foos: Api<Foo> = Api::default_namespaced(context.client());
            let status = Some(FooStatus {
                available_replicas: replicas,
            });
            write::update_status(&foos, &foo.name_any(), |foo| foo.status = status.clone()).await?;
        }
        let deployment = self.ensure_deployment(foo, &deployments).await?;
        let name = deployment.name_any();
        let wants = |deployment: &Deployment| deployment.spec.as_ref()?.replicas;
        if wants(&deployment) == Some(replicas) {
            return Ok(());
        }
        let scale = |deployment: &mut Deployment| {
            deployment.spec.get_or_insert_default().replicas = Some(replicas);
        };
        if self.0 != Bug::IgnoredConflict {
            write::update(&deployments, &name, scale).await?;
            return Ok(());
        }
        let mut deployment = deployment;
        scale(&mut deployment);
        match deployments
            .replace(&name, &PostParams::default(), &deployment)
            .await
        {
            Err(error) if write::is_conflict(&error) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    async fn ensure_deployment(
        &self,
        foo: &Foo,
        deployments: &Api<Deployment>,
    ) -> Result<Deployment, Error> {
        let name = &foo.spec.deployment_name;
        let mut deployment: Deployment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": foo.namespace()},
            "spec": {
                "replicas": foo.spec.replicas,
                "selector": {"matchLabels": {"controller": foo.name_any()}},
                "template": {
                    "metadata": {"labels": {"controller": foo.name_any()}},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
                },
            },
        }))
        .map_err(Error::terminal)?;
        owner::set_controller(foo, &(), &mut deployment)?;
        if self.0 == Bug::StaleCache {
            let cached = deployments.list(&ListParams::default().match_any()).await?;
            let mut own = cached.into_iter();
            if let Some(deployment) = own.find(|one| owner::is_controlled_by(one, foo)) {
                return Ok(deployment);
            }
            deployment.metadata.generate_name = deployment.metadata.name.take();
        }
        let owners = match self.0 {
            Bug::LateOwner => deployment.metadata.owner_references.take(),
            _ => None,
        };
        match deployments
            .create(&PostParams::default(), &deployment)
            .await
        {
            Ok(_) if owners.is_some() => {
                let patch = serde_json::json!({"metadata": {"ownerReferences": owners}});
                let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                Ok(deployments.patch(name, &params, &patch).await?)
            }
            Err(error) if write::is_already_exists(&error) => Ok(deployments.get(name).await?),
            outcome => Ok(outcome?),
        }
    }
}

async fn scenario(cluster: &Cluster, bug: Bug) {
    cluster
        .apply(&serde_json::to_string(&Foo::crd()).unwrap())
        .await;
    cluster.run("foo", move |client: Client| {
        let context = Context::new(client).named("foo");
        // Resyncs enqueue nothing, as with controller-runtime's ResourceVersionChangedPredicate.
        let controller =
            Controller::for_kind(&context, typed::<Foo>().filter(resource_version_changed()))
                .owns(typed::<Deployment>().filter(resource_version_changed()))
                .reconcile_objects(Buggy(bug));
        controller.run(std::future::pending())
    });
    for n in [1, 2, 3] {
        let foo = super::FOO.replace("replicas: 1", &format!("replicas: {n}"));
        cluster.apply(&foo).await;
        cluster
            .apply(&foo.replace("example-foo", "other-foo"))
            .await;
        cluster.advance(Duration::from_secs(3)).await;
    }
}

/// Few faults are enough, and the story names the steps between which the controller went wrong.
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

#[test]
fn a_deployment_that_is_created_twice_is_found() {
    is_found(
        Bug::StaleCache,
        &[
            "+ Deployment default/example-foo* of example-foo",
            "foo FAULT LIST deployments sees a state",
            "foo deployments/example-foo created",
        ],
    );
}

#[test]
fn a_status_that_is_written_before_the_deployment_is_scaled_is_found() {
    is_found(
        Bug::StatusFirst,
        &[
            "- Deployment default/example-foo of example-foo spec.replicas=3",
            "foo foos/example-foo status.availableReplicas 2 → 3",
            "foo FAULT POST deployments (example-foo) is applied and answered 500",
        ],
    );
}

#[test]
fn a_deployment_without_an_owner_is_found() {
    is_found(
        Bug::LateOwner,
        &[
            "- Deployment default/other-foo of other-foo",
            "foo deployments/other-foo created",
            "foo FAULT PATCH deployments (other-foo) gets 409 Conflict, not applied",
            "foo deployments/other-foo POST answered 409",
        ],
    );
}

#[test]
fn a_conflict_that_is_ignored_is_found() {
    is_found(
        Bug::IgnoredConflict,
        &[
            "- Deployment default/other-foo of other-foo spec.replicas=3",
            "test foos/other-foo spec.replicas 2 → 3",
            "foo FAULT PUT deployments (other-foo) gets 409 Conflict, not applied",
        ],
    );
}

#[test]
fn a_requeue_that_is_lost_is_found() {
    is_found(
        Bug::LostRequeue,
        &[
            "- Deployment default/example-foo of example-foo spec.replicas=3",
            "test foos/example-foo spec.replicas 2 → 3",
            "foo FAULT POST deployments (example-foo) gets 409 Conflict, not applied",
        ],
    );
}
