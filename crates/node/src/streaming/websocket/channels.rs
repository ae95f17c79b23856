//! Channels: several streams over one connection; each message starts with its channel number.

use std::io;
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use mizzen_transport::websocket::{
    MessageReader, NORMAL, WebSocketError, WebSocketFrame, WebSocketPart, write_frames,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::streaming::limits::{Activity, StreamLimits};
use crate::streaming::spdy::Headers;
use crate::streaming::stream::{QUEUE, StreamOutput, UpgradedStream};

/// The first byte of a message that closes the channel of the second byte. Kubernetes: since v5 of
/// the protocol.
const CLOSE_SIGNAL: u8 = 255;
/// The capacity of the frame queue.
const FRAMES: usize = 64;
/// The buffer size of a tunnel in each direction.
const TUNNEL: usize = 64 * 1024;
/// The time limit for the last frames.
const LINGER: Duration = Duration::from_secs(10);

/// The encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelEncoding {
    /// A byte with the channel number, and the data. Since v5 the client can close a channel.
    Binary { closes: bool },
    /// A digit with the channel number, and the data in base64, as text.
    Base64,
}

impl ChannelEncoding {
    /// A message to a channel.
    pub(crate) fn message(self, channel: u8, data: &[u8]) -> WebSocketFrame {
        let mut message = BytesMut::with_capacity(1 + data.len());
        match self {
            ChannelEncoding::Binary { .. } => {
                message.put_u8(channel);
                message.put_slice(data);
                WebSocketFrame::Binary(message.freeze())
            }
            ChannelEncoding::Base64 => {
                message.put_u8(b'0' + channel);
                message.put_slice(STANDARD.encode(data).as_bytes());
                WebSocketFrame::Text(message.freeze())
            }
        }
    }

    /// The channel of a message with this first byte.
    fn channel(self, first: u8) -> u8 {
        match self {
            ChannelEncoding::Binary { .. } => first,
            ChannelEncoding::Base64 => first.wrapping_sub(b'0'),
        }
    }
}

/// Decodes the pieces of one message.
struct MessageDecoder {
    encoding: ChannelEncoding,
    /// Its channel; `None` before its first byte.
    channel: Option<u8>,
    /// The digits of base64 that are no whole group yet.
    rest: BytesMut,
    /// Whether the base64 has ended.
    is_padded: bool,
}

impl MessageDecoder {
    fn new(encoding: ChannelEncoding) -> MessageDecoder {
        MessageDecoder {
            encoding,
            channel: None,
            rest: BytesMut::new(),
            is_padded: false,
        }
    }

    /// The channel and the data of a piece; `None` for an empty message.
    fn decode(
        &mut self,
        mut piece: Bytes,
        is_last: bool,
    ) -> Result<Option<(u8, Bytes)>, WebSocketError> {
        if self.channel.is_none() && !piece.is_empty() {
            self.channel = Some(self.encoding.channel(piece.split_to(1)[0]));
        }
        let Some(channel) = self.channel else {
            return Ok(None);
        };
        if self.encoding != ChannelEncoding::Base64 {
            return Ok(Some((channel, piece)));
        }
        let invalid = || WebSocketError::Protocol("invalid base64");
        self.rest.extend_from_slice(&piece);
        let length = match is_last {
            true => self.rest.len(),
            false => self.rest.len() / 4 * 4,
        };
        let digits = self.rest.split_to(length);
        if self.is_padded && !digits.is_empty() {
            return Err(invalid());
        }
        self.is_padded = digits.ends_with(b"=");
        let data = STANDARD.decode(&digits).map_err(|_| invalid())?;
        Ok(Some((channel, data.into())))
    }
}

/// Serves a connection with `n_channels` channels: `work` gets them and runs until it is done, the
/// client has gone, or a limit is reached.
pub(crate) async fn serve<F: Future<Output = ()>>(
    io: impl AsyncRead + AsyncWrite,
    limits: StreamLimits,
    encoding: ChannelEncoding,
    n_channels: u8,
    work: impl FnOnce(Vec<UpgradedStream>) -> F,
) -> Result<(), WebSocketError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (mut inputs, mut streams) = (Vec::new(), Vec::new());
    for channel in 0..n_channels {
        let (send, input) = mpsc::channel(QUEUE);
        inputs.push(Some(send));
        let output = StreamOutput::websocket(channel, encoding, frames.clone());
        streams.push(UpgradedStream {
            id: channel.into(),
            headers: Headers::default(),
            input,
            output,
        });
    }
    let mut writer = pin!(write_frames(write, queue, || activity.touch()));
    let reader = MessageReader::new(read, limits.message);
    let working = async move {
        let outcome = tokio::select! {
            () = work(streams) => Ok(()),
            ended = read_messages(reader, encoding, inputs, &frames, activity) => ended,
            () = activity.expired() => Err(WebSocketError::Idle),
        };
        let status = outcome
            .as_ref()
            .err()
            .map_or(NORMAL, WebSocketError::status);
        let _ = timeout(LINGER, frames.send(WebSocketFrame::Close(status))).await;
        outcome
    };
    tokio::select! {
        ended = &mut writer => ended.map_err(WebSocketError::Io),
        outcome = working => {
            let _ = timeout(LINGER, writer).await;
            outcome
        }
    }
}

/// Passes messages to their channels until the client closes the connection.
async fn read_messages(
    mut reader: MessageReader<impl AsyncRead + Unpin>,
    encoding: ChannelEncoding,
    mut inputs: Vec<Option<mpsc::Sender<Bytes>>>,
    frames: &mpsc::Sender<WebSocketFrame>,
    activity: &Activity,
) -> Result<(), WebSocketError> {
    let mut message = MessageDecoder::new(encoding);
    // What a close signal names.
    let mut closed = BytesMut::new();
    loop {
        let (piece, is_last) = match reader.next(|| activity.touch()).await? {
            WebSocketPart::Data { data, is_last } => (data, is_last),
            WebSocketPart::Ping(data) => {
                let _ = frames.send(WebSocketFrame::Pong(data)).await;
                continue;
            }
            WebSocketPart::Close => return Ok(()),
        };
        let decoded = message.decode(piece, is_last)?;
        if is_last {
            message = MessageDecoder::new(encoding);
        }
        let Some((channel, data)) = decoded else {
            continue;
        };
        if channel == CLOSE_SIGNAL && encoding == (ChannelEncoding::Binary { closes: true }) {
            closed.extend_from_slice(&data);
            if !is_last && closed.len() <= 1 {
                continue;
            }
            let [closed] = closed.split()[..] else {
                return Err(WebSocketError::Protocol(
                    "a close signal must name one channel",
                ));
            };
            match inputs.get_mut(usize::from(closed)) {
                Some(input) => *input = None,
                None => {
                    return Err(WebSocketError::Protocol(
                        "a close signal for an unknown channel",
                    ));
                }
            }
            continue;
        }
        // Kubernetes: messages to unknown channels are ignored.
        let Some(input) = inputs.get_mut(usize::from(channel)) else {
            continue;
        };
        if let Some(open) = input
            && !data.is_empty()
            && open.send(data).await.is_err()
        {
            *input = None;
        }
    }
}

/// Carries a byte stream in binary messages: `work` gets the near end.
pub(crate) async fn tunnel<F: Future<Output = ()>>(
    io: impl AsyncRead + AsyncWrite,
    limits: StreamLimits,
    work: impl FnOnce(DuplexStream) -> F,
) -> Result<(), WebSocketError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (near, far) = tokio::io::duplex(TUNNEL);
    let (mut from_near, mut to_near) = tokio::io::split(far);
    let mut reader = MessageReader::new(read, limits.message);
    let inward = async {
        loop {
            match reader.next(|| activity.touch()).await? {
                WebSocketPart::Data { data, .. } => to_near.write_all(&data).await?,
                WebSocketPart::Ping(data) => drop(frames.send(WebSocketFrame::Pong(data)).await),
                WebSocketPart::Close => return Ok::<(), WebSocketError>(()),
            }
        }
    };
    let outward = async {
        let mut piece = vec![0; TUNNEL];
        loop {
            match from_near.read(&mut piece).await? {
                0 => return Ok::<(), io::Error>(()),
                n => drop(
                    frames
                        .send(WebSocketFrame::Binary(Bytes::copy_from_slice(&piece[..n])))
                        .await,
                ),
            }
        }
    };
    let mut writer = pin!(write_frames(write, queue, || activity.touch()));
    let working = async {
        let mut outward = pin!(outward);
        let outcome = tokio::select! {
            // The last bytes are still to be sent.
            () = work(near) => outward.await.map_err(WebSocketError::Io),
            ended = inward => ended,
            ended = &mut outward => ended.map_err(WebSocketError::Io),
            () = activity.expired() => Err(WebSocketError::Idle),
        };
        let status = outcome
            .as_ref()
            .err()
            .map_or(NORMAL, WebSocketError::status);
        let _ = timeout(LINGER, frames.send(WebSocketFrame::Close(status))).await;
        outcome
    };
    let outcome = tokio::select! {
        ended = &mut writer => return ended.map_err(WebSocketError::Io),
        outcome = working => outcome,
    };
    drop(frames);
    let _ = timeout(LINGER, writer).await;
    outcome
}
