//! A connection whose bytes are looked at as they pass.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What looks at them.
pub(crate) trait Inspect: Unpin {
    /// The peer has sent bytes. An error ends the connection.
    fn received(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// So many bytes have been written.
    fn written(&mut self, _n_bytes: usize) {}
}

/// A connection with something that looks at what passes.
pub(crate) struct Tap<S, I> {
    inner: S,
    inspect: I,
}

impl<S, I> Tap<S, I> {
    pub(crate) fn new(inner: S, inspect: I) -> Tap<S, I> {
        Tap { inner, inspect }
    }
}

impl<S: AsyncRead + Unpin, I: Inspect> AsyncRead for Tap<S, I> {
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

impl<S: AsyncWrite + Unpin, I: Inspect> AsyncWrite for Tap<S, I> {
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
