//! Storages of custom API servers: objects that are computed, or stored elsewhere.

use mizzen_registry::{BoxFuture, WatchChange};
use mizzen_value::Value;
use tokio::sync::mpsc::Receiver;

use super::{Error, RequestContext};

/// The objects of one resource, in place of the store.
///
/// The `verbs` of the kind are served and in discovery; other verbs get 405.
/// Objects are in the version of [`RequestContext::kind`] and need only `metadata.name`: the server sets
/// kind and apiVersion, selects and renders. `patch` and `deletecollection` are not supported.
///
/// ```
/// use mizzen_apiserver::extend::{Error, RequestContext, Storage};
/// use mizzen_value::{Value, value};
///
/// /// One object, made for each request.
/// struct Now;
///
/// impl Storage for Now {
///     async fn list(&self, context: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
///         let time = context.server.registry().timestamp();
///         Ok(vec![value!({ "metadata": { "name": "now" }, "time": time })])
///     }
/// }
/// ```
pub trait Storage: Send + Sync {
    /// All objects of the namespace, or of all if it is empty. The server applies selectors.
    fn list(
        &self,
        context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<Vec<Value>, Error>> + Send;

    /// One object; by default it is found in the list.
    fn get(
        &self,
        context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<Value, Error>> + Send {
        async move {
            let found = self.list(context).await?.into_iter();
            let mut found = found.filter(|object| object["metadata"]["name"].str() == context.name);
            found.next().ok_or_else(|| context.not_found())
        }
    }

    /// Creates an object, which is admitted and validated, and returns it.
    fn create(
        &self,
        context: &RequestContext<'_>,
        _object: Value,
    ) -> impl Future<Output = Result<Value, Error>> + Send {
        async { Err(context.unsupported()) }
    }

    /// Updates an object and returns it.
    fn update(
        &self,
        context: &RequestContext<'_>,
        _object: Value,
    ) -> impl Future<Output = Result<Value, Error>> + Send {
        async { Err(context.unsupported()) }
    }

    /// Deletes an object and returns its last state.
    fn delete(
        &self,
        context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<Value, Error>> + Send {
        async { Err(context.unsupported()) }
    }

    /// Watches: ADDED for each existing object first, then changes. The watch ends with the channel.
    fn watch(
        &self,
        context: &RequestContext<'_>,
    ) -> impl Future<Output = Result<Receiver<(WatchChange, Value)>, Error>> + Send {
        async { Err(context.unsupported()) }
    }
}

/// A [`Storage`] of any type.
pub(crate) trait ErasedStorage: Send + Sync {
    fn list_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Value>, Error>>;

    fn get_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Value, Error>>;

    fn create_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Value,
    ) -> BoxFuture<'a, Result<Value, Error>>;

    fn update_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Value,
    ) -> BoxFuture<'a, Result<Value, Error>>;

    fn delete_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Value, Error>>;

    fn watch_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Receiver<(WatchChange, Value)>, Error>>;
}

impl<T: Storage> ErasedStorage for T {
    fn list_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Value>, Error>> {
        Box::pin(self.list(context))
    }

    fn get_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(self.get(context))
    }

    fn create_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Value,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(self.create(context, object))
    }

    fn update_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        object: Value,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(self.update(context, object))
    }

    fn delete_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(self.delete(context))
    }

    fn watch_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Receiver<(WatchChange, Value)>, Error>> {
        Box::pin(self.watch(context))
    }
}
