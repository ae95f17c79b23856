//! Runs a command at a time.
//!
//! An [`At`] names a time and a command. Its phase is PENDING until the time has come, RUNNING while its pod runs, and
//! DONE afterwards. The pod belongs to the At, so it is deleted with it.
//!
//! [`AtReconciler`] reads the current state and decides; it does not matter which event woke it, how often it runs, or
//! whether it was killed between two writes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{CustomResource, CustomResourceExt as _, ResourceExt as _};
use mizzen_sdk::controller::{Action, Context, Controller, Error, ReconcileObject, typed};
use mizzen_sdk::event::{self, Note};
use mizzen_sdk::manifests::Manifests;
use mizzen_sdk::{Rbac, owner, write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to run, and when.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cnat.programming-kubernetes.info",
    version = "v1alpha1",
    kind = "At",
    namespaced,
    status = "AtStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#
)]
pub struct AtSpec {
    /// The time, in UTC: `2026-07-03T02:00:00Z`.
    pub schedule: String,
    /// The command, with its arguments separated by spaces.
    pub command: String,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtStatus {
    /// The phase.
    pub phase: Phase,
}

/// The phase of an At.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// The time has not come.
    #[default]
    Pending,
    /// The pod runs.
    Running,
    /// The pod has ended.
    Done,
}

/// The controller.
pub fn controller(context: &Context) -> Controller {
    Controller::for_kind(context, typed::<At>())
        .owns(typed::<Pod>())
        .record_failures("AtFailed")
        .reconcile_objects(AtReconciler)
}

/// Brings Ats to their next phases. The attributes are its permissions.
#[derive(Rbac)]
#[rbac(
    group("cnat.programming-kubernetes.info"),
    resources("ats"),
    verbs("get", "list", "watch")
)]
#[rbac(
    group("cnat.programming-kubernetes.info"),
    resources("ats/status"),
    verbs("update")
)]
#[rbac(group(""), resources("pods"), verbs("create", "get", "list", "watch"))]
pub struct AtReconciler;

impl ReconcileObject<At> for AtReconciler {
    async fn reconcile(&self, at: Arc<At>, context: &Context) -> Result<Action, Error> {
        let phase = at.status.as_ref().map(|status| status.phase);
        if owner::is_terminating(&*at) || phase == Some(Phase::Done) {
            return Ok(Action::done());
        }
        // Only a new spec can repair a wrong time.
        let due: Timestamp = at.spec.schedule.parse().map_err(|error| {
            Error::terminal(format!("spec.schedule {:?}: {error}", at.spec.schedule))
        })?;
        let wait = due.duration_since(context.now());
        if let Ok(wait) = std::time::Duration::try_from(wait)
            && !wait.is_zero()
        {
            set_phase(&at, context, Phase::Pending).await?;
            return Ok(Action::requeue_after(wait));
        }
        let pod = ensure_pod(&at, context).await?;
        let pod_phase = pod.status.and_then(|status| status.phase);
        let has_ended = matches!(pod_phase.as_deref(), Some("Succeeded" | "Failed"));
        let phase = if has_ended {
            Phase::Done
        } else {
            Phase::Running
        };
        set_phase(&at, context, phase).await?;
        // The events of the pod enqueue the At again.
        Ok(Action::done())
    }
}

/// The manifests of `config/`, which `mizzen generate` writes.
pub fn manifests() -> Manifests {
    Manifests::new("at")
        .image("registry.example.com/at:0.1.0")
        .crd(At::crd())
        .rules::<AtReconciler>()
}

/// The pod of an At, created if it does not exist.
async fn ensure_pod(at: &At, context: &Context) -> Result<Pod, Error> {
    let pods: Api<Pod> = Api::namespaced(context.client(), &at.namespace().unwrap_or_default());
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(format!("{}-pod", at.name_any())),
            namespace: at.namespace(),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "busybox".into(),
                image: Some("busybox".into()),
                command: Some(
                    at.spec
                        .command
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect(),
                ),
                ..Container::default()
            }],
            restart_policy: Some("OnFailure".into()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    };
    owner::set_controller(at, &(), &mut pod)?;
    match pods.create(&PostParams::default(), &pod).await {
        Ok(pod) => {
            let note = Note::normal(
                "Started",
                "Start",
                format!("Created pod {}", pod.name_any()),
            );
            context.recorder().record(&event::reference(at, &()), note);
            Ok(pod)
        }
        // A cache may lag behind, the server does not: the pod exists, and is it ours?
        Err(error) if write::is_already_exists(&error) => {
            let pod = pods.get(&pod.name_any()).await?;
            if !owner::is_controlled_by(&pod, at) {
                return Err(Error::terminal(format!(
                    "pod {} exists and belongs to another owner",
                    pod.name_any()
                )));
            }
            Ok(pod)
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes the phase, if it is another one.
async fn set_phase(at: &At, context: &Context, phase: Phase) -> Result<(), Error> {
    let status = Some(AtStatus { phase });
    if at.status != status {
        let ats: Api<At> = Api::namespaced(context.client(), &at.namespace().unwrap_or_default());
        write::update_status(&ats, &at.name_any(), |at| at.status = status.clone()).await?;
    }
    Ok(())
}
