//! `/metrics` of a control plane against upstream's families: name, type, labels and bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::client::Client;
use crate::etcd_server;
use crate::process::Home;

/// How long it takes at most until all families are shown.
const PATIENCE: Duration = Duration::from_secs(60);

/// A line of the table.
struct UpstreamFamily<'a> {
    stability: &'a str,
    kind: &'a str,
    name: &'a str,
    labels: BTreeSet<&'a str>,
    /// Empty if upstream's list has none.
    bounds: Vec<f64>,
    note: &'a str,
}

fn table() -> Vec<UpstreamFamily<'static>> {
    let lines = include_str!("metric_families.table").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let list = |text: &'static str| text.split(',').filter(|one| *one != "-");
    lines
        .map(|line| {
            let (facts, note) = line.split_once(" | ").unwrap_or((line, ""));
            let facts: Vec<&str> = facts.split(' ').collect();
            let [stability, kind, name, labels, bounds] = facts[..] else {
                panic!("{line}");
            };
            UpstreamFamily {
                stability,
                kind,
                name,
                labels: list(labels).collect(),
                bounds: list(bounds).map(|bound| bound.parse().unwrap()).collect(),
                note,
            }
        })
        .collect()
}

/// A family of a scrape.
#[derive(Default)]
struct ShownFamily {
    kind: String,
    labels: BTreeSet<String>,
    bounds: BTreeSet<String>,
}

/// The families of a scrape, by name.
fn shown(text: &str) -> BTreeMap<String, ShownFamily> {
    let mut families: BTreeMap<String, ShownFamily> = BTreeMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            families.entry(name.into()).or_default().kind = kind.into();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| {
            let base = name.strip_suffix(suffix)?;
            let kind = &families.get(base)?.kind;
            matches!(kind.as_str(), "histogram" | "summary").then_some(base)
        });
        let family = families.get_mut(base.unwrap_or(name)).expect(line);
        for pair in labels.split("\",").filter(|pair| pair.contains('=')) {
            let (label, value) = pair.split_once("=\"").unwrap();
            if label == "le" {
                family
                    .bounds
                    .insert(value.trim_end_matches(['"', '}']).into());
            } else {
                family.labels.insert(label.into());
            }
        }
    }
    families
}

/// Does what makes families have series.
async fn be_busy(admin: &Client) {
    let policy = json!({
        "metadata": {"name": "small"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "size(object.metadata.name) < 10"}]
        }
    });
    let binding = json!({
        "metadata": {"name": "small"},
        "spec": {"policyName": "small", "validationActions": ["Deny"]}
    });
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    });
    let job = json!({
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}
    });
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for (path, object) in [
        (format!("{admission}/validatingadmissionpolicies"), policy),
        (
            format!("{admission}/validatingadmissionpolicybindings"),
            binding,
        ),
        ("/api/v1/namespaces/default/services".into(), service),
        ("/apis/batch/v1/namespaces/default/jobs".into(), job),
        (
            "/api/v1/namespaces/default/configmaps".into(),
            json!({"metadata": {"name": "a"}}),
        ),
    ] {
        admin.post(&path, object.to_string()).await.expect(201);
    }
    let list = "/api/v1/configmaps?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                &resourceVersionMatch=NotOlderThan";
    admin.watch(list).await.next().await.expect("an event");
    // Deprecated since v1.19.
    admin.get("/api/v1/componentstatuses").await.expect(200);
}

#[tokio::test]
async fn families_are_served_with_upstreams_types_labels_and_bounds() {
    let process = Home::in_memory().whole().with("--nodes=2").start().await;
    let admin = process.admin().await;
    be_busy(&admin).await;
    let table = table();
    let missing = |shown: &BTreeMap<String, ShownFamily>| -> Vec<&str> {
        let required = table
            .iter()
            .filter(|row| row.stability != "ALPHA" && row.note.is_empty());
        let missing = required.filter(|row| !shown.contains_key(row.name));
        missing.map(|row| row.name).collect()
    };
    let mut families = BTreeMap::new();
    let complete = async {
        loop {
            families = shown(&admin.get("/metrics").await.expect(200).text());
            if missing(&families).is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let complete = timeout(PATIENCE, complete).await;
    assert!(complete.is_ok(), "not shown: {:#?}", missing(&families));
    assert_as_upstream(&table, &families);
    process.stop().await;
}

#[tokio::test]
async fn families_of_etcd_are_served_with_upstreams_types_labels_and_bounds() {
    for etcd in etcd_server::installed().into_iter().rev().take(1) {
        let etcd = etcd.start(etcd_server::Options::default()).await;
        let home = Home::on_disk().with("--etcd-servers");
        let process = home.with(etcd.endpoint(0)).start().await;
        let admin = process.admin().await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "a"}}).to_string();
        admin.post(maps, map).await.expect(201);
        let path = format!("{maps}/a");
        admin
            .call("PATCH", &path, r#"{"data":{"a":"b"}}"#)
            .await
            .expect(200);
        admin.call("DELETE", &path, "").await.expect(200);
        admin.get(&path).await.expect(404);
        let size = "apiserver_storage_size_bytes";
        let mut text = String::new();
        let complete = async {
            while !text.contains(size) {
                text = admin.get("/metrics").await.expect(200).text();
            }
        };
        timeout(PATIENCE, complete).await.expect("a size");
        for operation in ["create", "update", "delete", "get", "list"] {
            let labels = format!(r#"{{group="",operation="{operation}",resource="configmaps"}}"#);
            assert!(
                text.contains(&format!("etcd_requests_total{labels}")),
                "{operation}: {text}"
            );
        }
        assert!(text.contains(&format!(r#"{size}{{storage_cluster_id="etcd-0"}}"#)));
        assert!(
            !text.contains(r#"storage_cluster_id="default""#),
            "its directory has no objects"
        );
        let (table, families) = (table(), shown(&text));
        assert_as_upstream(&table, &families);
        let is_listed = |name: &&String| table.iter().any(|row| row.name == **name);
        let mut of_etcd = families.keys().filter(|name| name.starts_with("etcd_"));
        assert!(of_etcd.all(|name| is_listed(&name)));
        process.stop().await;
    }
}

/// Expects upstream's type, labels and bounds of every family.
#[track_caller]
fn assert_as_upstream(table: &[UpstreamFamily<'_>], families: &BTreeMap<String, ShownFamily>) {
    let mut wrong = Vec::new();
    for row in table {
        let Some(family) = families.get(row.name) else {
            continue;
        };
        if row.note.starts_with("left out: ") || row.note.starts_with("at: ") {
            wrong.push(format!("{} is shown, although {}", row.name, row.note));
        }
        let labels: BTreeSet<&str> = family.labels.iter().map(String::as_str).collect();
        if (family.kind.as_str(), &labels) != (row.kind, &row.labels) {
            wrong.push(format!(
                "{}: {} {labels:?}, upstream {} {:?}",
                row.name, family.kind, row.kind, row.labels
            ));
        }
        let bounds = family.bounds.iter().map(|bound| bound.parse().unwrap());
        let mut bounds: Vec<f64> = bounds.filter(|bound: &f64| bound.is_finite()).collect();
        bounds.sort_unstable_by(f64::total_cmp);
        let is_near = |(one, other): (&f64, &f64)| (one - other).abs() <= one.abs() * 1e-9;
        let is_same =
            bounds.len() == row.bounds.len() && bounds.iter().zip(&row.bounds).all(is_near);
        if !row.bounds.is_empty() && !is_same {
            wrong.push(format!(
                "{}: bounds {bounds:?}, upstream {:?}",
                row.name, row.bounds
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
