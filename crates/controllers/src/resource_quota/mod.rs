//! The resource quota controller: recalculates the usage of quotas.
//!
//! Admission charges the usage of new objects. The controller recalculates it when a quota is new,
//! when objects are deleted or shrink, and periodically.

mod count;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::quota::QuotaEvaluator;
use mizzen_sdk::controller::{Context, dynamic};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::RESOURCE_QUOTAS;
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Value;
use tokio::time::interval;

use crate::metadata_informers::{MetadataHandler, MetadataInformers, ObjectMetadataList};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use count::{UsageCounter, UsageQuery, UsageSource};
use plan::{is_less, limits_resource, needs_initial_usage, status};

const WORKERS: usize = 5;
/// How often all quotas are recalculated.
const RESYNC: Duration = Duration::from_secs(300);
/// If less usage was found than charged, admission may have charged an object that is not stored
/// yet: after this time it is recalculated.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// The priority of quotas without usage: admission rejects everything until it is known.
const URGENT: i32 = 100;

struct Quotas {
    context: ControllerContext,
    quotas: Informer<Object>,
    counter: UsageCounter,
    metadata_informers: MetadataInformers,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("resourcequota-controller");
    let queue = Queue::new("resourcequota_primary");
    let quotas = context.informer(&RESOURCE_QUOTAS);
    let source = dynamic(&RESOURCE_QUOTAS).handler(|event, queue| {
        let is_urgent = event
            .object()
            .object()
            .is_ok_and(|quota| needs_initial_usage(&quota));
        match event {
            _ if is_urgent => queue.add_with_priority(event.key().clone(), URGENT),
            Event::Added { .. } => queue.add(event.key().clone()),
            // Status updates are our own, or admission's.
            _ => {}
        }
    });
    let counter = UsageCounter::new(&context);
    let enqueuer = QuotaEnqueuer {
        quotas: quotas.clone(),
        todo: queue.clone(),
    };
    for (resource, cache) in counter.cached() {
        watch_cached(&context, resource, cache, enqueuer.clone());
    }
    let metadata_informers = context.metadata_informers().clone();
    metadata_informers.add_handler(Arc::new(enqueuer.clone()));
    Controller::for_kind(&context, source)
        .queue(queue)
        .workers(WORKERS)
        .reconcile(Quotas {
            context,
            quotas,
            counter,
            metadata_informers: metadata_informers.clone(),
        })
        .with_task(metadata_informers.run())
        .with_task(async move {
            let mut ticks = interval(RESYNC);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                enqueuer.enqueue_all();
            }
        })
}

/// Enqueues quotas when an object of the informer is deleted or its usage changes.
fn watch_cached(
    context: &ControllerContext,
    resource: &ResourceType,
    cache: &Informer<Object>,
    enqueuer: QuotaEnqueuer,
) {
    let Some(counted) = QuotaEvaluator::of(&resource.group, &resource.plural) else {
        return;
    };
    let clock = context.clock.clone();
    let resource = resource.clone();
    cache.add_handler(move |event: Event<Object>| {
        let namespace = event.key().namespace();
        let takes = |object: &Object| {
            (
                counted.usage(object, clock().as_second()),
                object["spec"].clone(),
            )
        };
        let changed = match &event {
            Event::Added { .. } => false,
            Event::Deleted { .. } => true,
            Event::Updated { .. } if enqueuer.in_namespace(namespace).is_empty() => false,
            Event::Updated { old, new } => match (old.object(), new.object()) {
                (Ok(old), Ok(new)) => takes(&old) != takes(&new),
                _ => true,
            },
        };
        if changed {
            enqueuer.enqueue_namespace(&resource, namespace);
        }
    });
}

/// Enqueues quotas.
#[derive(Clone)]
struct QuotaEnqueuer {
    quotas: Informer<Object>,
    todo: Queue<Key>,
}

impl QuotaEnqueuer {
    fn enqueue_all(&self) {
        self.quotas
            .store()
            .list()
            .iter()
            .for_each(|quota| self.todo.add(quota.key().clone()));
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.quotas
            .lister()
            .namespaced(namespace)
            .list()
            .unwrap_or_default()
    }

    /// A resource changed in a namespace, or in all if it is empty.
    fn enqueue_namespace(&self, of: &ResourceType, namespace: &str) {
        let Some(counted) = QuotaEvaluator::of(&of.group, &of.plural) else {
            return;
        };
        let quotas = match namespace {
            "" => self.quotas.lister().list().unwrap_or_default(),
            namespace => self.in_namespace(namespace),
        };
        for quota in quotas
            .iter()
            .filter(|quota| limits_resource(quota, &counted))
        {
            self.todo.add(quota.key());
        }
    }
}

/// Kinds with an informer are handled by the informer's events.
impl MetadataHandler for QuotaEnqueuer {
    fn on_replace(&self, of: &ResourceType, _objects: ObjectMetadataList) {
        self.enqueue_namespace(of, "");
    }

    fn on_update(&self, _of: &ResourceType, _object: &Value) {}

    fn on_delete(&self, of: &ResourceType, object: &Value) {
        if of.namespaced {
            self.enqueue_namespace(of, object["metadata"]["namespace"].str());
        }
    }

    /// A kind may be countable now.
    fn on_discovery(&self) {
        self.enqueue_all();
    }
}

impl Reconcile for Quotas {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let served = self.metadata_informers.wait_for_discovery().await;
        let Some(quota) = self.quotas.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let mut query = UsageQuery {
            quota: &quota,
            source: UsageSource::Caches,
            now: self.context.now().as_second(),
        };
        let (used, mut errors) = self.counter.usage(&served, &query).await;
        let mut after = Action::done();
        let mut status_now = status(&quota, &used);
        if status_now
            .as_ref()
            .is_some_and(|status| is_less(status, &quota["status"]))
        {
            // A stale cache must not lower the usage, so it is confirmed by the server.
            query.source = UsageSource::Server;
            let (used, live_errors) = self.counter.usage(&served, &query).await;
            (status_now, errors) = (status(&quota, &used), live_errors);
            after = Action::requeue_after(SECOND_LOOK);
        }
        if let Some(status) = status_now {
            let mut quota = Object::clone(&quota);
            quota.set("status", status);
            self.context
                .api
                .update_status(&RESOURCE_QUOTAS, &quota)
                .await?;
        }
        errors.pop().map_or(Ok(after), Err)
    }
}
