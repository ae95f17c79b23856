//! What authors of controllers write.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Action, Context, Error};
use crate::cache::Lister;
use crate::key::Key;

/// Reconciles keys. It is level-triggered: it reads the current state and never depends on the event
/// that enqueued the key. A closure is one, too.
///
/// ```
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Action, Context, Error, Reconcile};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// struct Painter;
///
/// impl Reconcile for Painter {
///     async fn reconcile(&self, key: &Key, context: &Context) -> Result<Action, Error> {
///         let Some(mut config) = context.api.find(&CONFIG_MAPS, key).await? else {
///             return Ok(Action::done()); // it was deleted
///         };
///         if config["data"]["colour"].is_null() {
///             config.entry("data").set("colour", "red");
///             context.api.update(&CONFIG_MAPS, &config).await?;
///         }
///         Ok(Action::done())
///     }
/// }
/// ```
pub trait Reconcile: Send + Sync + 'static {
    /// Brings the cluster closer to what the object of `key` says.
    fn reconcile(
        &self,
        key: &Key,
        context: &Context,
    ) -> impl Future<Output = Result<Action, Error>> + Send;
}

impl<F, R> Reconcile for F
where
    F: Fn(Key, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Action, Error> {
        self(key.clone(), context.clone()).await
    }
}

impl<R: Reconcile> Reconcile for Arc<R> {
    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Action, Error> {
        R::reconcile(self, key, context).await
    }
}

/// Reconciles objects of a kind, as the cache has them. A closure is one, too.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
///
/// async fn check(pod: Arc<Pod>, context: Context) -> Result<Action, Error> {
///     let spec = pod.spec.as_ref().ok_or_else(|| Error::terminal("no spec"))?;
///     println!("{}: {} containers", context.name(), spec.containers.len());
///     Ok(Action::done())
/// }
///
/// let context = Context::new(client).named("checker");
/// let controller = Controller::for_kind(&context, typed::<Pod>()).reconcile_objects(check);
/// # drop(controller);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ReconcileObject<K: Send + Sync>: Send + Sync + 'static {
    /// Brings the cluster closer to what the object says.
    fn reconcile(
        &self,
        object: Arc<K>,
        context: &Context,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Called instead when the object does not exist any more, to forget what is kept about it.
    fn deleted(
        &self,
        _key: &Key,
        _context: &Context,
    ) -> impl Future<Output = Result<Action, Error>> + Send {
        std::future::ready(Ok(Action::done()))
    }
}

impl<K, F, R> ReconcileObject<K> for F
where
    K: Send + Sync,
    F: Fn(Arc<K>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    async fn reconcile(&self, object: Arc<K>, context: &Context) -> Result<Action, Error> {
        self(object, context.clone()).await
    }
}

/// Reads the object of a key from the cache.
pub(super) struct ObjectReconciler<K, R> {
    pub objects: Lister<K>,
    pub reconciler: R,
}

impl<K, R> Reconcile for ObjectReconciler<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: ReconcileObject<K>,
{
    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Action, Error> {
        match self.objects.by_key(key)? {
            Some(object) => self.reconciler.reconcile(object, context).await,
            None => self.reconciler.deleted(key, context).await,
        }
    }
}
