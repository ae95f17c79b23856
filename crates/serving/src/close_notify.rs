//! A TLS connection that sends `close_notify` when it is dropped, as Go's server does.
//!
//! hyper shuts down a connection that ends normally. One that exceeds a limit is dropped, and without the alert its client
//! cannot tell that from an attacker who truncates the connection.
//!
//! A connection whose client is still sending a body lingers after the shutdown: a socket that is closed with unread bytes
//! is reset, and the client could lose the response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// Go: how long a client has to read a response before its connection is reset (net/http, rstAvoidanceDelay).
const LINGER: Duration = Duration::from_millis(500);

/// How many bytes are read and discarded meanwhile: more than the largest accepted body.
const MAX_DISCARDED: usize = 4 * 1024 * 1024;

/// A TLS connection that sends close_notify at its end, and lingers on request.
pub struct CloseNotify {
    stream: TlsStream<TcpStream>,
    linger: LingerFlag,
    /// When lingering ends, once the connection has been shut down.
    until: Option<Pin<Box<Sleep>>>,
    n_discarded: usize,
}

/// Whether a connection lingers at its end.
#[derive(Clone, Default)]
pub struct LingerFlag(Arc<AtomicBool>);

impl LingerFlag {
    /// Makes the connection linger.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl CloseNotify {
    /// Wraps a connection; the flag makes it linger.
    pub fn new(stream: TlsStream<TcpStream>) -> (CloseNotify, LingerFlag) {
        let linger = LingerFlag::default();
        let stream = CloseNotify {
            stream,
            linger: linger.clone(),
            until: None,
            n_discarded: 0,
        };
        (stream, linger)
    }

    /// Reads and discards what the client still sends.
    fn poll_linger(&mut self, context: &mut Context) -> Poll<io::Result<()>> {
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut bytes = [0; 16 * 1024];
        while until.as_mut().poll(context).is_pending() {
            if self.n_discarded >= MAX_DISCARDED {
                return Poll::Pending;
            }
            let mut discarded = ReadBuf::new(&mut bytes);
            let socket = Pin::new(&mut *self.stream.get_mut().0);
            let outcome = ready!(socket.poll_read(context, &mut discarded));
            if outcome.is_err() || discarded.filled().is_empty() {
                break;
            }
            self.n_discarded += discarded.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for CloseNotify {
    fn drop(&mut self) {
        let (stream, session) = self.stream.get_mut();
        session.send_close_notify();
        // The server does not wait for a client that does not read.
        while session.wants_write()
            && session
                .write_tls(&mut NonBlockingWriter(stream))
                .is_ok_and(|written| written > 0)
        {}
    }
}

/// Writes as much as the socket accepts at once.
struct NonBlockingWriter<'a>(&'a TcpStream);

impl io::Write for NonBlockingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for CloseNotify {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for CloseNotify {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        match self.linger.0.load(Ordering::Relaxed) {
            true => self.poll_linger(context),
            false => Poll::Ready(Ok(())),
        }
    }
}
