//! The EndpointSlice mirroring controller: mirrors Endpoints of services without a selector to
//! EndpointSlices.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::controller::Context;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::services::publish::SlicePublisher;
use crate::services::slow_retry_queue;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{CONTROLLER, MAX_ADDRESSES, is_mirrored, plan};

/// Upstream's default of `--mirroring-concurrent-service-endpoint-syncs`.
const WORKERS: usize = 5;
/// The longest retry delay.
const MAX_BACKOFF: Duration = Duration::from_secs(100);

struct EndpointSliceMirroring {
    context: ControllerContext,
    services: Informer<Object>,
    endpoints: Informer<Object>,
    publisher: SlicePublisher,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("endpointslicemirroring-controller");
    let context = context.with_event_source("endpoint-slice-mirroring-controller");
    let (publisher, own_slices) = SlicePublisher::new(&context, CONTROLLER, Duration::ZERO);
    let (services, endpoints) = (context.informer(&SERVICES), context.informer(&ENDPOINTS));
    Controller::for_kind(&context, &ENDPOINTS)
        .watches_events(&SERVICES, |event, queue| queue.add(event.key().clone()))
        .watches_events(&ENDPOINT_SLICES, own_slices)
        .queue(slow_retry_queue("endpoint_slice_mirroring", MAX_BACKOFF))
        .workers(WORKERS)
        .reconcile(EndpointSliceMirroring {
            context,
            services,
            endpoints,
            publisher,
        })
}

impl Reconcile for EndpointSliceMirroring {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let slices = self.publisher.slices(key)?;
        match self.mirrored(key)? {
            Some(endpoints) => self.mirror(&endpoints, &slices).await?,
            None => self.delete_slices(key, &slices).await?,
        }
        Ok(Action::done())
    }
}

impl EndpointSliceMirroring {
    /// The Endpoints of this name, if they are to be mirrored.
    fn mirrored(&self, key: &Key) -> Result<Option<Arc<Object>>, Error> {
        let service = self.services.lister().by_key(key)?;
        let is_free = service.is_some_and(|service| service["spec"]["selector"].is_empty());
        let endpoints = self.endpoints.lister().by_key(key)?;
        Ok(endpoints.filter(|endpoints| is_free && is_mirrored(endpoints)))
    }

    async fn mirror(&self, endpoints: &Object, slices: &[Arc<Object>]) -> Result<(), Error> {
        let slices: Vec<&Value> = slices.iter().map(|slice| &slice.0).collect();
        let plan = plan(endpoints, &slices);
        if plan.n_invalid > 0 {
            let text = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                plan.n_invalid
            );
            self.record_warning(endpoints, "InvalidIPAddress", text);
        }
        if plan.n_skipped > plan.n_invalid {
            let most = format!(
                "A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset."
            );
            let text = format!("{most} {} addresses were skipped", plan.n_skipped);
            self.record_warning(endpoints, "TooManyAddressesToMirror", text);
        }
        self.publisher
            .publish(("Endpoints", endpoints), plan.changes)
            .await
    }

    fn record_warning(&self, endpoints: &Object, reason: &str, text: String) {
        self.context.record_event(
            &ENDPOINTS,
            endpoints,
            Note::warning(reason, "Mirroring", text),
        );
    }

    async fn delete_slices(&self, key: &Key, slices: &[Arc<Object>]) -> Result<(), Error> {
        let mut errors = Vec::new();
        for slice in slices {
            errors.extend(self.publisher.delete(slice).await.err());
        }
        let Some(first) = errors.first() else {
            return Ok(());
        };
        let (n, of) = (errors.len(), slices.len());
        let text = format!(
            "error(s) deleting {n}/{of} EndpointSlices for {key} Endpoints, including: {}",
            message(first)
        );
        Err(Error::other(text))
    }
}
