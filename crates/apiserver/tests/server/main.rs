//! A server without a network, on virtual time: what one request alone does not show.

mod rig;

mod access;
mod delete;
mod large;
mod legacy;
mod list;
mod race;
mod time;
mod watch;
