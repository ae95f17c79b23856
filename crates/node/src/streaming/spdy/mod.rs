//! SPDY/3.1, the server's side, as far as kubectl and client-go speak it.
//!
//! `headers` is the compression of header blocks, `connection` the frames in both directions. Like upstream's implementation
//! (moby/spdystream) this one neither heeds nor sends WINDOW_UPDATE: a peer that does not read is slowed down by TCP.

mod connection;
mod headers;
#[cfg(test)]
mod tests;

pub(super) use connection::{CANCEL, Outgoing, serve};
pub(super) use headers::Headers;
