//! Subresources of custom API servers.

use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::{Error, RequestContext};

/// Serves a subresource.
///
/// The `subresource` line of the kind has its name, its verbs and the kind of the response. A subresource of a
/// [definition](crate::Builder::definition) has no such line: its verbs are [`SubresourceHandler::verbs`].
///
/// ```
/// use mizzen_apiserver::extend::{Error, RequestContext, SubresourceHandler};
/// use mizzen_value::{Value, value};
///
/// struct Greeting;
///
/// impl SubresourceHandler for Greeting {
///     async fn answer(&self, context: &RequestContext<'_>, _body: Value) -> Result<Value, Error> {
///         Ok(value!({ "text": (format!("hello {}", context.name)) }))
///     }
/// }
/// ```
pub trait SubresourceHandler: Send + Sync {
    /// Returns the response. `body` is the decoded body, null if it is empty. `context.old` is the object.
    fn answer(
        &self,
        context: &RequestContext<'_>,
        body: Value,
    ) -> impl Future<Output = Result<Value, Error>> + Send;

    /// The verbs, for the kinds of a definition.
    fn verbs(&self) -> &'static [&'static str] {
        &["get"]
    }
}

/// A [`SubresourceHandler`] of any type.
pub(crate) trait ErasedSubresourceHandler: Send + Sync {
    fn answer_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        body: Value,
    ) -> BoxFuture<'a, Result<Value, Error>>;
}

impl<T: SubresourceHandler> ErasedSubresourceHandler for T {
    fn answer_boxed<'a>(
        &'a self,
        context: &'a RequestContext<'a>,
        body: Value,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(self.answer(context, body))
    }
}
