//! The real binary, driven from outside as its users drive it.
//!
//! `process` starts and stops it and `client` speaks to it; every other file is one side of its behaviour.

mod client;
mod plugin;
mod process;

mod access;
mod converge;
mod crash;
mod definitions;
mod encryption;
mod http;
mod kubectl;
mod layers;
mod nodes;
mod start;
mod stop;
mod whole;
