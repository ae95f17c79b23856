//! An autoscaler lets its target have as many replicas as metrics ask for.
//!
//! | part | the question it answers |
//! |---|---|
//! | `target` | How many replicas does the target have, and how is that changed? |
//! | `metrics`, `refusal` | How are the metrics APIs asked, and what if they refuse? |
//! | `sample` | What do they say? |
//! | `census` | Which pods count, and how much may they use? |
//! | `replicas` | How many replicas would bring what is measured to its target? |
//! | `measure` | How many replicas does one metric ask for? |
//! | `history` | What was recommended and done lately? |
//! | `limit` | How much of it may be done now? |
//! | `status` | What does an autoscaler say about itself? |

mod census;
mod history;
mod limit;
mod measure;
mod metrics;
mod refusal;
mod replicas;
mod round;
mod sample;
mod status;
mod target;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::discover::Mapper;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{HORIZONTAL_POD_AUTOSCALERS, PODS};
use mizzen_sdk::{Key, Object};

use crate::select::index_labels;
use crate::{After, Context, Error, Reconcile, Work};
use history::History;
use metrics::Metrics;
use round::Round;

/// How many autoscalers are looked at at a time.
const WORKERS: usize = 5;

struct Autoscalers {
    context: Context,
    autoscalers: Informer<Object>,
    pods: Informer<Object>,
    mapper: Mapper,
    metrics: Metrics,
    known: Mutex<HashMap<Key, Known>>,
}

/// What is remembered of an autoscaler.
#[derive(Default)]
struct Known {
    history: History,
    /// Which pods are its target's, once that is known.
    selector: Option<LabelSelector>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("horizontal-pod-autoscaler");
    let queue = context.queue("horizontalpodautoscaler");
    let (autoscalers, pods) = (
        context.follow(&HORIZONTAL_POD_AUTOSCALERS),
        context.follow(&PODS),
    );
    index_labels(&pods);
    let (todo, period) = (queue.clone(), context.options.autoscaler_sync_period);
    autoscalers
        .add_handler(move |event: Event<Object>| todo.add_after(event.key().clone(), period));
    let mapper = Mapper::new(context.api.client().clone());
    let metrics = Metrics::new(context.api.clone(), mapper.clone());
    let known = Mutex::default();
    let autoscalers = Autoscalers {
        context,
        autoscalers,
        pods,
        mapper,
        metrics,
        known,
    };
    Work::new(queue, WORKERS, Arc::new(autoscalers))
}

impl Reconcile for Autoscalers {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(autoscaler) = self.autoscalers.lister().by_key(key)? else {
            self.known().remove(key);
            return Ok(After::Done);
        };
        if let Err(error) = Round::new(self, &autoscaler).run().await {
            tracing::debug!(%key, %error, "cannot be scaled now");
        }
        Ok(After::Again(self.context.options.autoscaler_sync_period))
    }
}

impl Autoscalers {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock()
    }

    /// Looks at or changes what is remembered of an autoscaler.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut Known) -> T) -> T {
        change(self.known().entry(key.clone()).or_default())
    }
}
