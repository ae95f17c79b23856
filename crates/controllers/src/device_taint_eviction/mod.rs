//! The device taint eviction controller: evicts pods whose allocated devices have NoExecute taints
//! that their claims do not tolerate.

mod plan;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::{Entry, IndexFunction};
use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};
use mizzen_workloads::common::pod::condition;

use crate::eviction::mark_and_delete;
use crate::pod_index::contains_bytes;
use crate::resource_claim::{self, PodClaim};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{eviction_time, is_reserved_for};

const POOL: &str = "pool";
const WORKERS: usize = 8;
const REASON: &str = "DeletionByDeviceTaintManager";

struct DeviceTaintEviction {
    context: ControllerContext,
    pods: Informer<Object>,
    claims: Informer<Object>,
    slices: Informer<Object>,
    /// The pods to be evicted.
    planned: Mutex<HashSet<Key>>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("device-taint-eviction-controller");
    let (pods, claims) = (context.informer(&PODS), context.informer(&RESOURCE_CLAIMS));
    let slices = context.informer(&RESOURCE_SLICES);
    claims.add_index(
        POOL,
        by_pool(|claim| {
            let results = claim["status"]["allocation"]["devices"]["results"].list();
            let pool = |result: &Value| pool_of(&result["driver"], &result["pool"]);
            results.iter().map(pool).collect()
        }),
    );
    slices.add_index(
        POOL,
        by_pool(|slice| {
            vec![pool_of(
                &slice["spec"]["driver"],
                &slice["spec"]["pool"]["name"],
            )]
        }),
    );
    let has_claims =
        Predicate::new(|event| contains_bytes(event.object().text(), b"\"resourceClaims\""));
    let all = claims.clone();
    Controller::for_kind(&context, dynamic(&PODS).filter(has_claims))
        .watches_events(&RESOURCE_CLAIMS, |event, queue| {
            each_state(event).for_each(|claim| enqueue_consumers(claim, queue))
        })
        .watches_events(&RESOURCE_SLICES, move |event, queue| {
            on_slice_event(event, &all, queue)
        })
        .workers(WORKERS)
        .reconcile(DeviceTaintEviction {
            context,
            pods,
            claims,
            slices,
            planned: Mutex::default(),
        })
}

fn by_pool(pools: fn(&Object) -> Vec<String>) -> IndexFunction<Object> {
    Arc::new(move |entry| {
        entry
            .object()
            .map(|object| pools(&object))
            .unwrap_or_default()
    })
}

fn pool_of(driver: &Value, pool: &Value) -> String {
    format!("{}/{}", driver.str(), pool.str())
}

/// The new and the old state of an event's object.
fn each_state(event: &Event<Object>) -> impl Iterator<Item = &Entry<Object>> {
    let old = match event {
        Event::Updated { old, .. } => Some(old),
        _ => None,
    };
    old.into_iter().chain([event.object()])
}

/// Enqueues the pods for which a claim is reserved.
fn enqueue_consumers(claim: &Entry<Object>, todo: &Queue<Key>) {
    let Ok(claim) = claim.object() else { return };
    for consumer in claim["status"]["reservedFor"].list() {
        if consumer["resource"].str() == "pods" {
            todo.add(Key::new(claim.namespace(), consumer["name"].str()));
        }
    }
}

/// Enqueues the pods that use devices of a pool, if one of its devices has or had a NoExecute
/// taint.
fn on_slice_event(event: &Event<Object>, claims: &Informer<Object>, todo: &Queue<Key>) {
    if !each_state(event).any(|slice| contains_bytes(slice.text(), b"\"NoExecute\"")) {
        return;
    }
    let Ok(slice) = event.object().object() else {
        return;
    };
    let pool = pool_of(&slice["spec"]["driver"], &slice["spec"]["pool"]["name"]);
    claims
        .store()
        .by_index(POOL, &pool)
        .into_iter()
        .flatten()
        .for_each(|claim| enqueue_consumers(&claim, todo));
}

impl Reconcile for DeviceTaintEviction {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            self.planned.lock().remove(key);
            return Ok(Action::done());
        };
        let Some(at) = self.eviction_time(&pod)? else {
            if self.planned.lock().remove(key) {
                self.record_event(&pod, "Cancelling deletion");
            }
            return Ok(Action::done());
        };
        self.planned.lock().insert(key.clone());
        let now = self.context.now().as_second();
        match u64::try_from(at - now) {
            Ok(seconds) if seconds > 0 => Ok(Action::requeue_after(Duration::from_secs(seconds))),
            _ => self.evict(&pod).await,
        }
    }
}

impl DeviceTaintEviction {
    /// When a pod is to be evicted.
    fn eviction_time(&self, pod: &Object) -> Result<Option<i64>, Error> {
        if pod["spec"]["nodeName"].is_empty() || pod.is_terminating() {
            return Ok(None);
        }
        let mut first = None;
        for entry in resource_claim::entries(pod) {
            let (name, is_made) = match resource_claim::pod_claim(pod, entry) {
                PodClaim::Named(name) => (name, false),
                PodClaim::Made(name) => (name, true),
                _ => continue,
            };
            let claim = self
                .claims
                .lister()
                .by_key(&Key::new(pod.namespace(), name))?;
            let Some(claim) = claim.filter(|claim| is_reserved_for(claim, pod, is_made)) else {
                continue;
            };
            let slices = |driver: &str, pool: &str| {
                let slices = self
                    .slices
                    .lister()
                    .by_index(POOL, &format!("{driver}/{pool}"));
                slices.and_then(Result::ok).unwrap_or_default()
            };
            first = first.into_iter().chain(eviction_time(&claim, slices)).min();
        }
        Ok(first)
    }

    async fn evict(&self, pod: &Object) -> Result<Action, Error> {
        self.record_event(pod, "Marking for deletion");
        let known = condition(pod, "DisruptionTarget");
        let is_marked = known.is_some_and(|known| known["reason"].str() == REASON);
        let condition = (!is_marked).then(|| {
            value!({
                "type": "DisruptionTarget",
                "observedGeneration": (pod["metadata"]["generation"].clone()),
                "status": "True",
                "lastTransitionTime": (self.context.now_text()),
                "reason": REASON,
                "message": "Device Taint manager: deleting due to NoExecute taint",
            })
        });
        match mark_and_delete(&self.context, pod, condition).await {
            Err(Error::Api(error)) if is_not_found(&error) => {}
            outcome => outcome?,
        }
        self.planned.lock().remove(&pod.key());
        Ok(Action::done())
    }

    fn record_event(&self, pod: &Object, message: &str) {
        self.context.record_event(
            &PODS,
            pod,
            Note::normal("DeviceTaintManagerEviction", "", message.to_string()),
        );
    }
}
