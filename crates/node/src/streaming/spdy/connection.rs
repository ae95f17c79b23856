//! The frames of a connection: client frames into streams, and stream data into frames.

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
use crate::streaming::limits::{Activity, StreamLimits};
use crate::streaming::stream::{QUEUE, StreamOutput, UpgradedStream};

/// The version in frames: 3.1 says 3.
pub(super) const VERSION: u16 = 3;
/// The capacity of the frame queue.
pub(super) const FRAMES: usize = 64;
/// The size of the pieces in which data is passed on.
pub(super) const PIECE: usize = 32 * 1024;
/// The time limit for the last frames.
const LINGER: Duration = Duration::from_secs(10);

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 3;
/// The status of a stream that is cancelled.
pub(crate) const CANCEL: u32 = 5;

/// A frame for the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpdyFrame {
    /// A stream is opened.
    Open { id: u32, headers: Headers },
    /// A stream is accepted.
    Reply { id: u32 },
    /// Data of a stream; `fin` closes its side.
    Data { id: u32, data: Bytes, fin: bool },
    /// A stream ends.
    Reset { id: u32, status: u32 },
    /// The response to a ping.
    Ping { id: u32 },
    /// The connection ends.
    GoAway { status: u32 },
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpdyError {
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

/// Validates the headers of a stream; the error is logged.
pub(super) type Accepts = fn(&Headers) -> Result<(), String>;

/// Serves a connection: `work` gets its streams and runs until it is done, the client has gone, or
/// a limit is reached.
pub(crate) async fn serve<F: Future<Output = ()>>(
    io: impl AsyncRead + AsyncWrite,
    limits: StreamLimits,
    accepts: Accepts,
    work: impl FnOnce(mpsc::Receiver<UpgradedStream>) -> F,
) -> Result<(), SpdyError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (opened, streams) = mpsc::channel(1);
    let mut reader = FrameReader {
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
            () = activity.expired() => Err(SpdyError::Idle),
        };
        let status = if outcome.is_ok() { 0 } else { PROTOCOL_ERROR };
        let _ = timeout(LINGER, frames.send(SpdyFrame::GoAway { status })).await;
        outcome
    };
    tokio::select! {
        ended = &mut writer => ended.map_err(SpdyError::Io),
        outcome = working => {
            let _ = timeout(LINGER, writer).await;
            outcome
        }
    }
}

struct FrameReader<'a, R> {
    io: tokio::io::ReadHalf<R>,
    limits: StreamLimits,
    accepts: Accepts,
    activity: &'a Activity,
    inflater: Inflater,
    frames: mpsc::Sender<SpdyFrame>,
    opened: mpsc::Sender<UpgradedStream>,
    places: Arc<Semaphore>,
    /// The inputs of streams that the client has not closed.
    inputs: HashMap<u32, mpsc::Sender<Bytes>>,
    last_id: u32,
}

impl<R: AsyncRead> FrameReader<'_, R> {
    /// Reads until the client has gone.
    async fn read_frames(&mut self) -> Result<(), SpdyError> {
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
                    return Err(SpdyError::Version((first >> 16 & 0x7fff) as u16));
                }
                _ if length > self.limits.control_frame => {
                    return Err(SpdyError::FrameTooLarge(length));
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

    /// Passes data to its stream, in pieces. Data of a closed stream is dropped.
    async fn data(&mut self, id: u32, fin: bool, mut left: usize) -> Result<(), SpdyError> {
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

    /// Handles a control frame; true if it is GOAWAY.
    async fn control(
        &mut self,
        kind: u16,
        flags: u8,
        mut payload: &[u8],
    ) -> Result<bool, SpdyError> {
        match kind {
            1 => self.open(flags, payload).await?,
            // SYN_REPLY and HEADERS are ignored, but the compression state must advance.
            2 | 8 => {
                payload
                    .try_get_u32()
                    .map_err(|_| SpdyError::Malformed("HEADERS"))?;
                self.inflater.read(payload)?;
            }
            3 => {
                let id = payload
                    .try_get_u32()
                    .map_err(|_| SpdyError::Malformed("RST_STREAM"))?;
                self.inputs.remove(&id);
            }
            6 => {
                let id = payload
                    .try_get_u32()
                    .map_err(|_| SpdyError::Malformed("PING"))?;
                // Even IDs are responses to pings of the server.
                if id % 2 == 1 {
                    let _ = self.frames.send(SpdyFrame::Ping { id }).await;
                }
            }
            7 => return Ok(true),
            // SETTINGS, WINDOW_UPDATE and unknown frames.
            _ => {}
        }
        Ok(false)
    }

    async fn open(&mut self, flags: u8, mut payload: &[u8]) -> Result<(), SpdyError> {
        let malformed = |_| SpdyError::Malformed("SYN_STREAM");
        let id = payload.try_get_u32().map_err(malformed)? & 0x7fff_ffff;
        // The associated stream, the priority and the slot are ignored.
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
        let _ = self.frames.send(SpdyFrame::Reply { id }).await;
        let output = StreamOutput::spdy(id, self.frames.clone(), place);
        // A new stream ends at once if streams are no longer accepted.
        let _ = self
            .opened
            .send(UpgradedStream {
                id,
                headers,
                input,
                output,
            })
            .await;
        Ok(())
    }

    async fn refuse(&mut self, id: u32, status: u32) -> Result<(), SpdyError> {
        let _ = self.frames.send(SpdyFrame::Reset { id, status }).await;
        Ok(())
    }
}

/// Writes frames until all senders are dropped.
async fn write_frames(
    mut io: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<SpdyFrame>,
    activity: &Activity,
) -> io::Result<()> {
    let mut deflater = Deflater::default();
    while let Some(frame) = queue.recv().await {
        io.write_all(&frame.encode(&mut deflater)).await?;
        if queue.is_empty() {
            io.flush().await?;
        }
        activity.touch();
    }
    io.shutdown().await
}

impl SpdyFrame {
    pub(super) fn encode(self, deflater: &mut Deflater) -> BytesMut {
        let control = |kind: u16, payload: &[&[u8]]| {
            let length: usize = payload.iter().map(|part| part.len()).sum();
            let mut bytes = BytesMut::with_capacity(8 + length);
            bytes.put_u16(0x8000 | VERSION);
            bytes.put_u16(kind);
            bytes.put_u32(u32::try_from(length).expect("control frames are small"));
            payload.iter().for_each(|part| bytes.put_slice(part));
            bytes
        };
        match self {
            // No associated stream, the highest priority, no slot.
            SpdyFrame::Open { id, headers } => {
                control(1, &[&id.to_be_bytes(), &[0; 6], &deflater.write(&headers)])
            }
            SpdyFrame::Reply { id } => control(
                2,
                &[&id.to_be_bytes(), &deflater.write(&Headers::default())],
            ),
            SpdyFrame::Reset { id, status } => {
                control(3, &[&id.to_be_bytes(), &status.to_be_bytes()])
            }
            SpdyFrame::Ping { id } => control(6, &[&id.to_be_bytes()]),
            // The last accepted stream is given as none: nothing is retried.
            SpdyFrame::GoAway { status } => control(7, &[&[0; 4], &status.to_be_bytes()]),
            SpdyFrame::Data { id, data, fin } => {
                let mut bytes = BytesMut::with_capacity(8 + data.len());
                bytes.put_u32(id);
                let length = u32::try_from(data.len()).expect("pieces are small");
                bytes.put_u32(u32::from(fin) << 24 | length);
                bytes.put_slice(&data);
                bytes
            }
        }
    }
}
