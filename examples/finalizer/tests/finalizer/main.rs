//! The controller in a whole cluster, on virtual time.

mod bugs;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use finalizer::{Bucket, FINALIZER, Storage};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use mizzen_sdk::controller::{Context, Controller};
use mizzen_testing::{Builder, Cluster, Explore, assert_events};
use parking_lot::Mutex;

/// Buckets in memory. The storage can be down.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    buckets: BTreeSet<String>,
    is_down: bool,
    n_ids: usize,
}

impl Memory {
    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        if state.is_down {
            return Err(io::Error::other("the storage is down"));
        }
        change(&mut state.buckets);
        Ok(())
    }

    /// An identifier that was not used before: a UUID, which exploration does not compare.
    fn new_id(&self) -> String {
        let mut state = self.0.lock();
        state.n_ids += 1;
        format!("00000000-0000-4000-8000-{:012x}", state.n_ids)
    }

    fn n_buckets(&self) -> usize {
        self.0.lock().buckets.len()
    }
}

impl Storage for Memory {
    fn create(&self, id: &str) -> Result<(), io::Error> {
        self.change(|buckets| {
            buckets.insert(id.to_owned());
        })
    }

    fn remove(&self, id: &str) -> Result<(), io::Error> {
        self.change(|buckets| {
            buckets.remove(id);
        })
    }
}

/// Installs the kind, runs the controller, and creates a bucket.
async fn start(cluster: &Cluster, storage: &Memory) {
    cluster
        .apply(&serde_json::to_string(&Bucket::crd()).unwrap())
        .await;
    let storage = storage.clone();
    cluster.run("bucket", move |client: Client| {
        let context = Context::new(client).named("bucket");
        finalizer::controller(&context, storage.clone()).run(std::future::pending())
    });
    cluster
        .apply(include_str!("../../manifests/bucket.yaml"))
        .await;
}

async fn delete(cluster: &Cluster) {
    let buckets: Api<Bucket> = Api::default_namespaced(cluster.client());
    buckets.delete("photos", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn a_bucket_is_created_and_removed_with_its_object() {
    let (cluster, storage) = (Cluster::start().await, Memory::default());
    start(&cluster, &storage).await;
    cluster.settle().await;
    let bucket: Bucket = cluster.get("photos").await;
    assert_eq!(bucket.finalizers(), [FINALIZER]);
    assert_eq!(
        bucket.status.as_ref().map(|status| &status.id),
        bucket.uid().as_ref()
    );
    assert_eq!(storage.n_buckets(), 1);

    delete(&cluster).await;
    cluster.settle().await;
    assert!(cluster.find::<Bucket>("photos").await.is_none());
    assert_eq!(storage.n_buckets(), 0);
}

#[tokio::test]
async fn the_role_of_the_manifests_suffices() {
    let (cluster, storage) = (Cluster::start().await, Memory::default());
    let definition = serde_json::to_string(&Bucket::crd()).unwrap();
    cluster.apply(&definition).await;
    cluster
        .apply(include_str!("../../manifests/role.yaml"))
        .await;
    let client = cluster.client_as("system:serviceaccount:default:finalizer", &[]);
    let buckets = storage.clone();
    cluster.run("bucket", move |_| {
        let context = Context::new(client.clone()).named("bucket");
        finalizer::controller(&context, buckets.clone()).run(std::future::pending())
    });
    cluster
        .apply(include_str!("../../manifests/bucket.yaml"))
        .await;
    cluster.settle().await;
    let bucket: Bucket = cluster.get("photos").await;
    assert!(bucket.status.is_some());

    storage.0.lock().is_down = true;
    delete(&cluster).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert_events!(cluster, "photos", ["BucketFailed"]);
    storage.0.lock().is_down = false;
    cluster.advance(Duration::from_secs(600)).await;
    assert!(cluster.find::<Bucket>("photos").await.is_none());
}

#[tokio::test]
async fn the_object_stays_until_the_storage_is_back() {
    let (cluster, storage) = (Cluster::start().await, Memory::default());
    start(&cluster, &storage).await;
    cluster.settle().await;
    storage.0.lock().is_down = true;
    delete(&cluster).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert!(
        cluster
            .get::<Bucket>("photos")
            .await
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert_events!(cluster, "photos", ["BucketFailed"]);

    storage.0.lock().is_down = false;
    cluster.advance(Duration::from_secs(600)).await;
    assert!(cluster.find::<Bucket>("photos").await.is_none());
    assert_eq!(storage.n_buckets(), 0);
}

/// A cluster without loops: the controller needs none.
fn bare() -> Builder {
    Cluster::builder().server_only()
}

/// Creates three buckets and deletes two. When the faults are over, the storage has one bucket for each object.
async fn scenario(
    cluster: &Cluster,
    controller: impl Fn(Client, Memory) -> Controller + Send + Sync + 'static,
    pause: Duration,
) {
    cluster
        .apply(&serde_json::to_string(&Bucket::crd()).unwrap())
        .await;
    let storage = Memory::default();
    let shared = storage.clone();
    cluster.run("bucket", move |client: Client| {
        controller(client, shared.clone()).run(std::future::pending())
    });
    let text = include_str!("../../manifests/bucket.yaml");
    for name in ["photos", "videos", "texts"] {
        cluster.apply(&text.replace("photos", name)).await;
        cluster.advance(pause).await;
    }
    let buckets: Api<Bucket> = Api::default_namespaced(cluster.client());
    for name in ["photos", "videos"] {
        buckets.delete(name, &Default::default()).await.unwrap();
        cluster.advance(pause).await;
    }
    cluster.set_faults(false);
    cluster.advance(Duration::from_secs(120)).await;
    let objects = cluster.list::<Bucket>().await.into_iter();
    let reported: BTreeSet<String> = objects
        .filter_map(|bucket| Some(bucket.status?.id))
        .collect();
    let stored = storage.0.lock().buckets.clone();
    assert_eq!(
        stored, reported,
        "the buckets of the storage and of the objects"
    );
    assert_eq!(stored.len(), 1);
}

#[test]
fn no_bucket_is_left_behind_whatever_happens_to_the_controller() {
    Explore::new(bare())
        .seeds(0..20)
        .run(async |cluster: &Cluster| {
            let run = |client: Client, storage: Memory| {
                finalizer::controller(&Context::new(client).named("bucket"), storage)
            };
            scenario(cluster, run, Duration::from_secs(3)).await;
        });
}
