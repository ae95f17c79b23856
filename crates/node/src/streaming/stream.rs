//! A stream of an upgraded connection, for SPDY and WebSocket alike.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_transport::websocket::WebSocketFrame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::spdy::Headers;
use super::{spdy, websocket};

/// The capacity of the input queue.
pub(super) const QUEUE: usize = 16;
/// The largest piece that is sent.
const MAX_PIECE: usize = 64 * 1024;

pub(super) struct UpgradedStream {
    /// Its ID on the connection.
    pub id: u32,
    /// The headers with which the peer opened it.
    pub headers: Headers,
    /// Data from the peer, until it closes its side.
    pub input: mpsc::Receiver<Bytes>,
    /// Data to the peer.
    pub output: StreamOutput,
}

/// The sending side of a stream. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamOutput(OutputChannel);

#[derive(Clone)]
enum OutputChannel {
    Spdy {
        id: u32,
        frames: mpsc::Sender<spdy::SpdyFrame>,
        _place: Arc<OwnedSemaphorePermit>,
    },
    WebSocket {
        channel: u8,
        encoding: websocket::ChannelEncoding,
        frames: mpsc::Sender<WebSocketFrame>,
    },
}

/// The connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

impl StreamOutput {
    pub(super) fn spdy(
        id: u32,
        frames: mpsc::Sender<spdy::SpdyFrame>,
        place: OwnedSemaphorePermit,
    ) -> StreamOutput {
        StreamOutput(OutputChannel::Spdy {
            id,
            frames,
            _place: Arc::new(place),
        })
    }

    pub(super) fn websocket(
        channel: u8,
        encoding: websocket::ChannelEncoding,
        frames: mpsc::Sender<WebSocketFrame>,
    ) -> StreamOutput {
        StreamOutput(OutputChannel::WebSocket {
            channel,
            encoding,
            frames,
        })
    }

    /// Sends data, in pieces; waits for the connection.
    pub(super) async fn send(&self, mut data: Bytes) -> Result<(), Gone> {
        while !data.is_empty() {
            self.send_piece(data.split_to(data.len().min(MAX_PIECE)))
                .await?;
        }
        Ok(())
    }

    /// Sends an empty message: over WebSocket it tells that the connection is open. SPDY has
    /// replies for that.
    pub(super) async fn open(&self) -> Result<(), Gone> {
        match &self.0 {
            OutputChannel::Spdy { .. } => Ok(()),
            OutputChannel::WebSocket { .. } => self.send_piece(Bytes::new()).await,
        }
    }

    async fn send_piece(&self, data: Bytes) -> Result<(), Gone> {
        match &self.0 {
            OutputChannel::Spdy { id, frames, .. } => frames
                .send(spdy::SpdyFrame::Data {
                    id: *id,
                    data,
                    fin: false,
                })
                .await
                .map_err(|_| Gone),
            OutputChannel::WebSocket {
                channel,
                encoding,
                frames,
            } => frames
                .send(encoding.message(*channel, &data))
                .await
                .map_err(|_| Gone),
        }
    }

    /// Closes this side. A WebSocket channel ends with its connection.
    pub(super) async fn finish(&self) {
        if let OutputChannel::Spdy { id, frames, .. } = &self.0 {
            let _ = frames
                .send(spdy::SpdyFrame::Data {
                    id: *id,
                    data: Bytes::new(),
                    fin: true,
                })
                .await;
        }
    }

    /// Ends the stream on both sides because of an error.
    pub(super) async fn reset(&self) {
        if let OutputChannel::Spdy { id, frames, .. } = &self.0 {
            let _ = frames
                .send(spdy::SpdyFrame::Reset {
                    id: *id,
                    status: spdy::CANCEL,
                })
                .await;
        }
    }
}
