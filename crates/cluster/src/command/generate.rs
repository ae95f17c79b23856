//! `mizzen generate`: the manifests of an operator, and Rust types of CustomResourceDefinitions.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use clap::{Args, Subcommand};
use mizzen_crd_types::GenerateError;
use mizzen_scaffold::{Language, Project};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::CUSTOM_RESOURCE_DEFINITIONS;
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object, yaml};
use mizzen_value::Value;

use crate::connect::{self, ConnectError, connect};

/// Write the manifests of an operator, or Rust types of CustomResourceDefinitions
///
/// Without a subcommand: the manifests of the operator in this directory.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  mizzen generate\n  mizzen generate --check\n  kubectl apply -k config/default\n  \
                  mizzen generate rust --from-crd crontabs.yaml --output src/crontab.rs\n  \
                  mizzen generate rust --from-cluster crontabs.stable.example.com"
)]
pub(crate) struct Generate {
    #[command(subcommand)]
    subject: Option<GenerateSubject>,
    #[command(flatten)]
    manifests: ManifestArgs,
}

#[derive(Subcommand)]
enum GenerateSubject {
    /// Write CustomResourceDefinitions, roles, Deployment, webhooks, Kustomize bases and a Helm chart
    Manifests(ManifestArgs),
    /// Write Rust types for the objects of a CustomResourceDefinition
    Rust(RustArgs),
}

/// The arguments of the program `manifests` of an operator.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen generate manifests\n  kubectl apply -k config/overlays/development\n  \
                  helm install my-operator config/charts/my-operator --namespace my-operator-system --create-namespace"
)]
struct ManifestArgs {
    /// Write into this directory, relative to the operator's Cargo.toml [default: config]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Fail if the files are not current, and list the differences; change nothing
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  mizzen generate rust --from-crd crontabs.yaml --output src/crontab.rs\n  \
                  kubectl get crd crontabs.stable.example.com -o yaml | mizzen generate rust --from-crd -\n  \
                  mizzen generate rust --from-cluster crontabs.stable.example.com --version v1"
)]
struct RustArgs {
    /// Read the CustomResourceDefinition from this file of YAML or JSON; `-` is the standard input
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "from_cluster",
        conflicts_with = "from_cluster"
    )]
    from_crd: Option<PathBuf>,
    /// Read the CustomResourceDefinition from a cluster
    #[arg(long, requires = "name")]
    from_cluster: bool,
    /// Connect to the API server with this kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "from_cluster")]
    kubeconfig: Option<PathBuf>,
    /// The name of the CustomResourceDefinition; needed if a file has several
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Write the types of this version [default: the version in which objects are stored]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Write into this file [default: the standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerateCommandError {
    /// There is no project here.
    #[error(
        "no package here: {} and the directories above it have no Cargo.toml with [package]; \
         run it in the directory of an operator, or create one with mizzen init", .0.display()
    )]
    NoPackage(PathBuf),
    /// The project is not in Rust.
    #[error(
        "{} is a project in Python: its manifests are written by mizzen create, and edited by hand; \
         apply them with kubectl apply -k config", .0.display()
    )]
    Python(PathBuf),
    /// The project has no program of that name.
    #[error(
        "{} has no program `manifests`: add src/bin/manifests.rs with `Manifests::new(\"NAME\").main()`, \
         see mizzen_sdk::manifests", .0.display()
    )]
    NoProgram(PathBuf),
    /// Cargo cannot be started.
    #[error("cannot run cargo: {0}")]
    Cargo(#[source] io::Error),
    /// The program has failed; it has said why.
    #[error("cargo run --bin manifests: {0}")]
    Failed(ExitStatus),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no YAML.
    #[error("{}: {source}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Why.
        source: yaml::ReadError,
    },
    /// The file does not have the definition.
    #[error("{} has {found}; name one: mizzen generate rust --from-crd FILE NAME", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The definitions that it has.
        found: String,
    },
    /// There is no client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A request failed.
    #[error("request failed: {}", message(.0))]
    Request(kube::Error),
    /// The definition has no types.
    #[error(transparent)]
    Types(#[from] GenerateError),
    /// The process could not be set up, or its output is closed.
    #[error(transparent)]
    Process(io::Error),
}

impl Generate {
    /// Generates.
    pub(crate) fn run(self) -> Result<(), GenerateCommandError> {
        match self.subject {
            None => self.manifests.run(),
            Some(GenerateSubject::Manifests(manifests)) => manifests.run(),
            Some(GenerateSubject::Rust(rust)) => rust.run(),
        }
    }
}

impl ManifestArgs {
    /// Runs the program `manifests` of the package in this directory.
    fn run(self) -> Result<(), GenerateCommandError> {
        let here = std::env::current_dir().map_err(GenerateCommandError::Process)?;
        let package = package_directory(&here)?;
        let mut arguments = vec!["run", "--quiet", "--bin", "manifests", "--"];
        if self.check {
            arguments.push("--check");
        }
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(package);
        if let Some(output) = &self.output {
            command.arg("--output").arg(output);
        }
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(GenerateCommandError::Failed(status)),
            Err(error) => Err(GenerateCommandError::Cargo(error)),
        }
    }
}

/// The directory of the nearest package that has the program `manifests`.
fn package_directory(here: &Path) -> Result<PathBuf, GenerateCommandError> {
    let mut projects = here.ancestors().filter_map(|directory| {
        let text = std::fs::read_to_string(directory.join(Project::FILE)).ok()?;
        Some((directory, Project::parse(&text).ok()?))
    });
    if let Some((directory, project)) = projects.next()
        && project.language == Language::Python
    {
        return Err(GenerateCommandError::Python(directory.into()));
    }
    let mut manifests = here.ancestors().filter_map(|directory| {
        let text = std::fs::read_to_string(directory.join("Cargo.toml")).ok()?;
        text.contains("[package]").then_some((directory, text))
    });
    let (directory, text) = manifests
        .next()
        .ok_or_else(|| GenerateCommandError::NoPackage(here.into()))?;
    let bin = directory.join("src/bin");
    let has_program = bin.join("manifests.rs").exists()
        || bin.join("manifests/main.rs").exists()
        || text.contains("name = \"manifests\"");
    match has_program {
        true => Ok(directory.into()),
        false => Err(GenerateCommandError::NoProgram(
            directory.join("Cargo.toml"),
        )),
    }
}

impl RustArgs {
    fn run(self) -> Result<(), GenerateCommandError> {
        let definition = match &self.from_crd {
            Some(path) => self.read_definition(path)?,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(GenerateCommandError::Process)?
                .block_on(self.fetch_definition())?,
        };
        let code = mizzen_crd_types::generate(&definition, self.version.as_deref())?;
        match &self.output {
            Some(path) => std::fs::write(path, code).map_err(|source| failed(path, source)),
            None => io::stdout()
                .write_all(code.as_bytes())
                .map_err(GenerateCommandError::Process),
        }
    }

    /// The definition of the file: the one that is named, or the only one.
    fn read_definition(&self, path: &Path) -> Result<Value, GenerateCommandError> {
        let mut text = Vec::new();
        let read = match path.to_str() {
            Some("-") => io::stdin().read_to_end(&mut text).map(drop),
            _ => std::fs::read(path).map(|bytes| text = bytes),
        };
        read.map_err(|source| failed(path, source))?;
        let objects: Vec<Object> =
            yaml::read_all(&text).map_err(|source| GenerateCommandError::Yaml {
                path: path.into(),
                source,
            })?;
        let items = objects.iter().flat_map(|object| match &object["items"] {
            Value::List(items) => items.clone(),
            _ => vec![object.0.clone()],
        });
        let mut definitions: Vec<Value> = items
            .filter(|object| object["kind"].str() == "CustomResourceDefinition")
            .collect();
        if let Some(name) = &self.name {
            definitions.retain(|it| it.at("metadata.name").str() == name);
        }
        match definitions.len() {
            1 => Ok(definitions.remove(0)),
            n => {
                let names = definitions.iter().map(|it| it.at("metadata.name").str());
                let names: Vec<&str> = names.collect();
                let found = match (n, &self.name) {
                    (0, Some(name)) => format!("no CustomResourceDefinition {name}"),
                    (0, None) => "no CustomResourceDefinition".into(),
                    _ => format!("{n} CustomResourceDefinitions, {}", names.join(", ")),
                };
                Err(GenerateCommandError::Ambiguous {
                    path: path.into(),
                    found,
                })
            }
        }
    }

    /// The definition of the cluster.
    async fn fetch_definition(&self) -> Result<Value, GenerateCommandError> {
        let file = self
            .kubeconfig
            .clone()
            .unwrap_or_else(connect::default_file);
        let client = connect(&file, "mizzen-generate").await?;
        let name = self.name.as_deref().unwrap_or_default();
        let api = DynamicClient::new(client);
        let Object(definition) = api
            .get(&CUSTOM_RESOURCE_DEFINITIONS, &Key::cluster(name))
            .await
            .map_err(GenerateCommandError::Request)?;
        Ok(definition)
    }
}

fn failed(path: &Path, source: io::Error) -> GenerateCommandError {
    GenerateCommandError::File {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let here = directory.path().join("operator/src");
        std::fs::create_dir_all(&here).unwrap();
        let found = match package_directory(&here) {
            Ok(package) => package.display().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn the_package_is_the_nearest_one_with_a_program() {
        let package = ("operator/Cargo.toml", "[package]\nname = \"operator\"\n");
        let program = ("operator/src/bin/manifests.rs", "");
        check(&[package, program], "/operator");
        check(&[package], "Cargo.toml has no program `manifests`");
        check(
            &[("Cargo.toml", "[workspace]\n"), program],
            "no package here",
        );
        check(
            &[(
                "operator/Cargo.toml",
                "[package]\n[[bin]]\nname = \"manifests\"\n",
            )],
            "/operator",
        );
    }

    #[test]
    fn a_project_in_python_has_manifests_that_are_edited() {
        let sdk = mizzen_scaffold::SdkSource::Version("0.1.0".into());
        let project = Project::new("operator", "example.com", Language::Python, sdk).unwrap();
        let project = project.to_text();
        let files = [
            ("Cargo.toml", "[package]\n"),
            ("operator/PROJECT", &*project),
        ];
        check(&files, "/operator is a project in Python");
    }
}
