//! A quota says how much of what it limits is used. Who lets objects in writes down what they take; here it is counted
//! again: when a quota is new, when something is gone or takes less, and now and then.

mod count;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_kinds::quota::Counted;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::RESOURCE_QUOTAS;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Value;
use tokio::time::interval;

use crate::census::{Census, Listed, Listener};
use crate::{After, Context, Error, Reconcile, Work};
use count::{Counter, Source};
use plan::{concerns, is_less, is_unsaid, status};

const WORKERS: usize = 5;
/// How often everything is counted again.
const RESYNC: Duration = Duration::from_secs(300);
/// When less was found than was written down, somebody may have been about to store what he wrote down: so long later it
/// is counted again.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// Quotas of which nobody knows what is used are counted first: nothing is let in before.
const URGENT: i32 = 100;

struct Quotas {
    context: Context,
    quotas: Informer<Object>,
    counter: Counter,
    census: Census,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("resourcequota-controller");
    let queue = context.queue("resourcequota_primary");
    let quotas = context.follow(&RESOURCE_QUOTAS);
    let todo = queue.clone();
    quotas.add_handler(move |event: Event<Object>| {
        let is_urgent = event.object().object().is_ok_and(|quota| is_unsaid(&quota));
        match event {
            _ if is_urgent => todo.add_with_priority(event.key().clone(), URGENT),
            Event::Added { .. } => todo.add(event.key().clone()),
            // Statuses are written by ourselves, and by whoever lets objects in.
            _ => {}
        }
    });
    let counter = Counter::new(&context);
    let wake = Wake {
        quotas: quotas.clone(),
        todo: queue.clone(),
    };
    for (resource, cache) in counter.cached() {
        watch_cached(&context, resource, cache, wake.clone());
    }
    let census = context.census().clone();
    census.listen(Arc::new(wake.clone()));
    let reconcile = Arc::new(Quotas {
        context,
        quotas,
        counter,
        census: census.clone(),
    });
    Work::new(queue, WORKERS, reconcile)
        .and(census.run())
        .and(resync(wake))
}

/// Counts again when an object of which the cache knows everything is gone, or takes something else.
fn watch_cached(context: &Context, resource: &Resource, cache: &Informer<Object>, wake: Wake) {
    let Some(counted) = Counted::of(&resource.group, &resource.plural) else {
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
            Event::Updated { .. } if wake.in_namespace(namespace).is_empty() => false,
            Event::Updated { old, new } => match (old.object(), new.object()) {
                (Ok(old), Ok(new)) => takes(&old) != takes(&new),
                _ => true,
            },
        };
        if changed {
            wake.namespace(&resource, namespace);
        }
    });
}

async fn resync(wake: Wake) {
    let mut ticks = interval(RESYNC);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        wake.all();
    }
}

/// Says which quotas must be counted again.
#[derive(Clone)]
struct Wake {
    quotas: Informer<Object>,
    todo: Queue<Key>,
}

impl Wake {
    fn all(&self) {
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

    /// Something of a resource has changed in a namespace, or everywhere if that is empty.
    fn namespace(&self, of: &Resource, namespace: &str) {
        let Some(counted) = Counted::of(&of.group, &of.plural) else {
            return;
        };
        let quotas = match namespace {
            "" => self.quotas.lister().list().unwrap_or_default(),
            namespace => self.in_namespace(namespace),
        };
        for quota in quotas.iter().filter(|quota| concerns(quota, &counted)) {
            self.todo.add(quota.key());
        }
    }
}

/// What is in caches is heard of when the caches have it.
impl Listener for Wake {
    fn replaced(&self, of: &Resource, _objects: Listed) {
        self.namespace(of, "");
    }

    fn changed(&self, _of: &Resource, _object: &Value) {}

    fn gone(&self, of: &Resource, object: &Value) {
        if of.namespaced {
            self.namespace(of, object["metadata"]["namespace"].str());
        }
    }

    /// Something may be countable that was not.
    fn served(&self) {
        self.all();
    }
}

impl Reconcile for Quotas {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let served = self.census.kinds().await;
        let Some(quota) = self.quotas.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let now = self.context.now().as_second();
        let (used, mut errors) = self
            .counter
            .usage(&quota, &served, Source::Caches, now)
            .await;
        let mut after = After::Done;
        let mut status_now = status(&quota, &used);
        if status_now
            .as_ref()
            .is_some_and(|status| is_less(status, &quota["status"]))
        {
            // A cache that has not heard of everything must not make room for more.
            let (used, live_errors) = self
                .counter
                .usage(&quota, &served, Source::Server, now)
                .await;
            (status_now, errors) = (status(&quota, &used), live_errors);
            after = After::Again(SECOND_LOOK);
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
