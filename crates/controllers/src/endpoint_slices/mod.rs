//! The EndpointSlice controller: publishes the pods of services that have a selector.
//!
//! | file | contents |
//! |---|---|
//! | `desired` | the endpoints that a service should have |
//! | `pack` | their distribution over slices |
//! | `hints` | topology hints |
//! | `zones` | allocation of endpoints to zones |
//! | `topology_cache` | which allocations are in use |
//! | `plan` | the changes of a service's slices |

mod desired;
mod hints;
mod pack;
mod plan;
mod topology_cache;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NODES, PODS, SERVICES};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::sync::Notify;

use crate::common::api_errors::message;
use crate::common::owner_events::enqueue_objects;
use crate::select::{index_labels, index_selectors, select_objects};
use crate::services::member::{IpFamily, selects_pods};
use crate::services::publish::SlicePublisher;
use crate::services::trigger::{self, TriggerTimeTracker};
use crate::services::{enqueue_services_of_pod, selector, slow_retry_queue};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{NodeTopology, plan};
use topology_cache::TopologyCache;

/// Upstream's default of `--concurrent-service-endpoint-syncs`.
const WORKERS: usize = 5;
/// How long to wait after another client changed a slice, to batch such changes.
const BATCH: Duration = Duration::from_secs(1);
/// The longest retry delay.
const MAX_BACKOFF: Duration = Duration::from_secs(1000);

struct EndpointSliceController {
    context: ControllerContext,
    services: Informer<Object>,
    pods: Informer<Object>,
    nodes: Informer<Object>,
    publisher: SlicePublisher,
    triggers: TriggerTimeTracker,
    topology_cache: TopologyCache,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("endpointslice-controller")
        .with_event_source("endpoint-slice-controller");
    let queue = slow_retry_queue("endpoint_slice", MAX_BACKOFF);
    let services = context.informer(&SERVICES);
    let pods = context.informer(&PODS);
    let nodes = context.informer(&NODES);
    index_labels(&pods);
    index_selectors(&services, selector);
    enqueue_objects(&services, &queue);
    pods.add_handler(enqueue_services_of_pod(&services, &queue));
    let moved = Arc::new(Notify::new());
    let notify = moved.clone();
    nodes.add_handler(move |event: Event<Object>| {
        let topology = |node: &Entry<Object>| {
            let node = node.object().ok()?;
            Some((
                node.label(zones::ZONE).map(String::from),
                zones::is_node_ready(&node),
            ))
        };
        let is_same = match &event {
            Event::Updated { old, new } => {
                topology(old).is_some_and(|old| Some(old) == topology(new))
            }
            _ => false,
        };
        if !is_same {
            notify.notify_one();
        }
    });
    let publisher = SlicePublisher::new(&context, pack::CONTROLLER, &queue, BATCH);
    let (triggers, topology_cache) = (TriggerTimeTracker::default(), TopologyCache::default());
    let slices = Arc::new(EndpointSliceController {
        context,
        services,
        pods,
        nodes,
        publisher,
        triggers,
        topology_cache,
    });
    let todo = queue.clone();
    Controller::new(queue, WORKERS, slices.clone()).with_task(async move {
        loop {
            moved.notified().await;
            let overloaded = slices.topology_cache.set_ratios(slices.zone_ratios());
            overloaded.into_iter().for_each(|key| todo.add(key));
        }
    })
}

impl Reconcile for EndpointSliceController {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(service) = self.services.lister().by_key(key)? else {
            self.triggers.forget(key);
            self.topology_cache.remove(key);
            return Ok(Action::AwaitChange);
        };
        let outcome = match selects_pods(&service) {
            true => self.sync_service(key, &service).await,
            false => Ok(()),
        };
        if let Err(error) = &outcome {
            let text = format!("Error updating Endpoint Slices for Service {key}: {error}");
            self.context.record_event(
                &SERVICES,
                &service,
                Note::warning("FailedToUpdateEndpointSlices", "Updating", text),
            );
        }
        outcome.map(|()| Action::AwaitChange)
    }
}

/// The sync of a service's slices of one address family.
struct FamilySync<'a> {
    service: &'a Object,
    pods: &'a [&'a Value],
    slices: &'a [&'a Value],
    family: IpFamily,
    trigger_time: Option<&'a str>,
}

impl EndpointSliceController {
    async fn sync_service(&self, key: &Key, service: &Object) -> Result<(), Error> {
        let pods = match selector(service) {
            Some(selector) => select_objects(&self.pods, key.namespace(), &selector)?,
            None => Vec::new(),
        };
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let slices = self.publisher.slices(key)?;
        let moment = self
            .triggers
            .compute_trigger_time(service, pods.iter().copied());
        let (families, mut errors) = (desired::families(service), Vec::new());
        for family in &families {
            let own = |slice: &&Arc<Object>| slice["addressType"].str() == family.name();
            let own: Vec<&Value> = slices.iter().filter(own).map(|slice| &slice.0).collect();
            let sync = FamilySync {
                service,
                pods: &pods,
                slices: &own,
                family: *family,
                trigger_time: moment.as_deref(),
            };
            errors.extend(self.publish_family(sync).await);
        }
        let is_foreign = |slice: &&Arc<Object>| {
            IpFamily::from_name(slice["addressType"].str())
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

    /// Syncs the slices of one address family; returns the errors.
    async fn publish_family(&self, sync: FamilySync<'_>) -> Vec<String> {
        let FamilySync {
            service, family, ..
        } = sync;
        let ratios = self.topology_cache.ratios(|| self.zone_ratios());
        let mut plan = {
            let nodes = |name: &str| self.node_labels(name);
            let around = NodeTopology {
                nodes: &nodes,
                ratios: ratios.as_ref(),
            };
            plan(service, sync.pods, sync.slices, &around, family)
        };
        let (changes, mut errors) = (&mut plan.changes, plan.skipped);
        changes
            .create
            .iter_mut()
            .chain(&mut changes.update)
            .for_each(|slice| trigger::annotate(slice, sync.trigger_time));
        let note = self
            .topology_cache
            .set_hints(&service.key(), family, plan.shares);
        if let Err(error) = self
            .publisher
            .publish(("Service", service), plan.changes)
            .await
        {
            errors.push(error.to_string());
        }
        if let Some(note) = note {
            self.context.record_event(&SERVICES, service, note);
        }
        errors
    }

    fn node_labels(&self, name: &str) -> Option<Value> {
        let node = self.nodes.lister().by_key(&Key::cluster(name)).ok()??;
        Some(node["metadata"]["labels"].clone())
    }

    fn zone_ratios(&self) -> Option<zones::ByZone> {
        let nodes = self.nodes.lister().list().unwrap_or_default();
        zones::cpu_ratios(nodes.iter().map(|node| &node.0))
    }
}

/// Joins several errors into one, as Go's errors.Join.
fn join(errors: Vec<String>) -> Result<(), Error> {
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(Error::Other(error.clone())),
        errors => Err(Error::Other(format!("[{}]", errors.join(", ")))),
    }
}
