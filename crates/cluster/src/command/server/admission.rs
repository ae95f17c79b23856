//! The admission plug-ins and their configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_controlplane::{Admission, PluginError, Plugins, TolerationSeconds};
use mizzen_object::aggregate;

use super::invalid_file;
use crate::compose::ComposeError;

/// The arguments of admission.
#[derive(Args, Clone)]
pub(crate) struct AdmissionArgs {
    /// Enable these admission plug-ins besides the default ones
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Disable these admission plug-ins
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Add a toleration of not-ready nodes for this many seconds to pods without one
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true
    )]
    default_not_ready_toleration_seconds: i64,
    /// Add a toleration of unreachable nodes for this many seconds to pods without one
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true
    )]
    default_unreachable_toleration_seconds: i64,
    /// Configure admission plug-ins by this AdmissionConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
}

impl AdmissionArgs {
    /// `plugins` with the enabled and disabled ones.
    pub(crate) fn plugins(&self, mut plugins: Plugins) -> Result<Plugins, PluginError> {
        let is_disabled = |name: &&String| self.disable_admission_plugins.contains(name);
        let both: Vec<String> = self
            .enable_admission_plugins
            .iter()
            .filter(is_disabled)
            .cloned()
            .collect();
        let overlap = PluginError::Overlap {
            names: both.join(" "),
        };
        let mut problems = Vec::new();
        for name in &self.enable_admission_plugins {
            problems.extend(plugins.enable(name).err());
        }
        for name in &self.disable_admission_plugins {
            problems.extend(plugins.disable(name).err());
        }
        problems.extend((!both.is_empty()).then_some(overlap));
        match aggregate(problems.iter().map(ToString::to_string)) {
            Some(problems) => Err(PluginError::Several(problems)),
            None => Ok(plugins),
        }
    }

    /// The configuration of plug-ins.
    pub(crate) fn configuration(&self) -> Result<Admission, ComposeError> {
        let toleration_seconds = TolerationSeconds {
            not_ready: self.default_not_ready_toleration_seconds,
            unreachable: self.default_unreachable_toleration_seconds,
        };
        let read = |file: &PathBuf| {
            let base = file.parent().unwrap_or(Path::new(""));
            let text =
                std::fs::read(file).map_err(|error| invalid_file(file, error.to_string()))?;
            Admission::read(&text, base).map_err(|error| invalid_file(file, error.to_string()))
        };
        let admission = self
            .admission_control_config_file
            .as_ref()
            .map(read)
            .transpose()?;
        Ok(Admission {
            toleration_seconds,
            ..admission.unwrap_or_default()
        })
    }
}
