//! Coalesces the writes of the streams of one connection.
//!
//! Frames are buffered, and a flush first yields once, so that every task that is ready can write. An event for a hundred
//! watches on one connection then costs a few TLS records and one system call, not a hundred of each. A connection with one
//! request has nothing to wait for, and does not yield: the runtime would wake another thread for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is buffered at most. A client that does not read costs this much.
const MAX_BUFFERED: usize = 64 * 1024;
/// Writes of at least this size are not buffered.
const UNBUFFERED_FROM: usize = 8 * 1024;
/// How much capacity an idle connection keeps.
const MAX_KEPT_CAPACITY: usize = 16 * 1024;

/// A connection with coalesced writes.
pub struct Coalesce<S, F> {
    inner: S,
    /// Whether several requests share the connection.
    is_shared: F,
    buffer: BytesMut,
    /// Whether it has yielded since the last flush.
    has_yielded: bool,
}

impl<S, F: Fn() -> bool> Coalesce<S, F> {
    /// Coalesces the writes to `inner`. `is_shared` tells whether several requests share the
    /// connection.
    pub fn new(inner: S, is_shared: F) -> Coalesce<S, F> {
        Coalesce {
            inner,
            is_shared,
            buffer: BytesMut::new(),
            has_yielded: false,
        }
    }

    /// Lets other tasks that are ready run first, once.
    fn yield_once(&mut self, context: &Context) -> Poll<()> {
        if self.has_yielded || self.buffer.is_empty() || !(self.is_shared)() {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin, F> Coalesce<S, F> {
    fn poll_drain(&mut self, context: &mut Context) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.buffer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(written);
        }
        if self.buffer.capacity() > MAX_KEPT_CAPACITY {
            self.buffer = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for Coalesce<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        into: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() -> bool + Unpin> AsyncWrite for Coalesce<S, F> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        slices: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if length >= UNBUFFERED_FROM || self.buffer.len() >= MAX_BUFFERED {
            ready!(self.poll_drain(context))?;
        }
        if length >= UNBUFFERED_FROM {
            return Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        }
        slices
            .iter()
            .for_each(|slice| self.buffer.extend_from_slice(slice));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.yield_once(context));
        ready!(self.poll_drain(context))?;
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.has_yielded = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn writes_are_sent_in_order_and_only_on_flush() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = Coalesce::new(near, || true);
        stream.write_all(b"one ").await.unwrap();
        stream.write_all(b"two").await.unwrap();
        assert_eq!(stream.buffer.len(), 7);
        stream.flush().await.unwrap();
        let mut read = [0; 7];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"one two");
    }

    #[tokio::test]
    async fn only_a_shared_connection_yields_before_a_flush() {
        for is_shared in [true, false] {
            let (near, _far) = tokio::io::duplex(64);
            let mut stream = Coalesce::new(near, || is_shared);
            stream.write_all(b"one").await.unwrap();
            let flushed = std::future::poll_fn(|context| {
                Poll::Ready(Pin::new(&mut stream).poll_flush(context).is_ready())
            });
            assert_eq!(flushed.await, !is_shared);
        }
    }

    #[tokio::test]
    async fn a_large_write_is_sent_while_the_peer_reads() {
        let (near, mut far) = tokio::io::duplex(64);
        let sent: Vec<u8> = (0..3 * MAX_BUFFERED).map(|at| at as u8).collect();
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            let mut stream = Coalesce::new(near, || true);
            stream.write_all(&copy).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        writer.await.unwrap();
        assert!(read == sent);
    }
}
