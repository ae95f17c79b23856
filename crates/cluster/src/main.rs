//! `mizzen`: the Kubernetes control plane, its components and tools in one binary.
//!
//! `command` has a file per subcommand; `compose` puts the components together.

mod backup_file;
mod clusters;
mod command;
mod component_server;
mod compose;
mod connect;
mod connection_log;
mod control_loops;
mod definitions;
mod election;
mod envtest;
mod failure;
mod filled;
mod leader_elected_component;
mod log;
mod real_node;
mod rest_client_metrics;
mod service_account_client;
mod shared_keys;
mod simulated_nodes;
mod storage_log;
mod storage_size;
mod terminal;
mod trace;
mod transfer;

use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;

/// Objects are many small allocations: mimalloc needs half the time of the system allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A Kubernetes control plane in one binary, ready in milliseconds
#[derive(Parser)]
#[command(name = "mizzen", version, arg_required_else_help = true, after_help = failure::EXIT_CODES)]
struct Cli {
    /// Colour the output; auto does so on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "WHEN",
        default_value_t
    )]
    color: ColorChoice,
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Run the control plane with nodes, simulated or real
    ///
    /// It prints a line when it is ready, and stops on Ctrl-C. With --detach it runs in the background, until `mizzen down`.
    Up(command::Up),
    /// Stop a cluster
    ///
    /// Requests in flight are finished, and the command returns when the process has ended. A context that --set-context added
    /// to the kubeconfig is removed.
    Down(command::Down),
    /// List the clusters and their states
    ///
    /// The states are ready; not ready (the process runs, but /readyz fails or does not answer within 2 seconds); starting;
    /// stopped.
    Status(command::StatusCommand),
    /// Run only the API server, for test environments
    Apiserver(command::Apiserver),
    /// Run only the controllers, against any Kubernetes API server
    Controllers(command::Controllers),
    /// Run only nodes, simulated or real, against any Kubernetes API server
    Node(command::NodeCommand),
    /// Make the directory of a new operator
    Init(command::Init),
    /// Add a kind, webhooks or a version to an operator
    Create(command::Create),
    /// Be the kube-apiserver and etcd of envtest suites
    Envtest(envtest::Envtest),
    /// Write the manifests of an operator, or Rust types of CustomResourceDefinitions
    Generate(command::Generate),
    /// Put images into the container runtime of this machine, for pods with real containers
    Image(command::ImageCommand),
    /// Print a kubeconfig of a cluster, or add its context to ~/.kube/config
    ///
    /// It is that of the administrator, or with --user one with a client certificate that names the user and its groups. Grant
    /// permissions with roles and bindings.
    Kubeconfig(command::KubeconfigCommand),
    /// Run only the scheduler, against any Kubernetes API server
    Scheduler(command::SchedulerCommand),
    /// Write the objects of a cluster, running or not, to a file
    ///
    /// The file has YAML documents or JSON lines, which `mizzen import` and `kubectl apply` read. By default it has what users
    /// write: objects that clusters make themselves are left out, as are fields that the target sets. The cluster is one of
    /// Mizzen, selected by name or data directory, or any Kubernetes cluster, selected by kubeconfig and context.
    Export(command::ExportCommand),
    /// Create the objects of files in a cluster, running or not
    ///
    /// Namespaces and definitions come first, owners before their dependents, webhooks and policies last. Every object is
    /// reported; the exit code is 6 if some were not imported. A second run leaves alone what the first one created.
    Import(command::ImportCommand),
    /// Copy the data of a cluster, running or not, to a file
    ///
    /// The file holds all objects as of one revision, and the keys of the certificate authority and of service account tokens:
    /// keep it as secret as the data directory. Encrypted objects stay encrypted. All writes that were acknowledged before the
    /// command started are in it.
    Backup(command::BackupCommand),
    /// Make a data directory from a file of `mizzen backup`
    ///
    /// Every checksum is verified first. The directory must not exist, or be empty. A server on it accepts the tokens and client
    /// certificates of the original.
    Restore(command::RestoreCommand),
    /// Verify every checksum and object of a data directory
    ///
    /// Nothing is changed. A server must not use the directory meanwhile: back it up, restore it elsewhere, and check that. The
    /// exit code is 1 if anything is damaged.
    Check(command::CheckCommand),
    /// Print what controllers do to an object, as it happens
    Trace(trace::Trace),
    /// Measure any Kubernetes API server under load
    Bench(mizzen_bench::Options),
    /// Print a script that completes commands and flags in a shell
    Completion(command::Completion),
    /// Write a manual page for each command
    Man(command::ManCommand),
}

fn main() -> ExitCode {
    if let Some(program) = envtest::Program::of_this_process() {
        return program.run();
    }
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let mut command = Cli::command().color(terminal::color_choice(arguments));
    let matches = command.get_matches_mut();
    command::record_flags(&command, &matches);
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    terminal::set_color(cli.color);
    let (name, outcome) = match cli.command {
        Subcommands::Up(up) => return failure::exit("up", up.run()),
        Subcommands::Down(down) => return failure::exit("down", down.run()),
        Subcommands::Status(status) => return failure::exit("status", status.run()),
        Subcommands::Apiserver(apiserver) => return failure::exit("apiserver", apiserver.run()),
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
        Subcommands::Image(image) => ("image load", image.run().map_err(|error| chain(&error))),
        Subcommands::Kubeconfig(kubeconfig) => (
            "kubeconfig",
            kubeconfig.run().map_err(|error| chain(&error)),
        ),
        Subcommands::Scheduler(scheduler) => {
            ("scheduler", scheduler.run().map_err(|error| chain(&error)))
        }
        Subcommands::Export(export) => ("export", export.run().map_err(|error| chain(&error))),
        Subcommands::Import(import) => return failure::exit("import", import.run()),
        Subcommands::Backup(backup) => ("backup", backup.run().map_err(|error| chain(&error))),
        Subcommands::Restore(restore) => ("restore", restore.run().map_err(|error| chain(&error))),
        Subcommands::Check(check) => ("check", check.run().map_err(|error| chain(&error))),
        Subcommands::Trace(trace) => ("trace", trace.run().map_err(|error| chain(&error))),
        Subcommands::Bench(options) => (
            "bench",
            mizzen_bench::run(options).map_err(|error| chain(&error)),
        ),
        Subcommands::Completion(completion) => (
            "completion",
            completion
                .run(&Cli::command())
                .map_err(|error| chain(&error)),
        ),
        Subcommands::Man(man) => (
            "man",
            man.run(Cli::command()).map_err(|error| chain(&error)),
        ),
    };
    failure::exit(name, outcome)
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
