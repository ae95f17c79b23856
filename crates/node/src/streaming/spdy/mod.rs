//! SPDY/3.1, the server side as far as kubectl and client-go use it, and the client side as far as
//! container runtimes serve it.
//!
//! `headers` is the compression of header blocks, `connection` the frames in both directions,
//! `client` the client side. Like
//! upstream's implementation (moby/spdystream) it neither heeds nor sends WINDOW_UPDATE: TCP slows
//! down a peer that does not read.

pub(crate) mod client;
mod connection;
mod headers;
#[cfg(test)]
mod tests;

pub(super) use connection::{CANCEL, SpdyFrame, serve};
pub(super) use headers::Headers;
