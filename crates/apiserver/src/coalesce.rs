//! Fewer, larger writes: what many streams of a connection have to say at the same moment goes out together.
//!
//! Frames are collected; before they go out, everybody who is ready takes a turn. An event for a hundred
//! watchers on one connection then costs a few records and one write to the network, not a hundred of each; a
//! lone answer waits for nothing but those turns.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is collected before it goes out in any case. A client that does not read costs as much.
const MOST: usize = 64 * 1024;
/// What is large enough to go out alone is not copied first.
const LARGE: usize = 8 * 1024;
/// How much room a silent connection may keep.
const KEPT: usize = 16 * 1024;

/// A connection that gathers before it writes.
pub(crate) struct Gather<S> {
    inner: S,
    waiting: BytesMut,
    /// Whether the turn has been given since the last flush.
    gathered: bool,
}

impl<S> Gather<S> {
    pub(crate) fn new(inner: S) -> Gather<S> {
        Gather {
            inner,
            waiting: BytesMut::new(),
            gathered: false,
        }
    }

    /// Lets everybody else who is ready run first, once.
    fn turn(&mut self, context: &Context) -> Poll<()> {
        if self.gathered || self.waiting.is_empty() {
            return Poll::Ready(());
        }
        self.gathered = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    fn drain(&mut self, context: &mut Context) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(written);
        }
        if self.waiting.capacity() > KEPT {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
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
        if length >= LARGE || self.waiting.len() >= MOST {
            ready!(self.drain(context))?;
        }
        if length >= LARGE {
            return Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        }
        slices
            .iter()
            .for_each(|slice| self.waiting.extend_from_slice(slice));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.turn(context));
        ready!(self.drain(context))?;
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.gathered = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.drain(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn everything_comes_out_in_order_and_nothing_before_the_flush() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut gather = Gather::new(near);
        gather.write_all(b"one ").await.unwrap();
        gather.write_all(b"two").await.unwrap();
        assert_eq!(gather.waiting.len(), 7);
        gather.flush().await.unwrap();
        let mut read = [0; 7];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"one two");
    }

    #[tokio::test]
    async fn more_than_fits_is_sent_while_the_other_side_reads() {
        let (near, mut far) = tokio::io::duplex(64);
        let sent: Vec<u8> = (0..3 * MOST).map(|at| at as u8).collect();
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            let mut gather = Gather::new(near);
            gather.write_all(&copy).await.unwrap();
            gather.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        writer.await.unwrap();
        assert!(read == sent);
    }
}
