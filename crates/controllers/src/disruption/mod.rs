//! The disruption controller: computes how many pods of each PodDisruptionBudget may be evicted.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | the status of a budget |
//! | `scale` | the expected number of pods, from their controllers |
//! | `stale` | DisruptionTarget conditions of pods that were not deleted |

mod plan;
pub(crate) mod scale;
mod stale;

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::select::{LabelSelector, go_selector_text};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{POD_DISRUPTION_BUDGETS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, time};

use crate::common::owner_events::enqueue_objects;
use crate::select::{index_labels, index_selectors, objects_selecting, select_objects};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{ExpectedFrom, PodRequirement};
use scale::ScaleFinders;

/// Kubernetes: its events have this source component (disruption.go).
const COMPONENT: &str = "controllermanager";

struct Budgets {
    context: ControllerContext,
    budgets: Informer<Object>,
    pods: Informer<Object>,
    scales: ScaleFinders,
}

struct StalePodDisruption {
    context: ControllerContext,
    pods: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("disruption-controller")
        .with_event_source(COMPONENT);
    let queue = context.queue("disruption");
    let stale = context.queue("stale_pod_disruption");
    let budgets = context.informer(&POD_DISRUPTION_BUDGETS);
    let pods = context.informer(&PODS);
    index_labels(&pods);
    index_selectors(&budgets, selector);
    enqueue_objects(&budgets, &queue);
    let mut guarded = on_pod_event(&context, &budgets, &queue);
    let todo = stale.clone();
    let clock = context.clone();
    pods.add_handler(move |event: Event<Object>| {
        let Ok(pod) = event.object().object() else {
            return;
        };
        guarded(&event, &pod);
        if let Some(left) = stale::remaining(&pod, clock.now().as_second()) {
            todo.add_after(pod.key(), left);
        }
    });
    let scales = ScaleFinders::new(&context);
    let stale_pods = StalePodDisruption {
        context: context.clone(),
        pods: pods.clone(),
    };
    let reconciler = Budgets {
        context,
        budgets,
        pods,
        scales,
    };
    Controller::new(queue, 1, Arc::new(reconciler)).merge(Controller::new(
        stale,
        1,
        Arc::new(stale_pods),
    ))
}

/// The selector of a budget.
fn selector(budget: &Value) -> Option<LabelSelector> {
    LabelSelector::from_value(&budget["spec"]["selector"])
}

/// Enqueues the budgets of a pod.
fn on_pod_event(
    context: &ControllerContext,
    budgets: &Informer<Object>,
    queue: &Queue<Key>,
) -> impl FnMut(&Event<Object>, &Object) + Send + 'static {
    let (context, budgets, queue) = (context.clone(), budgets.clone(), queue.clone());
    move |event, pod| {
        let guards = objects_selecting(
            &budgets,
            pod.namespace(),
            &pod["metadata"]["labels"],
            selector,
        );
        if let [first, _, ..] = guards.as_slice() {
            let (namespace, name) = (pod.namespace(), pod.name());
            let text = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                first.name()
            );
            context.record_event(
                &PODS,
                pod,
                Note::warning("MultiplePodDisruptionBudgets", "Guarding", text),
            );
        }
        let before = match event {
            Event::Updated { old, .. } => old.object().ok(),
            _ => None,
        };
        let before = before.filter(|old| old["metadata"]["labels"] != pod["metadata"]["labels"]);
        let left = before.map(|old| {
            objects_selecting(
                &budgets,
                old.namespace(),
                &old["metadata"]["labels"],
                selector,
            )
        });
        guards
            .iter()
            .chain(left.iter().flatten())
            .for_each(|budget| queue.add(budget.key()));
    }
}

impl Reconcile for Budgets {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(budget) = self.budgets.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        match self.sync_budget(&budget).await {
            Err(error) if !error.is_conflict() => {
                let status =
                    plan::failed_status(&budget, &error.message(), &self.context.now_text());
                self.write_status(&budget, status)
                    .await
                    .map(|()| Action::AwaitChange)
            }
            outcome => outcome,
        }
    }
}

impl Budgets {
    /// Computes and writes the status of a budget.
    async fn sync_budget(&self, budget: &Object) -> Result<Action, Error> {
        let pods = match selector(budget) {
            Some(selector) => select_objects(&self.pods, budget.namespace(), &selector)?,
            None => Vec::new(),
        };
        if pods.is_empty() {
            self.record_event(
                budget,
                Note::normal("NoPods", "Counting", "No matching pods found"),
            );
        }
        let need = self
            .expected_and_healthy(budget, &pods)
            .await
            .inspect_err(|error| {
                let text = format!(
                    "Failed to calculate the number of expected pods: {}",
                    error.message()
                );
                self.record_event(
                    budget,
                    Note::warning("CalculateExpectedPodCountFailed", "Counting", text),
                );
            })?;
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let now = self.context.now().as_second();
        let disrupted = plan::disrupted(budget, &pods, now);
        for late in &disrupted.late {
            // Kubernetes: the message has the namespace twice (disruption.go).
            let of = format!("{0}/{0}", budget.namespace());
            let text = format!("Pod was expected by PDB {of} to be deleted but it wasn't");
            let late = Object((*late).clone());
            self.context
                .record_event(&PODS, &late, Note::warning("NotDeleted", "Evicting", text));
        }
        let healthy = plan::count_healthy(&pods, &disrupted, now);
        let status = plan::status(budget, need, healthy, &disrupted, &time::from_unix(now));
        self.write_status(budget, status).await?;
        Ok(match disrupted.next {
            // One second later, so that the timeout has surely passed.
            Some(next) => Action::Requeue(Duration::from_secs((next - now + 1).max(1) as u64)),
            None => Action::AwaitChange,
        })
    }

    async fn expected_and_healthy(
        &self,
        budget: &Object,
        pods: &[Arc<Object>],
    ) -> Result<PodRequirement, Error> {
        let expected = match plan::expected_from(budget) {
            ExpectedFrom::Pods => pods.len() as i64,
            ExpectedFrom::Scale => {
                let wanted = self.scales.expected_pods(pods).await?;
                if wanted.has_unmanaged {
                    self.warn_of_unmanaged(budget);
                }
                wanted.n_pods
            }
        };
        plan::requirement(budget, expected).map_err(Error::Other)
    }

    fn warn_of_unmanaged(&self, budget: &Object) {
        let text = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
             these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            go_selector_text(&budget["spec"]["selector"])
        );
        self.record_event(budget, Note::warning("UnmanagedPods", "Counting", text));
    }

    fn record_event(&self, budget: &Object, note: Note) {
        self.context
            .record_event(&POD_DISRUPTION_BUDGETS, budget, note);
    }

    async fn write_status(&self, budget: &Object, status: Option<Value>) -> Result<(), Error> {
        let Some(status) = status else { return Ok(()) };
        let mut budget = budget.clone();
        budget.set("status", status);
        self.context
            .api
            .update_status(&POD_DISRUPTION_BUDGETS, &budget)
            .await?;
        Ok(())
    }
}

impl Reconcile for StalePodDisruption {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        match stale::remaining(&pod, self.context.now().as_second()) {
            None => return Ok(Action::AwaitChange),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(Action::Requeue(left)),
        }
        let mut pod = Object::clone(&pod);
        let status = stale::without_disruption_target(&pod, &self.context.now_text());
        pod.set("status", status);
        self.context.api.update_status(&PODS, &pod).await?;
        Ok(Action::AwaitChange)
    }
}
