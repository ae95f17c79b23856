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
//! | `monitor` | the metrics of the controller itself |

mod go_errors;
mod group_pods;
mod history;
mod measure;
mod metrics;
mod monitor;
mod normalize;
mod pod_metrics;
mod replica_calculator;
mod status;
mod sync;
mod target;

use std::sync::Arc;

use parking_lot::Mutex;
use std::collections::HashMap;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::{Context, dynamic, index_labels};
use mizzen_sdk::discover::Mapper;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{HORIZONTAL_POD_AUTOSCALERS, PODS};
use mizzen_sdk::{Key, Object};

use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use history::ScalingHistory;
use metrics::MetricsClient;
use monitor::AutoscalerMetrics;
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
    monitor: Arc<AutoscalerMetrics>,
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
    let pods = context.informer(&PODS);
    index_labels(&pods);
    let period = context.options.autoscaler_sync_period;
    let source = dynamic(&HORIZONTAL_POD_AUTOSCALERS)
        .handler(move |event, queue| queue.add_after(event.key().clone(), period));
    let mapper = Mapper::new(context.client());
    let monitor = Arc::<AutoscalerMetrics>::default();
    Controller::for_kind(&context, source)
        .queue_name("horizontalpodautoscaler")
        .workers(WORKERS)
        .reconcile(Autoscalers {
            autoscalers: context.informer(&HORIZONTAL_POD_AUTOSCALERS),
            pods,
            metrics: MetricsClient::new(context.api.clone(), mapper.clone()),
            mapper,
            known: Mutex::default(),
            monitor: monitor.clone(),
            context,
        })
        .with_metrics(monitor)
}

impl Reconcile for Autoscalers {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(autoscaler) = self.autoscalers.lister().by_key(key)? else {
            self.known.lock().remove(key);
            self.monitor.forget(key.namespace(), key.name());
            return Ok(Action::done());
        };
        if let Err(error) = AutoscalerSync::new(self, &autoscaler).run().await {
            tracing::debug!(%key, %error, "autoscaler sync failed");
        }
        Ok(Action::requeue_after(
            self.context.options.autoscaler_sync_period,
        ))
    }
}

impl Autoscalers {
    /// Reads or changes the state of an autoscaler.
    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut AutoscalerState) -> T) -> T {
        change(self.known.lock().entry(key.clone()).or_default())
    }
}
