//! `Endpoints` that people keep by hand, for a service without a selector, are mirrored by endpoint slices.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{ENDPOINTS, SERVICES};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::common::failure::message;
use crate::services::patient_queue;
use crate::services::publish::Publisher;
use crate::{After, Context, Error, Reconcile, Work};
use plan::{CONTROLLER, MAX_ADDRESSES, is_mirrored, plan};

/// How many of them are looked at at a time.
const WORKERS: usize = 5;
/// How long one that failed waits at most.
const MAX_BACKOFF: Duration = Duration::from_secs(100);

struct Mirror {
    context: Context,
    services: Informer<Object>,
    endpoints: Informer<Object>,
    publisher: Publisher,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("endpointslicemirroring-controller");
    let context = context.recording_as("endpoint-slice-mirroring-controller");
    let queue = patient_queue("endpoint_slice_mirroring", MAX_BACKOFF);
    let (services, endpoints) = (context.follow(&SERVICES), context.follow(&ENDPOINTS));
    for followed in [&services, &endpoints] {
        let todo = queue.clone();
        followed.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    }
    let publisher = Publisher::new(&context, CONTROLLER, &queue, Duration::ZERO);
    Work::new(
        queue,
        WORKERS,
        Arc::new(Mirror {
            context,
            services,
            endpoints,
            publisher,
        }),
    )
}

impl Reconcile for Mirror {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let slices = self.publisher.slices(key)?;
        match self.mirrored(key)? {
            Some(endpoints) => self.mirror(&endpoints, &slices).await?,
            None => self.clear(key, &slices).await?,
        }
        Ok(After::Done)
    }
}

impl Mirror {
    /// The `Endpoints` of this name, if they are to be mirrored.
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
            self.warn(endpoints, "InvalidIPAddress", text);
        }
        if plan.n_skipped > plan.n_invalid {
            let most = format!(
                "A max of {MAX_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset."
            );
            let text = format!("{most} {} addresses were skipped", plan.n_skipped);
            self.warn(endpoints, "TooManyAddressesToMirror", text);
        }
        self.publisher
            .publish(("Endpoints", endpoints), plan.changes)
            .await
    }

    fn warn(&self, endpoints: &Object, reason: &str, text: String) {
        self.context.record(
            &ENDPOINTS,
            endpoints,
            Note::warning(reason, "Mirroring", text),
        );
    }

    async fn clear(&self, key: &Key, slices: &[Arc<Object>]) -> Result<(), Error> {
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
        Err(Error::Other(text))
    }
}
