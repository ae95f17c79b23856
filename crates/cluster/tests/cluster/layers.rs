//! Which crate may use which. A new line here is a design change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Each crate and the crates of ours that it may use; `cluster` may use all.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("object", &[]),
    ("metrics", &[]),
    ("store", &[]),
    ("kinds", &["object"]),
    ("registry", &["object", "store"]),
    ("transport", &["object"]),
    (
        "apiserver",
        &["kinds", "metrics", "object", "registry", "transport"],
    ),
    ("sdk", &["metrics", "object"]),
    ("controllers", &["kinds", "object", "sdk"]),
    ("scheduler", &["kinds", "object", "sdk", "transport"]),
    ("node", &["kinds", "object", "sdk"]),
    ("metrics-server", &["apiserver", "object", "registry"]),
];

#[test]
fn crates_use_only_what_the_design_allows() {
    for name in crates() {
        let Some((_, allowed)) = ALLOWED.iter().find(|rule| rule.0 == name) else {
            assert_eq!(name, "cluster", "{name} has no rule");
            continue;
        };
        let used = dependencies(&name);
        let surplus: Vec<_> = used
            .iter()
            .filter(|used| !allowed.contains(&used.as_str()))
            .collect();
        assert!(surplus.is_empty(), "{name} may not use {surplus:?}");
    }
}

#[test]
fn crates_have_the_metadata_that_packaging_needs() {
    for name in crates() {
        let text = fs::read_to_string(directory().join(&name).join("Cargo.toml")).unwrap();
        let package = text.split("\n[").next().unwrap();
        for field in [
            "description = ",
            "keywords = ",
            "categories = ",
            "readme = ",
            "license.workspace = ",
            "repository.workspace = ",
        ] {
            let has_field = package.lines().any(|line| line.starts_with(field));
            assert!(has_field, "{name} has no {field}");
        }
    }
    let workspace = fs::read_to_string(directory().parent().unwrap().join("Cargo.toml")).unwrap();
    for line in workspace.lines().filter(|line| line.starts_with("mizzen-")) {
        assert!(line.contains("version = "), "{line}");
    }
}

#[test]
fn the_engine_spells_no_kind() {
    for name in ["store", "object", "registry"] {
        for file in sources(&directory().join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (number, line) in code.lines().enumerate() {
                let spelled = line.contains("\"Pod\"") && !line.trim_start().starts_with("//");
                assert!(!spelled, "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn crates() -> BTreeSet<String> {
    let entries = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.path().join("Cargo.toml").exists());
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// The crates of ours that a crate needs. Its tests may need more: clients are tested against the real server.
fn dependencies(name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(directory().join(name).join("Cargo.toml")).unwrap();
    let sections = text
        .split("\n[")
        .filter(|section| !section.starts_with("dev-dependencies]"));
    let names = sections
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("mizzen-"));
    names
        .map(|rest| rest.split(['.', ' ', '=']).next().unwrap().to_owned())
        .collect()
}

fn sources(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(sources(&path)),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                files.push(path)
            }
            false => {}
        }
    }
    files
}
