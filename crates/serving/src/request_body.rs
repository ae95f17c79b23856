//! The body of a request while it arrives.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connection_limits::Cancelled;

/// Go: how much of a body that its handler did not read is drained, so that the connection can be reused (net/http,
/// maxPostHandlerReadBytes).
const MAX_DRAINED: u64 = 256 * 1024;
/// How long draining may take. Go has no limit.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A body that ends only when all of it has arrived. Over HTTP/2 a client can end a stream early without an error; the part
/// that arrived must not be taken for the whole body.
pub struct WholeBody {
    /// `None` once it has ended.
    body: Option<Incoming>,
    is_http2: bool,
    given_up: Cancelled,
    unread: UnreadBody,
}

/// The unread rest of a body. Clones share the same body.
#[derive(Clone)]
pub struct UnreadBody(Arc<Mutex<ReadState>>);

/// How far a body has been read.
enum ReadState {
    Reading,
    Abandoned(Incoming),
    Ended,
}

impl WholeBody {
    /// Wraps a body; sets `given_up` if the client aborts the request.
    pub fn new(body: Incoming, version: Version, given_up: Cancelled) -> (WholeBody, UnreadBody) {
        let unread = UnreadBody(Arc::new(Mutex::new(ReadState::Reading)));
        let whole = WholeBody {
            body: Some(body),
            is_http2: version == Version::HTTP_2,
            given_up,
            unread: unread.clone(),
        };
        (whole, unread)
    }
}

impl Drop for WholeBody {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        *self.unread.0.lock() = unread.map_or(ReadState::Ended, ReadState::Abandoned);
    }
}

impl UnreadBody {
    /// Reads the rest of a body if it is short and arrives at once. Returns whether the body has ended.
    pub async fn drain(self, expects_continue: bool) -> bool {
        let mut body = match std::mem::replace(&mut *self.0.lock(), ReadState::Ended) {
            ReadState::Ended => return true,
            // It is being proxied.
            ReadState::Reading => return false,
            ReadState::Abandoned(body) => body,
        };
        // A client that waits for `100 Continue` does not get it.
        if expects_continue || body.size_hint().lower() >= MAX_DRAINED {
            return false;
        }
        let mut n_bytes = 0;
        let drained = async {
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if n_bytes > MAX_DRAINED {
                    return false;
                }
            }
            true
        };
        timeout(DRAIN_TIMEOUT, drained).await.unwrap_or(false)
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        let is_last = body.is_end_stream();
        let is_cut = frame.is_none() && !is_last;
        let frame = match frame {
            None if self.is_http2 && is_cut => Some(Err("the stream was reset".into())),
            frame => frame.map(|frame| frame.map_err(Into::into)),
        };
        if matches!(frame, Some(Err(_))) {
            self.given_up.set();
        }
        if is_last || !matches!(frame, Some(Ok(_))) {
            self.body = None;
            *self.unread.0.lock() = ReadState::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
