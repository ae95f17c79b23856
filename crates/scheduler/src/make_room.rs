//! What if no node has room for a pod?

use std::sync::Arc;

use mizzen_sdk::api::{Api, DeleteOptions};
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Object, condition};
use mizzen_value::{Str, Value, time, value};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::cycle::{Diagnosis, Prepared};
use crate::inbox::Letter;
use crate::model::Pod;
use crate::plugin::Name;
use crate::preempt::{Candidate, Case, Preemption, Search, best, search};
use crate::profile::Profile;
use crate::report::{Report, renewed};
use crate::scheduler::{Failure, Scheduler};
use crate::tell::{Herald, Note};

impl Scheduler {
    /// Tries to make room for a pod that no node has room for.
    pub(crate) async fn make_room(
        &mut self,
        profile: &Profile,
        pod: &Arc<Pod>,
        prepared: &Prepared,
        mut diagnosis: Diagnosis,
    ) -> Failure {
        let mut said = Vec::new();
        if profile.frees_devices {
            // Kubernetes: what the plugin of devices remembers of the pod is missing if it was not asked (framework.go).
            if !prepared.asked.has(Name::DynamicResources) && !diagnosis.before.is_empty() {
                diagnosis.after = "not found".into();
                return Failure::Unfit {
                    diagnosis,
                    nominate: None,
                };
            }
            said.push(self.free_devices(pod, &diagnosis).to_string());
        }
        let nominate = match profile.preemption {
            None => None,
            Some(breadth) => {
                let now = (self.clock)().as_second();
                let (world, nominated) = (&self.world, &self.queue.nominated);
                let case = Case {
                    pod,
                    prepared,
                    world,
                    nominated,
                    now,
                };
                match search(&case, &diagnosis, breadth, &self.chance) {
                    Search::None { message, forget } => {
                        said.push(format!("preemption: {message}"));
                        self.meter.preemption(0);
                        forget.then(Str::default)
                    }
                    Search::Candidates(candidates) => {
                        return self.preempt(profile, pod, candidates, now, diagnosis).await;
                    }
                }
            }
        };
        diagnosis.after = said.join(", ");
        Failure::Unfit {
            diagnosis,
            nominate,
        }
    }

    /// Gives back devices that the pod's claims have where the pod cannot be. What came of it.
    fn free_devices(&self, pod: &Pod, diagnosis: &Diagnosis) -> &'static str {
        let claims = self.world.devices.claims_of(pod).unwrap_or_default();
        if claims.is_empty() || !diagnosis.before.is_empty() {
            return "no new claims to deallocate";
        }
        let elsewhere = diagnosis
            .refusals
            .iter()
            .any(|(_, refusal)| refusal.plugin == Name::DynamicResources);
        let ours = |consumers: &[Value]| {
            consumers
                .iter()
                .all(|consumer| consumer["uid"].str() == pod.uid)
        };
        let mut held = claims
            .iter()
            .filter(|claim| !claim["status"]["allocation"].is_null());
        let Some(claim) =
            held.find(|claim| elsewhere && ours(claim["status"]["reservedFor"].list()))
        else {
            return "still not schedulable";
        };
        let (api, mut claim) = (self.api.clone(), Object::clone(claim));
        for field in ["allocation", "reservedFor", "devices"] {
            claim.entry("status").remove(field);
        }
        tokio::spawn(async move {
            if let Err(error) = api.update_status(&RESOURCE_CLAIMS, &claim).await {
                tracing::debug!(%error, "cannot give back devices");
            }
        });
        "deallocation of ResourceClaim completed"
    }

    /// Lets pods go where it hurts least.
    async fn preempt(
        &mut self,
        profile: &Profile,
        pod: &Arc<Pod>,
        candidates: Vec<Candidate>,
        now: i64,
        mut diagnosis: Diagnosis,
    ) -> Failure {
        let candidates = match self.consult_victims(pod, candidates).await {
            Ok(candidates) => candidates,
            Err(error) => {
                diagnosis.after = format!("preemption: {error}");
                return Failure::Unfit {
                    diagnosis,
                    nominate: None,
                };
            }
        };
        let Some(Candidate { node, victims, .. }) = best(candidates, now) else {
            diagnosis.after = "preemption: no candidate node for preemption".into();
            return Failure::Unfit {
                diagnosis,
                nominate: None,
            };
        };
        self.meter.preemption(victims.len());
        let displaced = self.queue.nominated.on(&node).iter();
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
        self.carry_out(profile, preemption);
        Failure::Unfit {
            diagnosis,
            nominate: Some(node),
        }
    }

    /// Deletes victims beside the loop; the pod is not tried meanwhile.
    fn carry_out(&mut self, profile: &Profile, preemption: Preemption) {
        let leaving: Vec<Arc<Pod>> = preemption
            .victims
            .into_iter()
            .filter(|victim| !victim.is_going)
            .collect();
        // Kubernetes: whoever was promised the room keeps the promise if all are going already (executor.go).
        if leaving.is_empty() {
            return;
        }
        for pod in preemption
            .displaced
            .iter()
            .filter(|pod| !pod.nominated.is_empty())
        {
            let (pod, nominated) = (pod.clone(), Some(Str::default()));
            self.reports.send(Report {
                pod,
                condition: None,
                nominated,
            });
        }
        self.holding.push(preemption.preemptor.uid.clone());
        let eviction = Eviction {
            api: self.api.clone(),
            herald: self.herald.clone(),
            scheduler: profile.name.clone(),
            preemptor: preemption.preemptor,
            node: preemption.node,
            now: time::from_unix((self.clock)().as_second()),
        };
        tokio::spawn(evict_all(eviction, leaving, self.sender.clone()));
    }
}

/// What is needed to let a pod go.
#[derive(Clone)]
struct Eviction {
    api: Api,
    herald: Herald,
    scheduler: Str,
    preemptor: Arc<Pod>,
    node: Str,
    now: String,
}

async fn evict_all(eviction: Eviction, victims: Vec<Arc<Pod>>, sender: Sender<Letter>) {
    let uid = eviction.preemptor.uid.clone();
    let mut tasks = JoinSet::new();
    for victim in victims {
        let eviction = eviction.clone();
        tasks.spawn(async move { eviction.evict(&victim).await });
    }
    let outcomes = tasks.join_all().await;
    let done = outcomes.into_iter().all(|outcome| outcome.is_ok());
    let _ = sender.send(Letter::Preempted { uid, done }).await;
}

impl Eviction {
    /// Says why a pod goes, lets it go, and tells people.
    async fn evict(&self, victim: &Pod) -> Result<(), kube::Error> {
        let outcome = self.delete(victim).await;
        match outcome {
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => {
                tracing::debug!(pod = %victim.key(), %error, "cannot preempt a pod");
                return Err(error);
            }
            Ok(()) => {}
        }
        let note = Note {
            severity: Severity::Normal,
            reason: "Preempted",
            action: "Preempting",
            // Kubernetes: the other pod is named here alone; the event has no `related` (executor.go).
            text: format!(
                "Preempted by pod {} on node {}",
                self.preemptor.uid, self.node
            ),
        };
        self.herald.tell_once(&self.scheduler, victim, note).await;
        Ok(())
    }

    async fn delete(&self, victim: &Pod) -> Result<(), kube::Error> {
        let key = victim.key();
        if let Some(change) = self.condition(victim) {
            self.api
                .patch(
                    &PODS,
                    &key,
                    "status",
                    mizzen_sdk::api::Patch::Strategic,
                    &change,
                )
                .await?;
        }
        self.api
            .delete(&PODS, &key, &DeleteOptions::default())
            .await
            .map(drop)
    }

    fn condition(&self, victim: &Pod) -> Option<Value> {
        let object = victim.entry.object().ok()?;
        let message = format!(
            "{}: preempting to accommodate a higher priority pod",
            self.scheduler
        );
        let condition = value!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message
        });
        let condition = renewed(&object, condition, &self.now)?;
        Some(value!({"status": (condition::added(&object, condition))}))
    }
}
