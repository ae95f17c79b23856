//! Every field that the sources name must exist.
//!
//! Controllers, scheduler, node and hooks read and write objects as values: `pod["spec"]["nodeName"]`. A misspelled name is
//! null at run time, and nothing else. So each chain of literal names is looked up in the schemas of the built-in kinds: it
//! must be a path that begins at some type, and at a type of the receiver where the receiver's name says what it is. What is
//! no API object is listed in `allowed`, with the reason.

mod allowed;
mod chains;
mod lexer;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use allowed::Exceptions;
use chains::{Chain, chains};
use schema::Schema;

/// The folders below `crates` whose sources read objects by literal names.
const SOURCES: [&str; 12] = [
    "apiextensions/src",
    "apiserver/src/admission",
    "component-helpers/src",
    "controllers/src",
    "controlplane/src/admission",
    "controlplane/src/service",
    "core-kinds/src",
    "kinds/src",
    "node/src",
    "printers/src",
    "scheduler/src",
    "workloads/src",
];

#[test]
fn every_field_that_the_sources_name_exists() {
    let (mut unknown, mut n_names) = (Vec::new(), 0);
    let (schema, mut exceptions) = (Schema::new(), Exceptions::default());
    for (file, chain) in all_chains() {
        n_names += chain.steps.len();
        if !schema.has(&chain) && !exceptions.cover(&file, &chain) {
            unknown.push(format!("{file}:{}: {chain}", chain.line));
        }
    }
    assert!(n_names > 7000, "only {n_names} names were found");
    let list = unknown.join("\n");
    assert!(unknown.is_empty(), "no kind has these fields:\n{list}");
    assert_eq!(
        exceptions.unused(),
        [""; 0],
        "exceptions that nothing needs"
    );
}

/// Every chain of the sources, with its file.
fn all_chains() -> Vec<(String, Chain)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for path in SOURCES
        .iter()
        .flat_map(|folder| files(&crates.join(folder)))
    {
        let file = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        all.extend(
            chains(&text)
                .into_iter()
                .map(|chain| (file.to_owned(), chain)),
        );
    }
    all
}

/// The sources below a folder, without those that only tests compile.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = ["tests", "samples", "sample"]
            .iter()
            .any(|name| path.file_stem().is_some_and(|stem| stem == *name));
        match path.is_dir() {
            _ if is_test => {}
            true => found.extend(files(&path)),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                found.push(path)
            }
            false => {}
        }
    }
    found.sort();
    found
}

/// The chains of a snippet that lead nowhere.
#[track_caller]
fn check(source: &str, expected: &[&str]) {
    let schema = Schema::new();
    let unknown: Vec<String> = chains(source)
        .into_iter()
        .filter(|chain| !schema.has(chain))
        .map(|chain| chain.to_string())
        .collect();
    assert_eq!(unknown, expected, "{source}");
}

#[test]
fn a_misspelled_field_is_found() {
    check(r#"object["spec"]["nodeName"].str()"#, &[]);
    check(r#"object["spec"]["nodName"].str()"#, &["spec.nodName"]);
    check(r#"object["sepc"]["nodeName"].str()"#, &["sepc.nodeName"]);
    check(r#"object["status"]["replcas"].int()"#, &["status.replcas"]);
    check(r#"status["lastTransitonTime"]"#, &["lastTransitonTime"]);
}

#[test]
fn a_field_of_another_place_is_found() {
    check(
        r#"object["spec"]["lastTransitionTime"]"#,
        &["spec.lastTransitionTime"],
    );
    check(
        r#"object["metadata"]["name"]["first"]"#,
        &["metadata.name.first"],
    );
    check(r#"object["spec"]["replicas"]"#, &[]);
    check(r#"pod["spec"]["replicas"]"#, &["spec.replicas"]);
    check(r#"node["spec"]["nodeName"]"#, &["spec.nodeName"]);
    check(r#"node["spec"]["taints"][0]["effect"]"#, &[]);
}

#[test]
fn every_form_of_a_look_up_is_read() {
    check(r#"set.at("spec.template.spec")"#, &[]);
    check(r#"set.at("spec.templat.spec")"#, &["spec.templat.spec"]);
    check(r#"pod.entry("spec").entry("tolerations").make_list()"#, &[]);
    check(
        r#"pod.entry("spec").entry("toleration").make_list()"#,
        &["spec.toleration"],
    );
    check(r#"pod["status"].get("phas")"#, &["status.phas"]);
    check(r#"pod.entry("status").set("phase", "Failed")"#, &[]);
    check(
        r#"pod.entry("status").set("phse", "Failed")"#,
        &["status.phse"],
    );
    check(r#"status.remove("nominatedNode")"#, &["nominatedNode"]);
    check(r#"pod["status"]["podIPs"][0]["ip"]"#, &[]);
    check(
        r#"pod["status"]["podIPs"][0]["ipp"]"#,
        &["status.podIPs.0.ipp"],
    );
    check(r#"pod["spec"][list][at]["name"]"#, &[]);
    check(
        r#"pod["spec"]["containers"][at]["nmae"]"#,
        &["spec.containers.*.nmae"],
    );
    check(r#"claim.get("spec")?["volumeNam"]"#, &["spec.volumeNam"]);
    check(
        "pod\n        [\"spec\"]\n        [\"nodName\"]",
        &["spec.nodName"],
    );
    check(
        r#"status.set("phase", &pod["spec"]["nodName"])"#,
        &["spec.nodName"],
    );
}

#[test]
fn every_field_of_a_literal_object_is_read() {
    check(
        r#"value!({"metadata": {"uid": (pod.uid())}, "status": status})"#,
        &[],
    );
    check(r#"value!({"metadata": {"uuid": 1}})"#, &["metadata.uuid"]);
    check(
        r#"value!({"status": {"conditions": [{"type": "A", "reson": "B"}]}})"#,
        &["status.conditions.0.reson"],
    );
    check(r#"value!({"spec": (f(&pod["sepc"]))})"#, &["sepc"]);
}

#[test]
fn what_is_no_look_up_is_not_read() {
    check(r#"for list in ["containrs"] {}"#, &[]);
    check(r#"let lists = ["containrs"]; f(&["containrs"])"#, &[]);
    check(
        "// pod[\"sepc\"]\n/* pod[\"sepc\"] */ 'a' '\\'' r#\"pod[\"sepc\"]\"#",
        &[],
    );
    check("#[cfg(test)]\nmod tests { fn f() { pod[\"sepc\"] } }", &[]);
    check(r#"node["metadata"]["labels"]["anything"]"#, &[]);
    check(r#"labels["example.com/anything"]"#, &[]);
    check(r#"value!({"$patch": "delete", "spec": {}})"#, &[]);
}
