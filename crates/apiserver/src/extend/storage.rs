//! Storages of custom API servers: objects that are computed, or stored elsewhere.

use mizzen_object::Status;
use mizzen_registry::{BoxFuture, WatchChange};
use mizzen_value::Value;
use tokio::sync::mpsc::Receiver;

use super::RequestContext;

/// The objects of one resource, in place of the store.
///
/// The `verbs` of the kind are served and in discovery; other verbs get 405.
/// Objects are in the version of [`RequestContext::kind`] and need only `metadata.name`: the server sets
/// kind and apiVersion, selects and renders. `patch` and `deletecollection` are not supported.
///
/// ```
/// use mizzen_apiserver::extend::{RequestContext, Storage};
/// use mizzen_object::Status;
/// use mizzen_registry::BoxFuture;
/// use mizzen_value::{Value, value};
///
/// /// One object, made for each request.
/// struct Now;
///
/// impl Storage for Now {
///     fn list<'a>(&'a self, context: &'a RequestContext) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
///         Box::pin(async {
///             let time = context.server.registry().timestamp();
///             Ok(vec![value!({ "metadata": { "name": "now" }, "time": time })])
///         })
///     }
/// }
/// ```
pub trait Storage: Send + Sync {
    /// All objects of the namespace, or of all if it is empty. The server applies selectors.
    fn list<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>>;

    /// One object; by default it is found in the list.
    fn get<'a>(&'a self, context: &'a RequestContext<'a>) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move {
            let found = self.list(context).await?.into_iter();
            let mut found = found.filter(|object| object["metadata"]["name"].str() == context.name);
            found.next().ok_or_else(|| context.not_found())
        })
    }

    /// Creates an object, which is admitted and validated, and returns it.
    fn create<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        _object: Value,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(context.unsupported()) })
    }

    /// Updates an object and returns it.
    fn update<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        _object: Value,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(context.unsupported()) })
    }

    /// Deletes an object and returns its last state.
    fn delete<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(context.unsupported()) })
    }

    /// Watches: ADDED for each existing object first, then changes. The watch ends with the channel.
    fn watch<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Receiver<(WatchChange, Value)>, Status>> {
        Box::pin(async { Err(context.unsupported()) })
    }
}
