//! Projects in directories: what is written, and what is left alone.

mod changes;
mod edits;
mod example;
mod python;
mod versions;

use std::path::{Path, PathBuf};

use mizzen_scaffold::{Api, Language, Plan, PlanError, Project, SdkSource};

/// The root of the repository.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in `crates`")
}

/// A project without kinds.
fn project() -> Project {
    let sdk = SdkSource::Version("0.1.0".into());
    Project::new("shop-operator", "example.com", Language::Rust, sdk).unwrap()
}

/// A namespaced kind with a controller.
fn api(kind: &str) -> Api {
    Api {
        group: "shop".into(),
        version: "v1alpha1".into(),
        kind: kind.into(),
        plural: None,
        is_namespaced: true,
        has_controller: true,
    }
}

/// A directory with a project.
struct Directory {
    home: tempfile::TempDir,
}

impl Directory {
    /// With this project in it.
    fn with(project: &Project) -> Directory {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory { home };
        directory.write(project).unwrap();
        directory
    }

    fn write(&self, project: &Project) -> Result<(), PlanError> {
        self.plan(project).write(Default::default())
    }

    fn plan(&self, project: &Project) -> Plan {
        Plan::new(self.home.path(), project).unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    #[track_caller]
    fn read(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.path(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Replaces a part of a file.
    #[track_caller]
    fn edit(&self, path: &str, old: &str, new: &str) {
        let text = self.read(path);
        assert!(text.contains(old), "{path} has no {old:?}");
        std::fs::write(self.path(path), text.replace(old, new)).unwrap();
    }

    /// All files and their texts.
    fn all(&self) -> Vec<(PathBuf, String)> {
        let mut waiting = vec![self.home.path().to_owned()];
        let mut files = Vec::new();
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => waiting.push(path),
                    false => files.push((path.clone(), std::fs::read_to_string(path).unwrap())),
                }
            }
        }
        files.sort();
        files
    }
}
