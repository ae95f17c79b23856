//! A response body: bytes, pieces that are joined while they are sent, or a stream of events.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::audit::Record;

/// How much of a long list is put together at a time. What nobody reads must be small.
const CHUNK: usize = 128 * 1024;
/// A piece that is not copied, because it is large enough to go alone.
const LARGE: usize = 32 * 1024;

/// A response body.
pub struct Body {
    kind: Kind,
    /// What is remembered of its request, which is over when this is.
    _held: Record,
}

enum Kind {
    Whole(Option<Bytes>),
    Pieces { pieces: std::vec::IntoIter<Bytes>, left: u64 },
    Stream(Pin<Box<dyn Source>>),
    Relay(Incoming),
}

/// Another server stopped in the middle of an answer that is passed on. The client must not take what it got for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server behind this one stopped in the middle of its answer")]
pub struct Broken;

/// Where the frames of a stream come from.
pub(crate) trait Source: Send {
    /// The next frame, or none when the stream is over.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>>;
}

impl Body {
    fn of(kind: Kind) -> Body {
        Body { kind, _held: Record::default() }
    }

    /// A body of many pieces.
    pub(crate) fn pieces(pieces: Vec<Bytes>) -> Body {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Body::of(Kind::Pieces { pieces: pieces.into_iter(), left })
    }

    /// A body that goes on until its source ends.
    pub(crate) fn stream(source: impl Source + 'static) -> Body {
        Body::of(Kind::Stream(Box::pin(source)))
    }

    /// The body of another server's answer, as it comes.
    pub(crate) fn relay(body: Incoming) -> Body {
        Body::of(Kind::Relay(body))
    }

    /// The same body. Its request is not over before it is.
    pub(crate) fn held(self, record: Record) -> Body {
        Body { _held: record, ..self }
    }

    /// Whether it goes on for as long as somebody else likes.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Relay(_))
    }

    /// All of it, if it is in one piece.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref(),
            _ => None,
        }
    }

    /// The bytes of a body that is no stream.
    pub(crate) fn into_bytes(self) -> Result<Bytes, Body> {
        match self.kind {
            Kind::Whole(bytes) => Ok(bytes.unwrap_or_default()),
            Kind::Pieces { pieces, left } => {
                let mut all = BytesMut::with_capacity(usize::try_from(left).unwrap_or_default());
                pieces.for_each(|piece| all.extend_from_slice(&piece));
                Ok(all.freeze())
            }
            kind => Err(Body { kind, ..self }),
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body::of(Kind::Whole(Some(bytes.into())))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match &mut self.kind {
            Kind::Whole(bytes) => bytes.take().filter(|bytes| !bytes.is_empty()),
            Kind::Pieces { pieces, left } => join(pieces, left),
            Kind::Stream(source) => match source.as_mut().poll_next(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            Kind::Relay(body) => {
                return Pin::new(body).poll_frame(context).map_err(|_| Broken);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Pieces { left, .. } => *left == 0,
            Kind::Stream(_) => false,
            Kind::Relay(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Pieces { left, .. } => SizeHint::with_exact(*left),
            Kind::Stream(_) => SizeHint::default(),
            Kind::Relay(body) => body.size_hint(),
        }
    }
}

/// The next chunk of a list: few large writes cost less than many small ones.
fn join(pieces: &mut std::vec::IntoIter<Bytes>, left: &mut u64) -> Option<Bytes> {
    if *left == 0 {
        return None;
    }
    let is_large = |piece: &Bytes| piece.len() >= LARGE;
    if let Some(piece) = pieces.as_slice().first().filter(|piece| is_large(piece)).cloned() {
        pieces.next();
        *left -= piece.len() as u64;
        return Some(piece);
    }
    let room = CHUNK.min(usize::try_from(*left).unwrap_or(CHUNK));
    let mut chunk = BytesMut::with_capacity(room + LARGE);
    while chunk.len() < room && !pieces.as_slice().first().is_some_and(is_large) {
        match pieces.next() {
            Some(piece) => chunk.extend_from_slice(&piece),
            None => break,
        }
    }
    *left -= chunk.len() as u64;
    Some(chunk.freeze())
}
