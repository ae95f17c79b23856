//! `mizzen export` and `import`: objects between servers, files and data directories.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use mizzen_etcd::messages::{RangeRequest, RequestOp, ResponseHeader, TxnRequest};
use mizzen_store::{Options, Store};
use serde_json::{Value, json};

use crate::client::Client;
use crate::etcd_server;
use crate::process::Home;

/// A namespace, a custom kind, an object of it with a status, and a ConfigMap that it owns. Dependents come first here.
const SHOP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: recipe
  namespace: shop
  labels: {app: oven}
  ownerReferences:
  - {apiVersion: example.com/v1, kind: Oven, name: big, uid: "1", controller: true}
data: {flour: "500"}
---
apiVersion: example.com/v1
kind: Oven
metadata: {name: big, namespace: shop, finalizers: [example.com/cool-down]}
spec: {size: 4}
status: {heat: 230}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovens.example.com}
spec:
  group: example.com
  names: {kind: Oven, plural: ovens}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, properties: {heat: {type: integer}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
"#;

const OVEN: &str = "/apis/example.com/v1/namespaces/shop/ovens/big";
const RECIPE: &str = "/api/v1/namespaces/shop/configmaps/recipe";

fn mizzen(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// All that a command prints, which ends with `code`.
#[track_caller]
fn run(code: i32, arguments: &[&str], directory: &Path) -> String {
    let output = mizzen(arguments, directory);
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}

/// Imports `text` with further arguments.
#[track_caller]
fn import(code: i32, home: &Home, text: &str, arguments: &[&str]) -> String {
    fs::write(home.path().join("objects.yaml"), text).unwrap();
    let kubeconfig = ["import", "objects.yaml", "--kubeconfig", "kubeconfig"];
    run(code, &[&kubeconfig, arguments].concat(), home.path())
}

async fn read(client: &Client, path: &str) -> Value {
    client.get(path).await.expect(200).json()
}

/// Whether the shop is as it was written, with an owner of this server.
async fn check_shop(client: &Client) {
    let oven = read(client, OVEN).await;
    assert_eq!(oven["spec"]["size"], 4);
    assert_eq!(oven["status"]["heat"], 230);
    assert_eq!(
        oven["metadata"]["finalizers"],
        json!(["example.com/cool-down"])
    );
    let recipe = read(client, RECIPE).await;
    let owner = &recipe["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], oven["metadata"]["uid"], "{recipe}");
    let service = read(client, "/api/v1/namespaces/shop/services/web").await;
    assert!(
        service["spec"]["clusterIP"]
            .as_str()
            .unwrap()
            .starts_with("10.")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_from_server_to_server_with_status_and_new_owners() {
    let (home, other) = (Home::in_memory(), Home::in_memory());
    let (server, copy) = (home.start().await, other.start().await);
    let said = import(0, &home, SHOP, &[]);
    assert!(said.contains("oven.example.com shop/big created"), "{said}");
    assert!(said.contains("imported: 5 created"), "{said}");
    check_shop(&server.admin().await).await;
    // A second run finds everything in place.
    let said = import(0, &home, SHOP, &[]);
    assert!(said.contains("imported: 5 unchanged"), "{said}");

    for file in ["shop.yaml", "shop.jsonl.gz"] {
        let export = ["export", file, "--kubeconfig", "kubeconfig"];
        let said = run(0, &export, home.path());
        assert!(said.contains("exported 5 objects of 5 resources"), "{said}");
        assert!(said.contains("that clusters make themselves"), "{said}");
        let said = run(1, &export, home.path());
        assert!(said.contains("exists; name another file"), "{said}");
    }
    let text = fs::read_to_string(home.path().join("shop.yaml")).unwrap();
    for absent in ["uid:", "resourceVersion:", "managedFields:", "clusterIP:"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    let file = home.path().join("shop.jsonl.gz");
    let file = file.to_str().unwrap();
    let said = run(
        0,
        &["import", "-q", file, "--kubeconfig", "kubeconfig"],
        other.path(),
    );
    assert_eq!(said, "imported: 5 created\n");
    check_shop(&copy.admin().await).await;
    copy.stop().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_differs_is_reported_left_or_replaced() {
    let home = Home::in_memory();
    let server = home.start().await;
    let client = server.admin().await;
    import(0, &home, SHOP, &[]);
    let changed = SHOP.replace("\"500\"", "\"600\"");
    let flour = async || read(&client, RECIPE).await["data"]["flour"].clone();
    let said = import(6, &home, &changed, &[]);
    let why = "configmap shop/recipe failed: it exists, and data.flour differs";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("imported: 4 unchanged, 1 failed"), "{said}");
    let said = import(0, &home, &changed, &["--on-conflict", "skip"]);
    assert!(said.contains("configmap shop/recipe skipped"), "{said}");
    let overwrite = ["--on-conflict", "overwrite"];
    let said = import(
        0,
        &home,
        &changed,
        &[&overwrite[..], &["--dry-run"]].concat(),
    );
    assert!(
        said.contains("nothing was written: 1 replaced, 4 unchanged"),
        "{said}"
    );
    assert_eq!(flour().await, "500");
    let said = import(0, &home, &changed, &overwrite);
    assert!(said.contains("imported: 1 replaced, 4 unchanged"), "{said}");
    assert_eq!(flour().await, "600");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_is_named() {
    let home = Home::in_memory();
    let server = home.start().await;
    let client = server.admin().await;
    // A dry run knows that namespace, definition and owner would be there.
    let said = import(0, &home, SHOP, &["--dry-run"]);
    assert!(said.contains("nothing was written: 5 created"), "{said}");
    client.get("/api/v1/namespaces/shop").await.expect(404);
    // An invalid file changes nothing.
    let said = import(1, &home, &format!("{SHOP}---\nkind: [\n"), &[]);
    assert!(said.contains("objects.yaml, line "), "{said}");
    client.get("/api/v1/namespaces/shop").await.expect(404);
    let without_definition = ["--exclude", "customresourcedefinitions"];
    let said = import(6, &home, SHOP, &without_definition);
    let why =
        "oven.example.com shop/big not imported: the target does not serve Oven in example.com/v1";
    assert!(said.contains(why), "{said}");
    assert!(
        said.contains("its owner Oven big is not in the target"),
        "{said}"
    );
    assert!(said.contains("imported: 3 created, 1 not served"), "{said}");
    let recipe = read(&client, RECIPE).await;
    assert!(recipe["metadata"]["ownerReferences"].is_null(), "{recipe}");
    // A field that the target does not know is not dropped silently.
    let unknown = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}\n";
    let said = import(6, &home, unknown, &[]);
    assert!(said.contains(r#"unknown field "datum""#), "{said}");
    for field in ["uid", "revision,uid"] {
        let said = import(1, &home, SHOP, &["--keep", field]);
        assert!(said.contains("an API server sets it anew"), "{said}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_selected_by_kind_name_namespace_and_label() {
    let home = Home::in_memory();
    let server = home.start().await;
    import(0, &home, SHOP, &[]);
    let export = |arguments: &[&str]| {
        let all = ["export", "--format", "json", "--kubeconfig", "kubeconfig"];
        let output = mizzen(&[&all, arguments].concat(), home.path());
        assert!(output.status.success(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let objects = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let kinds = objects.map(|object| object["kind"].as_str().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(
        export(&["-n", "shop"]),
        ["Namespace", "ConfigMap", "Service", "Oven"]
    );
    assert_eq!(export(&["--include", "*.example.com"]), ["Oven"]);
    assert_eq!(
        export(&["--include", "ovens,services/w*"]),
        ["Service", "Oven"]
    );
    assert_eq!(export(&["-l", "app=oven"]), ["ConfigMap"]);
    assert_eq!(
        export(&["-n", "shop", "--exclude", "ovens,svc.,namespaces,services"]),
        ["ConfigMap"]
    );
    assert_eq!(
        export(&["--include", "services", "--all"]),
        ["Service", "Service"]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_cluster_is_exported_and_imported_like_a_running_one() {
    let home = Home::on_disk();
    let server = home.start().await;
    import(0, &home, SHOP, &[]);
    let running = ["export", "running.yaml", "--data-dir", "data"];
    run(0, &running, home.path());
    server.stop().await;
    let said = run(
        0,
        &["export", "stopped.yaml", "--data-dir", "data"],
        home.path(),
    );
    assert!(said.contains("exported 5 objects of 5 resources"), "{said}");
    let [running, stopped] = ["running.yaml", "stopped.yaml"]
        .map(|file| fs::read_to_string(home.path().join(file)).unwrap());
    assert_eq!(running, stopped);

    let copy = Home::on_disk();
    let file = home.path().join("stopped.yaml");
    let import = ["import", file.to_str().unwrap(), "--data-dir", "data"];
    let said = run(0, &[&import[..], &["--dry-run"]].concat(), copy.path());
    assert!(said.contains("nothing was written: 5 created"), "{said}");
    assert!(!copy.data_dir().exists());
    let said = run(0, &import, copy.path());
    assert!(said.contains("imported: 5 created"), "{said}");
    let said = run(0, &import, copy.path());
    assert!(said.contains("imported: 5 unchanged"), "{said}");
    run(0, &["check", "data"], copy.path());
    let server = copy.start().await;
    check_shop(&server.admin().await).await;
    server.stop().await;
    let said = run(1, &["export", "--data-dir", "nowhere"], copy.path());
    assert!(said.contains("nowhere is no data directory"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uids_and_revisions_are_kept_in_a_new_data_directory() {
    let home = Home::on_disk();
    let server = home.start().await;
    import(0, &home, SHOP, &[]);
    let client = server.admin().await;
    let before = [read(&client, OVEN).await, read(&client, RECIPE).await];
    server.stop().await;
    let exact = ["--all", "--keep", "all"];
    let export = ["export", "all.json", "--data-dir", "data"];
    run(0, &[&export[..], &exact].concat(), home.path());

    let copy = Home::on_disk();
    let file = home.path().join("all.json");
    let import = ["import", "-q", file.to_str().unwrap(), "--data-dir", "data"];
    let import = [&import[..], &exact].concat();
    run(0, &import, copy.path());
    let said = run(0, &["check", "data"], copy.path());
    assert!(said.starts_with("data is whole"), "{said}");
    let said = run(1, &import, copy.path());
    assert!(
        said.contains("can only be kept in a new data directory"),
        "{said}"
    );
    let said = run(
        1,
        &["export", "again.json", "--data-dir", "elsewhere"],
        copy.path(),
    );
    assert!(said.contains("no data directory"), "{said}");
    run(
        0,
        &[&["export", "again.json", "--data-dir", "data"], &exact[..]].concat(),
        copy.path(),
    );
    let again = fs::read_to_string(copy.path().join("again.json")).unwrap();
    assert_eq!(again, fs::read_to_string(&file).unwrap());
    let server = copy.start().await;
    let client = server.admin().await;
    assert_eq!(
        [read(&client, OVEN).await, read(&client, RECIPE).await],
        before
    );
    let body = r#"{"metadata":{"name":"next"}}"#;
    let maps = "/api/v1/namespaces/shop/configmaps";
    let next = client.post(maps, body).await.expect(201).json();
    let revision = |object: &Value| -> u64 {
        let version = &object["metadata"]["resourceVersion"];
        version.as_str().unwrap().parse().unwrap()
    };
    assert!(
        before
            .iter()
            .all(|object| revision(object) < revision(&next))
    );
    server.stop().await;

    // Uids alone can be kept in a directory that has data.
    let third = Home::on_disk();
    third.start().await.stop().await;
    let keep = ["--keep", "uid,status", "--data-dir", "data"];
    let import = [&["import", file.to_str().unwrap()], &keep[..]].concat();
    let said = run(0, &import, third.path());
    assert!(said.contains("imported: 5 created"), "{said}");
    let said = run(0, &import, third.path());
    assert!(said.contains("imported: 5 unchanged"), "{said}");
    let server = third.start().await;
    let client = server.admin().await;
    for (path, before) in [OVEN, RECIPE].into_iter().zip(&before) {
        let after = read(&client, path).await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lists_are_read_in_pages() {
    let home = Home::in_memory();
    let server = home.start().await;
    let map = |n: usize| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"m{n}\"}}}}\n"
        )
    };
    let text: String = (0..1001).map(map).collect();
    let said = import(0, &home, &text, &["-q"]);
    assert_eq!(said, "imported: 1001 created\n");
    let export = [
        "export",
        "maps.jsonl",
        "--include",
        "configmaps/m*",
        "--kubeconfig",
        "kubeconfig",
    ];
    let said = run(0, &export, home.path());
    assert!(
        said.contains("exported 1001 objects of 1 resources"),
        "{said}"
    );
    server.stop().await;
}

/// The objects of an export in JSON, and the revision of the store at its end.
fn split_revision(text: &str) -> (String, u64) {
    let (objects, last) = text.trim_end().rsplit_once('\n').unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["apiVersion"], "export.mizzen.dev/v1");
    assert_eq!(last["kind"], "StoreRevision");
    let revision = last["metadata"]["resourceVersion"].as_str().unwrap();
    (objects.to_owned(), revision.parse().unwrap())
}

/// The revision of a data directory.
async fn revision_of(home: &Home) -> u64 {
    let store = Store::open_read_only(home.data_dir(), Options::default()).unwrap();
    let revision = store.revision();
    store.close().await;
    revision.0
}

/// The last writes are deletes, which no object of the file shows. A copy that issues their numbers again hides its
/// writes from watches that go on after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_after_the_last_revision_of_the_source_also_if_that_was_a_delete() {
    const N_DELETES: usize = 100;
    let home = Home::on_disk();
    let server = home.start().await;
    let client = server.admin().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for n in 0..N_DELETES {
        let body = format!(r#"{{"metadata":{{"name":"m{n}"}}}}"#);
        client.post(maps, body).await.expect(201);
    }
    for n in 0..N_DELETES {
        let path = format!("{maps}/m{n}");
        client.call("DELETE", &path, "").await.expect(200);
    }
    server.kill().await;
    let last = revision_of(&home).await;
    let exact = ["--all", "--keep", "all"];
    let export = ["export", "all.json", "--data-dir", "data"];
    run(0, &[&export[..], &exact].concat(), home.path());
    let file = home.path().join("all.json");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(split_revision(&text).1, last);

    let import = |home: &Home, text: &str, place: &[&str]| {
        fs::write(home.path().join("copy.json"), text).unwrap();
        let import = ["import", "-q", "copy.json"];
        run(0, &[&import[..], place, &exact].concat(), home.path());
    };
    let in_directory = ["--data-dir", "data"];
    let copy = Home::on_disk();
    import(&copy, &text, &in_directory);
    assert_eq!(revision_of(&copy).await, last);
    let server = copy.start().await;
    let client = server.admin().await;
    let mut events = client
        .watch(&format!("{maps}?watch=1&resourceVersion={last}"))
        .await;
    let next = r#"{"metadata":{"name":"next"}}"#;
    client.post(maps, next).await.expect(201);
    assert_eq!(events.next_name().await, "ADDED next");
    server.stop().await;

    // Older exports do not tell the revision: the copy is at that of the latest object.
    let (objects, _) = split_revision(&text);
    let older = Home::on_disk();
    import(&older, &objects, &in_directory);
    let revisions = objects.lines().map(|line| {
        let object: Value = serde_json::from_str(line).unwrap();
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
        revision.parse::<u64>().unwrap()
    });
    assert_eq!(revision_of(&older).await, revisions.max().unwrap());
    // A newer format is not taken for an older one.
    let newer = text.replace("export.mizzen.dev/v1", "export.mizzen.dev/v2");
    fs::write(home.path().join("newer.json"), newer).unwrap();
    let import_newer = ["import", "newer.json", "--data-dir", "new"];
    let said = self::run(1, &import_newer, home.path());
    assert!(said.contains("is of another version"), "{said}");

    let Some(etcd) = etcd().await else { return };
    let endpoint = etcd.endpoint(0);
    let import = ["import", "-q", "all.json", "--etcd-servers", &endpoint];
    run(0, &[&import[..], &exact].concat(), home.path());
    let request = RangeRequest {
        key: "/".into(),
        ..RangeRequest::default()
    };
    let at = etcd.client().range(request).await.unwrap().header.unwrap();
    let at = u64::try_from(at.revision).unwrap();
    assert!([last, last + 1].contains(&at), "{at} {last}");
}

/// An etcd for one test; none, with a message, if it is not installed.
async fn etcd() -> Option<etcd_server::Cluster> {
    let etcd = etcd_server::installed().into_iter().next()?;
    Some(etcd.start(etcd_server::Options::default()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_moves_to_etcd_and_back_with_uids_and_revisions() {
    let Some(etcd) = etcd().await else { return };
    let home = Home::on_disk();
    let server = home.start().await;
    import(0, &home, SHOP, &[]);
    let client = server.admin().await;
    let before = [read(&client, OVEN).await, read(&client, RECIPE).await];
    server.stop().await;
    let endpoint = etcd.endpoint(0);
    let on_disk = ["--all", "--keep", "all", "--data-dir", "data"];
    let in_etcd = ["--all", "--keep", "all", "--etcd-servers", &endpoint];
    let run = |arguments: &[&str], place: &[&str]| {
        run(0, &[arguments, place].concat(), home.path());
    };
    run(&["export", "disk.json"], &on_disk);
    run(&["import", "-q", "disk.json", "--dry-run"], &in_etcd);
    run(&["import", "-q", "disk.json"], &in_etcd);
    run(&["export", "etcd.json"], &in_etcd);
    fs::rename(home.data_dir(), home.path().join("old")).unwrap();
    run(&["import", "-q", "etcd.json"], &on_disk);
    run(&["export", "again.json"], &on_disk);
    let [(disk, revision), (etcd_file, in_etcd_at), (again, at)] =
        ["disk.json", "etcd.json", "again.json"]
            .map(|file| split_revision(&fs::read_to_string(home.path().join(file)).unwrap()));
    assert!(disk.contains(r#""resourceVersion""#) && disk.contains(r#""uid""#));
    assert_eq!(disk, etcd_file);
    assert_eq!(disk, again);
    // etcd may need one more to remove what used up the revisions between.
    assert!(
        [revision, revision + 1].contains(&in_etcd_at),
        "{revision} {in_etcd_at}"
    );
    assert_eq!(at, in_etcd_at);

    let other = Home::on_disk()
        .with("--etcd-servers")
        .with(endpoint.clone());
    // What was moved has tokens and certificates that the old keys have signed.
    let refused = other.fail_to_start(0).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("ca.crt is missing"), "{said}");
    other.copy_keys(&home.path().join("old"));
    let server = other.start().await;
    let client = server.admin().await;
    assert_eq!(
        [read(&client, OVEN).await, read(&client, RECIPE).await],
        before
    );
    server.stop().await;
    // Revisions cannot be kept a second time.
    let refused = [
        &["import", "disk.json", "--etcd-prefix", "/other"],
        &in_etcd[..],
    ]
    .concat();
    let said = self::run(1, &refused, home.path());
    assert!(
        said.contains("revisions can only be kept in a new etcd"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_imported_into_an_etcd_that_has_some_only_if_that_is_said() {
    let Some(etcd) = etcd().await else { return };
    let home = Home::in_memory();
    fs::write(home.path().join("objects.yaml"), SHOP).unwrap();
    let endpoint = etcd.endpoint(0);
    let place = ["--etcd-servers", &endpoint, "--etcd-prefix", "/shop"];
    let import = |code: i32, arguments: &[&str]| {
        let import = ["import", "objects.yaml"];
        run(
            code,
            &[&import, &place[..], arguments].concat(),
            home.path(),
        )
    };
    let said = import(0, &["--dry-run"]);
    assert!(said.contains("nothing was written: 5 created"), "{said}");
    let said = import(0, &[]);
    assert!(said.contains("imported: 5 created"), "{said}");
    for refused in [&[][..], &["--dry-run"], &["--keep", "uid"]] {
        let said = import(1, refused);
        assert!(said.contains("etcd has objects already"), "{said}");
    }
    let said = import(0, &["--into-existing"]);
    assert!(said.contains("imported: 5 unchanged"), "{said}");
    let said = run(
        0,
        &[&["export", "--include", "*.example.com"], &place[..]].concat(),
        home.path(),
    );
    assert!(
        said.contains("exported 1 objects of 1 resources from etcd at"),
        "{said}"
    );
    // A server of that etcd serves what was imported, with its own bootstrap objects.
    let server = Home::on_disk()
        .with("--etcd-servers")
        .with(endpoint.clone());
    let server = server.with("--etcd-prefix").with("/shop");
    let process = server.start().await;
    check_shop(&process.admin().await).await;
    process.stop().await;
    // Its directory has none of them.
    for command in [
        &["backup", "day.backup", "--data-dir", "data"][..],
        &["restore", "day.backup", "--data-dir", "data"],
        &["check", "data"],
    ] {
        let said = run(1, command, server.path());
        assert!(said.contains("has no objects"), "{said}");
        let remedy = "`mizzen backup FILE --etcd-servers URL`";
        assert!(said.contains(remedy), "{said}");
    }
    assert!(!server.path().join("day.backup").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_server_on_etcd_is_restored_to_a_directory_and_to_another_etcd() {
    let Some(etcd) = etcd().await else { return };
    let Some(other_etcd) = self::etcd().await else {
        return;
    };
    let home = Home::on_disk().with("--etcd-servers");
    let own = etcd.endpoint(0);
    let home = home.with(own.clone());
    let server = home.start().await;
    import(0, &home, SHOP, &[]);
    let client = server.admin().await;
    let read_all = async |client: &Client| {
        let paths = [OVEN, RECIPE, "/api/v1/namespaces/shop/services/web"];
        let mut objects = Vec::new();
        for path in paths {
            objects.push(read(client, path).await);
        }
        objects
    };
    let before = read_all(&client).await;
    let in_etcd = ["--data-dir", "data", "--etcd-servers", &own];
    let back_up = [&["backup", "day.backup"], &in_etcd[..]].concat();
    let said = run(0, &back_up, home.path());
    assert!(said.contains("/data as of revision "), "{said}");
    // What is written later is not in it.
    client.call("DELETE", RECIPE, "").await.expect(200);
    let said = run(1, &back_up, home.path());
    assert!(said.contains("day.backup exists"), "{said}");
    let keyless = ["backup", "x", "--data-dir", "nowhere"];
    let said = run(
        1,
        &[&keyless[..], &["--etcd-servers", &own]].concat(),
        home.path(),
    );
    assert!(said.contains("nowhere is no data directory"), "{said}");
    let credentials = server.credentials.clone();
    server.stop().await;
    let file = home.path().join("day.backup");
    let file = file.to_str().unwrap();

    let restored = Home::on_disk();
    let restore = ["restore", file, "--data-dir", "data"];
    let said = run(0, &restore, restored.path());
    assert!(said.contains("/data as of revision "), "{said}");
    let said = run(0, &["check", "data"], restored.path());
    assert!(said.starts_with("data is whole"), "{said}");

    let endpoint = other_etcd.endpoint(0);
    let on_etcd = Home::on_disk()
        .with("--etcd-servers")
        .with(endpoint.clone());
    let to_etcd = [&restore[..], &["--etcd-servers", &endpoint]].concat();
    run(0, &to_etcd, on_etcd.path());
    // Neither place is written to twice.
    let said = run(1, &to_etcd, on_etcd.path());
    assert!(said.contains("data has no objects"), "{said}");
    let third = Home::on_disk();
    let said = run(1, &to_etcd, third.path());
    assert!(said.contains("etcd has objects already"), "{said}");
    assert!(!third.data_dir().exists());

    for home in [restored, on_etcd] {
        let server = home.start().await;
        // The client certificate of the original is accepted.
        let client = Client::connect(&server.address, &credentials, &["h2"]).await;
        assert_eq!(read_all(&client).await, before);
        server.stop().await;
    }
}

/// A definition whose deletion an API server would go on with: it deletes the objects first.
fn terminating_definition() -> Value {
    let condition =
        |kind: &str, reason: &str| json!({ "type": kind, "status": "True", "reason": reason });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "ovens.example.com", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]
        },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "conversion": { "strategy": "None" },
            "names": { "kind": "Oven", "listKind": "OvenList", "plural": "ovens", "singular": "oven" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } }
            }]
        },
        "status": {
            "acceptedNames": { "kind": "Oven", "listKind": "OvenList", "plural": "ovens", "singular": "oven" },
            "conditions": [
                condition("NamesAccepted", "NoConflicts"),
                condition("Established", "InitialNamesAccepted"),
                condition("Terminating", "InstanceDeletionPending")
            ],
            "storedVersions": ["v1"]
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_nothing_to_etcd_while_a_definition_is_being_deleted() {
    let Some(etcd) = etcd().await else { return };
    let oven = json!({
        "apiVersion": "example.com/v1", "kind": "Oven",
        "metadata": { "name": "big", "namespace": "shop", "uid": "2" }
    });
    let definition = "/registry/apiextensions.k8s.io/customresourcedefinitions/ovens.example.com";
    let put = |key: &str, object: Value| RequestOp::put(key.to_owned(), object.to_string(), 0);
    let stored = TxnRequest {
        success: vec![
            put(definition, terminating_definition()),
            put("/registry/example.com/ovens/shop/big", oven),
        ],
        ..TxnRequest::default()
    };
    let revision = |header: Option<ResponseHeader>| header.unwrap().revision;
    let stored = etcd.client().txn(stored).await.unwrap();
    let home = Home::in_memory();
    fs::write(home.path().join("objects.yaml"), SHOP).unwrap();
    let endpoint = etcd.endpoint(0);
    let import = ["import", "objects.yaml", "--dry-run", "--into-existing"];
    let place = ["--include", "namespaces", "--etcd-servers", &endpoint];
    let said = run(0, &[import, place].concat(), home.path());
    assert!(said.contains("nothing was written: 1 created"), "{said}");
    let request = RangeRequest {
        key: definition.into(),
        ..RangeRequest::default()
    };
    // An export shows the definition as it is stored.
    let export = ["export", "all.json", "--all", "--keep", "all"];
    let place = ["--etcd-servers", &endpoint];
    run(0, &[&export[..], &place].concat(), home.path());
    let exported = fs::read_to_string(home.path().join("all.json")).unwrap();
    assert!(exported.contains("InstanceDeletionPending"), "{exported}");
    let after = etcd.client().range(request).await.unwrap();
    assert_eq!(revision(after.header), revision(stored.header));
}

/// A ConfigMap and then a Secret get one number after the other. So at any revision the Secret has that of the
/// ConfigMap, or the one before.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_etcd_shows_one_revision_while_objects_are_written() {
    for etcd in etcd_server::installed() {
        let etcd = etcd.start(etcd_server::Options::default()).await;
        let endpoint = etcd.endpoint(0);
        let home = Home::on_disk().with("--etcd-servers");
        let home = home.with(endpoint.clone());
        let server = home.start().await;
        let client = server.admin().await;
        let kinds = ["configmaps", "secrets"];
        let path = |kind: &str| format!("/api/v1/namespaces/default/{kind}");
        let body = |n: u64| {
            json!({ "metadata": { "name": "number", "labels": { "n": n.to_string() } } })
                .to_string()
        };
        for kind in kinds {
            client.post(&path(kind), body(0)).await.expect(201);
        }
        let writer = tokio::spawn(async move {
            for n in 1.. {
                for kind in kinds {
                    let own = format!("{}/number", path(kind));
                    client.call("PATCH", &own, body(n)).await.expect(200);
                }
            }
        });
        let directory = home.path().to_owned();
        let exported = tokio::task::spawn_blocking(move || {
            let export = |_| {
                let selected = [
                    "export",
                    "--format",
                    "json",
                    "--include",
                    "configmaps/number,secrets/number",
                ];
                let place = ["--etcd-servers", &endpoint];
                let output = mizzen(&[&selected[..], &place].concat(), &directory);
                assert!(output.status.success());
                String::from_utf8(output.stdout).unwrap()
            };
            (0..3).map(export).collect::<Vec<_>>()
        });
        let exported = exported.await.unwrap();
        writer.abort();
        let mut last = 0;
        for text in exported {
            let number = |line: &str| -> u64 {
                let object: Value = serde_json::from_str(line).unwrap();
                let number = object["metadata"]["labels"]["n"].as_str().unwrap();
                number.parse().unwrap()
            };
            let numbers: Vec<u64> = text.lines().map(number).collect();
            let [map, secret] = numbers[..] else {
                panic!("{text}")
            };
            assert!(map == secret || map == secret + 1, "{numbers:?}");
            assert!(map > last, "the objects are written meanwhile");
            last = map;
        }
        server.stop().await;
    }
}

#[test]
fn an_etcd_that_cannot_be_used_is_named() {
    let home = Home::in_memory();
    let export =
        |code: i32, arguments: &[&str]| run(code, &[&["export"], arguments].concat(), home.path());
    let said = export(1, &["--etcd-servers", "ftp://127.0.0.1"]);
    assert!(said.contains("--etcd-servers: etcd endpoint"), "{said}");
    let etcd = ["--etcd-servers", "http://127.0.0.1:1"];
    for other in [
        ["--data-dir", "data"],
        ["--kubeconfig", "file"],
        ["--context", "a"],
    ] {
        let said = export(2, &[etcd, other].concat());
        assert!(said.contains("cannot be used with"), "{said}");
    }
}
