//! `mizzen backup`, `restore` and `check`: the data of a cluster on its way out and in again.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mizzen_store::{Draft, Expect, Options, Store, Write};

use crate::client::Client;
use crate::process::{Home, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn mizzen(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// The standard output of a command that succeeds.
pub(crate) fn succeed(arguments: &[&str], directory: &Path) -> String {
    let output = mizzen(arguments, directory);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// All that a command that fails prints.
fn fail(arguments: &[&str], directory: &Path) -> String {
    let output = mizzen(arguments, directory);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let printed = [output.stdout, output.stderr].concat();
    String::from_utf8(printed).unwrap()
}

async fn create(client: &Client, name: &str) {
    let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"made":"{name}"}}}}"#);
    client.post(CONFIG_MAPS, body).await.expect(201);
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get(CONFIG_MAPS).await.expect(200).json();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_server_is_restored_with_objects_and_credentials() {
    let home = Home::on_disk();
    let server = home.start().await;
    create(&server.admin().await, "before").await;
    let (credentials, token) = (
        server.credentials.clone(),
        token(&server.admin().await).await,
    );
    let said = succeed(&["backup", "day.backup", "--data-dir", "data"], home.path());
    assert!(said.contains("/data as of revision "), "{said}");
    create(&server.admin().await, "after").await;
    server.kill().await;

    let restored = Home::on_disk();
    let file = home.path().join("day.backup");
    let file = file.to_str().unwrap();
    let said = succeed(&["restore", file, "--data-dir", "data"], restored.path());
    assert!(said.contains("/data as of revision "), "{said}");
    let said = succeed(&["check", "data"], restored.path());
    assert!(said.starts_with("data is whole: "), "{said}");
    let server = restored.start().await;
    // The client certificate of the original is accepted, and so is its token.
    let client = Client::connect(&server.address, &credentials, &["h2"]).await;
    assert_eq!(names(&client).await, ["before"]);
    let review = format!(r#"{{"spec":{{"token":"{token}"}}}}"#);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = client.post(reviews, review).await.expect(201).json();
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    create(&client, "next").await;
    server.stop().await;
}

/// Each writer counts in a large object of its own, so that the log is compacted meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_server_under_writes_misses_no_acknowledged_write() {
    const N_WRITERS: usize = 8;
    const N_BACKUPS: usize = 4;
    const N_BYTES: usize = 100_000;
    let home = Home::on_disk();
    let server = home.start().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    let mut acknowledged = Vec::new();
    for writer in 0..N_WRITERS {
        let client = server.admin().await;
        let (n_acknowledged, is_over) = (Arc::new(AtomicU64::new(0)), is_over.clone());
        acknowledged.push(n_acknowledged.clone());
        let name = format!("w{writer}");
        create(&client, &name).await;
        writers.spawn(async move {
            let path = format!("{CONFIG_MAPS}/{name}");
            let mut n = 0;
            while !is_over.load(Ordering::Acquire) {
                n += 1;
                let filler = "x".repeat(N_BYTES);
                let patch = format!(r#"{{"data":{{"n":"{n}","filler":"{filler}"}}}}"#);
                client.call("PATCH", &path, patch).await.expect(200);
                n_acknowledged.store(n, Ordering::Release);
            }
        });
    }
    for round in 0..N_BACKUPS {
        let before: Vec<u64> = acknowledged
            .iter()
            .map(|n| n.load(Ordering::Acquire))
            .collect();
        let directory = home.path().to_owned();
        let restored = tokio::task::spawn_blocking(move || {
            let (file, data) = (format!("{round}.backup"), format!("restored-{round}"));
            let said = succeed(&["backup", &file, "--data-dir", "data"], &directory);
            succeed(&["restore", &file, "--data-dir", &data], &directory);
            let checked = succeed(&["check", &data], &directory);
            assert!(checked.contains(" is whole: "), "{checked}");
            (directory.join(data), said)
        });
        let (restored, said) = restored.await.unwrap();
        let store = Store::open_read_only(&restored, Options::default()).unwrap();
        let revision = format!("as of revision {} ", store.revision());
        assert!(said.contains(&revision), "{said}");
        let maps = store.keyspace("configmaps").snapshot();
        for (writer, before) in before.into_iter().enumerate() {
            let record = maps.get(&format!("default/w{writer}"));
            let object: serde_json::Value =
                serde_json::from_slice(&record.expect("it was created").value).unwrap();
            let n = object["data"]["n"].as_str().unwrap_or("0");
            let n: u64 = n.parse().unwrap();
            assert!(
                n >= before,
                "{n} of {before} of writer {writer} in round {round}"
            );
        }
        store.close().await;
        // Each writer goes on, so that the next backup is of another state.
        let latest = |n: &Arc<AtomicU64>| n.load(Ordering::Acquire);
        let at = acknowledged.iter().map(latest).sum::<u64>();
        let is_further = || acknowledged.iter().map(latest).sum::<u64>() > at;
        let went_on = async {
            while !is_further() {
                tokio::task::yield_now().await;
            }
        };
        let went_on = tokio::time::timeout(STEP_TIMEOUT, went_on).await;
        went_on.expect("writes go on");
    }
    is_over.store(true, Ordering::Release);
    writers.join_all().await;
    server.stop().await;
}

async fn token(client: &Client) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = r#"{"metadata":{"name":"robot"}}"#;
    client.post(accounts, account).await.expect(201);
    let path = format!("{accounts}/robot/token");
    let request = client
        .post(&path, r#"{"spec":{}}"#)
        .await
        .expect(201)
        .json();
    request["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_overwritten_and_wrong_files_are_named() {
    let home = Home::on_disk();
    let server = home.start().await;
    let backup = ["backup", "day.backup", "--data-dir", "data"];
    succeed(&backup, home.path());
    let said = fail(&backup, home.path());
    assert!(said.contains("day.backup exists"), "{said}");
    succeed(&[&backup[..], &["--force"]].concat(), home.path());
    let said = fail(&["backup", "x", "--data-dir", "nowhere"], home.path());
    assert!(said.contains("nowhere is no data directory"), "{said}");
    assert!(!home.path().join("x").exists());

    let restore = ["restore", "day.backup", "--data-dir", "data"];
    let said = fail(&restore, home.path());
    assert!(
        said.contains("data exists; name an empty directory"),
        "{said}"
    );
    let said = fail(&["check", "data"], home.path());
    assert!(said.contains("in use by another process"), "{said}");
    server.stop().await;

    fs::write(home.path().join("text"), "hello").unwrap();
    let restore_as = |file| ["restore", file, "--data-dir", "new"];
    let said = fail(&restore_as("text"), home.path());
    assert!(said.contains("text is no backup"), "{said}");
    // A flipped bit in the middle of the journal, and a file that is cut short.
    let whole = fs::read(home.path().join("day.backup")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    fs::write(home.path().join("flipped"), flipped).unwrap();
    fs::write(home.path().join("cut"), &whole[..whole.len() / 2]).unwrap();
    for file in ["flipped", "cut"] {
        fail(&restore_as(file), home.path());
        assert!(!home.path().join("new").exists(), "{file}");
    }
    // Drafts are removed.
    let left: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// An archive that was made by hand must not write outside of the directory.
#[test]
fn a_file_that_leads_elsewhere_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let pack = |name: &str| {
        let mut archive = tar::Builder::new(Vec::new());
        let manifest = r#"{"format":1,"revision":1}"#;
        for (name, text) in [("backup.json", manifest), (name, "x")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            // As it stands: `set_path` rejects what this test is about.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, text.as_bytes()).unwrap();
        }
        fs::write(directory.path().join("made"), archive.into_inner().unwrap()).unwrap();
    };
    for name in ["../x", "/tmp/x", "journal/../../x", "journal/a/b", "other"] {
        pack(name);
        let said = fail(&["restore", "made", "--data-dir", "new"], directory.path());
        assert!(
            said.contains("made is no backup: unknown file"),
            "{name}: {said}"
        );
        assert!(!directory.path().join("x").exists() && !directory.path().join("new").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_data_directory_is_reported() {
    let home = Home::on_disk();
    let server = home.start().await;
    create(&server.admin().await, "web").await;
    server.stop().await;
    let log = home.data_dir().join("00000001.log");
    let whole = fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&log, damaged).unwrap();
    let said = fail(&["check", "data"], home.path());
    assert!(said.contains("00000001.log is damaged"), "{said}");
    fs::write(&log, whole).unwrap();
    succeed(&["check", "data"], home.path());
}

/// Stores a text as it is. The revision is inserted between the quotes after `resourceVersion`.
async fn put(store: &Store, space: &str, key: &str, value: &str) {
    let version = r#""resourceVersion":""#;
    let stamp = value.find(version).map(|start| start + version.len());
    let stamp = stamp.filter(|stamp| value[*stamp..].starts_with('"'));
    let draft = Draft {
        value: value.to_owned().into(),
        stamp,
        ..Draft::default()
    };
    let space = store.keyspace(space);
    let write = Write::put(&space, key, Expect::Absent, draft);
    store.commit_one(write).await.unwrap();
}

/// Damage that no checksum shows: the store has kept what it was given.
#[tokio::test]
async fn an_invalid_object_is_reported_by_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = Store::open(&data, Options::default()).unwrap();
    let object = |name: &str, uid: &str, more: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default",{uid}"resourceVersion":""}}{more}}}"#
        )
    };
    let uid = r#""uid":"5e2e1b5a-3a3e-4c43-8d1c-0c3f1a7e9b11","#;
    let older = object("older", uid, "").replace(r#"Version":""#, r#"Version":"1"#);
    let cases = [
        ("whole", object("whole", uid, r#","data":{"a":"b"}"#), None),
        ("text", "no JSON".into(), Some("")),
        (
            "kindless",
            r#"{"metadata":{}}"#.into(),
            Some("apiVersion or kind is missing"),
        ),
        (
            "elsewhere",
            object("other", uid, ""),
            Some("it is the object of the key default/other"),
        ),
        (
            "older",
            older,
            Some("its resourceVersion is 1, but it was written at "),
        ),
        (
            "unidentified",
            object("unidentified", "", ""),
            Some("metadata.uid is missing"),
        ),
        (
            "misshapen",
            object("misshapen", uid, r#","data":{"a":5}"#),
            Some(""),
        ),
    ];
    for (name, value, _) in &cases {
        put(&store, "configmaps", &format!("default/{name}"), value).await;
    }
    store.close().await;
    drop(store);

    let said = fail(&["check", "data"], directory.path());
    assert!(said.contains("6 of 7 objects are damaged"), "{said}");
    for (name, _, problem) in cases {
        expect(&said, &format!("configmaps default/{name}"), problem);
    }
}

/// Whether a check has printed this problem of an object; none if it is whole.
#[track_caller]
fn expect(said: &str, object: &str, problem: Option<&str>) {
    let expected = format!("{object}: ");
    let reported = said.lines().find(|line| line.starts_with(&expected));
    match (problem, reported) {
        (None, None) => {}
        (Some(problem), Some(line)) => assert!(line.contains(problem), "{line}"),
        _ => panic!("{object}: {said}"),
    }
}

#[tokio::test]
async fn an_object_that_does_not_fit_its_definition_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = Store::open(&data, Options::default()).unwrap();
    let metadata = |name: &str| {
        format!(
            r#"{{"name":"{name}","uid":"5e2e1b5a-3a3e-4c43-8d1c-0c3f1a7e9b11","resourceVersion":""}}"#
        )
    };
    let definition = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{},"spec":{{
            "group":"example.com","scope":"Cluster",
            "names":{{"kind":"Oven","plural":"ovens","singular":"oven","listKind":"OvenList"}},
            "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{
                "type":"object","required":["size"],"properties":{{
                    "size":{{"type":"integer","minimum":1}},"heat":{{"type":"integer","default":5}}}}}}}}}}]}}}}"#,
        metadata("ovens.example.com")
    );
    let definitions = "apiextensions.k8s.io/customresourcedefinitions";
    put(&store, definitions, "ovens.example.com", &definition).await;
    let object = |version: &str, name: &str, more: &str| {
        format!(
            r#"{{"apiVersion":"{version}","kind":"Oven","metadata":{}{more}}}"#,
            metadata(name)
        )
    };
    let ovens = [
        (
            "whole",
            object("example.com/v1", "whole", r#","size":4,"unknown":true"#),
            None,
        ),
        (
            "text",
            object("example.com/v1", "text", r#","size":"big""#),
            Some("size: Invalid value: \"string\": size in body must be of type integer"),
        ),
        (
            "small",
            object("example.com/v1", "small", r#","size":0"#),
            Some("greater than or equal to 1"),
        ),
        (
            "none",
            object("example.com/v1", "none", ""),
            Some("size: Required value"),
        ),
        (
            "newer",
            object("example.com/v2", "newer", r#","size":4"#),
            Some("Oven in example.com/v2 is neither built in nor in a CustomResourceDefinition"),
        ),
        (
            "nameless",
            object("example.com/v1", "nameless", r#","size":4"#)
                .replace(r#""uid""#, r#""labels":[],"uid""#),
            Some("labels"),
        ),
    ];
    for (name, value, _) in &ovens {
        put(&store, "example.com/ovens", name, value).await;
    }
    let other = object("example.org/v1", "lost", "");
    put(&store, "example.org/ovens", "lost", &other).await;
    let class = format!(
        r#"{{"apiVersion":"storage.k8s.io/v9","kind":"StorageClass","metadata":{}}}"#,
        metadata("fast")
    );
    put(&store, "storage.k8s.io/storageclasses", "fast", &class).await;
    store.close().await;
    drop(store);

    let said = fail(&["check", "data"], directory.path());
    assert!(said.contains("7 of 9 objects are damaged"), "{said}");
    expect(&said, &format!("{definitions} ovens.example.com"), None);
    for (name, _, problem) in ovens {
        expect(&said, &format!("example.com/ovens {name}"), problem);
    }
    let missing = "Oven in example.org/v1 is neither built in";
    expect(&said, "example.org/ovens lost", Some(missing));
    let unknown = "StorageClass in storage.k8s.io/v9 is neither built in";
    expect(&said, "storage.k8s.io/storageclasses fast", Some(unknown));
}
