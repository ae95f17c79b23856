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

/// The status of a normal closure.
pub(super) const NORMAL: u16 = 1000;
/// The status of a protocol error.
pub(super) const PROTOCOL_ERROR: u16 = 1002;
/// The status of a message that is too large.
pub(super) const TOO_LARGE: u16 = 1009;

/// A frame for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebSocketFrame {
    Text(Bytes),
    Binary(Bytes),
    Pong(Bytes),
    Close(u16),
}

/// What the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WebSocketMessage {
    /// A whole message, text or binary.
    Message(Bytes),
    Ping(Bytes),
    Close,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebSocketError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a message larger than {0} bytes")]
    MessageTooLarge(usize),
    #[error("{0}")]
    Protocol(&'static str),
    #[error("idle for too long")]
    Idle,
}

impl WebSocketError {
    /// The status of the close frame.
    pub(crate) fn status(&self) -> u16 {
        match self {
            WebSocketError::MessageTooLarge(_) => TOO_LARGE,
            WebSocketError::Protocol(_) => PROTOCOL_ERROR,
            WebSocketError::Io(_) | WebSocketError::Idle => NORMAL,
        }
    }
}

/// Reads messages of up to `limit` bytes.
pub(super) struct MessageReader<R> {
    io: R,
    limit: usize,
    /// The fragments of a message so far.
    message: Option<BytesMut>,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    pub(super) fn new(io: R, limit: usize) -> MessageReader<R> {
        MessageReader {
            io,
            limit,
            message: None,
        }
    }

    /// The next message; a broken connection counts as closed.
    pub(super) async fn next(
        &mut self,
        activity: &Activity,
    ) -> Result<WebSocketMessage, WebSocketError> {
        loop {
            let first = match self.io.read_u8().await {
                Ok(first) => first,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(WebSocketMessage::Close);
                }
                Err(error) => return Err(error.into()),
            };
            activity.touch();
            let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
            if first & 0x70 != 0 {
                return Err(WebSocketError::Protocol("reserved bits are set"));
            }
            let payload = self.payload(opcode).await?;
            match opcode {
                CLOSE => return Ok(WebSocketMessage::Close),
                PING => return Ok(WebSocketMessage::Ping(payload.freeze())),
                PONG => {}
                TEXT | BINARY if self.message.is_some() => {
                    return Err(WebSocketError::Protocol("a message inside another"));
                }
                TEXT | BINARY if fin => return Ok(WebSocketMessage::Message(payload.freeze())),
                TEXT | BINARY => self.message = Some(payload),
                CONTINUATION => {
                    let Some(message) = &mut self.message else {
                        return Err(WebSocketError::Protocol("a continuation of nothing"));
                    };
                    message.unsplit(payload);
                    if fin {
                        return Ok(WebSocketMessage::Message(
                            self.message.take().unwrap_or_default().freeze(),
                        ));
                    }
                }
                _ => return Err(WebSocketError::Protocol("an unknown opcode")),
            }
        }
    }

    async fn payload(&mut self, opcode: u8) -> Result<BytesMut, WebSocketError> {
        let second = self.io.read_u8().await?;
        if second & 0x80 == 0 {
            return Err(WebSocketError::Protocol(
                "a frame of a client without a mask",
            ));
        }
        let length = match second & 0x7f {
            126 => u64::from(self.io.read_u16().await?),
            127 => self.io.read_u64().await?,
            length => u64::from(length),
        };
        if opcode >= CLOSE && length > 125 {
            return Err(WebSocketError::Protocol("a control frame that is too long"));
        }
        let held = self.message.as_ref().map_or(0, BytesMut::len);
        let too_large = WebSocketError::MessageTooLarge(self.limit);
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

/// Writes frames until all senders are dropped.
pub(super) async fn write_frames(
    mut io: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<WebSocketFrame>,
    activity: &Activity,
) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        io.write_all(&frame.encode()).await?;
        if queue.is_empty() {
            io.flush().await?;
        }
        activity.touch();
    }
    io.shutdown().await
}

impl WebSocketFrame {
    fn encode(&self) -> BytesMut {
        let status;
        let (opcode, payload): (u8, &[u8]) = match self {
            WebSocketFrame::Text(text) => (TEXT, text),
            WebSocketFrame::Binary(bytes) => (BINARY, bytes),
            WebSocketFrame::Pong(bytes) => (PONG, bytes),
            WebSocketFrame::Close(code) => {
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
}
