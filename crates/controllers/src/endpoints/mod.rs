//! The Endpoints controller: publishes the pods of services that have a selector as Endpoints.

mod plan;

use std::time::Duration;

use mizzen_sdk::controller::{Context, index_labels, index_selectors, select_objects};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{ENDPOINTS, PODS, SERVICES};
use mizzen_sdk::write::{ignore_not_found, is_namespace_terminating, message};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::services::member::selects_pods;
use crate::services::trigger::TriggerTimeTracker;
use crate::services::{enqueue_services_of_pod, selector};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

/// Upstream's default of `--concurrent-endpoint-syncs`.
const WORKERS: usize = 5;
/// How long to wait for a write to reach the cache.
const PATIENCE: Duration = Duration::from_secs(30);
/// Endpoints with this annotation are leader election records and are kept without a service.
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

struct EndpointsController {
    context: ControllerContext,
    services: Informer<Object>,
    pods: Informer<Object>,
    endpoints: Informer<Object>,
    triggers: TriggerTimeTracker,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("endpoint-controller");
    let (services, pods) = (context.informer(&SERVICES), context.informer(&PODS));
    let endpoints = context.informer(&ENDPOINTS);
    index_labels(&pods);
    index_selectors(services.store(), selector);
    Controller::for_kind(&context, &SERVICES)
        .watches_events(&PODS, enqueue_services_of_pod(services.clone()))
        .watches_events(&ENDPOINTS, |event, queue| match event {
            // Endpoints of a service that was deleted while the controller was down are deleted too.
            Event::Added {
                object,
                initial: true,
            } => queue.add(object.key().clone()),
            Event::Deleted { last, .. } => queue.add(last.key().clone()),
            _ => {}
        })
        .queue_name("endpoint")
        .workers(WORKERS)
        .reconcile(EndpointsController {
            context,
            services,
            pods,
            endpoints,
            triggers: TriggerTimeTracker::default(),
        })
}

impl Reconcile for EndpointsController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(service) = self.services.lister().by_key(key)? else {
            return self.delete_endpoints(key).await;
        };
        let Some(selector) = selector(&service).filter(|_| selects_pods(&service)) else {
            return Ok(Action::done());
        };
        let pods = select_objects(&self.pods, key.namespace(), &selector)?;
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let moment = self
            .triggers
            .compute_trigger_time(&service, pods.iter().copied());
        let current = self.endpoints.lister().by_key(key)?;
        let now = current.as_ref().map(|current| &current.0);
        match plan::plan(&service, &pods, now, moment.as_deref()) {
            Some(wanted) => self.write_endpoints(&service, Object(wanted)).await,
            None => Ok(Action::done()),
        }
    }
}

impl EndpointsController {
    /// Deletes the Endpoints of a deleted service.
    async fn delete_endpoints(&self, key: &Key) -> Result<Action, Error> {
        self.triggers.forget(key);
        let Some(endpoints) = self.endpoints.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        if endpoints.annotation(LEADER_ANNOTATION).is_some() {
            return Ok(Action::done());
        }
        ignore_not_found(
            self.context
                .api
                .delete(&ENDPOINTS, key, &DeleteOptions::default())
                .await,
        )?;
        Ok(Action::done())
    }

    async fn write_endpoints(&self, service: &Object, wanted: Object) -> Result<Action, Error> {
        let is_new = wanted.version().is_empty();
        let written = match is_new {
            true => self.context.api.create(&ENDPOINTS, &wanted).await,
            false => self.context.api.update(&ENDPOINTS, &wanted).await,
        };
        match written {
            Ok(written) => match self.endpoints.has_write_within(PATIENCE, &written).await {
                true => Ok(Action::done()),
                false => Err(Error::other("endpoints informer cache is out of date")),
            },
            Err(error) if is_new && is_namespace_terminating(&error) => Ok(Action::done()),
            Err(error) => {
                self.record_failure(service, &wanted, is_new, &message(&error));
                Err(error.into())
            }
        }
    }

    fn record_failure(&self, service: &Object, wanted: &Object, is_new: bool, error: &str) {
        let key = service.key();
        let note = match is_new {
            true => {
                let text = format!("Failed to create endpoint for service {key}: {error}");
                Note::warning("FailedToCreateEndpoint", "Creating", text)
            }
            false => {
                let text = format!("Failed to update endpoint {key}: {error}");
                Note::warning("FailedToUpdateEndpoint", "Updating", text)
            }
        };
        self.context.record_event(&ENDPOINTS, wanted, note);
    }
}
