//! What becomes of a request that breaks the server's own code? It is answered, and nobody else hears of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Uri};
use mizzen_registry::Future as Work;

use crate::answer::{self, Answer};

/// The answer to a request, or what is said of a panic.
///
/// Invariant: no lock is held over a change that could be left half done by a panic.
pub(crate) struct Recover<'a> {
    /// What was asked.
    pub method: Method,
    /// Where.
    pub uri: Uri,
    /// What is being made of it.
    pub answer: Work<'a, Answer>,
}

impl Future for Recover<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Answer> {
        let caught = catch_unwind(AssertUnwindSafe(|| self.answer.as_mut().poll(context)));
        caught.unwrap_or_else(|_| {
            tracing::error!(method = %self.method, path = self.uri.path(), "a request caused a panic");
            Poll::Ready(answer::text(
                500,
                "This request caused apiserver to panic. Look in the logs for details.\n",
            ))
        })
    }
}
