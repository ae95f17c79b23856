//! `kube-apiserver`, as envtest starts it.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::loops::Loops;
use crate::command::{ServerArgs, record_flags};
use crate::compose::{self, Topology};

/// The version of Kubernetes that is served.
const VERSION: &str = "Kubernetes v1.36.4";

/// The Kubernetes API server of Mizzen, with the flags of kube-apiserver
#[derive(Parser)]
#[command(
    name = "kube-apiserver",
    args_override_self = true,
    after_help = "Set MIZZEN_ENVTEST_LOOPS to run controllers, scheduler and nodes beside it: a list of gc, namespace, \
                  deployment and other controllers by upstream's names, scheduler, nodes or nodes=N; or all.\n\n\
                  Example:\n  kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir=./certs --secure-port=6443"
)]
struct KubeApiserver {
    #[command(flatten)]
    server: ServerArgs,
    /// Empty arguments, which old harnesses make of templates. Kubernetes: cmd/kube-apiserver/app/server.go, Args.
    #[arg(hide = true, value_parser = parse_empty)]
    _empty: Vec<String>,
}

/// Rejects arguments that are not empty.
fn parse_empty(argument: &str) -> Result<String, String> {
    match argument {
        "" => Ok(String::new()),
        _ => Err("kube-apiserver does not take any arguments".into()),
    }
}

/// Serves until it is stopped.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.iter().any(|argument| argument == "--version") {
        crate::log::write_output(format_args!("{VERSION}"));
        return Ok(());
    }
    let loops = Loops::from_env()?;
    let mut command = KubeApiserver::command();
    let program = OsString::from("kube-apiserver");
    let matches = command
        .try_get_matches_from_mut([program].into_iter().chain(arguments))
        .unwrap_or_else(|error| error.exit());
    record_flags(&command, &matches);
    let mut args = KubeApiserver::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.format(&mut command).exit());
    if !args.server.storage.etcd.is_given() {
        return Err("--etcd-servers must be specified".into());
    }
    let topology = match loops {
        None => Topology::ApiServer,
        Some(loops) => {
            args.server.authorization.authorize_nodes();
            Topology::ControlPlane(loops.control_plane())
        }
    };
    compose::serve(&args.server, topology).map_err(|error| crate::chain(&error))
}
