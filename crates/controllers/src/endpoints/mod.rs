//! Every service that selects pods has `Endpoints` that say where they are.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::cache::Version;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{ENDPOINTS, PODS, SERVICES};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::time::timeout;

use crate::common::failure::{is_namespace_going, message};
use crate::select::{index_labels, index_selectors, selected};
use crate::services::member::selects_pods;
use crate::services::trigger::Triggers;
use crate::services::{pod_changed, selector};
use crate::{After, Context, Error, Reconcile, Work};

/// How many services are looked at at a time.
const WORKERS: usize = 5;
/// How long a write may take to come back.
const PATIENCE: Duration = Duration::from_secs(30);
/// What makes `Endpoints` without a service stay: somebody elects leaders by them.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

struct Endpoints {
    context: Context,
    services: Informer<Object>,
    pods: Informer<Object>,
    endpoints: Informer<Object>,
    triggers: Triggers,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("endpoint-controller");
    let queue = context.queue("endpoint");
    let (services, pods) = (context.follow(&SERVICES), context.follow(&PODS));
    let endpoints = context.follow(&ENDPOINTS);
    index_labels(&pods);
    index_selectors(&services, selector);
    let todo = queue.clone();
    services.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    pods.add_handler(pod_changed(&services, &queue));
    let todo = queue.clone();
    endpoints.add_handler(move |event: Event<Object>| match event {
        // What was left behind by a service that went while nobody looked goes, too.
        Event::Added {
            object,
            initial: true,
        } => todo.add(object.key().clone()),
        Event::Deleted { last, .. } => todo.add(last.key().clone()),
        _ => {}
    });
    let triggers = Triggers::default();
    Work::new(
        queue,
        WORKERS,
        Arc::new(Endpoints {
            context,
            services,
            pods,
            endpoints,
            triggers,
        }),
    )
}

impl Reconcile for Endpoints {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(service) = self.services.lister().by_key(key)? else {
            return self.clear(key).await;
        };
        let Some(selector) = selector(&service).filter(|_| selects_pods(&service)) else {
            return Ok(After::Done);
        };
        let pods = selected(&self.pods, key.namespace(), &selector)?;
        let pods: Vec<&Value> = pods.iter().map(|pod| &pod.0).collect();
        let moment = self.triggers.look(&service, pods.iter().copied());
        let current = self.endpoints.lister().by_key(key)?;
        let now = current.as_ref().map(|current| &current.0);
        match plan::plan(&service, &pods, now, moment.as_deref()) {
            Some(wanted) => self.write(&service, Object(wanted)).await,
            None => Ok(After::Done),
        }
    }
}

impl Endpoints {
    /// Deletes what belongs to a service that is gone.
    async fn clear(&self, key: &Key) -> Result<After, Error> {
        self.triggers.forget(key);
        let Some(endpoints) = self.endpoints.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        if endpoints.annotation(LEADER).is_some() {
            return Ok(After::Done);
        }
        match self
            .context
            .api
            .delete(&ENDPOINTS, key, &DeleteOptions::default())
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(After::Done),
        }
    }

    async fn write(&self, service: &Object, wanted: Object) -> Result<After, Error> {
        let is_new = wanted.version().is_empty();
        let written = match is_new {
            true => self.context.api.create(&ENDPOINTS, &wanted).await,
            false => self.context.api.update(&ENDPOINTS, &wanted).await,
        };
        match written {
            Ok(written) => self.see(&written).await,
            Err(error) if is_new && is_namespace_going(&error) => Ok(After::Done),
            Err(error) => {
                self.complain(service, &wanted, is_new, &message(&error));
                Err(error.into())
            }
        }
    }

    /// Waits until the cache has what was written, so that it is not written twice.
    async fn see(&self, written: &Object) -> Result<After, Error> {
        let version = Version::parse(written.version());
        let seen = timeout(PATIENCE, self.endpoints.wait_for(&written.key(), version)).await;
        seen.map(|()| After::Done)
            .map_err(|_| Error::Other("endpoints informer cache is out of date".into()))
    }

    fn complain(&self, service: &Object, wanted: &Object, is_new: bool, error: &str) {
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
        self.context.record(&ENDPOINTS, wanted, note);
    }
}
