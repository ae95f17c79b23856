//! Response bodies: bytes, pieces that are joined while they are sent, either of them compressed, or a stream.
//!
//! Bodies are lazy: pieces are joined and compressed only when they are polled.

use std::any::Any;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use mizzen_registry::Keyspace;
use mizzen_value::Str;
use tokio::sync::mpsc;

use super::compress::Gzip;

/// How much of a long body is returned at a time. Unread bytes must be few.
const CHUNK: usize = 128 * 1024;
/// Pieces of at least this size are not copied.
const LARGE: usize = 32 * 1024;

/// A response body.
pub struct Body {
    kind: BodyKind,
    /// Dropped with the body, such as the audit record of its request.
    _held: Option<Guard>,
    lease: ResponseLease,
}

/// What is released when it is dropped.
type Guard = Box<dyn Any + Send + Sync>;

/// The seat that a response holds until it has been written.
#[derive(Default)]
pub struct ResponseLease {
    /// The user who is charged.
    pub user: Str,

    /// Released on drop.
    _seat: Option<Guard>,
}

impl ResponseLease {
    /// The lease of a response to `user`; `seat` is released when the response has been written.
    pub fn new(user: Str, seat: Option<Box<dyn Any + Send + Sync>>) -> ResponseLease {
        ResponseLease { user, _seat: seat }
    }
}

enum BodyKind {
    Whole(Bytes),
    Pieces(Pieces),
    Gzip(Box<Gzip>),
    Stream(Pin<Box<dyn FrameSource>>),
    Relay(Incoming),
}

/// A body of many pieces.
pub(super) struct Pieces {
    pieces: std::vec::IntoIter<Bytes>,
    left: u64,
    /// The memory that only this body keeps.
    own: u64,
    shared: Option<SharedMemory>,
}

/// Memory that a body shares with the store. When objects are replaced or deleted, only the body keeps them.
#[derive(Clone)]
pub struct SharedMemory {
    space: Keyspace,
    /// The bytes that had been replaced or deleted when the objects were read.
    superseded: u64,
    /// The bytes of the objects.
    most: u64,
}

impl SharedMemory {
    /// Objects of a keyspace that had released `superseded` bytes when they were read.
    pub fn new(space: &Keyspace, superseded: u64) -> SharedMemory {
        SharedMemory {
            space: space.clone(),
            superseded,
            most: 0,
        }
    }

    /// How many bytes the store has released since. An upper bound: several bodies can keep the same objects.
    pub fn stale(&self) -> u64 {
        self.space
            .superseded()
            .saturating_sub(self.superseded)
            .min(self.most)
    }
}

/// An aggregated server ended in the middle of a response. The client must not take the part for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server behind this one stopped in the middle of its answer")]
pub struct TruncatedResponse;

/// The source of the frames of a stream.
pub trait FrameSource: Send {
    /// The next frame, or `None` at the end of the stream.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>>;

    /// Whether the stream that has ended is a part of what it should be; the client gets an error.
    fn is_truncated(&self) -> bool {
        false
    }
}

/// Chunks from a blocking thread.
struct ChunkReceiver(mpsc::Receiver<Bytes>);

impl FrameSource for ChunkReceiver {
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>> {
        self.0.poll_recv(context)
    }
}

impl Body {
    fn new(kind: BodyKind) -> Body {
        Body {
            kind,
            _held: None,
            lease: ResponseLease::default(),
        }
    }

    /// A text with a newline at its end, as Go's JSON encoder writes it.
    pub fn line(text: Bytes) -> Body {
        Body::pieces(vec![text, Bytes::from_static(b"\n")])
    }

    /// A body of many pieces.
    pub fn pieces(pieces: Vec<Bytes>) -> Body {
        Body::new(BodyKind::Pieces(Pieces::new(pieces, 0, None)))
    }

    /// A body of many pieces that share the store's memory, except `own` bytes.
    pub fn shared_pieces(pieces: Vec<Bytes>, own: u64, shared: SharedMemory) -> Body {
        Body::new(BodyKind::Pieces(Pieces::new(pieces, own, Some(shared))))
    }

    /// A stream that ends with its source.
    pub fn stream(source: impl FrameSource + 'static) -> Body {
        Body::new(BodyKind::Stream(Box::pin(source)))
    }

    /// The content of a reader, read on a blocking thread while it is sent. An error ends the body.
    pub fn reader(mut reader: impl Read + Send + 'static) -> Body {
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
        Body::stream(ChunkReceiver(received))
    }

    /// The body of another server's response, as it arrives.
    pub fn relay(body: Incoming) -> Body {
        Body::new(BodyKind::Relay(body))
    }

    /// Keeps `guard` until the body is dropped.
    pub fn held(self, guard: impl Any + Send + Sync) -> Body {
        Body {
            _held: Some(Box::new(guard)),
            ..self
        }
    }

    /// Keeps the seat of the request until the body has been written.
    pub fn leased(self, lease: ResponseLease) -> Body {
        Body { lease, ..self }
    }

    /// Takes the seat, for bytes in flight that outlive the body.
    pub fn take_lease(&mut self) -> ResponseLease {
        std::mem::take(&mut self.lease)
    }

    /// Compresses the body while it is sent. Streams are not compressed.
    pub(super) fn compressed(self) -> Body {
        let plain = match self.kind {
            BodyKind::Whole(bytes) => Plain::Whole(bytes),
            BodyKind::Pieces(pieces) => Plain::Pieces(pieces),
            _ => return self,
        };
        Body {
            kind: BodyKind::Gzip(Box::new(Gzip::new(plain))),
            ..self
        }
    }

    /// The memory that only this body keeps until it has been written, including bytes in flight; 0 for a stream.
    pub fn retained(&self) -> u64 {
        match &self.kind {
            BodyKind::Whole(bytes) => bytes.len() as u64,
            BodyKind::Pieces(pieces) => pieces.retained(),
            BodyKind::Gzip(gzip) => gzip.retained(),
            BodyKind::Stream(_) | BodyKind::Relay(_) => 0,
        }
    }

    /// The memory that it shares with the store.
    pub fn shared(&self) -> Option<SharedMemory> {
        match &self.kind {
            BodyKind::Pieces(pieces) => pieces.shared.clone(),
            BodyKind::Gzip(gzip) => gzip.shared(),
            _ => None,
        }
    }

    /// Whether it is a stream without a known end.
    pub fn is_stream(&self) -> bool {
        matches!(self.kind, BodyKind::Stream(_) | BodyKind::Relay(_))
    }

    /// The whole body, if it is one piece with or without a newline.
    pub fn whole(&self) -> Option<&Bytes> {
        match &self.kind {
            BodyKind::Whole(bytes) => Some(bytes),
            BodyKind::Pieces(pieces) => match pieces.pieces.as_slice() {
                [text, end] if end == "\n" => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The bytes of a body that is no stream, and not compressed.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.kind {
            BodyKind::Whole(bytes) => Some(bytes),
            BodyKind::Pieces(Pieces { pieces, left, .. }) => {
                let mut all = BytesMut::with_capacity(usize::try_from(left).unwrap_or_default());
                pieces.for_each(|piece| all.extend_from_slice(&piece));
                Some(all.freeze())
            }
            BodyKind::Gzip(_) | BodyKind::Stream(_) | BodyKind::Relay(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body::new(BodyKind::Whole(bytes.into()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = TruncatedResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match &mut self.kind {
            BodyKind::Whole(bytes) => split(bytes),
            BodyKind::Pieces(pieces) => pieces.next(),
            BodyKind::Gzip(gzip) => ready!(gzip.poll_next(context)),
            BodyKind::Stream(source) => match ready!(source.as_mut().poll_next(context)) {
                None if source.is_truncated() => return Poll::Ready(Some(Err(TruncatedResponse))),
                next => next,
            },
            BodyKind::Relay(body) => {
                return Pin::new(body)
                    .poll_frame(context)
                    .map_err(|_| TruncatedResponse);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Whole(bytes) => bytes.is_empty(),
            BodyKind::Pieces(pieces) => pieces.left == 0,
            BodyKind::Gzip(gzip) => gzip.is_over(),
            BodyKind::Stream(_) => false,
            BodyKind::Relay(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Pieces(pieces) => SizeHint::with_exact(pieces.left),
            BodyKind::Gzip(_) | BodyKind::Stream(_) => SizeHint::default(),
            BodyKind::Relay(body) => body.size_hint(),
        }
    }
}

/// A body that can be compressed.
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

    pub(super) fn shared(&self) -> Option<SharedMemory> {
        match self {
            Plain::Whole(_) => None,
            Plain::Pieces(pieces) => pieces.shared.clone(),
        }
    }
}

/// The next chunk of a body in memory, so that reading progress can be observed.
fn split(bytes: &mut Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(CHUNK)))
}

impl Pieces {
    fn new(pieces: Vec<Bytes>, own: u64, shared: Option<SharedMemory>) -> Pieces {
        let left: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let vector = (pieces.capacity() * size_of::<Bytes>()) as u64;
        // Without sharing, all of it is the body's own.
        let own = vector + if shared.is_some() { own } else { left };
        let shared = shared.map(|shared| SharedMemory {
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

    /// The next chunk. Small pieces are joined: few large writes cost less than many small ones.
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
