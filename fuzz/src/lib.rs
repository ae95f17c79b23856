//! The targets of the fuzzer.

pub mod jose;
pub mod store_log;
pub mod targets;
