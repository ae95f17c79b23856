//! The storage version migrator.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body as Sent;
use mizzen_apiserver::{Body, InProcess, User};
use mizzen_sdk::resource::{CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS};
use mizzen_sdk::watch::{ListWatch, WatchEvent};
use mizzen_sdk::{Object, ResourceType};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::value;
use tower_service::Service;

use crate::{settle, start};

const CONTROLLER: [&str; 1] = ["storage-version-migrator-controller"];
const FOOS: ResourceType = ResourceType::namespaced("example.com", "v1", "foos", "Foo");
const FOO_DEFINITION: &str = "foos.example.com";
const MIGRATION_DEFINITION: &str = "storageversionmigrations.storagemigration.k8s.io";

async fn cluster() -> Cluster {
    start(&CONTROLLER).await
}

/// Enables the kind.
async fn serve_migrations(cluster: &Cluster) {
    let metadata = format!(
        "{{name: {MIGRATION_DEFINITION}, annotations: {{api-approved.kubernetes.io: 'https://github.com/kubernetes/enhancements'}}}}"
    );
    let names = "{plural: storageversionmigrations, singular: storageversionmigration, kind: StorageVersionMigration, listKind: StorageVersionMigrationList}";
    let version = "{name: v1beta1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}";
    cluster.create(&format!("{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {metadata}, spec: {{group: storagemigration.k8s.io, scope: Cluster, names: {names}, versions: [{version}]}}}}")).await;
    settle(cluster).await;
}

/// Three objects stored in v1, of a kind whose storage version is v2 now.
async fn outdated_foos(cluster: &Cluster) {
    let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    let version = |name: &str, stored: bool| {
        format!("{{name: {name}, served: true, storage: {stored}, schema: {schema}}}")
    };
    let names = "{plural: foos, singular: foo, kind: Foo, listKind: FooList}";
    let versions = format!("[{}, {}]", version("v1", true), version("v2", false));
    cluster.create(&format!("{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {FOO_DEFINITION}}}, spec: {{group: example.com, scope: Namespaced, names: {names}, versions: {versions}}}}}")).await;
    settle(cluster).await;
    cluster
        .create("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        .await;
    for (namespace, name) in [("default", "a"), ("default", "b"), ("shop", "c")] {
        let metadata = format!("{{name: {name}, namespace: {namespace}}}");
        cluster
            .create(&format!(
                "{{apiVersion: example.com/v1, kind: Foo, metadata: {metadata}}}"
            ))
            .await;
    }
    let switch = |definition: &mut Object| {
        for version in definition.entry("spec").entry("versions").list_mut() {
            let is_second = version["name"].str() == "v2";
            version.set("storage", is_second);
        }
    };
    cluster
        .change(&CUSTOM_RESOURCE_DEFINITIONS, FOO_DEFINITION, switch)
        .await;
    settle(cluster).await;
}

async fn migrate(cluster: &Cluster, name: &str, group: &str, plural: &str) -> Object {
    let spec = format!("{{resource: {{group: '{group}', resource: {plural}}}}}");
    let migration = format!(
        "{{apiVersion: storagemigration.k8s.io/v1beta1, kind: StorageVersionMigration, metadata: {{name: {name}}}, spec: {spec}}}"
    );
    cluster.create(&migration).await
}

/// The conditions of an object: type, status, reason and message of each.
async fn conditions(cluster: &Cluster, of: &ResourceType, name: &str, type_: &str) -> Vec<String> {
    let object = cluster.object(of, name).await;
    let conditions = object["status"]["conditions"].list().iter();
    let show = |field: &str, condition: &mizzen_value::Value| condition[field].str().to_string();
    conditions
        .filter(|condition| type_.is_empty() || condition["type"].str() == type_)
        .map(|condition| {
            ["type", "status", "reason", "message"]
                .map(|field| show(field, condition))
                .join("|")
        })
        .collect()
}

async fn migration_conditions(cluster: &Cluster, name: &str) -> Vec<String> {
    conditions(cluster, &STORAGE_VERSION_MIGRATIONS, name, "").await
}

const COMPLETED: &str = "Running|False|MigrationCompleted|Migration completed";
const SUCCEEDED: &str = "Succeeded|True|StorageVersionMigrationSucceeded|";

/// How often each of the objects was written after `version`.
async fn writes(cluster: &Cluster, version: &str) -> BTreeMap<String, usize> {
    let source: ListWatch<Object> = ListWatch::at(cluster.client(), FOOS.path(""));
    let mut stream = source.watch(version, 5).await.unwrap();
    let mut writes = BTreeMap::new();
    while let Some(event) = stream.next().await.unwrap() {
        if let WatchEvent::Delta(delta) = event {
            *writes
                .entry(delta.entry().key().name().to_string())
                .or_default() += 1;
        }
    }
    writes
}

fn once() -> BTreeMap<String, usize> {
    ["a", "b", "c"]
        .into_iter()
        .map(|name| (name.to_string(), 1))
        .collect()
}

/// The controller's transport: counts requests for migrations, and injects faults.
#[derive(Clone)]
struct FaultyTransport {
    ours: InProcess,
    n_asked: Arc<AtomicUsize>,
    fault: Arc<Mutex<Option<Fault>>>,
}

/// The fault, injected once when the object `b` is about to be rewritten.
enum Fault {
    /// The server responds so.
    Answer(u16, &'static str),
    /// Another client writes first.
    Meanwhile(Box<Request<Sent>>),
}

impl Service<Request<Sent>> for FaultyTransport {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <InProcess as Service<Request<Sent>>>::Future;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let path = request.uri().path();
        self.n_asked.fetch_add(
            path.contains("storagemigration.k8s.io/").into(),
            Ordering::Relaxed,
        );
        let is_meant = request.method() == Method::PATCH && path.ends_with("/foos/b");
        match self.fault.lock().take_if(|_| is_meant) {
            None => self.ours.call(request),
            Some(Fault::Answer(code, body)) => Box::pin(ready(Ok(Response::builder()
                .status(code)
                .body(Body::from(body))
                .unwrap()))),
            Some(Fault::Meanwhile(other)) => {
                let (first, mut ours) = (self.ours.call(*other), self.ours.clone());
                Box::pin(async move {
                    assert!(first.await?.status().is_success());
                    ours.call(request).await
                })
            }
        }
    }
}

/// A cluster whose controller uses that transport.
async fn cluster_with(fault: Option<Fault>) -> (Cluster, Arc<AtomicUsize>) {
    let cluster = start(&[]).await;
    let ours = cluster
        .server()
        .in_process(User::master("admin"), "kube-controller-manager");
    let way = FaultyTransport {
        ours,
        n_asked: Arc::default(),
        fault: Arc::new(Mutex::new(fault)),
    };
    let n_asked = way.n_asked.clone();
    let clients = Arc::new(move |_: &str| Client::new(way.clone(), "default"));
    let through = |builder: Builder| {
        let builder = builder.controllers(CONTROLLER);
        builder.tune_controllers(move |options| options.clients = clients.clone())
    };
    cluster.restart_with(through).await;
    (cluster, n_asked)
}

/// How a migration ends with a fault, and how often objects are written.
async fn migrate_in(fault: Fault, time: Duration) -> (Vec<String>, BTreeMap<String, usize>) {
    let (cluster, _) = cluster_with(Some(fault)).await;
    outdated_foos(&cluster).await;
    serve_migrations(&cluster).await;
    let created = migrate(&cluster, "m", "example.com", "foos").await;
    cluster.advance(time).await;
    (
        migration_conditions(&cluster, "m").await,
        writes(&cluster, created.version()).await,
    )
}

#[tokio::test(start_paused = true)]
async fn every_object_is_written_again_exactly_once() {
    let cluster = cluster().await;
    outdated_foos(&cluster).await;
    serve_migrations(&cluster).await;
    let before = cluster.objects(&FOOS, "").await;
    let created = migrate(&cluster, "m", "example.com", "foos").await;
    settle(&cluster).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, SUCCEEDED]
    );

    let after = cluster.objects(&FOOS, "").await;
    assert_eq!(before.len(), 3);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.uid(), after.uid());
        assert_ne!(before.version(), after.version(), "{}", after.name());
    }
    assert_eq!(writes(&cluster, created.version()).await, once());

    let definition = cluster
        .object(&CUSTOM_RESOURCE_DEFINITIONS, FOO_DEFINITION)
        .await;
    assert_eq!(definition["status"]["storedVersions"], value!(["v2"]));
    assert_eq!(
        conditions(
            &cluster,
            &CUSTOM_RESOURCE_DEFINITIONS,
            FOO_DEFINITION,
            "StorageMigrating"
        )
        .await,
        [
            "StorageMigrating|False|MigrationSucceeded|The migration has succeeded and the stored versions have been updated"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_migration_is_not_repeated() {
    let cluster = cluster().await;
    outdated_foos(&cluster).await;
    serve_migrations(&cluster).await;
    let created = migrate(&cluster, "m", "example.com", "foos").await;
    settle(&cluster).await;
    let over = cluster.object(&STORAGE_VERSION_MIGRATIONS, "m").await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER))
        .await;
    cluster.advance(Duration::from_secs(120)).await;
    assert_eq!(cluster.object(&STORAGE_VERSION_MIGRATIONS, "m").await, over);
    let touch = |migration: &mut Object| {
        migration
            .entry("metadata")
            .set("labels", value!({ "a": "b" }))
    };
    cluster
        .change(&STORAGE_VERSION_MIGRATIONS, "m", touch)
        .await;
    settle(&cluster).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, SUCCEEDED]
    );
    assert_eq!(writes(&cluster, created.version()).await, once());
}

#[tokio::test(start_paused = true)]
async fn a_second_migration_waits_for_the_first_and_finds_nothing_to_do() {
    let cluster = start(&[]).await;
    outdated_foos(&cluster).await;
    serve_migrations(&cluster).await;
    let first = migrate(&cluster, "z", "example.com", "foos").await;
    cluster.advance(Duration::from_secs(2)).await;
    migrate(&cluster, "a", "example.com", "foos").await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER))
        .await;
    settle(&cluster).await;
    let mut noted = Vec::new();
    for name in ["z", "a"] {
        assert_eq!(
            migration_conditions(&cluster, name).await,
            [COMPLETED, SUCCEEDED]
        );
        let migration = cluster.object(&STORAGE_VERSION_MIGRATIONS, name).await;
        noted.push(
            migration["status"]["resourceVersion"]
                .str()
                .parse::<u64>()
                .unwrap(),
        );
    }
    assert!(noted[0] < noted[1], "{noted:?}");
    assert_eq!(writes(&cluster, first.version()).await, once());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_resource_fails_after_a_minute() {
    let cluster = cluster().await;
    serve_migrations(&cluster).await;
    migrate(&cluster, "m", "example.com", "hats").await;
    cluster.advance(Duration::from_secs(55)).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        ["Running|True|MigrationRunning|The migration is running"]
    );
    cluster.advance(Duration::from_secs(60)).await;
    let failed = "Failed|True|StorageVersionMigrationFailed|resource does not exist in discovery";
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, failed]
    );
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_served_later_is_migrated() {
    let cluster = cluster().await;
    serve_migrations(&cluster).await;
    migrate(&cluster, "m", "example.com", "foos").await;
    cluster.advance(Duration::from_secs(20)).await;
    outdated_foos(&cluster).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, SUCCEEDED]
    );
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_be_written_fails_at_once() {
    let cluster = cluster().await;
    serve_migrations(&cluster).await;
    migrate(&cluster, "m", "", "componentstatuses").await;
    settle(&cluster).await;
    let failed = r#"Failed|True|StorageVersionMigrationFailed|resource "/v1, Resource=componentstatuses" does not support discovery operations: [update patch list]"#;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, failed]
    );
}

#[tokio::test(start_paused = true)]
async fn built_in_resources_of_either_scope_are_migrated() {
    let cluster = cluster().await;
    serve_migrations(&cluster).await;
    let before = cluster
        .object(&mizzen_sdk::resource::NAMESPACES, "default")
        .await;
    migrate(&cluster, "m", "", "namespaces").await;
    migrate(&cluster, "o", "", "configmaps").await;
    settle(&cluster).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, SUCCEEDED]
    );
    assert_eq!(
        migration_conditions(&cluster, "o").await,
        [COMPLETED, SUCCEEDED]
    );
    // They are stored in their only version already, so nothing is written.
    assert_eq!(
        cluster
            .object(&mizzen_sdk::resource::NAMESPACES, "default")
            .await,
        before
    );
}

#[tokio::test(start_paused = true)]
async fn migrations_may_go_away_and_come_back() {
    let cluster = cluster().await;
    outdated_foos(&cluster).await;
    serve_migrations(&cluster).await;
    migrate(&cluster, "waiting", "example.com", "hats").await;
    settle(&cluster).await;
    cluster
        .delete(&CUSTOM_RESOURCE_DEFINITIONS, MIGRATION_DEFINITION)
        .await;
    cluster.advance(Duration::from_secs(120)).await;
    serve_migrations(&cluster).await;
    let created = migrate(&cluster, "m", "example.com", "foos").await;
    settle(&cluster).await;
    assert_eq!(
        migration_conditions(&cluster, "m").await,
        [COMPLETED, SUCCEEDED]
    );
    assert_eq!(writes(&cluster, created.version()).await, once());
}

#[tokio::test(start_paused = true)]
async fn migrations_are_not_requested_while_the_kind_is_off() {
    let (cluster, n_asked) = cluster_with(None).await;
    let n_asked = || n_asked.load(Ordering::Relaxed);
    outdated_foos(&cluster).await;
    cluster.advance(Duration::from_secs(120)).await;
    assert_eq!(n_asked(), 0);
    serve_migrations(&cluster).await;
    migrate(&cluster, "m", "example.com", "hats").await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_ne!(n_asked(), 0);
    cluster
        .delete(&CUSTOM_RESOURCE_DEFINITIONS, MIGRATION_DEFINITION)
        .await;
    cluster.advance(Duration::from_secs(5)).await;
    let before = n_asked();
    cluster.advance(Duration::from_secs(300)).await;
    assert_eq!(n_asked(), before);
}

#[tokio::test(start_paused = true)]
async fn a_429_is_retried_and_nothing_is_written_twice() {
    let busy = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests","message":"busy","details":{"retryAfterSeconds":2}}"#;
    let running = ["Running|True|MigrationRunning|The migration is running"];
    let (early, _) = migrate_in(Fault::Answer(429, busy), Duration::from_millis(1900)).await;
    assert_eq!(early, running);
    let (conditions, writes) =
        migrate_in(Fault::Answer(429, busy), Duration::from_millis(2900)).await;
    assert_eq!(
        (conditions, writes),
        (vec![COMPLETED.to_string(), SUCCEEDED.to_string()], once())
    );
    let broken = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"broken"}"#;
    let (conditions, writes) =
        migrate_in(Fault::Answer(500, broken), Duration::from_millis(900)).await;
    assert_eq!(
        (conditions, writes),
        (vec![COMPLETED.to_string(), SUCCEEDED.to_string()], once())
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_refused_fails_the_migration() {
    let refused = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"not you"}"#;
    let (conditions, writes) =
        migrate_in(Fault::Answer(403, refused), Duration::from_secs(60)).await;
    let failed =
        "Failed|True|StorageVersionMigrationFailed|migration encountered unhandled error: not you";
    assert_eq!(conditions, [COMPLETED, failed]);
    assert_eq!(writes, BTreeMap::from([("a".to_string(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_concurrent_write_replaces_the_rewrite() {
    let path = "/apis/example.com/v1/namespaces/default/foos/b";
    let written = Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(Sent::from(br#"{"spec":{"size":1}}"#.to_vec()));
    let deleted = Request::delete(path).body(Sent::empty());
    for other in [written, deleted] {
        let (conditions, writes) = migrate_in(
            Fault::Meanwhile(Box::new(other.unwrap())),
            Duration::from_millis(900),
        )
        .await;
        // The write or deletion of the other client is the only one.
        assert_eq!(
            (conditions, writes),
            (vec![COMPLETED.to_string(), SUCCEEDED.to_string()], once())
        );
    }
}
