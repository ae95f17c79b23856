//! Subresources of custom API servers.

use mizzen_object::Status;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::RequestContext;

/// Serves a subresource.
///
/// The `subresource` line of the kind has its name, its verbs and the kind of the response.
///
/// ```
/// use mizzen_apiserver::extend::{RequestContext, SubresourceHandler};
/// use mizzen_object::Status;
/// use mizzen_registry::BoxFuture;
/// use mizzen_value::{Value, value};
///
/// struct Greeting;
///
/// impl SubresourceHandler for Greeting {
///     fn answer<'a>(&'a self, context: &'a RequestContext, _body: Value) -> BoxFuture<'a, Result<Value, Status>> {
///         Box::pin(async { Ok(value!({ "text": (format!("hello {}", context.name)) })) })
///     }
/// }
/// ```
pub trait SubresourceHandler: Send + Sync {
    /// Returns the response. `body` is the decoded body, null if it is empty. `context.old` is the object.
    fn answer<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        body: Value,
    ) -> BoxFuture<'a, Result<Value, Status>>;
}
