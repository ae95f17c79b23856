//! The namespace controller: deletes the content of terminating namespaces, then removes their
//! finalizer.
//!
//! `content` deletes, `conditions` reports the progress.

mod conditions;
mod content;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::controller::{Context, dynamic};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::{Exponential, MaxOf, Options, Queue, TokenBucket};
use mizzen_sdk::resource::NAMESPACES;
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Value;

use crate::metadata_informers::{DiscoveredKinds, MetadataHandler, ObjectMetadataList};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use content::ResourcesDeleter;

/// The namespace finalizer.
const FINALIZER: &str = "kubernetes";
/// How long writes that started before the deletion may take.
///
/// Upstream waits 5 s, for servers and stores that see the deletion late.
const DELETION_GRACE: Duration = Duration::from_millis(200);
/// Upstream's default of `--concurrent-namespace-syncs`.
const WORKERS: usize = 10;

struct NamespaceController {
    context: ControllerContext,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("namespace-controller");
    let queue = queue();
    let metadata_informers = context.metadata_informers().clone();
    metadata_informers.add_handler(Arc::new(ContentHandler {
        namespaces: context.informer(&NAMESPACES),
        todo: queue.clone(),
    }));
    let source = dynamic(&NAMESPACES).handler(|event, queue| {
        let namespace = event.object().object();
        if namespace.is_ok_and(|namespace| namespace.is_terminating()) {
            queue.add_after(event.key().clone(), DELETION_GRACE);
        }
    });
    Controller::for_kind(&context, source)
        .queue(queue)
        .workers(WORKERS)
        .reconcile(NamespaceController { context })
        .with_task(metadata_informers.run())
}

/// Enqueues a terminating namespace when one of its objects is deleted: it may have been the last
/// one.
struct ContentHandler {
    namespaces: Informer<Object>,
    todo: Queue<Key>,
}

impl MetadataHandler for ContentHandler {
    fn on_replace(&self, _of: &ResourceType, _objects: ObjectMetadataList) {}

    fn on_update(&self, _of: &ResourceType, _object: &Value) {}

    fn on_delete(&self, _of: &ResourceType, object: &Value) {
        let key = Key::cluster(object["metadata"]["namespace"].str());
        if self
            .namespaces
            .lister()
            .by_key(&key)
            .is_ok_and(|found| found.is_some_and(|found| found.is_terminating()))
        {
            self.todo.add_after(key, DELETION_GRACE);
        }
    }
}

/// Failures are retried sooner than elsewhere: at least every minute.
fn queue() -> Queue<Key> {
    let limiter = MaxOf(vec![
        Box::new(Exponential::new(
            Duration::from_millis(5),
            Duration::from_secs(60),
        )),
        Box::new(TokenBucket::new(10.0, 100)),
    ]);
    Queue::with(Options {
        limiter: Box::new(limiter),
        ..Options::new("namespace")
    })
}

impl Reconcile for NamespaceController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        // Several clients write a terminating namespace, so the cache is not enough.
        let found = self.context.api.find(&NAMESPACES, key).await?;
        let Some(namespace) = found.filter(Object::is_terminating) else {
            return Ok(Action::done());
        };
        match self.sync_namespace(namespace).await {
            Err(Error::Api(error)) if is_not_found(&error) => Ok(Action::done()),
            outcome => outcome,
        }
    }
}

impl NamespaceController {
    async fn sync_namespace(&self, mut namespace: Object) -> Result<Action, Error> {
        let api = &self.context.api;
        if namespace["status"]["phase"].str() != "Terminating" {
            namespace.entry("status").set("phase", "Terminating");
            namespace = api.update_status(&NAMESPACES, &namespace).await?;
        }
        if namespace["spec"]["finalizers"].list().is_empty() {
            return Ok(Action::done());
        }
        let served = DiscoveredKinds::discover(api.client()).await?;
        let sweep = ResourcesDeleter {
            api,
            namespace: &namespace,
            now: self.context.now().as_second(),
        };
        let outcome = sweep.delete_all_content(&served).await;
        let problems = outcome
            .progress
            .discovery
            .iter()
            .chain(&outcome.progress.errors)
            .cloned();
        let problems: Vec<String> = problems.collect();
        let namespace = self.write_conditions(namespace, &outcome.progress).await?;
        match (problems.is_empty(), outcome.estimate) {
            (false, _) => Err(Error::other(problems.join(", "))),
            (true, 0) => self.finalize(namespace).await,
            (true, seconds) => Ok(Action::requeue_after(Duration::from_secs(
                seconds.unsigned_abs() / 2 + 1,
            ))),
        }
    }

    async fn write_conditions(
        &self,
        mut namespace: Object,
        progress: &conditions::DeletionProgress,
    ) -> Result<Object, Error> {
        let now = self.context.now_text();
        let list = namespace.entry("status").entry("conditions").make_list();
        if !conditions::update(list, progress, &now) {
            return Ok(namespace);
        }
        let api = &self.context.api;
        match api.update_status(&NAMESPACES, &namespace).await {
            // The next sync writes them.
            Err(error) if is_conflict(&error) => {
                Ok(self.context.api.get(&NAMESPACES, &namespace.key()).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Removes the namespace finalizer.
    async fn finalize(&self, mut namespace: Object) -> Result<Action, Error> {
        let finalizers = namespace.entry("spec").entry("finalizers").make_list();
        finalizers.retain(|finalizer: &Value| finalizer.str() != FINALIZER);
        self.context
            .api
            .update_at(&NAMESPACES, "finalize", &namespace)
            .await?;
        Ok(Action::done())
    }
}
