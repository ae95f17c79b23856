//! The horizontal pod autoscaler controller: scales targets to what their metrics ask for.
//!
//! | file | contents |
//! |---|---|
//! | `target` | the scale subresource of the target |
//! | `metrics`, `go_errors` | the client of the metrics APIs, and its error messages |
//! | `pod_metrics` | what the metrics APIs return, as numbers |
//! | `group_pods` | which pods count, and what they request |
//! | `replica_calculator` | replicas that bring metrics to their targets |
//! | `measure` | replicas for one metric |
//! | `history` | recent recommendations and scale events |
//! | `normalize` | stabilization, bounds and scaling policies |
//! | `sync` | one sync of one autoscaler |
//! | `status` | conditions and counts |

mod go_errors;
mod group_pods;
mod history;
mod measure;
mod metrics;
mod normalize;
mod pod_metrics;
mod replica_calculator;
mod status;
mod sync;
mod target;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::discover::Mapper;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{HORIZONTAL_POD_AUTOSCALERS, PODS};
use mizzen_sdk::{Key, Object};

use crate::select::index_labels;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use history::ScalingHistory;
use metrics::MetricsClient;
use sync::AutoscalerSync;

/// Upstream's default of `--concurrent-horizontal-pod-autoscaler-syncs`.
const WORKERS: usize = 5;

struct Autoscalers {
    context: ControllerContext,
    autoscalers: Informer<Object>,
    pods: Informer<Object>,
    mapper: Mapper,
    metrics: MetricsClient,
    known: Mutex<HashMap<Key, AutoscalerState>>,
}

/// The in-memory state of an autoscaler.
#[derive(Default)]
struct AutoscalerState {
    history: ScalingHistory,
    /// The selector of its target's pods, once known.
    selector: Option<LabelSelector>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("horizontal-pod-autoscaler");
    let queue = context.queue("horizontalpodautoscaler");
    let autoscalers = context.informer(&HORIZONTAL_POD_AUTOSCALERS);
    let pods = context.informer(&PODS);
    index_labels(&pods);
    let (todo, period) = (queue.clone(), context.options.autoscaler_sync_period);
    autoscalers
        .add_handler(move |event: Event<Object>| todo.add_after(event.key().clone(), period));
    let mapper = Mapper::new(context.api.client().clone());
    let metrics = MetricsClient::new(context.api.clone(), mapper.clone());
    let known = Mutex::default();
    let autoscalers = Autoscalers {
        context,
        autoscalers,
        pods,
        mapper,
        metrics,
        known,
    };
    Controller::new(queue, WORKERS, Arc::new(autoscalers))
}

impl Reconcile for Autoscalers {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(autoscaler) = self.autoscalers.lister().by_key(key)? else {
            self.known.lock().remove(key);
            return Ok(Action::AwaitChange);
        };
        if let Err(error) = AutoscalerSync::new(self, &autoscaler).run().await {
            tracing::debug!(%key, %error, "autoscaler sync failed");
        }
        Ok(Action::Requeue(self.context.options.autoscaler_sync_period))
    }
}

impl Autoscalers {
    /// Reads or changes the state of an autoscaler.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut AutoscalerState) -> T) -> T {
        change(self.known.lock().entry(key.clone()).or_default())
    }
}
