//! Nodes against a real server in the same process, on paused time.

mod clock;
mod cluster;
mod inputs;
mod life;
mod logs;
mod metrics;
mod registration;
mod streaming;
mod supply;
