//! A stream of an upgraded connection: what a peer sends in pieces, and what it is sent. The same for SPDY and WebSocket.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::spdy::Headers;
use super::{spdy, websocket};

/// The pieces of a stream that may wait for their reader.
pub(super) const QUEUE: usize = 16;
/// The size of one piece that is sent.
const MAX_PIECE: usize = 64 * 1024;

/// A stream.
pub(super) struct Stream {
    /// Its number on the connection.
    pub id: u32,
    /// The headers with which the peer opened it.
    pub headers: Headers,
    /// What the peer sends, until it closes its side.
    pub input: mpsc::Receiver<Bytes>,
    /// What the peer is sent.
    pub output: Output,
}

/// The side of a stream on which the peer is sent something. Cheap to clone.
#[derive(Clone)]
pub(super) struct Output(Target);

#[derive(Clone)]
enum Target {
    Spdy {
        id: u32,
        frames: mpsc::Sender<spdy::Outgoing>,
        _place: Arc<OwnedSemaphorePermit>,
    },
    WebSocket {
        channel: u8,
        encoding: websocket::Encoding,
        frames: mpsc::Sender<websocket::Outgoing>,
    },
}

/// The connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

impl Output {
    pub(super) fn spdy(
        id: u32,
        frames: mpsc::Sender<spdy::Outgoing>,
        place: OwnedSemaphorePermit,
    ) -> Output {
        Output(Target::Spdy {
            id,
            frames,
            _place: Arc::new(place),
        })
    }

    pub(super) fn websocket(
        channel: u8,
        encoding: websocket::Encoding,
        frames: mpsc::Sender<websocket::Outgoing>,
    ) -> Output {
        Output(Target::WebSocket {
            channel,
            encoding,
            frames,
        })
    }

    /// Sends data, in pieces; waits while the connection is behind.
    pub(super) async fn send(&self, mut data: Bytes) -> Result<(), Gone> {
        while !data.is_empty() {
            self.send_piece(data.split_to(data.len().min(MAX_PIECE)))
                .await?;
        }
        Ok(())
    }

    /// Sends a message without data: over WebSocket a sign that the connection is open. SPDY has replies for that.
    pub(super) async fn open(&self) -> Result<(), Gone> {
        match &self.0 {
            Target::Spdy { .. } => Ok(()),
            Target::WebSocket { .. } => self.send_piece(Bytes::new()).await,
        }
    }

    async fn send_piece(&self, data: Bytes) -> Result<(), Gone> {
        match &self.0 {
            Target::Spdy { id, frames, .. } => frames
                .send(spdy::Outgoing::Data {
                    id: *id,
                    data,
                    fin: false,
                })
                .await
                .map_err(|_| Gone),
            Target::WebSocket {
                channel,
                encoding,
                frames,
            } => frames
                .send(encoding.message(*channel, &data))
                .await
                .map_err(|_| Gone),
        }
    }

    /// Closes this side. Over WebSocket a channel ends with its connection.
    pub(super) async fn finish(&self) {
        if let Target::Spdy { id, frames, .. } = &self.0 {
            let _ = frames
                .send(spdy::Outgoing::Data {
                    id: *id,
                    data: Bytes::new(),
                    fin: true,
                })
                .await;
        }
    }

    /// Ends the stream on both sides because of an error.
    pub(super) async fn reset(&self) {
        if let Target::Spdy { id, frames, .. } = &self.0 {
            let _ = frames
                .send(spdy::Outgoing::Reset {
                    id: *id,
                    status: spdy::CANCEL,
                })
                .await;
        }
    }
}
