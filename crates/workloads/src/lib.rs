//! The controllers of workloads: a folder for each, with pure planning and a thin `reconcile`.
//!
//! They need only the context of the SDK, so one of them can run without kube-controller-manager:
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), mizzen_sdk::controller::RunError> {
//! use mizzen_sdk::controller::Context;
//!
//! let context = Context::new(client);
//! let controller = mizzen_workloads::deployment::start(&context);
//! controller.run(std::future::pending()).await
//! # }
//! ```
//!
//! Invariant: nothing here reads the wall clock or random numbers directly; the context has both.

pub mod common;
mod controller_history;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod job;
pub mod pod_index;
pub mod replicaset;
pub mod statefulset;
pub mod ttl_after_finished;
