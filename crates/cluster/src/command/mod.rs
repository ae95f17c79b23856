//! The subcommands, and what they have in common.

mod apiserver;
mod controllers;
mod kubeconfig;
mod lead;
mod node;
mod scheduler;
mod up;

pub use apiserver::Apiserver;
pub use controllers::Controllers;
pub use kubeconfig::Kubeconfig;
pub use node::Node;
pub use scheduler::Scheduler;
pub use up::Up;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use mizzen_apiserver::{PluginError, Plugins};

/// Where and how a server runs.
#[derive(Args, Clone)]
pub struct ServerArgs {
    /// Keep everything in this directory [default: ~/.local/share/mizzen]
    #[arg(long, value_name = "DIR", conflicts_with = "in_memory")]
    pub data_dir: Option<PathBuf>,
    /// Keep everything in memory; it is gone when the server stops
    #[arg(long)]
    pub in_memory: bool,
    /// The port to listen on; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub port: u16,
    /// The address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// Write the admin's kubeconfig here [default: admin.kubeconfig in the data directory, or
    /// mizzen.kubeconfig in this directory with --in-memory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve versions that Kubernetes has removed, for old charts and tutorials: Ingress, CronJob,
    /// PodDisruptionBudget, RBAC, CustomResourceDefinition, webhook configurations and APIService as v1beta1
    #[arg(long)]
    pub legacy_apis: bool,
    /// Let in whoever shows a token of this file; a line is: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Let in whoever shows a token that is kept as a secret of the type bootstrap.kubernetes.io/token
    #[arg(long)]
    pub enable_bootstrap_token_auth: bool,
    /// Admission plug-ins to turn on, besides those that are on anyway
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plug-ins to turn off
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// What admission plug-ins are told: an AdmissionConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
}

impl ServerArgs {
    /// The directory to keep everything in; none for memory.
    pub fn directory(&self) -> Option<PathBuf> {
        if self.in_memory {
            return None;
        }
        Some(self.data_dir.clone().unwrap_or_else(default_directory))
    }

    /// `plugins` with those turned on and off that were asked for.
    pub fn plugins(&self, mut plugins: Plugins) -> Result<Plugins, PluginError> {
        self.enable_admission_plugins.iter().try_for_each(|name| plugins.enable(name))?;
        self.disable_admission_plugins.iter().try_for_each(|name| plugins.disable(name))?;
        Ok(plugins)
    }

    /// Where the kubeconfig goes.
    pub fn kubeconfig(&self) -> PathBuf {
        match (&self.kubeconfig, self.directory()) {
            (Some(file), _) => file.clone(),
            (None, Some(directory)) => directory.join("admin.kubeconfig"),
            (None, None) => "mizzen.kubeconfig".into(),
        }
    }
}

/// `$XDG_DATA_HOME/mizzen`, or its default.
fn default_directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    data.unwrap_or_else(|| ".".into()).join("mizzen")
}
