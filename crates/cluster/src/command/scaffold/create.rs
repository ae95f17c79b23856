//! `mizzen create`: a kind, webhooks or a version for a project.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mizzen_scaffold::{Api, Language, Project, Webhooks};

use super::{ScaffoldError, WriteArgs, read_project};
use crate::log::write_output;

/// Add a kind, webhooks or a version to an operator that `mizzen init` made
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen create api --group shop --version v1alpha1 --kind Oven --namespaced --controller\n  \
    mizzen create webhook --group shop --kind Oven --defaulting --validating\n  \
    mizzen create version --group shop --kind Oven --version v1"
)]
pub(crate) struct Create {
    #[command(subcommand)]
    command: CreateCommand,
}

#[derive(Subcommand)]
enum CreateCommand {
    /// Add a kind, with its controller and tests
    Api(CreateApi),
    /// Add webhooks of a kind, with tests
    Webhook(CreateWebhook),
    /// Add a version of a kind, with the conversion and its test
    Version(CreateVersion),
}

/// Which kind of which project.
#[derive(Args)]
struct KindArgs {
    /// The first label of the API group; the domain of the project is appended
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// The kind, in CamelCase
    #[arg(long, value_name = "KIND")]
    kind: String,
    /// The directory of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

/// Add a kind: its type, and with --controller a controller that is tested with random faults
#[derive(Args)]
#[command(after_help = "Example:\n  \
                        mizzen create api --group shop --version v1alpha1 --kind Oven --namespaced --controller")]
struct CreateApi {
    #[command(flatten)]
    of: KindArgs,
    /// The version
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// The name of the resource [default: the English plural of the kind]
    #[arg(long, value_name = "PLURAL")]
    plural: Option<String>,
    /// Put objects into namespaces; without it the kind is cluster-scoped
    #[arg(long)]
    namespaced: bool,
    /// Add a controller
    #[arg(long)]
    controller: bool,
}

/// Add webhooks of a kind: functions over its type, served by the operator with certificates of its own
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen create webhook --group shop --kind Oven --defaulting --validating"
)]
struct CreateWebhook {
    #[command(flatten)]
    of: KindArgs,
    /// Add a webhook that fills in defaults
    #[arg(long)]
    defaulting: bool,
    /// Add a webhook that validates
    #[arg(long)]
    validating: bool,
    /// Check that versions are converted; `mizzen create version` adds a version with its conversion
    #[arg(long)]
    conversion: bool,
}

/// Add a version of a kind. It begins as a copy of the storage version, and is converted to it and back
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen create version --group shop --kind Oven --version v1 --storage"
)]
struct CreateVersion {
    #[command(flatten)]
    of: KindArgs,
    /// The version
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// Store objects in this version, and convert the other ones to it
    #[arg(long)]
    storage: bool,
}

impl Create {
    /// Writes the project with the addition.
    pub(crate) fn run(self) -> Result<(), ScaffoldError> {
        match self.command {
            CreateCommand::Api(api) => api.run(),
            CreateCommand::Webhook(webhook) => webhook.run(),
            CreateCommand::Version(version) => version.run(),
        }
    }
}

impl KindArgs {
    fn read(&self) -> Result<Project, ScaffoldError> {
        let project = read_project(&self.project)?;
        project.ok_or_else(|| ScaffoldError::NoProject(self.project.clone()))
    }

    fn write(&self, project: &Project) -> Result<(), ScaffoldError> {
        self.write.write(&self.project, project)?;
        if project.language == Language::Rust && !self.write.dry_run {
            write_output(format_args!("next: mizzen generate, cargo test"));
        }
        Ok(())
    }
}

impl CreateApi {
    fn run(self) -> Result<(), ScaffoldError> {
        let mut project = self.of.read()?;
        project.add_api(&Api {
            group: self.of.group.clone(),
            version: self.version,
            kind: self.of.kind.clone(),
            plural: self.plural,
            is_namespaced: self.namespaced,
            has_controller: self.controller,
        })?;
        self.of.write(&project)
    }
}

impl CreateWebhook {
    fn run(self) -> Result<(), ScaffoldError> {
        if !(self.defaulting || self.validating || self.conversion) {
            return Err(ScaffoldError::NoWebhook);
        }
        let mut project = self.of.read()?;
        let webhooks = Webhooks {
            is_defaulting: self.defaulting,
            is_validating: self.validating,
        };
        project.add_webhooks(&self.of.group, &self.of.kind, webhooks)?;
        if self.conversion {
            project.check_conversion(&self.of.group, &self.of.kind)?;
        }
        self.of.write(&project)
    }
}

impl CreateVersion {
    fn run(self) -> Result<(), ScaffoldError> {
        let mut project = self.of.read()?;
        project.add_version(&self.of.group, &self.of.kind, &self.version, self.storage)?;
        self.of.write(&project)
    }
}
