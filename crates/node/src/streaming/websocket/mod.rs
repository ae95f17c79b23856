//! WebSocket (RFC 6455), the server side: channels of Kubernetes' subprotocols, and a tunnel for
//! SPDY.
//!
//! `frames` is the protocol itself, `channels` the subprotocols: the first byte of a message is the
//! channel number.

mod channels;
mod frames;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

pub(super) use channels::{ChannelEncoding, serve, tunnel};
pub(super) use frames::WebSocketFrame;

/// The GUID of the handshake.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The response to a client's `Sec-WebSocket-Key`.
pub(super) fn accept_key(key: &str) -> String {
    STANDARD.encode(digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    ))
}
