//! A namespace that is deleted goes when everything in it is gone.
//!
//! `content` deletes what is in it, `conditions` says how far that has come.

mod conditions;
mod content;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::{Exponential, MaxOf, Options, Queue, TokenBucket};
use mizzen_sdk::resource::NAMESPACES;
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Value;

use crate::census::{Listed, Listener, Served};
use crate::{After, Context, Error, Reconcile, Work};
use content::Sweep;

/// The finalizer of namespaces that says that there may be something in them.
const FINALIZER: &str = "kubernetes";
/// How long writes that were under way when the namespace was deleted have to end.
///
/// Upstream waits 5 s, for servers and stores that hear of the deletion late.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many namespaces are deleted at a time.
const WORKERS: usize = 10;

struct Namespaces {
    context: Context,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("namespace-controller");
    let queue = queue();
    let todo = queue.clone();
    context
        .follow(&NAMESPACES)
        .add_handler(move |event: Event<Object>| {
            if event
                .object()
                .object()
                .is_ok_and(|namespace| namespace.is_going())
            {
                todo.add_after(event.key().clone(), PATIENCE);
            }
        });
    let census = context.census().clone();
    census.listen(Arc::new(Leaving {
        namespaces: context.follow(&NAMESPACES),
        todo: queue.clone(),
    }));
    Work::new(queue, WORKERS, Arc::new(Namespaces { context })).and(census.run())
}

/// Hears when something leaves a namespace that goes: it may have been the last.
struct Leaving {
    namespaces: Informer<Object>,
    todo: Queue<Key>,
}

impl Listener for Leaving {
    fn replaced(&self, _of: &Resource, _objects: Listed) {}

    fn changed(&self, _of: &Resource, _object: &Value) {}

    fn gone(&self, _of: &Resource, object: &Value) {
        let key = Key::cluster(object["metadata"]["namespace"].str());
        if self
            .namespaces
            .lister()
            .by_key(&key)
            .is_ok_and(|found| found.is_some_and(|found| found.is_going()))
        {
            self.todo.add_after(key, PATIENCE);
        }
    }
}

/// Failures are tried again sooner than elsewhere: at least every minute.
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

impl Reconcile for Namespaces {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        // Several may write a namespace that goes, so that the cache is not enough.
        let found = self.context.api.find(&NAMESPACES, key).await?;
        let Some(namespace) = found.filter(Object::is_going) else {
            return Ok(After::Done);
        };
        match self.end(namespace).await {
            Err(Error::Api(error)) if is_not_found(&error) => Ok(After::Done),
            outcome => outcome,
        }
    }
}

impl Namespaces {
    async fn end(&self, mut namespace: Object) -> Result<After, Error> {
        let api = &self.context.api;
        if namespace["status"]["phase"].str() != "Terminating" {
            namespace.entry("status").set("phase", "Terminating");
            namespace = api.update_status(&NAMESPACES, &namespace).await?;
        }
        if namespace["spec"]["finalizers"].list().is_empty() {
            return Ok(After::Done);
        }
        let served = Served::ask(api.client()).await?;
        let sweep = Sweep {
            api,
            namespace: &namespace,
            now: self.context.now().as_second(),
        };
        let outcome = sweep.all(&served).await;
        let problems = outcome
            .progress
            .discovery
            .iter()
            .chain(&outcome.progress.errors)
            .cloned();
        let problems: Vec<String> = problems.collect();
        let namespace = self.say(namespace, &outcome.progress).await?;
        match (problems.is_empty(), outcome.estimate) {
            (false, _) => Err(Error::Other(problems.join(", "))),
            (true, 0) => self.finalize(namespace).await,
            (true, seconds) => Ok(After::Again(Duration::from_secs(
                seconds.unsigned_abs() / 2 + 1,
            ))),
        }
    }

    async fn say(
        &self,
        mut namespace: Object,
        progress: &conditions::Progress,
    ) -> Result<Object, Error> {
        let now = self.context.now_text();
        let list = namespace.entry("status").entry("conditions").make_list();
        if !conditions::update(list, progress, &now) {
            return Ok(namespace);
        }
        match self
            .context
            .api
            .update_status(&NAMESPACES, &namespace)
            .await
        {
            // It will be said next time.
            Err(error) if is_conflict(&error) => {
                Ok(self.context.api.get(&NAMESPACES, &namespace.key()).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Says that nothing is in the namespace any more.
    async fn finalize(&self, mut namespace: Object) -> Result<After, Error> {
        let finalizers = namespace.entry("spec").entry("finalizers").make_list();
        finalizers.retain(|finalizer: &Value| finalizer.str() != FINALIZER);
        self.context
            .api
            .update_at(&NAMESPACES, "finalize", &namespace)
            .await?;
        Ok(After::Done)
    }
}
