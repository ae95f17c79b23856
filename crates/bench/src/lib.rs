//! `mizzen bench`: a load generator for any Kubernetes API server.
//!
//! Reading order: `session` connects to the server and creates a namespace; `workload` selects operations; `load` runs one
//! on all clients and times it; `meter` reads its cost for the server; `report` prints it. The namespace is deleted at
//! the end, also after an error or an interruption.
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

use mizzen_sdk::kubeconfig::LoadKubeconfigError;
use tokio::signal::unix::{SignalKind, signal};

use client::{ApiCallError, EndpointError};
use objects::ObjectKind;
use process::MeasureError;
use report::BenchReport;
use session::Session;
use start::ServerStartError;
use workload::ControlLoop;

const EXAMPLES: &str = "\
Examples:
  # everything, with the cost for the server (summed over pids)
  mizzen bench --kubeconfig admin.conf --server-pid $(pidof kube-apiserver),$(pidof etcd)

  # strategic merge patches of pods with ten containers, and applies of Deployments
  mizzen bench --kubeconfig admin.conf --only strategic-patch,apply --server-pid $(pidof kube-apiserver),$(pidof etcd)

  # two workloads for a short time, as JSON
  mizzen bench --kubeconfig admin.conf --only get,pods/list --objects 1000 --seconds 2 --json

  # does the cost stay flat while the store grows?
  mizzen bench --kubeconfig admin.conf --scale 1000,10000,100000

  # the cost of authentication and authorization: as a service account with an RBAC role
  mizzen bench --kubeconfig admin.conf --only configmaps/create --as-service-account --server-pid $(pidof mizzen)

  # 1000 clients that write 2000 objects per second for ten minutes, and 10,000 watches
  ulimit -n 4096; mizzen bench --kubeconfig admin.conf --sustain 2000 --clients 1000 --watchers 10000 --seconds 600 --server-pid $(pidof mizzen)

  # 100 Deployments of 100 replicas, until all pods are ready
  mizzen bench --kubeconfig admin.conf --loops rollout --server-pid $(pidof mizzen)

  # the memory of 136,000 events
  mizzen bench --kubeconfig admin.conf --kinds events --objects 136000 --server-pid $(pidof mizzen)

  # from exec to ready, five times
  mizzen bench --kubeconfig /tmp/m.conf --start \"mizzen apiserver --in-memory --kubeconfig /tmp/m.conf\"

Workloads: create, get, update (GET and PUT), patch (merge patch), list (whole), list-pages (all pages of 500),
list-rv0 (resourceVersion=0), list-label (1 in 100), list-gzip, list-protobuf, table-page (500 rows), watch-100,
watch-1000 (one operation is one delivery; the server's cost excludes the update), delete. Crowded-pods (ten
containers each) have only create, strategic-patch (strategic merge patch) and delete; deployments only create, apply
(server-side) and delete; both have at most 1000 objects. Widgets (a custom resource with 30 fields and 5 validation
rules) and events (not among the default kinds) have only create, patch and delete. CPU is that of the given processes
between the first and the last operation, including background work; `client` is the load generator's. With --sustain,
`late` is how long after their time the generator sent patches: that part of a latency is not the server's.";

/// Which workloads to run on which server.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Use this kubeconfig file.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// Use this context of the kubeconfig file [default: its current context].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Report CPU time per operation and resident memory of these local server processes, summed.
    #[arg(long, value_name = "PID,…", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..=i64::from(process::MAX_PID)))]
    server_pid: Vec<i32>,

    /// Print one JSON document on standard output instead of a table.
    #[arg(long)]
    json: bool,

    /// Run only these workloads: one of all kinds (get), one of a kind (pods/get), or all watches (watch).
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Create, read, change and delete objects of these kinds.
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "configmaps,pods,crowded-pods,deployments,widgets"
    )]
    kinds: Vec<ObjectKind>,

    /// Fill each collection with this many objects before it is read, listed and watched.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=9_999_999))]
    objects: u64,

    /// Run operations on single objects with this many concurrent clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    clients: usize,

    /// Run lists with this many concurrent clients.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    list_clients: usize,

    /// Share this many connections among the clients [default: one each].
    #[arg(long, value_name = "N", value_parser = positive)]
    connections: Option<usize>,

    /// Measure deliveries to this many watchers, one workload for each number.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "100,1000", value_parser = positive)]
    watchers: Vec<usize>,

    /// Open at most this many watches per connection, and no more than the server allows.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = positive)]
    streams_per_connection: usize,

    /// Run each workload for this many seconds (create until all objects exist, delete until none is left).
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,

    /// Run each workload for this many operations instead of a time.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// Instead of workloads: fill a collection of ConfigMaps to each size, and there measure create, get and a page of 500.
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with_all = ["only", "start"])]
    scale: Vec<u64>,

    /// Instead of workloads: measure controllers, with --objects pods or dependents.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with_all = ["only", "start", "scale"])]
    loops: Vec<ControlLoop>,

    /// Instead of workloads: patch --objects ConfigMaps, this many per second for --seconds, with --watchers watches of one
    /// object each. Fails if a write or an event is lost.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["only", "start", "scale", "loops", "operations"], value_parser = rate)]
    sustain: Option<f64>,

    /// With --sustain: fail if the p99 of patches or reads is above this many milliseconds in a quarter of the time.
    #[arg(long, value_name = "MILLISECONDS", requires = "sustain", value_parser = milliseconds)]
    max_p99: Option<f64>,

    /// With --sustain: fail if the resident memory of --server-pid grows by more MiB than this after the first quarter of the
    /// time.
    #[arg(long, value_name = "MIB", requires_all = ["sustain", "server_pid"])]
    max_memory_growth: Option<u64>,

    /// Instead of workloads: start this command five times, measure the time until /readyz returns 200, stop it with SIGTERM.
    #[arg(long, value_name = "COMMAND", conflicts_with = "only")]
    start: Option<String>,

    /// Send measured requests as a service account with an RBAC role instead of as the user of the kubeconfig file.
    #[arg(long, conflicts_with_all = ["loops", "start"])]
    as_service_account: bool,

    /// Run the load generator with this many threads; one leaves most CPU to a server on the same machine.
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

fn milliseconds(text: &str) -> Result<f64, String> {
    let milliseconds = text.parse().ok();
    let milliseconds = milliseconds.filter(|milliseconds| (0.001..=1e9).contains(milliseconds));
    milliseconds.ok_or_else(|| "must be a number of milliseconds above 0".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.01..=1_000_000.0).contains(rate));
    rate.ok_or_else(|| "must be a number of requests per second above 0".to_owned())
}

/// Why there is no complete report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// `--only` names a workload that does not exist.
    #[error("no workload named {name:?}; there are {known}")]
    UnknownWorkload {
        /// The name.
        name: String,
        /// The workloads that exist.
        known: String,
    },
    /// Workloads failed. The report of the successful ones was printed.
    #[error("{0} workloads failed")]
    Failed(usize),
    /// Ctrl-C or SIGTERM. The report of the finished workloads was printed.
    #[error("interrupted")]
    Interrupted,
    /// The namespace was not deleted.
    #[error("cannot clean up; please delete namespace {namespace}: {message}")]
    LeftBehind {
        /// The namespace.
        namespace: String,
        /// Why.
        message: String,
    },
    /// The run could not be set up.
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
    ApiCallError,
    EndpointError,
    LoadKubeconfigError,
    MeasureError,
    ServerStartError,
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

/// Runs the benchmark on a runtime of its own, because the CPU time of the generator's threads is measured.
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
    let mut report = BenchReport {
        json: options.json,
        ..BenchReport::default()
    };
    let result = match &options.start {
        Some(command) => tokio::select! {
            start_up = start::measure(&options, command) => start_up
                .map(|start_up| report.start_up = Some(start_up))
                .map_err(BenchError::from),
            () = interrupted() => Err(BenchError::Interrupted),
        },
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

/// Runs the workloads. The namespace is deleted whether they succeed, fail, or are interrupted.
async fn measure_load(options: Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let session = Arc::new(Session::open(options).await?);
    let result = tokio::select! {
        result = workload::run(&session, report) => result,
        () = interrupted() => Err(BenchError::Interrupted),
    };
    let removal = tokio::select! {
        removal = namespace::delete(&session) => removal.map_err(|error| chain(&error)),
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

/// Resolves on Ctrl-C or SIGTERM.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
