//! The loops against the real server, in process, on time that only passes when everybody waits.

mod autoscaler;
mod bootstrap;
mod certificates;
mod cluster;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod garbage_collector;
mod job;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod pod_gc;
mod pods;
mod replicaset;
mod resource_claim;
mod root_ca;
mod service_account_tokens;
mod serviceaccount;
mod statefulset;
mod ttl;
mod ttl_after_finished;
mod volume;
