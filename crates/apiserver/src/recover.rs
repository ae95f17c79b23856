//! Panic recovery: a request whose handler panics gets a 500, and the server goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Uri};
use mizzen_registry::BoxFuture as Work;

use crate::response::{self, Response};

/// The response to a request, or a 500 if its handler panics.
///
/// Invariant: no lock is held over a change that a panic could leave half done.
pub(crate) struct Recover<'a> {
    pub method: Method,
    pub uri: Uri,
    pub response: Work<'a, Response>,
}

impl Future for Recover<'_> {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Response> {
        let caught = catch_unwind(AssertUnwindSafe(|| self.response.as_mut().poll(context)));
        caught.unwrap_or_else(|_| {
            tracing::error!(method = %self.method, path = self.uri.path(), "request handler panicked");
            Poll::Ready(response::text(
                500,
                "This request caused apiserver to panic. Look in the logs for details.\n",
            ))
        })
    }
}
