//! Frames and messages.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::streaming::limits::Activity;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The status of a connection that has served its purpose.
pub(super) const NORMAL: u16 = 1000;
/// The status of a connection whose peer broke the rules.
pub(super) const PROTOCOL_ERROR: u16 = 1002;
/// The status of a connection whose peer sent a message that is too large.
pub(super) const TOO_LARGE: u16 = 1009;

/// A frame for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Text(Bytes),
    Binary(Bytes),
    Pong(Bytes),
    /// The connection ends.
    Close(u16),
}

/// What the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A whole message, text or binary.
    Message(Bytes),
    Ping(Bytes),
    /// The client closes the connection.
    Close,
}

/// Why a connection ended too early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a message larger than {0} bytes")]
    MessageTooLarge(usize),
    #[error("{0}")]
    Protocol(&'static str),
    #[error("idle for too long")]
    Idle,
}

impl ConnectionError {
    /// The status of the close frame.
    pub(crate) fn status(&self) -> u16 {
        match self {
            ConnectionError::MessageTooLarge(_) => TOO_LARGE,
            ConnectionError::Protocol(_) => PROTOCOL_ERROR,
            ConnectionError::Io(_) | ConnectionError::Idle => NORMAL,
        }
    }
}

/// Reads messages of up to `limit` bytes.
pub(super) struct Reader<R> {
    io: R,
    limit: usize,
    /// The parts of a message that came so far.
    message: Option<BytesMut>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(io: R, limit: usize) -> Reader<R> {
        Reader {
            io,
            limit,
            message: None,
        }
    }

    /// The next message; a connection that breaks off was closed.
    pub(super) async fn next(&mut self, activity: &Activity) -> Result<Incoming, ConnectionError> {
        loop {
            let first = match self.io.read_u8().await {
                Ok(first) => first,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Incoming::Close);
                }
                Err(error) => return Err(error.into()),
            };
            activity.touch();
            let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
            if first & 0x70 != 0 {
                return Err(ConnectionError::Protocol("reserved bits are set"));
            }
            let payload = self.payload(opcode).await?;
            match opcode {
                CLOSE => return Ok(Incoming::Close),
                PING => return Ok(Incoming::Ping(payload.freeze())),
                PONG => {}
                TEXT | BINARY if self.message.is_some() => {
                    return Err(ConnectionError::Protocol("a message inside another"));
                }
                TEXT | BINARY if fin => return Ok(Incoming::Message(payload.freeze())),
                TEXT | BINARY => self.message = Some(payload),
                CONTINUATION => {
                    let Some(message) = &mut self.message else {
                        return Err(ConnectionError::Protocol("a continuation of nothing"));
                    };
                    message.unsplit(payload);
                    if fin {
                        return Ok(Incoming::Message(
                            self.message.take().unwrap_or_default().freeze(),
                        ));
                    }
                }
                _ => return Err(ConnectionError::Protocol("an unknown opcode")),
            }
        }
    }

    async fn payload(&mut self, opcode: u8) -> Result<BytesMut, ConnectionError> {
        let second = self.io.read_u8().await?;
        if second & 0x80 == 0 {
            return Err(ConnectionError::Protocol(
                "a frame of a client without a mask",
            ));
        }
        let length = match second & 0x7f {
            126 => u64::from(self.io.read_u16().await?),
            127 => self.io.read_u64().await?,
            length => u64::from(length),
        };
        if opcode >= CLOSE && length > 125 {
            return Err(ConnectionError::Protocol(
                "a control frame that is too long",
            ));
        }
        let held = self.message.as_ref().map_or(0, BytesMut::len);
        let too_large = ConnectionError::MessageTooLarge(self.limit);
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.limit - held);
        let length = length.ok_or(too_large)?;
        let mut mask = [0; 4];
        self.io.read_exact(&mut mask).await?;
        let mut payload = BytesMut::zeroed(length);
        self.io.read_exact(&mut payload).await?;
        payload
            .iter_mut()
            .zip(mask.iter().cycle())
            .for_each(|(byte, mask)| *byte ^= mask);
        Ok(payload)
    }
}

/// Writes frames until all who send them have gone.
pub(super) async fn write_frames(
    mut io: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Outgoing>,
    activity: &Activity,
) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        io.write_all(&encode(&frame)).await?;
        if queue.is_empty() {
            io.flush().await?;
        }
        activity.touch();
    }
    io.shutdown().await
}

fn encode(frame: &Outgoing) -> BytesMut {
    let status;
    let (opcode, payload): (u8, &[u8]) = match frame {
        Outgoing::Text(text) => (TEXT, text),
        Outgoing::Binary(bytes) => (BINARY, bytes),
        Outgoing::Pong(bytes) => (PONG, bytes),
        Outgoing::Close(code) => {
            status = code.to_be_bytes();
            (CLOSE, &status)
        }
    };
    let mut bytes = BytesMut::with_capacity(payload.len() + 10);
    bytes.put_u8(0x80 | opcode);
    match payload.len() {
        length @ ..126 => bytes.put_u8(length as u8),
        length @ ..0x1_0000 => {
            bytes.put_u8(126);
            bytes.put_u16(length as u16);
        }
        length => {
            bytes.put_u8(127);
            bytes.put_u64(length as u64);
        }
    }
    bytes.put_slice(payload);
    bytes
}
