//! The disruption controller: computes how many pods of each PodDisruptionBudget may be evicted.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | the status of a budget |
//! | `scale` | the expected number of pods, from their controllers |
//! | `stale` | DisruptionTarget conditions of pods that were not deleted |

mod plan;
mod scale;
mod stale;

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::select::{LabelSelector, go_selector_text};
use mizzen_sdk::cache::Store;
use mizzen_sdk::controller::{
    Action, Context, Controller, Error, Reconcile, dynamic, index_labels, index_selectors,
    objects_selecting, select_objects,
};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{POD_DISRUPTION_BUDGETS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, time};

use plan::{ExpectedFrom, PodRequirement};
use scale::ScaleFinders;
pub use scale::group_version;

/// Kubernetes: its events have this source component (disruption.go).
const COMPONENT: &str = "controllermanager";

struct Budgets {
    context: Context,
    budgets: Informer<Object>,
    pods: Informer<Object>,
    scales: ScaleFinders,
}

struct StalePodDisruption {
    context: Context,
    pods: Informer<Object>,
}

/// Creates the controller of PodDisruptionBudgets.
pub fn start(context: &Context) -> Controller {
    let context = context
        .named("disruption-controller")
        .with_event_source(COMPONENT);
    let budgets = context.informer(&POD_DISRUPTION_BUDGETS);
    let pods = context.informer(&PODS);
    index_labels(&pods);
    index_selectors(budgets.store(), selector);
    let clock = context.clone();
    let on_pod = move |event: &Event<Object>, queue: &Queue<Key>| {
        let Ok(pod) = event.object().object() else {
            return;
        };
        if let Some(left) = stale::remaining(&pod, clock.now().as_second()) {
            queue.add_after(pod.key(), left);
        }
    };
    let stale_pods = Controller::for_kind(&context, dynamic(&PODS).handler(on_pod))
        .queue_name("stale_pod_disruption")
        .reconcile(StalePodDisruption {
            context: context.clone(),
            pods: pods.clone(),
        });
    Controller::for_kind(&context, &POD_DISRUPTION_BUDGETS)
        .watches_events(&PODS, on_pod_event(&context, budgets.store()))
        .queue_name("disruption")
        .reconcile(Budgets {
            scales: ScaleFinders::new(&context),
            context,
            budgets,
            pods,
        })
        .merge(stale_pods)
}

/// The selector of a budget.
fn selector(budget: &Object) -> Option<LabelSelector> {
    LabelSelector::from_value(&budget["spec"]["selector"])
}

/// Enqueues the budgets of a pod.
fn on_pod_event(
    context: &Context,
    budgets: &Store<Object>,
) -> impl FnMut(&Event<Object>, &Queue<Key>) + Send + 'static {
    let (context, budgets) = (context.clone(), budgets.clone());
    move |event, queue| {
        let Ok(pod) = event.object().object() else {
            return;
        };
        let guards = objects_selecting(&budgets, pod.namespace(), &pod.labels(), selector);
        if let [first, _, ..] = guards.as_slice() {
            let (namespace, name) = (pod.namespace(), pod.name());
            let text = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                first.name()
            );
            context.record_event(
                &PODS,
                &pod,
                Note::warning("MultiplePodDisruptionBudgets", "Guarding", text),
            );
        }
        let before = match event {
            Event::Updated { old, .. } => old.object().ok(),
            _ => None,
        };
        let before = before.filter(|old| old["metadata"]["labels"] != pod["metadata"]["labels"]);
        let left =
            before.map(|old| objects_selecting(&budgets, old.namespace(), &old.labels(), selector));
        guards
            .iter()
            .chain(left.iter().flatten())
            .for_each(|budget| queue.add(budget.key()));
    }
}

impl Reconcile for Budgets {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(budget) = self.budgets.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        match self.sync_budget(&budget).await {
            Err(error) if !error.is_conflict() => {
                let status =
                    plan::failed_status(&budget, &error.to_string(), &self.context.now_text());
                self.write_status(&budget, status)
                    .await
                    .map(|()| Action::done())
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
                let text = format!("Failed to calculate the number of expected pods: {error}");
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
            Some(next) => {
                Action::requeue_after(Duration::from_secs((next - now + 1).max(1) as u64))
            }
            None => Action::done(),
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
        plan::requirement(budget, expected).map_err(Error::other)
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
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        match stale::remaining(&pod, self.context.now().as_second()) {
            None => return Ok(Action::done()),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(Action::requeue_after(left)),
        }
        let mut pod = Object::clone(&pod);
        let status = stale::without_disruption_target(&pod, &self.context.now_text());
        pod.set("status", status);
        self.context.api.update_status(&PODS, &pod).await?;
        Ok(Action::done())
    }
}
