//! `mizzen init`: a new project.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mizzen_scaffold::{Language, Project, SdkSource};

use super::{ScaffoldError, WriteArgs, read_project, sdk};
use crate::log::write_output;

/// Make the directory of a new operator: sources that build, tests that pass, a Dockerfile, a README
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen init --domain example.com --name shop-operator\n  cd shop-operator\n  \
                  mizzen create api --group shop --version v1alpha1 --kind Oven --namespaced --controller\n  cargo test\n\n\
                  A second run changes only files that are as they were generated. If an edited one should change, nothing is \
                  written, and the difference is printed"
)]
pub(crate) struct Init {
    /// End API groups with this domain
    #[arg(long, value_name = "DOMAIN")]
    domain: String,
    /// Make this directory; also the name of the program and of its Deployment
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Write the operator in this language
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    language: LanguageName,
    /// Depend on mizzen-sdk of the checkout in this directory [default: $MIZZEN_SDK_PATH, or the checkout that this program
    /// was built in, or else the released version]
    #[arg(long, value_name = "DIR")]
    sdk_path: Option<PathBuf>,
    /// Write a member of the cargo workspace around the directory, and not a workspace of its own
    #[arg(long)]
    workspace_member: bool,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum LanguageName {
    /// A cargo project on mizzen-sdk
    Rust,
    /// A package on kopf
    Python,
}

impl Init {
    /// Writes the project.
    pub(crate) fn run(self) -> Result<(), ScaffoldError> {
        let directory = PathBuf::from(&self.name);
        let language = match self.language {
            LanguageName::Rust => Language::Rust,
            LanguageName::Python => Language::Python,
        };
        let chooses_sdk = self.sdk_path.is_some();
        let sdk = sdk::find(self.sdk_path)?;
        let mut project = Project::new(&self.name, &self.domain, language, sdk)?;
        project.is_workspace_member = self.workspace_member;
        if let Some(existing) = read_project(&directory)? {
            let settings = |project: &Project| {
                format!(
                    "domain {} and language {:?}",
                    project.domain, project.language
                )
            };
            let (is, asked) = (settings(&existing), settings(&project));
            if is != asked {
                let error = ScaffoldError::Differs {
                    directory,
                    is,
                    asked,
                };
                return Err(error);
            }
            project.kinds = existing.kinds;
            project.is_workspace_member |= existing.is_workspace_member;
            if !chooses_sdk {
                project.sdk = existing.sdk;
            }
        }
        self.write.write(&directory, &project)?;
        if language == Language::Rust {
            match &project.sdk {
                SdkSource::Path(path) => {
                    write_output(format_args!("mizzen-sdk is that of the checkout {path}"));
                }
                SdkSource::Version(version) => {
                    write_output(format_args!("mizzen-sdk is the release {version}"));
                }
            }
        }
        if project.kinds.is_empty() && !self.write.dry_run {
            let name = &self.name;
            write_output(format_args!(
                "next: cd {name} && mizzen create api --group … --version v1alpha1 --kind … --namespaced --controller"
            ));
        }
        Ok(())
    }
}
