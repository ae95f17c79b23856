//! A storage that the server's author writes: objects that are computed, or kept somewhere else.

use mizzen_object::Status;
use mizzen_registry::{BoxFuture, WatchChange};
use mizzen_value::Value;
use tokio::sync::mpsc::Receiver;

use super::RequestInfo;

/// Has the objects of one resource instead of the store.
///
/// The kind's `verbs` say what can be asked for; whatever else is asked is refused with 405 and is not in discovery.
/// Objects are in the version of [`Asked::kind`] and need `metadata.name` and nothing more: the server says what they
/// are, selects, and puts them into the form that is asked for. `patch` and `deletecollection` are not for storages.
///
/// ```
/// use mizzen_apiserver::extend::{Asked, Storage};
/// use mizzen_object::Status;
/// use mizzen_registry::Future;
/// use mizzen_value::{Value, value};
///
/// /// One object, made for each request.
/// struct Now;
///
/// impl Storage for Now {
///     fn list<'a>(&'a self, asked: &'a Asked) -> Future<'a, Result<Vec<Value>, Status>> {
///         Box::pin(async {
///             let time = asked.server.registry().timestamp();
///             Ok(vec![value!({ "metadata": { "name": "now" }, "time": time })])
///         })
///     }
/// }
/// ```
pub trait Storage: Send + Sync {
    /// All objects of the namespace, or of all if it is empty. What selectors leave out is left out afterwards.
    fn list<'a>(&'a self, asked: &'a RequestInfo<'a>) -> BoxFuture<'a, Result<Vec<Value>, Status>>;

    /// One object. Unless said otherwise it is looked for in the list.
    fn get<'a>(&'a self, asked: &'a RequestInfo<'a>) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move {
            let found = self.list(asked).await?.into_iter();
            let mut found = found.filter(|object| object["metadata"]["name"].str() == asked.name);
            found.next().ok_or_else(|| asked.not_found())
        })
    }

    /// Takes a new object, which is admitted and validated, and returns it as it is now.
    fn create<'a>(
        &'a self,
        asked: &'a RequestInfo<'a>,
        _object: Value,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(asked.unsupported()) })
    }

    /// Takes an object in place of the one that is there, and returns it as it is now.
    fn update<'a>(
        &'a self,
        asked: &'a RequestInfo<'a>,
        _object: Value,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(asked.unsupported()) })
    }

    /// Removes an object and returns it as it was.
    fn delete<'a>(&'a self, asked: &'a RequestInfo<'a>) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Err(asked.unsupported()) })
    }

    /// The changes from now on; what is there already comes first, as additions. The watch ends with the channel.
    fn watch<'a>(
        &'a self,
        asked: &'a RequestInfo<'a>,
    ) -> BoxFuture<'a, Result<Receiver<(WatchChange, Value)>, Status>> {
        Box::pin(async { Err(asked.unsupported()) })
    }
}
