//! `mizzen bench`: a load generator for any Kubernetes API server.
//!
//! Reading order: a [`Session`] connects to the server and makes a namespace; `workload` decides what runs; `load` puts
//! an operation on all clients and times it; `meter` reads what that cost the server; `report` prints it. The
//! namespace goes away at the end, however that comes about.
//!
//! Invariant: the generator sends HTTP requests and uses nothing of the server, so that figures of different servers compare.
//! It reads the wall clock and is not part of any simulation.
//!
//! ```
//! use clap::Parser as _;
//!
//! #[derive(clap::Parser)]
//! struct Bench {
//!     #[command(flatten)]
//!     options: mizzen_bench::Options,
//! }
//!
//! let bench = Bench::parse_from(["bench", "--kubeconfig=/missing.conf", "--only=get,list"]);
//! let error = mizzen_bench::run(bench.options).unwrap_err();
//! assert!(error.to_string().starts_with("/missing.conf: "));
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "the load generator measures other processes on the wall clock"
)]

mod account;
mod bodies;
mod client;
mod definition;
mod load;
mod meter;
mod namespace;
mod objects;
mod process;
mod progress;
mod report;
mod session;
mod start;
mod workload;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use mizzen_sdk::kubeconfig::KubeconfigError;
use tokio::signal::unix::{SignalKind, signal};

use client::{CallError, EndpointError};
use objects::Kind;
use process::MeasureError;
use report::Report;
use session::Session;
use start::StartError;
use workload::Loop;

const EXAMPLES: &str = "\
Examples:
  # everything, with the cost on the server's side (pids are summed)
  mizzen bench --kubeconfig admin.conf --server-pid $(pidof kube-apiserver),$(pidof etcd)

  # what it costs to patch a pod of ten containers and to apply a Deployment
  mizzen bench --kubeconfig admin.conf --only strategic-patch,apply --server-pid $(pidof kube-apiserver),$(pidof etcd)

  # a quick look at two workloads, as JSON
  mizzen bench --kubeconfig admin.conf --only get,pods/list --objects 1000 --seconds 2 --json

  # does the cost stay flat while the store grows?
  mizzen bench --kubeconfig admin.conf --scale 1000,10000,100000

  # what access costs: the same by a service account, whom a role lets do it
  mizzen bench --kubeconfig admin.conf --only configmaps/create --as-service-account --server-pid $(pidof mizzen)

  # 100 deployments of 100 replicas, until all pods are ready
  mizzen bench --kubeconfig admin.conf --loops rollout --server-pid $(pidof mizzen)

  # what a storm of events takes in memory
  mizzen bench --kubeconfig admin.conf --kinds events --objects 136000 --server-pid $(pidof mizzen)

  # from exec to ready, five times
  mizzen bench --kubeconfig /tmp/m.conf --start \"mizzen apiserver --in-memory --kubeconfig /tmp/m.conf\"

Workloads: create, get, update (GET and PUT), patch (merge patch), list (whole), list-pages (all pages of 500),
list-rv0 (resourceVersion=0), list-label (1 in 100), list-gzip, list-protobuf, table-page (500 rows), watch-100,
watch-1000 (one operation is one delivery; its server cost excludes the update), delete; of crowded-pods (ten
containers each) only create, strategic-patch (strategic merge patch) and delete, of deployments only create, apply
(server-side) and delete, with at most 1000 objects; of widgets, a custom kind with 30 fields and 5 rules, and of events,
which are not among the default kinds, only create, patch and delete. CPU is that of the given
processes between first and last operation, background work included; `client` is this program's own.";

/// What to measure, and on which server.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The kubeconfig file that leads to the server.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// The context to use instead of the file's current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The server's processes on this machine: report their CPU time per operation and resident memory, summed.
    #[arg(long, value_name = "PID,…", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..=i64::from(process::MAX_PID)))]
    server_pid: Vec<i32>,

    /// Print one JSON document on standard output instead of a table.
    #[arg(long)]
    json: bool,

    /// Run only these workloads: a workload (get), one of a kind (pods/get), or all watches (watch).
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// The kinds to put load on.
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "configmaps,pods,crowded-pods,deployments,widgets"
    )]
    kinds: Vec<Kind>,

    /// How many objects a collection holds while it is read, listed and watched.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=9_999_999))]
    objects: u64,

    /// How many clients work at once on single objects.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    clients: usize,

    /// How many clients work at once on lists.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    list_clients: usize,

    /// How many connections the clients share [default: one each].
    #[arg(long, value_name = "N", value_parser = positive)]
    connections: Option<usize>,

    /// How many watchers to deliver to, one workload for each number.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "100,1000", value_parser = positive)]
    watchers: Vec<usize>,

    /// How many watches share a connection, at most; the server's own limit is respected.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = positive)]
    streams_per_connection: usize,

    /// How long each workload runs (create: until all objects are there; delete: at most until none is).
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,

    /// How many operations each workload runs, instead of a time.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// Only: fill a collection of ConfigMaps up to each size; there measure create, get and a page of 500.
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with_all = ["only", "start"])]
    scale: Vec<u64>,

    /// Only: what the control loops do; of --objects there are as many pods or dependents.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with_all = ["only", "start", "scale"])]
    loops: Vec<Loop>,

    /// Only: run this command five times, measure the time until /readyz answers 200, and stop it with SIGTERM.
    #[arg(long, value_name = "COMMAND", conflicts_with = "only")]
    start: Option<String>,

    /// Put the load on as a service account whom a role lets do so, instead of as the user of the kubeconfig file.
    #[arg(long, conflicts_with_all = ["loops", "start"])]
    as_service_account: bool,

    /// Threads of the load generator; on a machine shared with the server one leaves it the most.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    threads: usize,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&number| number > 0)
        .ok_or_else(|| "must be a number above 0".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

/// Why there is no report, or none without blemish.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The command line asks for something that does not exist.
    #[error("no workload named {name:?}; there are {known}")]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The report was printed, but lacks workloads.
    #[error("{0} workloads failed")]
    Failed(usize),
    /// Ctrl-C or SIGTERM. What was measured until then was printed.
    #[error("interrupted")]
    Interrupted,
    /// Something stays on the server.
    #[error("cannot clean up; please delete namespace {namespace}: {message}")]
    LeftBehind {
        /// Where it is.
        namespace: String,
        /// Why it could not be removed.
        message: String,
    },
    /// Anything that ends a run before it begins.
    #[error("{0}")]
    Setup(String),
}

macro_rules! setup_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for BenchError {
            fn from(error: $error) -> Self {
                Self::Setup(chain(&error))
            }
        }
    )*};
}
setup_errors!(
    CallError,
    EndpointError,
    KubeconfigError,
    MeasureError,
    StartError,
    io::Error
);

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

/// Runs the benchmark on a runtime of its own, because the generator's threads are part of what is measured.
pub fn run(options: Options) -> Result<(), BenchError> {
    let runtime = match options.threads {
        1 => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
        n_threads => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(n_threads)
            .enable_all()
            .build()?,
    };
    runtime.block_on(measure(options))
}

async fn measure(options: Options) -> Result<(), BenchError> {
    workload::check_names(&options)?;
    let mut report = Report {
        json: options.json,
        ..Report::default()
    };
    let result = match &options.start {
        Some(command) => measure_start(&options, command, &mut report).await,
        None => measure_load(options, &mut report).await,
    };
    if !report.is_empty() {
        report.finish();
    }
    result?;
    if report.failures.is_empty() {
        Ok(())
    } else {
        Err(BenchError::Failed(report.failures.len()))
    }
}

async fn measure_start(
    options: &Options,
    command: &str,
    report: &mut Report,
) -> Result<(), BenchError> {
    tokio::select! {
        start_up = start::measure(options, command) => report.start_up = Some(start_up?),
        () = interrupted() => return Err(BenchError::Interrupted),
    }
    Ok(())
}

/// The namespace is removed whether the workloads succeed, fail, or are interrupted.
async fn measure_load(options: Options, report: &mut Report) -> Result<(), BenchError> {
    let session = Arc::new(Session::open(options).await?);
    let result = tokio::select! {
        result = workload::run(&session, report) => result,
        () = interrupted() => Err(BenchError::Interrupted),
    };
    let removal = tokio::select! {
        removal = namespace::remove(&session) => removal.map_err(|error| chain(&error)),
        () = interrupted() => Err("interrupted again".to_owned()),
    };
    let Err(message) = removal else { return result };
    if let Err(error) = result {
        // A closed standard error must not hide what follows.
        let _ = writeln!(io::stderr(), "mizzen bench: {error}");
    }
    Err(BenchError::LeftBehind {
        namespace: session.namespace.clone(),
        message,
    })
}

/// Ctrl-C, or SIGTERM from whoever runs us.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
