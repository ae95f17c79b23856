//! Who asks, may they, what do they get? HTTP down and up.
//!
//! [`Server`] answers requests without a network; [`listen`](listen::listen) puts it on one. A custom API
//! server is this crate with other kinds and other storage.

pub mod access;
mod admission;
mod aggregation;
mod answer;
pub mod authenticate;
mod catalog;
mod chain;
mod definitions;
pub mod discovery;
mod gather;
mod identity;
mod intake;
pub mod listen;
mod metrics;
mod notes;
pub mod openapi;
mod openid;
mod options;
mod outgoing;
mod ownership;
mod pages;
mod request;
mod server;
mod token;
mod types;
mod verbs;

pub use admission::{
    Admission, ConfigurationError, Level, LimitedResource, PluginError, Plugins, PodSecurity, Policy,
    Standard, Version,
};
pub use answer::{Answer, Body, Broken};
pub use identity::{MASTERS, User};
pub use outgoing::Identity;
pub use server::{Options, Server};
pub use token::Signer;
