//! Channels: several streams over one connection, each message with the number of its channel in front.

use std::io;
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::frames::{ConnectionError, Incoming, NORMAL, Outgoing, Reader, write_frames};
use crate::streaming::limits::{Activity, Limits};
use crate::streaming::spdy::Headers;
use crate::streaming::stream::{Output, QUEUE, Stream};

/// The first byte of a message that closes the channel which the second byte names. Kubernetes: from v5 of the protocol on.
const CLOSE_SIGNAL: u8 = 255;
/// The frames that may wait to be written.
const FRAMES: usize = 64;
/// How much a tunnel holds in each direction.
const TUNNEL: usize = 64 * 1024;
/// How long the last frames may take to be written.
const LINGER: Duration = Duration::from_secs(10);

/// How messages are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A byte with the number of the channel, and the data. From v5 on the client can close a channel.
    Binary { closes: bool },
    /// A digit with the number of the channel, and the data in base64, as text.
    Base64,
}

impl Encoding {
    /// A message to a channel.
    pub(crate) fn message(self, channel: u8, data: &[u8]) -> Outgoing {
        let mut message = BytesMut::with_capacity(1 + data.len());
        match self {
            Encoding::Binary { .. } => {
                message.put_u8(channel);
                message.put_slice(data);
                Outgoing::Binary(message.freeze())
            }
            Encoding::Base64 => {
                message.put_u8(b'0' + channel);
                message.put_slice(STANDARD.encode(data).as_bytes());
                Outgoing::Text(message.freeze())
            }
        }
    }

    /// The channel of a message, and its data; none if there is no data at all.
    fn read(self, mut message: Bytes) -> Result<Option<(u8, Bytes)>, ConnectionError> {
        if message.is_empty() {
            return Ok(None);
        }
        let first = message.split_to(1)[0];
        match self {
            Encoding::Binary { .. } => Ok(Some((first, message))),
            Encoding::Base64 => {
                let data = STANDARD
                    .decode(&message)
                    .map_err(|_| ConnectionError::Protocol("invalid base64"))?;
                Ok(Some((first.wrapping_sub(b'0'), data.into())))
            }
        }
    }
}

/// Serves a connection with so many channels: `work` gets them and runs until it is done, the client has gone, or a limit is
/// reached.
pub(crate) async fn serve<F: Future<Output = ()>>(
    io: impl AsyncRead + AsyncWrite,
    limits: Limits,
    encoding: Encoding,
    n_channels: u8,
    work: impl FnOnce(Vec<Stream>) -> F,
) -> Result<(), ConnectionError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (mut inputs, mut streams) = (Vec::new(), Vec::new());
    for channel in 0..n_channels {
        let (send, input) = mpsc::channel(QUEUE);
        inputs.push(Some(send));
        let output = Output::websocket(channel, encoding, frames.clone());
        streams.push(Stream {
            id: channel.into(),
            headers: Headers::default(),
            input,
            output,
        });
    }
    let mut writer = pin!(write_frames(write, queue, activity));
    let reader = Reader::new(read, limits.message);
    let working = async move {
        let outcome = tokio::select! {
            () = work(streams) => Ok(()),
            ended = read_messages(reader, encoding, inputs, &frames, activity) => ended,
            () = activity.expired() => Err(ConnectionError::Idle),
        };
        let status = outcome
            .as_ref()
            .err()
            .map_or(NORMAL, ConnectionError::status);
        let _ = timeout(LINGER, frames.send(Outgoing::Close(status))).await;
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

/// Hands messages on to their channels until the client closes the connection.
async fn read_messages(
    mut reader: Reader<impl AsyncRead + Unpin>,
    encoding: Encoding,
    mut inputs: Vec<Option<mpsc::Sender<Bytes>>>,
    frames: &mpsc::Sender<Outgoing>,
    activity: &Activity,
) -> Result<(), ConnectionError> {
    loop {
        let message = match reader.next(activity).await? {
            Incoming::Message(message) => message,
            Incoming::Ping(data) => {
                let _ = frames.send(Outgoing::Pong(data)).await;
                continue;
            }
            Incoming::Close => return Ok(()),
        };
        let Some((channel, data)) = encoding.read(message)? else {
            continue;
        };
        if channel == CLOSE_SIGNAL && encoding == (Encoding::Binary { closes: true }) {
            let [closed] = data[..] else {
                return Err(ConnectionError::Protocol(
                    "a close signal must name one channel",
                ));
            };
            match inputs.get_mut(usize::from(closed)) {
                Some(input) => *input = None,
                None => {
                    return Err(ConnectionError::Protocol(
                        "a close signal for an unknown channel",
                    ));
                }
            }
            continue;
        }
        // Kubernetes: what is for an unknown channel is ignored.
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
    limits: Limits,
    work: impl FnOnce(DuplexStream) -> F,
) -> Result<(), ConnectionError> {
    let (read, write) = tokio::io::split(io);
    let activity = &Activity::new(limits.idle);
    let (frames, queue) = mpsc::channel(FRAMES);
    let (near, far) = tokio::io::duplex(TUNNEL);
    let (mut from_near, mut to_near) = tokio::io::split(far);
    let mut reader = Reader::new(read, limits.message);
    let inward = async {
        loop {
            match reader.next(activity).await? {
                Incoming::Message(data) => to_near.write_all(&data).await?,
                Incoming::Ping(data) => drop(frames.send(Outgoing::Pong(data)).await),
                Incoming::Close => return Ok::<(), ConnectionError>(()),
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
                        .send(Outgoing::Binary(Bytes::copy_from_slice(&piece[..n])))
                        .await,
                ),
            }
        }
    };
    let mut writer = pin!(write_frames(write, queue, activity));
    let working = async {
        let mut outward = pin!(outward);
        let outcome = tokio::select! {
            // The last bytes are still to be carried.
            () = work(near) => outward.await.map_err(ConnectionError::Io),
            ended = inward => ended,
            ended = &mut outward => ended.map_err(ConnectionError::Io),
            () = activity.expired() => Err(ConnectionError::Idle),
        };
        let status = outcome
            .as_ref()
            .err()
            .map_or(NORMAL, ConnectionError::status);
        let _ = timeout(LINGER, frames.send(Outgoing::Close(status))).await;
        outcome
    };
    let outcome = tokio::select! {
        ended = &mut writer => return ended.map_err(ConnectionError::Io),
        outcome = working => outcome,
    };
    drop(frames);
    let _ = timeout(LINGER, writer).await;
    outcome
}
