//! `mizzen scheduler`: the scheduler alone, against any server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgAction, Args};
use mizzen_scheduler::{self as scheduler, Configuration};

use super::component::ComponentArgs;
use super::lead::{self, LeadError};
use super::unsupported::{KubeScheduler, Unsupported};
use crate::connect::connect;
use crate::election::Lease;
use crate::log::say;

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
    /// Work while holding the lease kube-system/kube-scheduler, so that of several one works; --leader-elect=false works without it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set, conflicts_with = "no_leader_elect")]
    leader_elect: bool,
    /// The same as --leader-elect=false
    #[arg(long)]
    no_leader_elect: bool,
    #[command(flatten)]
    component: ComponentArgs,
    #[command(flatten)]
    _unsupported: Unsupported<KubeScheduler>,
}

impl Scheduler {
    /// Works until told to stop.
    pub fn run(self) -> Result<(), LeadError> {
        self.component.init_log();
        lead::run(async {
            let file = self.config.clone().unwrap_or_default();
            let refuse = |why: String| LeadError::Configuration { file, why };
            let configuration = match &self.config {
                Some(file) => read(file).map_err(refuse.clone())?,
                None => Configuration::default(),
            };
            let client = connect(&self.kubeconfig, "kube-scheduler").await?;
            let lease = (self.leader_elect && !self.no_leader_elect).then(Lease::of_scheduler);
            let mut options = scheduler::Options::new(client.clone());
            options.configuration = Arc::new(configuration);
            lead::lead(client, lease, async {
                let handle = scheduler::start(options).map_err(|error| refuse(error.to_string()))?;
                handle.synced().await;
                say!("the scheduler is at work");
                std::future::pending().await
            })
            .await
        })
    }
}

/// What a file says; the error is what is wrong with it.
pub(super) fn read(file: &Path) -> Result<Configuration, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    Configuration::parse(&text).map_err(|error| error.to_string())
}
