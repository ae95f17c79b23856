//! The control plane inside a test, tested from outside.

mod bugs;
mod faults;
mod loops;
mod real_time;
mod start;
mod time;
mod webhooks;
