//! WebSocket (RFC 6455), the server's side: the handshake, frames and messages.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// The GUID of the handshake.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// The largest piece of a message that is passed on; a multiple of the mask.
const PIECE: usize = 16 * 1024;

/// The response to a client's `Sec-WebSocket-Key`.
pub fn accept_key(key: &str) -> String {
    let proof = format!("{key}{GUID}");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, proof.as_bytes()))
}

/// The status of a normal closure.
pub const NORMAL: u16 = 1000;
/// The status of a protocol error.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The status of a message that is too large.
pub const TOO_LARGE: u16 = 1009;

/// A frame for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSocketFrame {
    /// A message of text.
    Text(Bytes),
    /// A binary message.
    Binary(Bytes),
    /// The answer to a ping.
    Pong(Bytes),
    /// The end, with a status.
    Close(u16),
}

/// What the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSocketPart {
    /// A piece of a message, text or binary. A short frame is one piece.
    Data {
        /// Its bytes, without their mask.
        data: Bytes,
        /// Whether it ends the message.
        is_last: bool,
    },
    /// A ping, which wants a pong.
    Ping(Bytes),
    /// The end.
    Close,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A message above the limit.
    #[error("a message larger than {0} bytes")]
    MessageTooLarge(usize),
    /// A client that does not keep to the protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// Nothing was sent or received for too long.
    #[error("idle for too long")]
    Idle,
}

impl WebSocketError {
    /// The status of the close frame.
    pub fn status(&self) -> u16 {
        match self {
            WebSocketError::MessageTooLarge(_) => TOO_LARGE,
            WebSocketError::Protocol(_) => PROTOCOL_ERROR,
            WebSocketError::Io(_) | WebSocketError::Idle => NORMAL,
        }
    }
}

/// Reads messages of up to `limit` bytes, in pieces.
pub struct MessageReader<R> {
    io: R,
    limit: usize,
    /// The length of the current message with all its frames so far; `None` between messages.
    message: Option<usize>,
    /// The frame of a message that is being read.
    frame: Option<DataFrame>,
}

/// The part of a frame that is still to be read.
struct DataFrame {
    left: usize,
    mask: [u8; 4],
    is_last: bool,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// A reader of the bytes after the handshake.
    pub fn new(io: R, limit: usize) -> MessageReader<R> {
        MessageReader {
            io,
            limit,
            message: None,
            frame: None,
        }
    }

    /// The next part; a broken connection counts as closed. Calls `touch` whenever something arrives.
    pub async fn next(&mut self, touch: impl Fn()) -> Result<WebSocketPart, WebSocketError> {
        loop {
            if let Some(frame) = self.frame.take() {
                let part = self.piece(frame).await?;
                touch();
                return Ok(part);
            }
            let first = match self.io.read_u8().await {
                Ok(first) => first,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(WebSocketPart::Close);
                }
                Err(error) => return Err(error.into()),
            };
            touch();
            let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
            if first & 0x70 != 0 {
                return Err(WebSocketError::Protocol("reserved bits are set"));
            }
            let (length, mask) = self.length_and_mask(opcode).await?;
            match (opcode, self.message) {
                (CLOSE | PING | PONG, _) => {
                    let data = self.masked(length, mask).await?.freeze();
                    match opcode {
                        CLOSE => return Ok(WebSocketPart::Close),
                        PING => return Ok(WebSocketPart::Ping(data)),
                        _ => {}
                    }
                }
                (TEXT | BINARY, Some(_)) => {
                    return Err(WebSocketError::Protocol("a message inside another"));
                }
                (CONTINUATION, None) => {
                    return Err(WebSocketError::Protocol("a continuation of nothing"));
                }
                (TEXT | BINARY | CONTINUATION, before) => {
                    self.message = Some(before.unwrap_or_default() + length);
                    self.frame = Some(DataFrame {
                        left: length,
                        mask,
                        is_last: fin,
                    });
                }
                _ => return Err(WebSocketError::Protocol("an unknown opcode")),
            }
        }
    }

    /// Reads the next piece of a frame.
    async fn piece(&mut self, frame: DataFrame) -> Result<WebSocketPart, WebSocketError> {
        let length = frame.left.min(PIECE);
        let data = self.masked(length, frame.mask).await?.freeze();
        let left = frame.left - length;
        let is_last = left == 0 && frame.is_last;
        if left > 0 {
            self.frame = Some(DataFrame { left, ..frame });
        } else if is_last {
            self.message = None;
        }
        Ok(WebSocketPart::Data { data, is_last })
    }

    /// Reads the length of a payload, and its mask.
    async fn length_and_mask(&mut self, opcode: u8) -> Result<(usize, [u8; 4]), WebSocketError> {
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
        let room = match opcode >= CLOSE {
            true => self.limit,
            false => self.limit - self.message.unwrap_or_default(),
        };
        let too_large = WebSocketError::MessageTooLarge(self.limit);
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= room);
        let length = length.ok_or(too_large)?;
        let mut mask = [0; 4];
        self.io.read_exact(&mut mask).await?;
        Ok((length, mask))
    }

    /// Reads so many bytes with a mask.
    async fn masked(&mut self, length: usize, mask: [u8; 4]) -> Result<BytesMut, WebSocketError> {
        let mut payload = BytesMut::zeroed(length);
        self.io.read_exact(&mut payload).await?;
        payload
            .iter_mut()
            .zip(mask.iter().cycle())
            .for_each(|(byte, mask)| *byte ^= mask);
        Ok(payload)
    }
}

/// Writes frames until all senders are dropped. Calls `touch` after each.
pub async fn write_frames(
    mut io: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<WebSocketFrame>,
    touch: impl Fn(),
) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        io.write_all(&frame.encode()).await?;
        if queue.is_empty() {
            io.flush().await?;
        }
        touch();
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
