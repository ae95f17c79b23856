//! `mizzen status`: the clusters of the user, and which of them run.

use std::io;

use clap::{Args, ValueEnum};
use futures_util::future::try_join_all;
use mizzen_value::{Value, json, value, yaml};

use super::cluster_args::ClusterArgs;
use crate::clusters::{ClusterDirectory, ClusterDirectoryError, ClusterState, ClusterStatus};
use crate::log::write_output;
use crate::terminal::{Palette, Tone};

/// The columns of the table.
const COLUMNS: [&str; 8] = [
    "NAME", "STATE", "ADDRESS", "PID", "SINCE", "VERSION", "NODES", "DATA-DIR",
];
/// The index of STATE, which is coloured.
const STATE: usize = 1;

/// List the clusters and their states
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen status\n  mizzen status --name dev -o json\n\n\
    Exit codes:\n  0    the selected cluster is ready, or all clusters are listed\n  1    failure\n  2    invalid arguments\n  \
    3    the selected cluster does not run or does not exist\n  5    the selected cluster runs, but is not ready"
)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Print the status in this format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: StatusFormat,
}

/// The format of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum StatusFormat {
    /// A table
    #[default]
    Text,
    /// A JSON object with the list "clusters"
    Json,
    /// The same in YAML
    Yaml,
}

/// Why the selected cluster is not ready, or its status unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    /// It does not run.
    #[error("cluster {0} is not running; start it with: mizzen up{1} --detach")]
    NotRunning(String, String),
    /// It does not exist.
    #[error("there is no cluster {0}; start it with: mizzen up{1} --detach")]
    Missing(String, String),
    /// It runs.
    #[error("cluster {0} is {1}")]
    NotReady(String, &'static str),
    /// A directory cannot be read.
    #[error(transparent)]
    Directory(#[from] ClusterDirectoryError),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

impl StatusCommand {
    /// Prints the status.
    pub(crate) fn run(self) -> Result<(), StatusError> {
        let selected = self.cluster.is_given().then(|| self.cluster.directory());
        if let Some(missing) = selected.iter().find(|directory| !directory.exists()) {
            return Err(StatusError::Missing(missing.title(), missing.arguments()));
        }
        let directories = match &selected {
            Some(directory) => vec![directory.clone()],
            None => ClusterDirectory::all()?,
        };
        let clusters = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(try_join_all(
                directories.into_iter().map(ClusterStatus::inspect),
            ))?;
        self.print(&clusters);
        let Some(directory) = selected else {
            return Ok(());
        };
        match clusters[0].state {
            ClusterState::Ready => Ok(()),
            ClusterState::Stopped => Err(StatusError::NotRunning(
                directory.title(),
                directory.arguments(),
            )),
            state => Err(StatusError::NotReady(directory.title(), state.word())),
        }
    }

    fn print(&self, clusters: &[ClusterStatus]) {
        let list = || {
            let items: Vec<Value> = clusters.iter().map(ClusterStatus::to_value).collect();
            value!({"clusters": (items)})
        };
        match self.output {
            StatusFormat::Json => write_output(format_args!("{}", json::to_string(&list()))),
            StatusFormat::Yaml => write_output(format_args!("{}", yaml::write(&list()).trim_end())),
            StatusFormat::Text if clusters.is_empty() => write_output(format_args!(
                "there are no clusters; start one with: mizzen up --detach"
            )),
            StatusFormat::Text => table(clusters, Palette::stdout())
                .iter()
                .for_each(|line| write_output(format_args!("{line}"))),
        }
    }
}

/// The lines of the table.
fn table(clusters: &[ClusterStatus], palette: Palette) -> Vec<String> {
    let rows: Vec<[String; 8]> = clusters.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |cells: [String; 8]| cells.join("   ").trim_end().to_owned();
    let heading = line(std::array::from_fn(|column| {
        format!("{:width$}", COLUMNS[column], width = widths[column])
    }));
    let mut lines = vec![palette.paint(Tone::Heading, &heading)];
    for (row, cluster) in rows.iter().zip(clusters) {
        lines.push(line(std::array::from_fn(|column| {
            let cell = format!("{:width$}", row[column], width = widths[column]);
            match (column, cluster.state) {
                (STATE, ClusterState::Ready) => palette.paint(Tone::Good, &cell),
                (STATE, ClusterState::Stopped) => palette.paint(Tone::Faint, &cell),
                (STATE, _) => palette.paint(Tone::Warning, &cell),
                _ => cell,
            }
        })));
    }
    lines
}

/// The cells of a cluster.
fn row(cluster: &ClusterStatus) -> [String; 8] {
    let run = cluster.run();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        or_dash(cluster.directory.name.as_ref().map(ToString::to_string)),
        cluster.state.word().into(),
        or_dash(run.map(|run| run.server.clone())),
        or_dash(cluster.pid.map(|pid| pid.to_string())),
        or_dash(run.map(|run| run.since.clone())),
        or_dash(run.map(|run| run.version.clone())),
        or_dash(run.map(|run| run.n_nodes.to_string())),
        cluster.directory.path.display().to_string(),
    ]
}
