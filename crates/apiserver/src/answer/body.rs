//! A response body: bytes, pieces that are joined while they are sent, either of them compressed, or a stream of events.
//!
//! Bodies are pulled: what has not been asked for has not been joined or compressed.

use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use mizzen_registry::Space;
use mizzen_value::Str;
use tokio::sync::mpsc;

use super::compress::Gzip;
use crate::audit::Record;
use crate::flowcontrol::Held;

/// How much of a long body is handed out at a time. Unread bytes must be few.
const CHUNK: usize = 128 * 1024;
/// A piece that is not copied, because it is large enough to go alone.
const LARGE: usize = 32 * 1024;

/// A response body.
pub struct Body {
    kind: Kind,
    /// What is remembered of its request, which is over when this is.
    _held: Record,
    lease: Lease,
}

/// What a response holds until it has been written: the seat of its request.
#[derive(Default)]
pub(crate) struct Lease {
    /// The user to whom it is charged.
    pub user: Str,
    /// Given back when this is dropped.
    _seat: Held,
}

impl Lease {
    pub(crate) fn new(user: Str, seat: Held) -> Lease {
        Lease { user, _seat: seat }
    }
}

enum Kind {
    Whole(Bytes),
    Pieces(Pieces),
    Gzip(Box<Gzip>),
    Stream(Pin<Box<dyn Source>>),
    Relay(Incoming),
}

/// A body of many pieces.
pub(crate) struct Pieces {
    pieces: std::vec::IntoIter<Bytes>,
    left: u64,
    /// The memory that only this body keeps.
    own: u64,
    shared: Option<Shared>,
}

/// Memory that a body shares with the store, until objects are replaced or deleted: from then on the body alone keeps
/// them.
#[derive(Clone)]
pub(crate) struct Shared {
    space: Space,
    /// The bytes that had been replaced or deleted when the objects were read.
    superseded: u64,
    /// The bytes of the objects.
    most: u64,
}

impl Shared {
    /// Objects of a space that had given up so many bytes when they were read.
    pub(crate) fn new(space: &Space, superseded: u64) -> Shared {
        Shared {
            space: space.clone(),
            superseded,
            most: 0,
        }
    }

    /// How many bytes the store has given up since. An upper limit: bodies can keep the same old objects.
    pub(crate) fn stale(&self) -> u64 {
        self.space
            .superseded()
            .saturating_sub(self.superseded)
            .min(self.most)
    }
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

/// Chunks that another thread sends.
struct Received(mpsc::Receiver<Bytes>);

impl Source for Received {
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>> {
        self.0.poll_recv(context)
    }
}

impl Body {
    fn of(kind: Kind) -> Body {
        Body {
            kind,
            _held: Record::default(),
            lease: Lease::default(),
        }
    }

    /// A text with a newline at its end, as Go's encoder of JSON writes it.
    pub(crate) fn line(text: Bytes) -> Body {
        Body::pieces(vec![text, Bytes::from_static(b"\n")])
    }

    /// A body of many pieces.
    pub(crate) fn pieces(pieces: Vec<Bytes>) -> Body {
        Body::of(Kind::Pieces(Pieces::new(pieces, 0, None)))
    }

    /// A body of many pieces, most of which are the store's, besides so many bytes.
    pub(crate) fn shared_pieces(pieces: Vec<Bytes>, own: u64, shared: Shared) -> Body {
        Body::of(Kind::Pieces(Pieces::new(pieces, own, Some(shared))))
    }

    /// A body that goes on until its source ends.
    pub(crate) fn stream(source: impl Source + 'static) -> Body {
        Body::of(Kind::Stream(Box::pin(source)))
    }

    /// What a reader has, read beside the runtime's threads while it is sent. A reader that fails ends the body.
    pub(crate) fn reader(mut reader: impl Read + Send + 'static) -> Body {
        let (sender, received) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            loop {
                let mut chunk = vec![0; LARGE];
                let Ok(length @ 1..) = reader.read(&mut chunk) else {
                    return;
                };
                chunk.truncate(length);
                if sender.blocking_send(Bytes::from(chunk)).is_err() {
                    return;
                }
            }
        });
        Body::stream(Received(received))
    }

    /// The body of another server's answer, as it comes.
    pub fn relay(body: Incoming) -> Body {
        Body::of(Kind::Relay(body))
    }

    /// The same body. Its request is not over before it is.
    pub(crate) fn held(self, record: Record) -> Body {
        Body {
            _held: record,
            ..self
        }
    }

    /// The same body, which holds the seat of its request until it has been written.
    pub(crate) fn leased(self, lease: Lease) -> Body {
        Body { lease, ..self }
    }

    /// Takes over what it holds, for what has been handed out and not been written.
    pub(crate) fn take_lease(&mut self) -> Lease {
        std::mem::take(&mut self.lease)
    }

    /// The same body, compressed while it is sent. A stream is not.
    pub(super) fn compressed(self) -> Body {
        let plain = match self.kind {
            Kind::Whole(bytes) => Plain::Whole(bytes),
            Kind::Pieces(pieces) => Plain::Pieces(pieces),
            _ => return self,
        };
        Body {
            kind: Kind::Gzip(Box::new(Gzip::new(plain))),
            ..self
        }
    }

    /// The memory that the body alone keeps until it has been written, what is handed out of it included. That of a
    /// stream is what has been handed out.
    pub(crate) fn retained(&self) -> u64 {
        match &self.kind {
            Kind::Whole(bytes) => bytes.len() as u64,
            Kind::Pieces(pieces) => pieces.retained(),
            Kind::Gzip(gzip) => gzip.retained(),
            Kind::Stream(_) | Kind::Relay(_) => 0,
        }
    }

    /// The memory that it shares with the store.
    pub(crate) fn shared(&self) -> Option<Shared> {
        match &self.kind {
            Kind::Pieces(pieces) => pieces.shared.clone(),
            Kind::Gzip(gzip) => gzip.shared(),
            _ => None,
        }
    }

    /// Whether it goes on for as long as somebody else likes.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Relay(_))
    }

    /// All of it, if it is in one piece, with or without a newline.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Whole(bytes) => Some(bytes),
            Kind::Pieces(pieces) => match pieces.pieces.as_slice() {
                [text, end]
                    if end
                        == "
" =>
                {
                    Some(text)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The bytes of a body that is no stream, and not compressed.
    pub(crate) fn into_bytes(self) -> Option<Bytes> {
        match self.kind {
            Kind::Whole(bytes) => Some(bytes),
            Kind::Pieces(Pieces { pieces, left, .. }) => {
                let mut all = BytesMut::with_capacity(usize::try_from(left).unwrap_or_default());
                pieces.for_each(|piece| all.extend_from_slice(&piece));
                Some(all.freeze())
            }
            Kind::Gzip(_) | Kind::Stream(_) | Kind::Relay(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body::of(Kind::Whole(bytes.into()))
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
            Kind::Whole(bytes) => split(bytes),
            Kind::Pieces(pieces) => pieces.next(),
            Kind::Gzip(gzip) => ready!(gzip.poll_next(context)),
            Kind::Stream(source) => ready!(source.as_mut().poll_next(context)),
            Kind::Relay(body) => {
                return Pin::new(body).poll_frame(context).map_err(|_| Broken);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Pieces(pieces) => pieces.left == 0,
            Kind::Gzip(gzip) => gzip.is_over(),
            Kind::Stream(_) => false,
            Kind::Relay(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces(pieces) => SizeHint::with_exact(pieces.left),
            Kind::Gzip(_) | Kind::Stream(_) => SizeHint::default(),
            Kind::Relay(body) => body.size_hint(),
        }
    }
}

/// What can be compressed.
pub(super) enum Plain {
    Whole(Bytes),
    Pieces(Pieces),
}

impl Plain {
    /// The next chunk.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        match self {
            Plain::Whole(bytes) => split(bytes),
            Plain::Pieces(pieces) => pieces.next(),
        }
    }

    pub(super) fn retained(&self) -> u64 {
        match self {
            Plain::Whole(bytes) => bytes.len() as u64,
            Plain::Pieces(pieces) => pieces.retained(),
        }
    }

    pub(super) fn shared(&self) -> Option<Shared> {
        match self {
            Plain::Whole(_) => None,
            Plain::Pieces(pieces) => pieces.shared.clone(),
        }
    }
}

/// The next chunk of what is whole: what has been read of it can be seen, although it is kept to the end.
fn split(bytes: &mut Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(CHUNK)))
}

impl Pieces {
    fn new(pieces: Vec<Bytes>, own: u64, shared: Option<Shared>) -> Pieces {
        let left: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let vector = (pieces.capacity() * size_of::<Bytes>()) as u64;
        // What is not shared is its own.
        let own = vector + if shared.is_some() { own } else { left };
        let shared = shared.map(|shared| Shared {
            most: left,
            ..shared
        });
        Pieces {
            pieces: pieces.into_iter(),
            left,
            own,
            shared,
        }
    }

    fn retained(&self) -> u64 {
        self.own + self.left.min((CHUNK + LARGE) as u64)
    }

    /// The next chunk: few large writes cost less than many small ones.
    fn next(&mut self) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let is_large = |piece: &Bytes| piece.len() >= LARGE;
        if let Some(piece) = self
            .pieces
            .as_slice()
            .first()
            .filter(|piece| is_large(piece))
            .cloned()
        {
            self.pieces.next();
            self.left -= piece.len() as u64;
            return Some(piece);
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut chunk = BytesMut::with_capacity(left.min(CHUNK + LARGE));
        while chunk.len() < CHUNK && !self.pieces.as_slice().first().is_some_and(is_large) {
            match self.pieces.next() {
                Some(piece) => chunk.extend_from_slice(&piece),
                None => break,
            }
        }
        self.left -= chunk.len() as u64;
        Some(chunk.freeze())
    }
}
