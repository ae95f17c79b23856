//! A Kubernetes control plane inside a test: API server, controllers, scheduler and simulated nodes, in the process and on
//! the clock of the test.
//!
//! ```
//! use k8s_openapi::api::apps::v1::Deployment;
//! use mizzen_testing::{Cluster, assert_status};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: #[tokio::test] async fn a_deployment_gets_three_pods() {
//! let cluster = Cluster::start().await;
//! cluster
//!     .apply(
//!         "
//! apiVersion: apps/v1
//! kind: Deployment
//! metadata: {name: web}
//! spec:
//!   replicas: 3
//!   selector: {matchLabels: {app: web}}
//!   template:
//!     metadata: {labels: {app: web}}
//!     spec: {containers: [{name: web, image: nginx}]}
//! ",
//!     )
//!     .await;
//! cluster.settle().await;
//! assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
//! # }
//! ```
//!
//! Build dependencies with `[profile.dev.package."*"] opt-level = 1` or more: an unoptimized control plane takes half a
//! second to start, an optimized one milliseconds.
//!
//! Nothing here is a fake: it is the API server, the loops and the node agent of Mizzen, with RBAC, admission, garbage
//! collection and namespace deletion. There are no ports and no files, so that hundreds run side by side.
//!
//! # Your controller
//!
//! [`Cluster::run`] runs it beside the loops, with a client of the cluster. [`Cluster::client`] is a [`kube::Client`];
//! [`Cluster::client_as`] has the permissions of a user. [`Cluster::run_manager`] runs a manager of `mizzen_sdk`, and
//! [`Cluster::serve_webhooks`] serves its webhooks without a port. [`Cluster::kubeconfig`] opens a port for programs
//! outside the process, such as kubectl.
//!
//! # Objects
//!
//! [`Cluster::apply`] applies YAML; [`Cluster::get`], [`Cluster::list`] and [`Cluster::history`] read types of
//! `k8s-openapi` and derived custom resources. [`Cluster::object`], [`Cluster::create`] and [`Cluster::change`] are for
//! objects without a type.
//!
//! # Time
//!
//! In a single-threaded runtime (`#[tokio::test]`) the cluster pauses the clock of the runtime: time passes only when all
//! tasks are idle, and then at once. [`Cluster::settle`] waits until nothing more can happen, [`Cluster::advance`] lets
//! hours pass in milliseconds, [`Cluster::until`] waits for a condition. In a runtime with several threads, and with
//! [`Builder::real_time`], time is real.
//!
//! What costs time is what happens every few seconds: an hour of a cluster with nodes and all loops is thousands of lease
//! renewals and health checks. For months choose the controllers and leave nodes out. On virtual time watches do not end
//! by themselves, and API priority and fairness is off ([`Builder::tune_server`] switches it on).
//!
//! # When a test fails
//!
//! The last steps of all components are printed, a line each, as `mizzen trace` does. [`Cluster::steps`] has them,
//! [`Cluster::history`] the states of an object; [`assert_status!`] and [`assert_events!`] show what differs.
//!
//! # Faults
//!
//! [`Cluster::inject`] injects one fault: the controller is killed after its third write, a watch is cut. [`Explore`] plays
//! a scenario with many schedules of random faults, compares the end with a run without faults, and shrinks a schedule
//! that fails. [`Explore::expect_finding`] proves that a scenario can fail: with a planted bug it must.
//!
//! ```
//! use std::time::Duration;
//! use mizzen_testing::{Cluster, Explore};
//!
//! # const JOB: &str = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: j, image: i}]}}}}";
//! Explore::new(Cluster::builder()).seeds(0..2).run(async |cluster: &Cluster| {
//!     cluster.apply(JOB).await;
//!     cluster.advance(Duration::from_secs(10)).await;
//! });
//! ```

mod apply;
mod builder;
mod cluster;
mod components;
mod diff;
mod expect;
mod explore;
mod faults;
mod objects;
mod outcome;
mod picture;
mod random;
mod read;
mod request;
mod serve;
mod steps;
mod time;
mod transport;
mod webhooks;

pub use apply::ApplyError;
pub use builder::Builder;
pub use cluster::Cluster;
pub use explore::{Explore, Explored, Finding};
pub use faults::{Fault, FaultRates, Injection, Site};
pub use outcome::ProgramOutcome;
pub use steps::Step;
pub use time::Condition;

/// For the macros.
#[doc(hidden)]
pub mod private {
    pub use mizzen_value::value;
}
