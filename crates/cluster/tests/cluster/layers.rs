//! Which crate may use which. A new line here is a design change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Each crate and the crates of this workspace that it may use; `cluster` and `testing` may use all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("value", &[]),
    ("go-regexp", &["value"]),
    ("cel", &["go-regexp", "value"]),
    ("object", &["cel", "go-regexp", "value"]),
    ("metrics", &[]),
    ("file-watcher", &[]),
    ("store", &[]),
    ("cri", &["value"]),
    ("etcd", &["metrics", "store", "transport", "value"]),
    ("linearizability", &[]),
    ("schemas", &["object"]),
    (
        "apiextensions",
        &["cel", "go-regexp", "object", "schemas", "value"],
    ),
    ("component-helpers", &["object", "value"]),
    ("printers", &["component-helpers", "object", "value"]),
    (
        "core-kinds",
        &["apiextensions", "component-helpers", "object", "value"],
    ),
    (
        "kinds",
        &[
            "apiextensions",
            "cel",
            "component-helpers",
            "core-kinds",
            "object",
            "printers",
            "schemas",
            "value",
        ],
    ),
    ("openapi", &["object", "value"]),
    ("registry", &["object", "store", "value"]),
    ("transport", &["value"]),
    ("request", &["object", "value"]),
    ("outgoing", &["object", "registry", "transport", "value"]),
    (
        "authentication",
        &[
            "cel",
            "metrics",
            "object",
            "outgoing",
            "registry",
            "request",
            "transport",
            "value",
        ],
    ),
    (
        "authorization",
        &[
            "apiextensions",
            "authentication",
            "cel",
            "metrics",
            "object",
            "outgoing",
            "registry",
            "request",
            "value",
        ],
    ),
    (
        "audit",
        &[
            "metrics", "object", "outgoing", "registry", "request", "value",
        ],
    ),
    (
        "flowcontrol",
        &["metrics", "object", "registry", "request", "value"],
    ),
    (
        "serving",
        &["metrics", "object", "registry", "request", "value"],
    ),
    (
        "apiserver",
        &[
            "apiextensions",
            "audit",
            "authentication",
            "authorization",
            "cel",
            "file-watcher",
            "flowcontrol",
            "go-regexp",
            "metrics",
            "object",
            "openapi",
            "outgoing",
            "registry",
            "request",
            "schemas",
            "serving",
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
            "authentication",
            "authorization",
            "component-helpers",
            "core-kinds",
            "kinds",
            "metrics",
            "object",
            "outgoing",
            "registry",
            "transport",
            "value",
        ],
    ),
    ("sdk-derive", &[]),
    ("crd-types", &["value"]),
    (
        "sdk",
        &["file-watcher", "metrics", "object", "sdk-derive", "value"],
    ),
    ("scaffold", &["value"]),
    ("bench", &["sdk"]),
    (
        "workloads",
        &["component-helpers", "object", "sdk", "value"],
    ),
    (
        "controllers",
        &[
            "apiextensions",
            "component-helpers",
            "object",
            "schemas",
            "sdk",
            "value",
            "workloads",
        ],
    ),
    (
        "scheduler",
        &[
            "cel",
            "component-helpers",
            "object",
            "sdk",
            "transport",
            "value",
        ],
    ),
    (
        "node",
        &[
            "component-helpers",
            "cri",
            "object",
            "sdk",
            "transport",
            "value",
        ],
    ),
    (
        "bootstrap",
        &[
            "apiserver",
            "authentication",
            "authorization",
            "controllers",
            "controlplane",
            "encryption",
            "object",
            "registry",
            "value",
        ],
    ),
    (
        "metrics-server",
        &["apiserver", "controlplane", "object", "registry", "value"],
    ),
];

/// The crates that compose a control plane.
const COMPOSERS: [&str; 2] = ["cluster", "testing"];

/// Crates that must not name a kind.
const KINDLESS: [&str; 6] = ["value", "go-regexp", "cel", "object", "store", "registry"];

/// Kubernetes: BannedOwners (apimachinery/pkg/api/validation/objectmeta.go) names Event.
const EXCEPTIONS: [(&str, &str); 1] = [("object/src/validate/meta.rs", "Event")];

#[test]
fn crates_use_only_what_the_design_allows() {
    for name in crates() {
        let Some((_, allowed)) = ALLOWED.iter().find(|rule| rule.0 == name) else {
            assert!(COMPOSERS.contains(&name.as_str()), "{name} has no rule");
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
    let mut sections = workspace.split("\n[");
    let dependencies = sections.find(|section| section.starts_with("workspace.dependencies]"));
    let lines = dependencies.unwrap().lines();
    for line in lines.filter(|line| line.starts_with("mizzen-")) {
        assert!(line.contains("version = "), "{line}");
    }
}

#[test]
fn the_request_path_is_optimized_for_speed() {
    // What the API server uses once, or only for documents and calls to other servers.
    let for_size = ["openapi", "schemas", "transport"];
    let workspace = fs::read_to_string(directory().parent().unwrap().join("Cargo.toml")).unwrap();
    let mut waiting = vec!["apiserver".to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if seen.insert(name.clone()) {
            let line = format!("\nmizzen-{name}.opt-level = 3\n");
            let is_fast = workspace.contains(&line);
            assert!(is_fast || for_size.contains(&&*name), "no{line}");
            waiting.extend(dependencies(&name));
        }
    }
}

#[test]
fn sources_include_only_files_of_their_package() {
    for name in crates() {
        let root = directory().join(&name);
        for file in sources(&root.join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let included = ["include_str!(", "include_bytes!("]
                .iter()
                .flat_map(|call| text.split(call).skip(1));
            let paths = included.filter_map(|rest| rest.trim_start().strip_prefix('"'));
            let depth = file.strip_prefix(&root).unwrap().components().count() - 1;
            for path in paths.map(|rest| rest.split('"').next().unwrap()) {
                let ups = path.matches("../").count();
                assert!(ups <= depth, "{}: {path}", file.display());
            }
        }
    }
}

#[test]
fn the_documentation_of_a_library_has_an_example() {
    for name in crates() {
        let Ok(text) = fs::read_to_string(directory().join(&name).join("src/lib.rs")) else {
            continue;
        };
        let mut documentation = text.lines().take_while(|line| line.starts_with("//!"));
        let has_example = documentation.any(|line| line.starts_with("//! ```"));
        assert!(has_example, "the documentation of {name} has no example");
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

/// The crates that do no I/O and read no clock.
const PURE: [&str; 4] = ["value", "go-regexp", "cel", "object"];

/// What I/O, clocks, tasks and randomness are called.
const IMPURE: [&str; 10] = [
    "std::fs",
    "std::env",
    "std::process",
    "TcpStream",
    "UdpSocket",
    "SystemTime::now",
    "Instant::now",
    "getrandom",
    "thread::spawn",
    "tokio",
];

/// The lines of code below a directory that contain one of these words, without tests and comments.
fn lines_with(directory: &Path, words: &[&str]) -> Vec<String> {
    let files = sources(directory).into_iter();
    let files = files.filter(|file| {
        !file
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
    });
    files
        .flat_map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let found = lines.filter(|line| words.iter().any(|word| line.contains(word)));
            let found = found.map(|line| format!("{}: {line}", file.display()));
            found.collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn values_expressions_and_objects_are_pure() {
    for name in PURE {
        let found = lines_with(&directory().join(name).join("src"), &IMPURE);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn the_pod_worker_is_pure() {
    let impure = [&IMPURE[..], &["async ", ".await", "Api"]].concat();
    for part in ["pod", "script", "shell", "status"] {
        let found = lines_with(&directory().join("node/src").join(part), &impure);
        assert!(found.is_empty(), "{found:#?}");
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
