//! A disruption budget knows how many of its pods may be evicted.
//!
//! | part | the question it answers |
//! |---|---|
//! | `plan` | How many pods may a budget lose now? |
//! | `scale` | How many pods do those want who control them? |
//! | `stale` | Which pods say that they are about to be disrupted, and are not? |

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

use crate::common::failure::message;
use crate::select::{index_labels, index_selectors, selected, selecting};
use crate::{After, Context, Error, Reconcile, Work};
use plan::{Basis, Need};
use scale::Scales;

/// Kubernetes: in events this loop goes by the name of the program (disruption.go).
const COMPONENT: &str = "controllermanager";

struct Budgets {
    context: Context,
    budgets: Informer<Object>,
    pods: Informer<Object>,
    scales: Scales,
}

struct StalePods {
    context: Context,
    pods: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("disruption-controller")
        .recording_as(COMPONENT);
    let (queue, stale) = (
        context.queue("disruption"),
        context.queue("stale_pod_disruption"),
    );
    let (budgets, pods) = (
        context.follow(&POD_DISRUPTION_BUDGETS),
        context.follow(&PODS),
    );
    index_labels(&pods);
    index_selectors(&budgets, selector);
    let todo = queue.clone();
    budgets.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let (mut guarded, todo, clock) = (
        pod_changed(&context, &budgets, &queue),
        stale.clone(),
        context.clone(),
    );
    pods.add_handler(move |event: Event<Object>| {
        let Ok(pod) = event.object().object() else {
            return;
        };
        guarded(&event, &pod);
        if let Some(left) = stale::remaining(&pod, clock.now().as_second()) {
            todo.add_after(pod.key(), left);
        }
    });
    let scales = Scales::new(&context);
    let stale_pods = StalePods {
        context: context.clone(),
        pods: pods.clone(),
    };
    Work::new(
        queue,
        1,
        Arc::new(Budgets {
            context,
            budgets,
            pods,
            scales,
        }),
    )
    .with(Work::new(stale, 1, Arc::new(stale_pods)))
}

/// Which pods a budget guards.
fn selector(budget: &Value) -> Option<LabelSelector> {
    LabelSelector::of(&budget["spec"]["selector"])
}

/// Queues the budgets that guard a pod.
fn pod_changed(
    context: &Context,
    budgets: &Informer<Object>,
    queue: &Queue<Key>,
) -> impl FnMut(&Event<Object>, &Object) + Send + 'static {
    let (context, budgets, queue) = (context.clone(), budgets.clone(), queue.clone());
    move |event, pod| {
        let guards = selecting(
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
            context.record(
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
            selecting(
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
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(budget) = self.budgets.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        match self.count(&budget).await {
            Err(error) if !error.is_conflict() => {
                let status = plan::failed(&budget, &said(&error), &self.context.now_text());
                self.write(&budget, status).await.map(|()| After::Done)
            }
            outcome => outcome,
        }
    }
}

/// What went wrong, in the server's words if it was the server.
fn said(error: &Error) -> String {
    match error {
        Error::Api(error) => message(error),
        error => error.to_string(),
    }
}

impl Budgets {
    /// Counts the pods of a budget and writes what it may lose.
    async fn count(&self, budget: &Object) -> Result<After, Error> {
        let pods = match selector(budget) {
            Some(selector) => selected(&self.pods, budget.namespace(), &selector)?,
            None => Vec::new(),
        };
        if pods.is_empty() {
            self.tell(
                budget,
                Note::normal("NoPods", "Counting", "No matching pods found"),
            );
        }
        let need = self.need(budget, &pods).await.inspect_err(|error| {
            let text = format!(
                "Failed to calculate the number of expected pods: {}",
                said(error)
            );
            self.tell(
                budget,
                Note::warning("CalculateExpectedPodCountFailed", "Counting", text),
            );
        })?;
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let now = self.context.now().as_second();
        let disrupted = plan::disrupted(budget, &pods, now);
        for late in &disrupted.late {
            // Kubernetes: it says the namespace twice (disruption.go).
            let of = format!("{0}/{0}", budget.namespace());
            let text = format!("Pod was expected by PDB {of} to be deleted but it wasn't");
            let late = Object((*late).clone());
            self.context
                .record(&PODS, &late, Note::warning("NotDeleted", "Evicting", text));
        }
        let healthy = plan::healthy(&pods, &disrupted, now);
        let status = plan::status(budget, need, healthy, &disrupted, &time::from_unix(now));
        self.write(budget, status).await?;
        Ok(match disrupted.next {
            // A second later it is late for certain.
            Some(next) => After::Again(Duration::from_secs((next - now + 1).max(1) as u64)),
            None => After::Done,
        })
    }

    async fn need(&self, budget: &Object, pods: &[Arc<Object>]) -> Result<Need, Error> {
        let expected = match plan::basis(budget) {
            Basis::Pods => pods.len() as i64,
            Basis::Scale => {
                let wanted = self.scales.wanted(pods).await?;
                if wanted.has_unmanaged {
                    self.warn_of_unmanaged(budget);
                }
                wanted.n_pods
            }
        };
        plan::need(budget, expected).map_err(Error::Other)
    }

    fn warn_of_unmanaged(&self, budget: &Object) {
        let text = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
             these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            go_selector_text(&budget["spec"]["selector"])
        );
        self.tell(budget, Note::warning("UnmanagedPods", "Counting", text));
    }

    fn tell(&self, budget: &Object, note: Note) {
        self.context.record(&POD_DISRUPTION_BUDGETS, budget, note);
    }

    async fn write(&self, budget: &Object, status: Option<Value>) -> Result<(), Error> {
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

impl Reconcile for StalePods {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        match stale::remaining(&pod, self.context.now().as_second()) {
            None => return Ok(After::Done),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(After::Again(left)),
        }
        let mut pod = Object::clone(&pod);
        let status = stale::taken_back(&pod, &self.context.now_text());
        pod.set("status", status);
        self.context.api.update_status(&PODS, &pod).await?;
        Ok(After::Done)
    }
}
