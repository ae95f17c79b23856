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
//! | `metrics` | the number of slices and endpoints |

mod desired;
mod hints;
mod metrics;
mod pack;
mod plan;
mod topology_cache;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{
    Context, Predicate, dynamic, index_labels, index_selectors, select_objects,
};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::sync::Notify;

use crate::services::member::{IpFamily, selects_pods};
use crate::services::publish::SlicePublisher;
use crate::services::trigger::{self, TriggerTimeTracker};
use crate::services::{enqueue_services_of_pod, selector, slow_retry_queue};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use metrics::{EndpointSliceMetrics, ServiceSlices};
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
    metrics: Arc<EndpointSliceMetrics>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("endpointslice-controller")
        .with_event_source("endpoint-slice-controller");
    let queue = slow_retry_queue("endpoint_slice", MAX_BACKOFF);
    let services = context.informer(&SERVICES);
    let pods = context.informer(&PODS);
    index_labels(&pods);
    index_selectors(services.store(), selector);
    let moved = Arc::new(Notify::new());
    let notify = moved.clone();
    let (publisher, own_slices) = SlicePublisher::new(&context, pack::CONTROLLER, BATCH);
    let metrics = Arc::<EndpointSliceMetrics>::default();
    let slices = Arc::new(EndpointSliceController {
        context: context.clone(),
        services: services.clone(),
        pods,
        nodes: context.informer(&NODES),
        publisher,
        triggers: TriggerTimeTracker::default(),
        topology_cache: TopologyCache::default(),
        metrics: metrics.clone(),
    });
    let (todo, known) = (queue.clone(), slices.clone());
    Controller::for_kind(&context, &SERVICES)
        .watches_events(&PODS, enqueue_services_of_pod(services))
        .watches_events(&ENDPOINT_SLICES, own_slices)
        .watches_events(dynamic(&NODES).filter(topology_changed()), move |_, _| {
            notify.notify_one()
        })
        .queue(queue)
        .workers(WORKERS)
        .reconcile(slices)
        .with_metrics(metrics)
        .with_task(async move {
            loop {
                moved.notified().await;
                let overloaded = known.topology_cache.set_ratios(known.zone_ratios());
                overloaded.into_iter().for_each(|key| todo.add(key));
            }
        })
}

/// Accepts events that change the zone or the readiness of a node.
fn topology_changed() -> Predicate<Object> {
    let topology = |node: &Entry<Object>| {
        let node = node.object().ok()?;
        Some((
            node.label(zones::ZONE).map(String::from),
            zones::is_node_ready(&node),
        ))
    };
    Predicate::updates(move |old, new| {
        let old = topology(old);
        old.is_none() || old != topology(new)
    })
}

impl Reconcile for EndpointSliceController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(service) = self.services.lister().by_key(key)? else {
            self.triggers.forget(key);
            self.topology_cache.remove(key);
            self.metrics.forget(key);
            return Ok(Action::done());
        };
        let outcome = match selects_pods(&service) {
            true => self.sync_service(key, &service).await,
            false => Ok(()),
        };
        self.metrics.count_sync(outcome.is_ok());
        if let Err(error) = &outcome {
            let text = format!("Error updating Endpoint Slices for Service {key}: {error}");
            self.context.record_event(
                &SERVICES,
                &service,
                Note::warning("FailedToUpdateEndpointSlices", "Updating", text),
            );
        }
        outcome.map(|()| Action::done())
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
        let mut totals = ServiceSlices {
            traffic_distribution: service["spec"]["trafficDistribution"].str().into(),
            ..ServiceSlices::default()
        };
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
            errors.extend(self.publish_family(sync, &mut totals).await);
        }
        self.metrics.set_service(key, totals);
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
    async fn publish_family(
        &self,
        sync: FamilySync<'_>,
        totals: &mut ServiceSlices,
    ) -> Vec<String> {
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
        plan.add_to(totals);
        self.metrics.observe_changes(plan.counts(sync.slices));
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
        [error] => Err(Error::other(error.clone())),
        errors => Err(Error::other(format!("[{}]", errors.join(", ")))),
    }
}
