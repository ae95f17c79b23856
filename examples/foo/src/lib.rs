//! A Deployment for each Foo: what Kubernetes' sample-controller does.
//!
//! A [`Foo`] names a Deployment and its number of replicas. The controller creates the Deployment, keeps its replicas as
//! the Foo says, and writes `status.availableReplicas`. A Deployment of that name with another owner is left alone; an
//! event says so.

#![expect(clippy::disallowed_names, reason = "the kind is called Foo")]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{CustomResource, ResourceExt as _};
use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
use mizzen_sdk::event::{self, Note};
use mizzen_sdk::{owner, write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Deployment that a Foo wants.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Deployment","type":"string","jsonPath":".spec.deploymentName"}"#,
    printcolumn = r#"{"name":"Available","type":"integer","jsonPath":".status.availableReplicas"}"#,
    // Groups of k8s.io are protected: a definition says that it has no approval.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only")
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment.
    pub deployment_name: String,
    /// Its replicas.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

/// What the Deployment has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// The replicas that are available.
    pub available_replicas: i32,
}

/// The controller.
pub fn controller(context: &Context) -> Controller {
    Controller::for_kind(context, typed::<Foo>())
        .owns(typed::<Deployment>())
        .workers(2)
        .reconcile_objects(reconcile)
}

/// Makes the Deployment of a Foo what the Foo says.
pub async fn reconcile(foo: Arc<Foo>, context: Context) -> Result<Action, Error> {
    if owner::is_terminating(&*foo) {
        return Ok(Action::done());
    }
    let name = foo.spec.deployment_name.as_str();
    let namespace = foo.namespace().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(context.client(), &namespace);
    let about = event::reference(&*foo, &());
    let deployment = match deployments.get_opt(name).await? {
        Some(deployment) => deployment,
        None => {
            deployments
                .create(&PostParams::default(), &deployment(&foo)?)
                .await?
        }
    };
    if !owner::is_controlled_by(&deployment, &*foo) {
        let text = format!("Resource \"{name}\" already exists and is not managed by Foo");
        let note = Note::warning("ErrResourceExists", "Sync", text.clone());
        context.recorder().record(&about, note);
        return Err(Error::other(text));
    }
    let mut deployment = deployment;
    if deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(foo.spec.replicas) {
        deployment = write::update(&deployments, name, |deployment| {
            deployment.spec.get_or_insert_default().replicas = Some(foo.spec.replicas);
        })
        .await?;
    }
    let available_replicas = deployment
        .status
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    let status = Some(FooStatus { available_replicas });
    if foo.status != status {
        let foos: Api<Foo> = Api::namespaced(context.client(), &namespace);
        write::update_status(&foos, &foo.name_any(), |foo| foo.status = status.clone()).await?;
    }
    let note = Note::normal("Synced", "Sync", "Foo synced successfully");
    context.recorder().record(&about, note);
    Ok(Action::done())
}

/// The Deployment that a Foo wants.
fn deployment(foo: &Foo) -> Result<Deployment, Error> {
    let labels: BTreeMap<String, String> = [("app", "nginx"), ("controller", &foo.name_any())]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let mut deployment = Deployment {
        metadata: ObjectMeta {
            name: Some(foo.spec.deployment_name.clone()),
            namespace: foo.namespace(),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(foo.spec.replicas),
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![Container {
                        name: "nginx".into(),
                        image: Some("nginx:latest".into()),
                        ..Container::default()
                    }],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    };
    owner::set_controller(foo, &(), &mut deployment)?;
    Ok(deployment)
}
