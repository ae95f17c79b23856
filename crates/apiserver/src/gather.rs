//! Fewer, larger writes: what many streams of a connection have to say at the same moment goes out together.
//!
//! A connection that begins to write first lets everybody who is ready take a turn. An event for a hundred
//! watchers on one connection then costs one write to the network, not a hundred; a lone answer waits for
//! nothing but those turns.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that gathers before it writes.
pub(crate) struct Gather<S> {
    inner: S,
    /// Whether the turn has been given since the last flush.
    gathered: bool,
}

impl<S> Gather<S> {
    pub fn new(inner: S) -> Gather<S> {
        Gather { inner, gathered: false }
    }

    fn turn(&mut self, context: &Context) -> Poll<()> {
        if self.gathered {
            return Poll::Ready(());
        }
        self.gathered = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        into: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.turn(context));
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        slices: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.turn(context));
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if flushed.is_ready() {
            self.gathered = false;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
