//! Which calls of webhooks do not go over the network?

use std::fmt::Debug;

use bytes::Bytes;
use http::{Request, Response};
use mizzen_registry::BoxFuture;

use super::SendError;

/// Answers calls of admission and conversion webhooks in place of the network: webhooks in the process of the server, and
/// failures of webhooks in tests.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use mizzen_outgoing::{InterceptWebhook, SendError};
///
/// #[derive(Debug)]
/// struct Refused;
///
/// impl InterceptWebhook for Refused {
///     fn intercept(
///         &self,
///         request: Request<Bytes>,
///     ) -> std::pin::Pin<Box<dyn Future<Output = Option<Result<Response<Bytes>, SendError>>> + Send>> {
///         let host = request.uri().host().unwrap_or_default();
///         let error = SendError(format!("dial tcp {host}: connect: connection refused"));
///         Box::pin(async move { Some(Err(error)) })
///     }
/// }
/// ```
pub trait InterceptWebhook: Debug + Send + Sync {
    /// Answers a call, or returns `None`, and the call is sent over the network. The URI of the request is absolute; the
    /// caller stops waiting at the end of the timeout.
    fn intercept(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Option<Result<Response<Bytes>, SendError>>>;
}
