//! Nodes against a real server in the same process, on paused time; real containers on real time.

mod authentication;
mod clock;
#[path = "../../../cri/tests/cri/containerd.rs"]
mod containerd;
mod cri;
mod eviction;
mod fixtures;
mod inputs;
mod lifecycle;
mod logind;
mod logs;
mod metrics;
mod pod_spec;
mod references;
mod registration;
mod registry;
mod streaming;
