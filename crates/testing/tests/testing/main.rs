//! The control plane inside a test, tested from outside.

mod bugs;
mod faults;
mod real_time;
mod start;
mod time;
