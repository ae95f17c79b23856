//! A server without a network, on virtual time: what one request alone does not show.

mod peer;
mod rig;

mod access;
mod conversion;
mod definitions;
mod delete;
mod large;
mod legacy;
mod list;
mod race;
mod time;
mod watch;
mod webhook;
