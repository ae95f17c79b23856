//! WebSocket, the server side: channels of Kubernetes' subprotocols, and a tunnel for SPDY.
//!
//! `channels` has the subprotocols: the first byte of a message is the channel number. The protocol itself is in
//! `mizzen_transport::websocket`.

mod channels;
#[cfg(test)]
mod tests;

pub(super) use channels::{ChannelEncoding, serve, tunnel};
