//! `mizzen`: the whole control plane, its parts, and its tools, in one binary.
//!
//! `command` has a file per subcommand; `compose` puts the parts together.

mod bootstrap;
mod command;
mod complain;
mod component_server;
mod compose;
mod connect;
mod election;
mod itself;
mod kubeconfig;
mod log;
mod loops;
mod nodes;
mod pki;
mod seat;
mod service_account_client;
mod storage_log;
mod token_key;
mod token_tracking;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;

/// Objects are many small pieces of memory: this one gives and takes them in half the time of the system's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Kubernetes' programmable control plane: one binary, ready in milliseconds.
#[derive(Parser)]
#[command(name = "mizzen", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the whole control plane in the foreground.
    Up(command::Up),
    /// Run the API server alone, as test environments want it.
    Apiserver(command::Apiserver),
    /// Run the control loops alone, against any Kubernetes API server.
    Controllers(command::Controllers),
    /// Run simulated nodes alone, against any Kubernetes API server.
    Node(command::Node),
    /// Print a kubeconfig for one more user.
    Kubeconfig(command::Kubeconfig),
    /// Run the scheduler alone, against any Kubernetes API server.
    Scheduler(command::Scheduler),
    /// Print what the loops do to an object, live.
    Trace(trace::Trace),
    /// Put load on any Kubernetes API server and report what it costs.
    Bench(mizzen_bench::Options),
}

fn main() -> ExitCode {
    let mut command = Cli::command();
    let matches = command.get_matches_mut();
    command::record_flags(&command, &matches);
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    let (name, outcome) = match cli.command {
        Command::Up(up) => ("up", up.run().map_err(|error| chain(&error))),
        Command::Apiserver(apiserver) => {
            ("apiserver", apiserver.run().map_err(|error| chain(&error)))
        }
        Command::Controllers(controllers) => (
            "controllers",
            controllers.run().map_err(|error| chain(&error)),
        ),
        Command::Node(node) => ("node", node.run().map_err(|error| chain(&error))),
        Command::Kubeconfig(kubeconfig) => (
            "kubeconfig",
            kubeconfig.run().map_err(|error| chain(&error)),
        ),
        Command::Scheduler(scheduler) => {
            ("scheduler", scheduler.run().map_err(|error| chain(&error)))
        }
        Command::Trace(trace) => ("trace", trace.run().map_err(|error| chain(&error))),
        Command::Bench(options) => (
            "bench",
            mizzen_bench::run(options).map_err(|error| chain(&error)),
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::say!("mizzen {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, outermost first.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = error.source();
    }
    text
}
