//! Nodes against a real server in the same process, on paused time.

mod clock;
mod fixtures;
mod inputs;
mod lifecycle;
mod logs;
mod metrics;
mod references;
mod registration;
mod streaming;
