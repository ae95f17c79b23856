//! Every service that selects pods has endpoint slices that say where they are.
//!
//! | part | the question it answers |
//! |---|---|
//! | `wanted` | Which endpoints should a service have? |
//! | `pack` | How are they packed into slices? |
//! | `hints` | Whose traffic should an endpoint get? |
//! | `zones` | How many endpoints should each zone have? |
//! | `sharing` | Is that still right? |
//! | `plan` | What is to be done? |

mod hints;
mod pack;
mod plan;
mod sharing;
mod wanted;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{NODES, PODS, SERVICES};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::sync::Notify;

use crate::common::failure::message;
use crate::select::{index_labels, index_selectors, selected};
use crate::services::member::{Family, selects_pods};
use crate::services::publish::Publisher;
use crate::services::trigger::{self, Triggers};
use crate::services::{patient_queue, pod_changed, selector};
use crate::{After, Context, Error, Reconcile, Work};
use plan::{Surroundings, plan};
use sharing::Sharing;

/// How many services are looked at at a time.
const WORKERS: usize = 5;
/// How long to wait after somebody touched a slice: others may follow.
const BATCH: Duration = Duration::from_secs(1);
/// How long a service that failed waits at most.
const MAX_BACKOFF: Duration = Duration::from_secs(1000);

struct Slices {
    context: Context,
    services: Informer<Object>,
    pods: Informer<Object>,
    nodes: Informer<Object>,
    publisher: Publisher,
    triggers: Triggers,
    sharing: Sharing,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("endpointslice-controller")
        .recording_as("endpoint-slice-controller");
    let queue = patient_queue("endpoint_slice", MAX_BACKOFF);
    let (services, pods, nodes) = (
        context.follow(&SERVICES),
        context.follow(&PODS),
        context.follow(&NODES),
    );
    index_labels(&pods);
    index_selectors(&services, selector);
    let todo = queue.clone();
    services.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    pods.add_handler(pod_changed(&services, &queue));
    let moved = Arc::new(Notify::new());
    nodes.add_handler(node_changed(moved.clone()));
    let publisher = Publisher::new(&context, pack::CONTROLLER, &queue, BATCH);
    let (triggers, sharing) = (Triggers::default(), Sharing::default());
    let slices = Arc::new(Slices {
        context,
        services,
        pods,
        nodes,
        publisher,
        triggers,
        sharing,
    });
    Work::new(queue.clone(), WORKERS, slices.clone()).and(follow_nodes(slices, queue, moved))
}

/// Wakes who shares endpoints out among zones when nodes come, go, or change in what counts for that.
fn node_changed(moved: Arc<Notify>) -> impl FnMut(Event<Object>) + Send + 'static {
    let place = |node: &Object| {
        (
            node.label(zones::ZONE).map(String::from),
            zones::is_node_ready(node),
        )
    };
    move |event| {
        let is_same = match &event {
            Event::Updated { old, new } => match (old.object(), new.object()) {
                (Ok(old), Ok(new)) => place(&old) == place(&new),
                _ => false,
            },
            _ => false,
        };
        if !is_same {
            moved.notify_one();
        }
    }
}

async fn follow_nodes(slices: Arc<Slices>, queue: Queue<Key>, moved: Arc<Notify>) {
    loop {
        moved.notified().await;
        let overloaded = slices.sharing.set_ratios(slices.look_at_nodes());
        overloaded.into_iter().for_each(|key| queue.add(key));
    }
}

impl Reconcile for Slices {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(service) = self.services.lister().by_key(key)? else {
            self.triggers.forget(key);
            self.sharing.forget(key);
            return Ok(After::Done);
        };
        let outcome = match selects_pods(&service) {
            true => self.publish(key, &service).await,
            false => Ok(()),
        };
        if let Err(error) = &outcome {
            let text = format!("Error updating Endpoint Slices for Service {key}: {error}");
            self.context.record(
                &SERVICES,
                &service,
                Note::warning("FailedToUpdateEndpointSlices", "Updating", text),
            );
        }
        outcome.map(|()| After::Done)
    }
}

impl Slices {
    async fn publish(&self, key: &Key, service: &Object) -> Result<(), Error> {
        let pods = match selector(service) {
            Some(selector) => selected(&self.pods, key.namespace(), &selector)?,
            None => Vec::new(),
        };
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let slices = self.publisher.slices(key)?;
        let moment = self.triggers.look(service, pods.iter().copied());
        let (families, mut errors) = (wanted::families(service), Vec::new());
        for family in &families {
            let own = |slice: &&Arc<Object>| slice["addressType"].str() == family.name();
            let own: Vec<&Value> = slices.iter().filter(own).map(|slice| &slice.0).collect();
            errors.extend(
                self.publish_family(key, service, &pods, &own, *family, moment.as_deref())
                    .await,
            );
        }
        let is_foreign = |slice: &&Arc<Object>| {
            Family::named(slice["addressType"].str())
                .is_none_or(|family| !families.contains(&family))
        };
        for slice in slices.iter().filter(is_foreign) {
            if let Err(error) = self.publisher.delete(slice).await {
                let (name, error) = (slice.name(), message(&error));
                errors.push(format!(
                    "error deleting {name} EndpointSlice for Service {key}: {error}"
                ));
            }
        }
        join(errors)
    }

    /// Lets the slices of one family be as they should; what went wrong.
    async fn publish_family(
        &self,
        key: &Key,
        service: &Object,
        pods: &[&Value],
        slices: &[&Value],
        family: Family,
        moment: Option<&str>,
    ) -> Vec<String> {
        let ratios = self.sharing.ratios(|| self.look_at_nodes());
        let mut plan = {
            let nodes = |name: &str| self.node_labels(name);
            let around = Surroundings {
                nodes: &nodes,
                ratios: ratios.as_ref(),
            };
            plan(service, pods, slices, &around, family)
        };
        let (changes, mut errors) = (&mut plan.changes, plan.complaints);
        changes
            .create
            .iter_mut()
            .chain(&mut changes.update)
            .for_each(|slice| trigger::annotate(slice, moment));
        let note = self.sharing.note(key, family, plan.shares);
        if let Err(error) = self
            .publisher
            .publish(("Service", service), plan.changes)
            .await
        {
            errors.push(error.to_string());
        }
        if let Some(note) = note {
            self.context.record(&SERVICES, service, note);
        }
        errors
    }

    fn node_labels(&self, name: &str) -> Option<Value> {
        let node = self.nodes.lister().by_key(&Key::cluster(name)).ok()??;
        Some(node["metadata"]["labels"].clone())
    }

    fn look_at_nodes(&self) -> Option<zones::Ratios> {
        let nodes = self.nodes.lister().list().unwrap_or_default();
        zones::ratios(nodes.iter().map(|node| &node.0))
    }
}

/// Several errors as one, in Go's words.
fn join(errors: Vec<String>) -> Result<(), Error> {
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(Error::Other(error.clone())),
        errors => Err(Error::Other(format!("[{}]", errors.join(", ")))),
    }
}
