//! Who has to leave because of a device? Pods whose claims have devices with taints that they do not tolerate, at once or
//! when their time is over.

mod plan;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::api::{DeleteOptions, Patch};
use mizzen_sdk::cache::{Entry, IndexFunction};
use mizzen_sdk::condition::added;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::common::pod::condition;
use crate::pod_index::says;
use crate::resource_claim::{self, Claim};
use crate::{After, Context, Error, Reconcile, Work};
use plan::{is_for, leaves_at};

const POOL: &str = "pool";
const WORKERS: usize = 8;

struct Evictions {
    context: Context,
    pods: Informer<Object>,
    claims: Informer<Object>,
    slices: Informer<Object>,
    /// The pods that are to go.
    planned: Mutex<HashSet<Key>>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("device-taint-eviction-controller");
    let queue = context.queue("device-taint-eviction-controller");
    let (pods, claims) = (context.follow(&PODS), context.follow(&RESOURCE_CLAIMS));
    let slices = context.follow(&RESOURCE_SLICES);
    claims.add_index(POOL, by_pool(pools_of_claim));
    slices.add_index(
        POOL,
        by_pool(|slice| {
            vec![pool_of(
                &slice["spec"]["driver"],
                &slice["spec"]["pool"]["name"],
            )]
        }),
    );
    let todo = queue.clone();
    pods.add_handler(move |event: Event<Object>| {
        if says(event.object().text(), b"\"resourceClaims\"") {
            todo.add(event.key().clone());
        }
    });
    let todo = queue.clone();
    claims.add_handler(move |event: Event<Object>| {
        each_state(&event).for_each(|claim| wake(claim, &todo))
    });
    let (todo, all) = (queue.clone(), claims.clone());
    slices.add_handler(move |event: Event<Object>| slice_changed(&event, &all, &todo));
    Work::new(
        queue,
        WORKERS,
        Arc::new(Evictions {
            context,
            pods,
            claims,
            slices,
            planned: Mutex::default(),
        }),
    )
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

fn pools_of_claim(claim: &Object) -> Vec<String> {
    let results = claim["status"]["allocation"]["devices"]["results"]
        .list()
        .iter();
    results
        .map(|result| pool_of(&result["driver"], &result["pool"]))
        .collect()
}

/// What an object is, and what it was.
fn each_state(event: &Event<Object>) -> impl Iterator<Item = &Entry<Object>> {
    let old = match event {
        Event::Updated { old, .. } => Some(old),
        _ => None,
    };
    old.into_iter().chain([event.object()])
}

/// Looks at the pods that use a claim.
fn wake(claim: &Entry<Object>, todo: &Queue<Key>) {
    let Ok(claim) = claim.object() else { return };
    for consumer in claim["status"]["reservedFor"].list() {
        if consumer["resource"].str() == "pods" {
            todo.add(Key::new(claim.namespace(), consumer["name"].str()));
        }
    }
}

/// Looks at the pods that use devices of a pool, if any of its devices drives or drove pods away.
fn slice_changed(event: &Event<Object>, claims: &Informer<Object>, todo: &Queue<Key>) {
    if !each_state(event).any(|slice| says(slice.text(), b"\"NoExecute\"")) {
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
        .for_each(|claim| wake(&claim, todo));
}

impl Reconcile for Evictions {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            self.planned().remove(key);
            return Ok(After::Done);
        };
        let Some(at) = self.leaves_at(&pod)? else {
            if self.planned().remove(key) {
                self.tell(&pod, "Cancelling deletion");
            }
            return Ok(After::Done);
        };
        self.planned().insert(key.clone());
        let now = self.context.now().as_second();
        match u64::try_from(at - now) {
            Ok(seconds) if seconds > 0 => Ok(After::Again(Duration::from_secs(seconds))),
            _ => self.evict(&pod).await,
        }
    }
}

impl Evictions {
    fn planned(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.planned.lock()
    }

    /// When a pod must go, if it must.
    fn leaves_at(&self, pod: &Object) -> Result<Option<i64>, Error> {
        if pod["spec"]["nodeName"].is_empty() || pod.is_going() {
            return Ok(None);
        }
        let mut first = None;
        for entry in resource_claim::entries(pod) {
            let (name, is_made) = match resource_claim::claim(pod, entry) {
                Claim::Named(name) => (name, false),
                Claim::Made(name) => (name, true),
                _ => continue,
            };
            let claim = self
                .claims
                .lister()
                .by_key(&Key::new(pod.namespace(), name))?;
            let Some(claim) = claim.filter(|claim| is_for(claim, pod, is_made)) else {
                continue;
            };
            let slices = |driver: &str, pool: &str| {
                let slices = self
                    .slices
                    .lister()
                    .by_index(POOL, &format!("{driver}/{pool}"));
                slices.and_then(Result::ok).unwrap_or_default()
            };
            first = first.into_iter().chain(leaves_at(&claim, slices)).min();
        }
        Ok(first)
    }

    async fn evict(&self, pod: &Object) -> Result<After, Error> {
        self.tell(pod, "Marking for deletion");
        match self.mark_and_delete(pod).await {
            Err(Error::Api(error)) if is_not_found(&error) => {}
            outcome => outcome?,
        }
        self.planned().remove(&pod.key());
        Ok(After::Done)
    }

    async fn mark_and_delete(&self, pod: &Object) -> Result<(), Error> {
        const REASON: &str = "DeletionByDeviceTaintManager";
        let (api, key) = (&self.context.api, pod.key());
        let known = condition(pod, "DisruptionTarget");
        if known.is_none_or(|known| known["reason"].str() != REASON) {
            let condition = value!({
                "type": "DisruptionTarget",
                "observedGeneration": (pod["metadata"]["generation"].clone()),
                "status": "True",
                "lastTransitionTime": (self.context.now_text()),
                "reason": REASON,
                "message": "Device Taint manager: deleting due to NoExecute taint",
            });
            let status = added(pod, condition);
            let change = value!({"metadata": {"uid": (pod.uid())}, "status": status});
            api.patch(&PODS, &key, "status", Patch::Strategic, &change)
                .await?;
        }
        api.delete(
            &PODS,
            &key,
            &DeleteOptions {
                uid: Some(pod.uid()),
                ..DeleteOptions::default()
            },
        )
        .await?;
        Ok(())
    }

    fn tell(&self, pod: &Object, message: &str) {
        self.context.record(
            &PODS,
            pod,
            Note::normal("DeviceTaintManagerEviction", "", message.to_string()),
        );
    }
}
