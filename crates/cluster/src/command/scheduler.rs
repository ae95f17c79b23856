//! `mizzen scheduler`: the scheduler alone, against any server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_scheduler::{self as scheduler, Configuration};

use super::lead::{self, LeadError};
use crate::connect::connect;

/// Run the scheduler alone, against any Kubernetes API server. Of several that run, one works.
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen scheduler --kubeconfig ./data/admin.kubeconfig\n  \
                        mizzen scheduler --kubeconfig ./kubeconfig --config ./scheduler.yaml")]
pub struct Scheduler {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Profiles, plugins and extenders: a KubeSchedulerConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Work without asking whether another does
    #[arg(long)]
    no_leader_elect: bool,
}

impl Scheduler {
    /// Works until told to stop.
    pub fn run(self) -> Result<(), LeadError> {
        lead::run(async {
            let configuration = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
            let client = connect(&self.kubeconfig, "kube-scheduler").await?;
            let lease = (!self.no_leader_elect).then_some("kube-scheduler");
            let mut options = scheduler::Options::new(client.clone());
            options.configuration = Arc::new(configuration);
            lead::lead(client, lease, "the scheduler", async {
                match scheduler::start(options) {
                    Ok(handle) => {
                        handle.synced().await;
                        eprintln!("the scheduler is at work");
                        std::future::pending::<()>().await;
                    }
                    Err(error) => eprintln!("the scheduler cannot work: {error}"),
                }
            })
            .await
        })
    }
}

fn read(file: &Path) -> Result<Configuration, LeadError> {
    let refuse = |why: String| LeadError::Configuration { file: file.into(), why };
    let text = std::fs::read(file).map_err(|error| refuse(error.to_string()))?;
    Configuration::parse(&text).map_err(|error| refuse(error.to_string()))
}
