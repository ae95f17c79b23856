//! Which crate may use which. A new line here is a design change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Each crate and the crates of this workspace that it may use; `cluster` may use all.
const ALLOWED: [(&str, &[&str]); 21] = [
    ("value", &[]),
    ("go-regexp", &["value"]),
    ("cel", &["go-regexp", "value"]),
    ("object", &["cel", "go-regexp", "value"]),
    ("metrics", &[]),
    ("store", &[]),
    ("schemas", &["object"]),
    (
        "apiextensions",
        &["cel", "go-regexp", "object", "schemas", "value"],
    ),
    (
        "kinds",
        &["apiextensions", "cel", "object", "schemas", "value"],
    ),
    ("openapi", &["object", "value"]),
    ("registry", &["object", "store", "value"]),
    ("transport", &["value"]),
    (
        "apiserver",
        &[
            "apiextensions",
            "cel",
            "go-regexp",
            "metrics",
            "object",
            "openapi",
            "registry",
            "schemas",
            "transport",
            "value",
        ],
    ),
    (
        "encryption",
        &[
            "apiserver",
            "metrics",
            "object",
            "registry",
            "store",
            "value",
        ],
    ),
    (
        "controlplane",
        &[
            "apiserver",
            "kinds",
            "object",
            "registry",
            "transport",
            "value",
        ],
    ),
    ("sdk", &["metrics", "object", "value"]),
    ("bench", &["sdk"]),
    ("controllers", &["kinds", "object", "sdk", "value"]),
    (
        "scheduler",
        &["cel", "kinds", "object", "sdk", "transport", "value"],
    ),
    ("node", &["kinds", "object", "sdk", "value"]),
    (
        "metrics-server",
        &["apiserver", "controlplane", "object", "registry", "value"],
    ),
];

/// Crates that must not name a kind.
const KINDLESS: [&str; 6] = ["value", "go-regexp", "cel", "object", "store", "registry"];

/// Kubernetes: BannedOwners (apimachinery/pkg/api/validation/objectmeta.go) names Event.
const EXCEPTIONS: [(&str, &str); 1] = [("object/src/validate/meta.rs", "Event")];

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
    let kinds = built_in_kinds();
    assert!(kinds.len() > 60, "{kinds:?}");
    for name in KINDLESS {
        for file in sources(&directory().join(name).join("src")) {
            if file.ends_with("tests.rs") || file.iter().any(|part| part == "tests") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let lines = code.lines().enumerate();
            for (idx, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
                for literal in line
                    .split('"')
                    .skip(1)
                    .step_by(2)
                    .filter(|it| kinds.contains(*it))
                {
                    let excepted = EXCEPTIONS
                        .iter()
                        .any(|(path, kind)| file.ends_with(path) && literal == *kind);
                    assert!(excepted, "{}:{}: {line}", file.display(), idx + 1);
                }
            }
        }
    }
}

/// The names of the kinds in the data files of `schemas`.
fn built_in_kinds() -> BTreeSet<String> {
    let files = fs::read_dir(directory().join("schemas/data")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "kinds"));
    files
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let names = text.lines().filter_map(|line| line.strip_prefix("kind "));
            let names = names.filter_map(|rest| rest.split_whitespace().next());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
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

/// The crates of this workspace that a crate depends on, without dev-dependencies.
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
