//! The subcommands, a file each; `server` has the arguments of subcommands that run an API server.

mod apiserver;
mod client_limit;
mod component;
mod concurrency;
mod controllers;
mod debug;
mod feature_gates;
mod flagz;
mod generate;
mod kubeconfig;
mod lead;
mod leader_election;
mod load_balancers;
mod node;
mod node_ipam;
mod periods;
mod scaffold;
mod scheduler;
mod secure_serving;
mod server;
mod signing;
mod tls;
mod unsupported;
mod up;

pub(crate) use apiserver::Apiserver;
pub(crate) use controllers::{Controllers, parse_controller};
pub(crate) use feature_gates::FeatureMetrics;
pub(crate) use flagz::{flags, record as record_flags};
pub(crate) use generate::Generate;
pub(crate) use kubeconfig::KubeconfigCommand;
pub(crate) use node::{NodeCommand, capacity};
pub(crate) use scaffold::{Create, Init};
pub(crate) use scheduler::SchedulerCommand;
pub(crate) use server::{ConfiguredAuthorizer, ServerArgs, data_home};
pub(crate) use unsupported::{EtcdServer, Unsupported};
pub(crate) use up::{Up, default_pod_range};
