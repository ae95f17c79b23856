//! The loops against the real server, in process, on time that only passes when everybody waits.

mod autoscaler;
mod bootstrap;
mod certificates;
mod cluster;
mod disruption;
mod endpoints;
mod garbage_collector;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod pods;
mod resource_claim;
mod root_ca;
mod service_account_tokens;
mod serviceaccount;
mod volume;
