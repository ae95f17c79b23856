//! Does `docs/annotations.md` have every annotation, label, taint and finalizer that the sources name?
//!
//! The page is generated from `annotations.table` and from the sources, which say where a name is used. A name in the sources
//! that is neither in the table nor in [`NOT_METADATA`] fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{check_generated, files, root};

const INTRODUCTION: &str = "\
# Annotations, labels, taints

The names with a meaning for Mizzen: what it reads, and what it writes. All but those of `mizzen.dev` are Kubernetes', with
Kubernetes' meaning. A name that ends with `/` is a prefix. The last column has the crates that use it. This page is
generated from `crates/cluster/tests/cluster/handbook/annotations.table`, and a test finds names that are missing.
";

/// The sections of the page: headings, and a row per name with the objects that have it and its meaning.
const TABLE: &str = include_str!("annotations.table");

/// Names in the sources that are no key of metadata: resources, types of Secrets, signers, volume plug-ins, managers, quota.
const NOT_METADATA: &[&str] = &[
    "networking.k8s.io/ingresses",
    ".deviceclass.resource.k8s.io/devices",
    ".storageclass.storage.k8s.io/",
    "admission.k8s.io/",
    "apiextensions.k8s.io/customresourcedefinitions",
    "apiregistration.k8s.io/apiservices",
    "authentication.kubernetes.io/associated-node-keys",
    "authentication.kubernetes.io/credential-id",
    "authentication.kubernetes.io/node-name",
    "bootstrap.kubernetes.io/token",
    "coordination.k8s.io/leases",
    "deviceclass.resource.kubernetes.io/",
    "kubernetes.io/",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/basic-auth",
    "kubernetes.io/cinder",
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/gce-pd",
    "kubernetes.io/host-path",
    "kubernetes.io/job-controller",
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/legacy-unknown",
    "kubernetes.io/nfs",
    "kubernetes.io/no-provisioner",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/service-account-token",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
    "kubernetes.io/vsphere-volume",
    "meta.k8s.io/",
    "mizzen.dev/directory",
    "node.kubernetes.io/",
    "requests.deviceclass.resource.kubernetes.io/",
    "resource.k8s.io/resourceslices",
    "storage.k8s.io/csinodes",
];

/// Whether a string of the sources looks like a key of metadata, and not like an API version or a kind.
fn is_key(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else {
        return false;
    };
    let is_ours = ["kubernetes.io", "k8s.io", "mizzen.dev"]
        .iter()
        .any(|suffix| domain.ends_with(suffix));
    let is_domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let mut begin = name.chars();
    let (first, second) = (begin.next(), begin.next());
    let is_version = first == Some('v') && second.is_some_and(|c| c.is_ascii_digit());
    let is_kind = first.is_some_and(|c| c.is_ascii_uppercase() || c == '_');
    let is_plain = domain.chars().all(is_domain) && name.chars().all(is_name);
    is_ours && is_plain && !is_version && !is_kind
}

/// The keys in the sources, with the crates that have them. Comments, tests and benches do not count.
fn keys_in_sources() -> BTreeMap<String, BTreeSet<String>> {
    let crates = root().join("crates");
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(&crates, "rs") {
        let path = file.strip_prefix(&crates).unwrap();
        let mut parts = path
            .components()
            .map(|part| part.as_os_str().to_string_lossy());
        let (package, directory) = (parts.next().unwrap(), parts.next().unwrap());
        let is_test = parts.any(|part| part == "tests" || part == "tests.rs");
        if directory != "src" || is_test || package == "bench" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = production
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for literal in lines.flat_map(|line| line.split('"').skip(1).step_by(2)) {
            // Keys may stand in a longer text, as words.
            if is_key(literal) {
                keys.entry(literal.to_owned())
                    .or_default()
                    .insert(package.to_string());
            }
        }
    }
    keys
}

#[test]
fn the_reference_has_every_key_of_the_sources() {
    let keys = keys_in_sources();
    let cells = |line: &'static str| line.split(" | ").collect::<Vec<&str>>();
    let rows = TABLE.lines().map(cells).filter(|row| row.len() == 3);
    let listed: BTreeSet<&str> = rows.map(|row| row[0]).collect();
    let missing: Vec<&String> = keys
        .keys()
        .filter(|key| !listed.contains(key.as_str()) && !NOT_METADATA.contains(&key.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:#?}");

    let mut page = INTRODUCTION.to_owned();
    for line in TABLE.lines() {
        if line.starts_with("## ") {
            let head = "| name | of | meaning | used by |\n|---|---|---|---|";
            page += &format!("\n{line}\n\n{head}\n");
        } else if let [name, of, meaning] = cells(line)[..] {
            let users = keys.get(name);
            let users = users.unwrap_or_else(|| panic!("{name} is not in the sources"));
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            page += &format!("| `{name}` | {of} | {meaning} | {} |\n", users.join(", "));
        }
    }
    check_generated("annotations.md", &page);
}

#[test]
fn api_versions_and_kinds_are_no_keys() {
    for key in [
        "mizzen.dev/logs",
        "kubernetes.io/hostname",
        "pod-security.kubernetes.io/",
    ] {
        assert!(is_key(key), "{key}");
    }
    for other in [
        "apps/v1",
        "batch.k8s.io/v1",
        "storage.k8s.io/CSINode",
        "no such kubernetes.io/key",
    ] {
        assert!(!is_key(other), "{other}");
    }
}
