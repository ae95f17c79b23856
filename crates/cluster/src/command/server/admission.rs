//! Which admission plug-ins run, and what they are told.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_apiserver::{Admission, PluginError, Plugins, TolerationSeconds};
use mizzen_object::in_one;

use super::refused;
use crate::compose::ComposeError;

/// The arguments of admission.
#[derive(Args, Clone)]
pub(crate) struct AdmissionArgs {
    /// Admission plug-ins to turn on, besides those that are on anyway
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Admission plug-ins to turn off
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// The seconds for which pods that do not say it tolerate nodes that are not ready
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true
    )]
    default_not_ready_toleration_seconds: i64,
    /// The seconds for which pods that do not say it tolerate nodes that are unreachable
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        allow_negative_numbers = true
    )]
    default_unreachable_toleration_seconds: i64,
    /// What admission plug-ins are told: an AdmissionConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
}

impl AdmissionArgs {
    /// `plugins` with those turned on and off that were asked for.
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
        match in_one(problems.iter().map(ToString::to_string)) {
            Some(problems) => Err(PluginError::Several(problems)),
            None => Ok(plugins),
        }
    }

    /// What they are told.
    pub(crate) fn configuration(&self) -> Result<Admission, ComposeError> {
        let toleration_seconds = TolerationSeconds {
            not_ready: self.default_not_ready_toleration_seconds,
            unreachable: self.default_unreachable_toleration_seconds,
        };
        let read = |file: &PathBuf| {
            let base = file.parent().unwrap_or(Path::new(""));
            let text = std::fs::read(file).map_err(|error| refused(file, error.to_string()))?;
            Admission::read(&text, base).map_err(|error| refused(file, error.to_string()))
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
