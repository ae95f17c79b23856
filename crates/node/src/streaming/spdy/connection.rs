//! The frames of a connection: what the client sends becomes streams, and what streams send becomes frames.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::headers::{Deflater, HeaderError, Headers, Inflater};
use crate::streaming::limits::{Activity, Limits};
use crate::streaming::stream::{Output, QUEUE, Stream};

/// The version of SPDY that frames name: 3.1 says 3.
const VERSION: u16 = 3;
/// The frames that may wait to be written.
const FRAMES: usize = 64;
/// The size of the pieces in which data is handed on.
const PIECE: usize = 32 * 1024;
/// How long the last frames may take to be written.
const LINGER: Duration = Duration::from_secs(10);

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 3;
/// The status of a stream that is ended because of an error in what it is for.
pub(crate) const CANCEL: u32 = 5;

/// A frame for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// A stream is accepted.
    Reply { id: u32 },
    /// Data of a stream; `fin` closes its side.
    Data { id: u32, data: Bytes, fin: bool },
    /// A stream ends.
    Reset { id: u32, status: u32 },
    /// The answer to a ping.
    Ping { id: u32 },
    /// The connection ends.
    GoAway { status: u32 },
}

/// Why a connection ended too early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a frame of SPDY version {0}")]
    Version(u16),
    #[error("a control frame of {0} bytes")]
    FrameTooLarge(usize),
    #[error("a malformed {0} frame")]
    Malformed(&'static str),
    #[error(transparent)]
    Headers(#[from] HeaderError),
    #[error("idle for too long")]
    Idle,
}

/// Whether a stream with these headers is accepted; the reason is for the log.
pub(super) type Accepts = fn(&Headers) -> Result<(), String>;

/// Serves a connection: `work` gets its streams and runs until it is done, the client has gone, or a limit is reached.
pub(crate) async fn serve<F: Future<Output = ()>>(
    io: impl AsyncRead + AsyncWrite,
    limits: Limits,
    accepts: Accepts,
    work: impl FnOnce(mpsc::Receiver<Stream>) -> F,
) -> Result<(), ConnectionError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (opened, streams) = mpsc::channel(1);
    let mut reader = Reader {
        io: read,
        limits,
        accepts,
        activity,
        inflater: Inflater::default(),
        frames: frames.clone(),
        opened,
        places: Arc::new(Semaphore::new(limits.streams)),
        inputs: HashMap::new(),
        last_id: 0,
    };
    let mut writer = pin!(write_frames(write, queue, activity));
    let working = async move {
        let outcome = tokio::select! {
            () = work(streams) => Ok(()),
            ended = reader.read_frames() => ended,
            () = activity.expired() => Err(ConnectionError::Idle),
        };
        let status = if outcome.is_ok() { 0 } else { PROTOCOL_ERROR };
        let _ = timeout(LINGER, frames.send(Outgoing::GoAway { status })).await;
        outcome
    };
    tokio::select! {
        ended = &mut writer => ended.map_err(ConnectionError::Io),
        outcome = working => {
            let _ = timeout(LINGER, writer).await;
            outcome
        }
    }
}

struct Reader<'a, R> {
    io: tokio::io::ReadHalf<R>,
    limits: Limits,
    accepts: Accepts,
    activity: &'a Activity,
    inflater: Inflater,
    frames: mpsc::Sender<Outgoing>,
    opened: mpsc::Sender<Stream>,
    places: Arc<Semaphore>,
    /// Where data of streams goes that the client has not closed.
    inputs: HashMap<u32, mpsc::Sender<Bytes>>,
    last_id: u32,
}

impl<R: AsyncRead> Reader<'_, R> {
    /// Reads until the client has gone.
    async fn read_frames(&mut self) -> Result<(), ConnectionError> {
        loop {
            let mut head = [0; 8];
            match self.io.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            self.activity.touch();
            let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let (flags, length) = (
                head[4],
                u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize,
            );
            match first >> 31 {
                0 => self.data(first, flags & 1 != 0, length).await?,
                _ if first >> 16 & 0x7fff != u32::from(VERSION) => {
                    return Err(ConnectionError::Version((first >> 16 & 0x7fff) as u16));
                }
                _ if length > self.limits.control_frame => {
                    return Err(ConnectionError::FrameTooLarge(length));
                }
                _ => {
                    let mut payload = vec![0; length];
                    self.io.read_exact(&mut payload).await?;
                    if self
                        .control((first & 0xffff) as u16, flags, &payload)
                        .await?
                    {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Hands data on to its stream, in pieces. That of a stream which has ended is dropped.
    async fn data(&mut self, id: u32, fin: bool, mut left: usize) -> Result<(), ConnectionError> {
        while left > 0 {
            let mut piece = BytesMut::zeroed(left.min(PIECE));
            self.io.read_exact(&mut piece).await?;
            self.activity.touch();
            left -= piece.len();
            if let Some(input) = self.inputs.get(&id)
                && input.send(piece.freeze()).await.is_err()
            {
                self.inputs.remove(&id);
            }
        }
        if fin {
            self.inputs.remove(&id);
        }
        Ok(())
    }

    /// Whether the client says good-bye.
    async fn control(
        &mut self,
        kind: u16,
        flags: u8,
        mut payload: &[u8],
    ) -> Result<bool, ConnectionError> {
        match kind {
            1 => self.open(flags, payload).await?,
            // SYN_REPLY and HEADERS: nothing here waits for them, but compression goes on.
            2 | 8 => {
                payload
                    .try_get_u32()
                    .map_err(|_| ConnectionError::Malformed("HEADERS"))?;
                self.inflater.read(payload)?;
            }
            3 => {
                let id = payload
                    .try_get_u32()
                    .map_err(|_| ConnectionError::Malformed("RST_STREAM"))?;
                self.inputs.remove(&id);
            }
            6 => {
                let id = payload
                    .try_get_u32()
                    .map_err(|_| ConnectionError::Malformed("PING"))?;
                // Even numbers are answers to pings of a server.
                if id % 2 == 1 {
                    let _ = self.frames.send(Outgoing::Ping { id }).await;
                }
            }
            7 => return Ok(true),
            // SETTINGS, WINDOW_UPDATE, and what later versions have.
            _ => {}
        }
        Ok(false)
    }

    async fn open(&mut self, flags: u8, mut payload: &[u8]) -> Result<(), ConnectionError> {
        let malformed = |_| ConnectionError::Malformed("SYN_STREAM");
        let id = payload.try_get_u32().map_err(malformed)? & 0x7fff_ffff;
        // The associated stream, the priority and the slot mean nothing here.
        payload
            .try_get_u32()
            .and_then(|_| payload.try_get_u16())
            .map_err(malformed)?;
        let headers = self.inflater.read(payload)?;
        if id % 2 == 0 || id <= self.last_id {
            return self.refuse(id, PROTOCOL_ERROR).await;
        }
        self.last_id = id;
        self.inputs.retain(|_, input| !input.is_closed());
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return self.refuse(id, REFUSED_STREAM).await;
        };
        if let Err(why) = (self.accepts)(&headers) {
            tracing::debug!(%why, "stream rejected");
            return self.refuse(id, CANCEL).await;
        }
        let (send, input) = mpsc::channel(QUEUE);
        if flags & 1 == 0 {
            self.inputs.insert(id, send);
        }
        let _ = self.frames.send(Outgoing::Reply { id }).await;
        let output = Output::spdy(id, self.frames.clone(), place);
        // Once streams are no longer accepted, a new one ends at once.
        let _ = self
            .opened
            .send(Stream {
                id,
                headers,
                input,
                output,
            })
            .await;
        Ok(())
    }

    async fn refuse(&mut self, id: u32, status: u32) -> Result<(), ConnectionError> {
        let _ = self.frames.send(Outgoing::Reset { id, status }).await;
        Ok(())
    }
}

/// Writes frames until all who send them have gone.
async fn write_frames(
    mut io: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Outgoing>,
    activity: &Activity,
) -> io::Result<()> {
    let mut deflater = Deflater::default();
    while let Some(frame) = queue.recv().await {
        io.write_all(&encode(frame, &mut deflater)).await?;
        if queue.is_empty() {
            io.flush().await?;
        }
        activity.touch();
    }
    io.shutdown().await
}

fn encode(frame: Outgoing, deflater: &mut Deflater) -> BytesMut {
    let control = |kind: u16, payload: &[&[u8]]| {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let mut bytes = BytesMut::with_capacity(8 + length);
        bytes.put_u16(0x8000 | VERSION);
        bytes.put_u16(kind);
        bytes.put_u32(u32::try_from(length).expect("control frames are small"));
        payload.iter().for_each(|part| bytes.put_slice(part));
        bytes
    };
    match frame {
        Outgoing::Reply { id } => control(
            2,
            &[&id.to_be_bytes(), &deflater.write(&Headers::default())],
        ),
        Outgoing::Reset { id, status } => control(3, &[&id.to_be_bytes(), &status.to_be_bytes()]),
        Outgoing::Ping { id } => control(6, &[&id.to_be_bytes()]),
        // The last stream that was accepted is said to be none: nothing is tried again.
        Outgoing::GoAway { status } => control(7, &[&[0; 4], &status.to_be_bytes()]),
        Outgoing::Data { id, data, fin } => {
            let mut bytes = BytesMut::with_capacity(8 + data.len());
            bytes.put_u32(id);
            let length = u32::try_from(data.len()).expect("pieces are small");
            bytes.put_u32(u32::from(fin) << 24 | length);
            bytes.put_slice(&data);
            bytes
        }
    }
}
