//! The real binary, driven from outside as its users drive it.
//!
//! `process` starts and stops it and `client` speaks to it; every other file is one side of its behaviour.

mod certificates;
mod client;
mod flags;
mod frames;
#[path = "../../../encryption/src/kms/test_plugin.rs"]
mod plugin;
mod process;

mod abuse;
mod access;
mod alone;
mod authentication;
mod complaints;
mod component_serving;
mod converge;
mod crash;
mod definitions;
mod encryption;
mod full_disk;
mod http;
mod kubectl;
mod layers;
mod migration;
mod nodes;
mod observed;
mod secrets;
mod serving;
mod start;
mod stop;
mod threats;
mod tls;
mod together;
mod trace;
mod whole;
