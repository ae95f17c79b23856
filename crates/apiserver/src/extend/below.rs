//! What can be asked below an object, by the server's author.

use mizzen_object::Status;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::RequestInfo;

/// Answers for a subresource, whatever it is.
///
/// The kind's `subresource` line says its name, its verbs and its kind, which the answer is said to be.
///
/// ```
/// use mizzen_apiserver::extend::{Asked, Below};
/// use mizzen_object::Status;
/// use mizzen_registry::Future;
/// use mizzen_value::{Value, value};
///
/// struct Greeting;
///
/// impl Below for Greeting {
///     fn answer<'a>(&'a self, asked: &'a Asked, _body: Value) -> Future<'a, Result<Value, Status>> {
///         Box::pin(async { Ok(value!({ "text": (format!("hello {}", asked.name)) })) })
///     }
/// }
/// ```
pub trait SubresourceHandler: Send + Sync {
    /// The answer. `body` is what was sent, read as JSON or YAML; null if nothing was. `asked.old` is the object.
    fn answer<'a>(
        &'a self,
        asked: &'a RequestInfo<'a>,
        body: Value,
    ) -> BoxFuture<'a, Result<Value, Status>>;
}
