//! What a request has besides its head: read whole, within limits, and not before it is known that it may come.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mizzen_object::Status;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connection_limits::GivenUp;
use crate::outgoing::Outgoing;
use crate::request::Request;

/// The largest request body, as upstream's.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;
/// In how many pieces a body may come: a piece costs as much as a kilobyte does, however small it is.
const MAX_PIECES: usize = 65_536;

/// Go: how much of a body is read that its handler did not read, so that the connection can be used again (net/http,
/// maxPostHandlerReadBytes).
const MAX_DRAINED: u64 = 256 * 1024;
/// How long that may take. Go waits as long as the client likes.
const DRAINING: Duration = Duration::from_millis(500);

/// A body that ends only when all of it has come. Over HTTP/2 a client can stop in the middle in words that mean no
/// harm; what came until then must not be taken for what it wanted to say.
pub(crate) struct Whole {
    /// None once it has ended.
    body: Option<Incoming>,
    is_http2: bool,
    given_up: GivenUp,
    unread: Unread,
}

/// What was not read of a body. A clone is of the same body.
#[derive(Clone)]
pub(crate) struct Unread(Arc<Mutex<Reading>>);

/// How far a body has been read.
enum Reading {
    UnderWay,
    GivenUp(Incoming),
    Ended,
}

impl Whole {
    /// A body on its way; it says when its client gives up.
    pub(crate) fn new(body: Incoming, version: Version, given_up: GivenUp) -> (Whole, Unread) {
        let unread = Unread(Arc::new(Mutex::new(Reading::UnderWay)));
        let whole = Whole {
            body: Some(body),
            is_http2: version == Version::HTTP_2,
            given_up,
            unread: unread.clone(),
        };
        (whole, unread)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        *self.unread.0.lock() = unread.map_or(Reading::Ended, Reading::GivenUp);
    }
}

impl Unread {
    /// Reads the rest of a body, if that is little and comes at once; whether the body has ended then.
    pub(crate) async fn drain(self, expects_continue: bool) -> bool {
        let mut body = match std::mem::replace(&mut *self.0.lock(), Reading::Ended) {
            Reading::Ended => return true,
            // It is being passed on.
            Reading::UnderWay => return false,
            Reading::GivenUp(body) => body,
        };
        // A client that waits for a word before it sends its body does not get it.
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
        timeout(DRAINING, drained).await.unwrap_or(false)
    }
}

impl Body for Whole {
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
            self.given_up.tell();
        }
        if is_last || !matches!(frame, Some(Ok(_))) {
            self.body = None;
            *self.unread.0.lock() = Reading::Ended;
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

/// Reads the body of a request, if it is one of those that have a meaning. Who sends too slowly is out of time like
/// any other request.
///
/// Invariant: a body is read only for somebody who may send it; strangers cost us their heads.
pub(crate) async fn receive(request: &mut Request) -> Result<(), Status> {
    let is_read = !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    // What is for another server is passed on as it comes.
    let is_proxied = request
        .info
        .resource()
        .is_some_and(|path| path.subresource == "proxy");
    if !is_read || is_proxied || request.headers.contains_key(header::UPGRADE) {
        return Ok(());
    }
    if let Some(arriving) = request.streams.take() {
        check_length(&request.headers)?;
        request.body = read(arriving.body).await?;
    }
    Ok(())
}

/// Refuses what is announced to be too large.
fn check_length(headers: &HeaderMap) -> Result<(), Status> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY) {
        Err(too_large())
    } else {
        Ok(())
    }
}

/// The whole body, if it is not too large. One that comes in one piece is not copied; many small pieces cost no more
/// than what is in them.
async fn read(mut body: Outgoing) -> Result<Bytes, Status> {
    let (mut whole, mut joined, mut n_pieces) = (Bytes::new(), BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&*error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        n_pieces += 1;
        if n_pieces > MAX_PIECES || whole.len() + joined.len() + data.len() > MAX_BODY {
            return Err(too_large());
        }
        if whole.is_empty() && joined.is_empty() {
            whole = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut whole));
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() {
        whole
    } else {
        joined.freeze()
    })
}

fn broken(error: &(dyn Error + Send + Sync)) -> Status {
    Status::bad_request(format!("unable to read the request body: {error}"))
}

fn too_large() -> Status {
    let message = format!("Request entity too large: limit is {MAX_BODY}");
    Status {
        details: Some(Box::default()),
        ..Status::failure(413, "RequestEntityTooLarge", message)
    }
}
