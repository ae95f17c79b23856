//! Tests of the real binary.
//!
//! `process` starts and stops it, `client` sends requests; each other file is an aspect of its behaviour.

mod certificates;
mod client;
#[path = "../../../cri/tests/cri/containerd.rs"]
mod containerd;
#[path = "../../../etcd/tests/etcd/server.rs"]
#[allow(dead_code, reason = "the tests of the etcd client need more")]
mod etcd_server;
mod flags;
mod frames;
#[path = "../../../encryption/src/kms/test_plugin.rs"]
mod plugin;
mod process;
#[path = "../../../etcd/tests/etcd/progress_proxy.rs"]
#[allow(dead_code, reason = "the tests of the etcd engine need more")]
mod progress_proxy;
mod random;
#[path = "../../../node/tests/node/registry.rs"]
mod registry;

mod abuse;
mod access;
mod authentication;
mod backup;
mod command_line;
mod component_serving;
mod connection_log;
mod control_plane;
mod converge;
mod crash;
mod definitions;
mod encryption;
mod envtest;
mod etcd_flags;
mod etcd_outage;
mod etcd_storage;
mod failing_disk;
mod failover;
mod formats;
mod full_disk;
mod handbook;
mod harnesses;
mod http;
mod kubectl;
mod layers;
mod leader_election;
mod linearizable;
mod metric_families;
mod migration;
mod nodes;
mod observed;
mod packages;
mod peers;
mod rolling_restart;
mod scaffold;
mod secrets;
mod serving;
mod several_servers;
mod signing;
mod start;
mod stop;
mod sustained;
mod system_packages;
mod threats;
mod tls;
mod trace;
mod transfer;
mod unknown_outcome;
