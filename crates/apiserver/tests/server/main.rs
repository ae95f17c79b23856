//! A server without a network, on virtual time: what one request alone does not show.

mod network;
mod own;
mod paths;
mod peer;
mod rig;

mod abuse;
mod access;
mod addresses;
mod admission;
mod aggregation;
mod apply;
mod audit;
mod authorization;
mod conversion;
mod definitions;
mod delete;
mod fairness;
mod health;
mod issuer;
mod large;
mod legacy;
mod list;
mod nodes;
mod pod_security;
mod policy;
mod quota;
mod race;
mod service_account;
mod time;
mod token_webhook;
mod tokens;
mod unfit;
mod verb_matrix;
mod watch;
mod webhook;
