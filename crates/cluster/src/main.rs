//! `mizzen`: the Kubernetes control plane, its components and tools in one binary.
//!
//! `command` has a file per subcommand; `compose` puts the components together.

mod command;
mod component_server;
mod compose;
mod connect;
mod connection_log;
mod control_loops;
mod election;
mod envtest;
mod leader_elected_component;
mod log;
mod rest_client_metrics;
mod service_account_client;
mod simulated_nodes;
mod storage_log;
mod storage_size;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;

/// Objects are many small allocations: mimalloc needs half the time of the system allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A Kubernetes control plane in one binary, ready in milliseconds
#[derive(Parser)]
#[command(name = "mizzen", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run the control plane with simulated nodes in the foreground
    Up(command::Up),
    /// Run only the API server, for test environments
    Apiserver(command::Apiserver),
    /// Run only the controllers, against any Kubernetes API server
    Controllers(command::Controllers),
    /// Run only simulated nodes, against any Kubernetes API server
    Node(command::NodeCommand),
    /// Make the directory of a new operator
    Init(command::Init),
    /// Add a kind, webhooks or a version to an operator
    Create(command::Create),
    /// Be the kube-apiserver and etcd of envtest suites
    Envtest(envtest::Envtest),
    /// Write the manifests of an operator, or Rust types of CustomResourceDefinitions
    Generate(command::Generate),
    /// Print a kubeconfig with a client certificate for a user
    Kubeconfig(command::KubeconfigCommand),
    /// Run only the scheduler, against any Kubernetes API server
    Scheduler(command::SchedulerCommand),
    /// Print what controllers do to an object, as it happens
    Trace(trace::Trace),
    /// Measure any Kubernetes API server under load
    Bench(mizzen_bench::Options),
}

fn main() -> ExitCode {
    if let Some(program) = envtest::Program::of_this_process() {
        return program.run();
    }
    let mut command = Cli::command();
    let matches = command.get_matches_mut();
    command::record_flags(&command, &matches);
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    let (name, outcome) = match cli.command {
        Subcommands::Up(up) => ("up", up.run().map_err(|error| chain(&error))),
        Subcommands::Apiserver(apiserver) => {
            ("apiserver", apiserver.run().map_err(|error| chain(&error)))
        }
        Subcommands::Controllers(controllers) => (
            "controllers",
            controllers.run().map_err(|error| chain(&error)),
        ),
        Subcommands::Node(node) => ("node", node.run().map_err(|error| chain(&error))),
        Subcommands::Init(init) => ("init", init.run().map_err(|error| chain(&error))),
        Subcommands::Create(create) => ("create", create.run().map_err(|error| chain(&error))),
        Subcommands::Envtest(envtest) => ("envtest", envtest.run().map_err(|error| chain(&error))),
        Subcommands::Generate(generate) => {
            ("generate", generate.run().map_err(|error| chain(&error)))
        }
        Subcommands::Kubeconfig(kubeconfig) => (
            "kubeconfig",
            kubeconfig.run().map_err(|error| chain(&error)),
        ),
        Subcommands::Scheduler(scheduler) => {
            ("scheduler", scheduler.run().map_err(|error| chain(&error)))
        }
        Subcommands::Trace(trace) => ("trace", trace.run().map_err(|error| chain(&error))),
        Subcommands::Bench(options) => (
            "bench",
            mizzen_bench::run(options).map_err(|error| chain(&error)),
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::print_error!("mizzen {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, outermost first.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text += &format!(": {message}");
        }
        cause = error.source();
    }
    text
}
