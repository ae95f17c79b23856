//! PostFilter: deallocating claims and preempting pods when no node fits.

use std::sync::Arc;

use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Object, condition};
use mizzen_value::{Str, Value, time, value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cycle::{CycleState, Diagnosis};
use crate::event_recorder::{EventNote, EventRecorder};
use crate::events::SchedulerMessage;
use crate::model::PodInfo;
use crate::plugin::Name;
use crate::pod_status::{PodStatusUpdate, updated_condition};
use crate::preemption::{
    CandidateSearch, Preemption, PreemptionCandidate, PreemptionContext, find_candidates,
    pick_one_node,
};
use crate::profile::{PostFilterPlugin, Profile};
use crate::scheduler::{Scheduler, SchedulingFailure};

impl Scheduler {
    /// Runs PostFilter for a pod that fits no node.
    pub(crate) async fn run_post_filter(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
        state: &CycleState,
        mut diagnosis: Diagnosis,
    ) -> SchedulingFailure {
        let (mut messages, mut nominate) = (Vec::new(), None);
        for plugin in &profile.post_filters {
            match plugin {
                PostFilterPlugin::DeallocateClaims => {
                    // Kubernetes: the plugin's state of the pod is missing if its PreFilter did not
                    // run (framework.go).
                    if !state.pre_filtered.has(Name::DynamicResources)
                        && !diagnosis.pre_filter_message.is_empty()
                    {
                        diagnosis.post_filter_message = "not found".into();
                        return SchedulingFailure::FitError {
                            diagnosis,
                            nominate: None,
                        };
                    }
                    messages.push(self.deallocate_claims(pod, &diagnosis).to_string());
                }
                PostFilterPlugin::Preemption(candidate_limits) => {
                    let case = PreemptionContext {
                        pod,
                        state,
                        cluster: &self.cluster,
                        nominated: &self.queue.nominated,
                        now: (self.clock)().as_second(),
                    };
                    match find_candidates(&case, &diagnosis, *candidate_limits, &self.rng) {
                        CandidateSearch::None { message, forget } => {
                            messages.push(format!("preemption: {message}"));
                            self.metrics.observe_preemption(0);
                            nominate = forget.then(Str::default);
                        }
                        CandidateSearch::Candidates(candidates) => {
                            return self.preempt(profile, pod, candidates, diagnosis).await;
                        }
                    }
                }
                PostFilterPlugin::Custom(custom) => {
                    match custom.post_filter(pod, state, &self.cluster) {
                        Ok(node) => {
                            let nominate = Some(node);
                            return SchedulingFailure::FitError {
                                diagnosis,
                                nominate,
                            };
                        }
                        Err(rejection) => messages.push(rejection.reason.into_owned()),
                    }
                }
            }
        }
        diagnosis.post_filter_message = messages.join(", ");
        SchedulingFailure::FitError {
            diagnosis,
            nominate,
        }
    }

    /// Deallocates a claim whose devices are on nodes that do not fit. Returns the plugin's
    /// message.
    fn deallocate_claims(&self, pod: &PodInfo, diagnosis: &Diagnosis) -> &'static str {
        let claims = self.cluster.devices.pod_claims(pod).unwrap_or_default();
        if claims.is_empty() || !diagnosis.pre_filter_message.is_empty() {
            return "no new claims to deallocate";
        }
        let untried = diagnosis
            .rejections
            .iter()
            .any(|(_, rejection)| rejection.plugin == Name::DynamicResources);
        let ours = |consumers: &[Value]| {
            consumers
                .iter()
                .all(|consumer| consumer["uid"].str() == pod.uid)
        };
        let mut held = claims
            .iter()
            .filter(|claim| !claim["status"]["allocation"].is_null());
        let Some(claim) = held.find(|claim| untried && ours(claim["status"]["reservedFor"].list()))
        else {
            return "still not schedulable";
        };
        let (api, mut claim) = (self.api.clone(), Object::clone(claim));
        for field in ["allocation", "reservedFor", "devices"] {
            claim.entry("status").remove(field);
        }
        tokio::spawn(async move {
            if let Err(error) = api.update_status(&RESOURCE_CLAIMS, &claim).await {
                tracing::warn!(claim = %claim.key(), %error, "cannot deallocate a resource claim");
            }
        });
        "deallocation of ResourceClaim completed"
    }

    /// Selects the best candidate and preempts its victims.
    async fn preempt(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
        candidates: Vec<PreemptionCandidate>,
        mut diagnosis: Diagnosis,
    ) -> SchedulingFailure {
        let candidates = match self.preempt_with_extenders(pod, candidates).await {
            Ok(candidates) => candidates,
            Err(error) => {
                diagnosis.post_filter_message = format!("preemption: {error}");
                return SchedulingFailure::FitError {
                    diagnosis,
                    nominate: None,
                };
            }
        };
        let now = (self.clock)().as_second();
        let Some(PreemptionCandidate { node, victims, .. }) = pick_one_node(candidates, now) else {
            diagnosis.post_filter_message = "preemption: no candidate node for preemption".into();
            return SchedulingFailure::FitError {
                diagnosis,
                nominate: None,
            };
        };
        self.metrics.observe_preemption(victims.len());
        let displaced = self.queue.nominated.pods_for_node(&node).iter();
        let displaced = displaced
            .filter(|other| other.priority < pod.priority)
            .cloned()
            .collect();
        let preemption = Preemption {
            preemptor: pod.clone(),
            node: node.clone(),
            victims,
            displaced,
        };
        self.prepare_candidate(profile, preemption);
        SchedulingFailure::FitError {
            diagnosis,
            nominate: Some(node),
        }
    }

    /// Deletes the victims beside the loop. The preemptor is not retried meanwhile.
    fn prepare_candidate(&mut self, profile: &Profile, preemption: Preemption) {
        let leaving: Vec<Arc<PodInfo>> = preemption
            .victims
            .into_iter()
            .filter(|victim| !victim.is_terminating)
            .collect();
        // Kubernetes: nominations stay if all victims are terminating already (executor.go).
        if leaving.is_empty() {
            return;
        }
        for pod in preemption
            .displaced
            .iter()
            .filter(|pod| !pod.nominated_node.is_empty())
        {
            let (pod, nominated) = (pod.clone(), Some(Str::default()));
            self.status_writer.send(PodStatusUpdate {
                pod,
                condition: None,
                nominated,
            });
        }
        self.preemptors.push(preemption.preemptor.uid.clone());
        let eviction = PreemptionExecutor {
            api: self.api.clone(),
            recorder: self.recorder.clone(),
            scheduler: profile.name.clone(),
            preemptor: preemption.preemptor,
            node: preemption.node,
            now: time::from_unix((self.clock)().as_second()),
        };
        let (sender, metrics) = (self.sender.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            let uid = eviction.preemptor.uid.clone();
            let mut tasks = JoinSet::new();
            for victim in leaving {
                let eviction = eviction.clone();
                tasks.spawn(async move { eviction.preempt_pod(&victim).await });
            }
            let outcomes = tasks.join_all().await;
            let done = outcomes.into_iter().all(|outcome| outcome.is_ok());
            metrics.observe_victims_deleted(done, started.elapsed());
            let _ = sender.send(SchedulerMessage::Preempted { uid, done }).await;
        });
    }
}

/// Deletes the victims of one preemptor.
#[derive(Clone)]
struct PreemptionExecutor {
    api: DynamicClient,
    recorder: EventRecorder,
    scheduler: Str,
    preemptor: Arc<PodInfo>,
    node: Str,
    now: String,
}
impl PreemptionExecutor {
    /// Sets the DisruptionTarget condition, deletes the pod, and records an Event.
    async fn preempt_pod(&self, victim: &PodInfo) -> Result<(), kube::Error> {
        let outcome = self.delete_victim(victim).await;
        match outcome {
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => {
                tracing::warn!(pod = %victim.key(), %error, "cannot preempt a pod");
                return Err(error);
            }
            Ok(()) => {}
        }
        let note = EventNote {
            severity: Severity::Normal,
            reason: "Preempted",
            action: "Preempting",
            // Kubernetes: the preemptor is named in the message alone; the Event has no `related`
            // (executor.go).
            text: format!(
                "Preempted by pod {} on node {}",
                self.preemptor.uid, self.node
            ),
        };
        self.recorder
            .record_once(&self.scheduler, victim, note)
            .await;
        Ok(())
    }

    async fn delete_victim(&self, victim: &PodInfo) -> Result<(), kube::Error> {
        let key = victim.key();
        if let Some(change) = self.disruption_target_patch(victim) {
            self.api
                .patch(
                    &PODS,
                    &key,
                    "status",
                    mizzen_sdk::dynamic::PatchType::Strategic,
                    &change,
                )
                .await?;
        }
        self.api
            .delete(&PODS, &key, &DeleteOptions::default())
            .await
            .map(drop)
    }

    fn disruption_target_patch(&self, victim: &PodInfo) -> Option<Value> {
        let object = victim.entry.object().ok()?;
        let message = format!(
            "{}: preempting to accommodate a higher priority pod",
            self.scheduler
        );
        let condition = value!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message
        });
        let condition = updated_condition(&object, condition, &self.now)?;
        Some(value!({"status": (condition::added(&object, condition))}))
    }
}
