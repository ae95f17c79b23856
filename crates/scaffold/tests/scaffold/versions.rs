//! Do projects use the versions of this workspace?

use std::collections::BTreeMap;

use crate::{project, root};

/// The version of each dependency in a section of a manifest.
fn versions(manifest: &str, section: &str) -> BTreeMap<String, String> {
    let sections = manifest.split("\n[");
    let lines = sections
        .filter(|it| it.starts_with(section))
        .flat_map(str::lines);
    let version = |line: &str| -> Option<(String, String)> {
        let (name, value) = line.split_once(" = ")?;
        let value = value
            .split_once("version = ")
            .map_or(value, |(_, version)| version);
        let version = value.strip_prefix('"')?.split('"').next()?;
        Some((name.to_owned(), version.to_owned()))
    };
    lines.filter_map(version).collect()
}

#[test]
fn a_project_has_the_dependencies_of_the_workspace() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let expected = versions(&workspace, "workspace.dependencies]");
    let files = project().files();
    let manifest = &files["Cargo.toml"];
    let used = versions(manifest, "dependencies]");
    assert!(used.len() >= 9, "{used:?}");
    for (name, version) in used
        .into_iter()
        .chain(versions(manifest, "dev-dependencies]"))
    {
        assert_eq!(expected.get(&name), Some(&version), "{name}");
    }
    let package = versions(&workspace, "workspace.package]");
    for field in ["edition", "rust-version"] {
        let line = format!("{field} = \"{}\"\n", package[field]);
        assert!(manifest.contains(&line), "no {line}");
    }
}
