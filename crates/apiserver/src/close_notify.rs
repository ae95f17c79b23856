//! A TLS connection that is never cut off: `close_notify` goes out when it is dropped, as Go's server does it.
//!
//! hyper shuts a connection down that ends by itself. One whose client ends a stream, or that costs too much, is dropped,
//! and without the alert a client cannot tell that from an attacker who cuts a connection.
//!
//! A connection whose client is still sending a body lingers after the shutdown: closed with bytes that have not been read, it would be
//! reset, and the client could lose the answer.

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

/// Go: how long a client has to read an answer before its connection is reset (net/http, rstAvoidanceDelay).
const LINGER: Duration = Duration::from_millis(500);

/// How much of what a client still sends is read meanwhile: more than the largest body that is accepted.
const MAX_DISCARDED: usize = 4 * 1024 * 1024;

/// A connection of the server's.
pub(crate) struct CloseNotify {
    stream: TlsStream<TcpStream>,
    lingers: Lingers,
    /// Until when it lingers, once it has been shut down.
    until: Option<Pin<Box<Sleep>>>,
    n_discarded: usize,
}

/// Whether a connection lingers at its end.
#[derive(Clone, Default)]
pub(crate) struct Lingers(Arc<AtomicBool>);

impl Lingers {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl CloseNotify {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> (CloseNotify, Lingers) {
        let lingers = Lingers::default();
        let stream = CloseNotify {
            stream,
            lingers: lingers.clone(),
            until: None,
            n_discarded: 0,
        };
        (stream, lingers)
    }

    /// Reads what still comes, and forgets it.
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
                .write_tls(&mut Now(stream))
                .is_ok_and(|written| written > 0)
        {}
    }
}

/// Writes what the socket takes at once.
struct Now<'a>(&'a TcpStream);

impl io::Write for Now<'_> {
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
        match self.lingers.0.load(Ordering::Relaxed) {
            true => self.poll_linger(context),
            false => Poll::Ready(Ok(())),
        }
    }
}
