//! A connection whose bytes are inspected as they pass.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Inspects the bytes of a connection.
pub trait InspectBytes: Unpin {
    /// Called with bytes from the peer. An error ends the connection.
    fn received(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Called after `n_bytes` were written.
    fn written(&mut self, _n_bytes: usize) {}
}

/// A connection, and what inspects its bytes.
pub struct InspectedStream<S, I> {
    inner: S,
    inspect: I,
}

impl<S, I> InspectedStream<S, I> {
    /// Passes the bytes of `inner` to `inspect`.
    pub fn new(inner: S, inspect: I) -> InspectedStream<S, I> {
        InspectedStream { inner, inspect }
    }
}

impl<S: AsyncRead + Unpin, I: InspectBytes> AsyncRead for InspectedStream<S, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        into: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, into))?;
        Poll::Ready(self.inspect.received(&into.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin, I: InspectBytes> AsyncWrite for InspectedStream<S, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.inspect.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        slices: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        self.inspect.written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
