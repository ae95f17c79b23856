//! The delta FIFO: keys, queued deltas and resync.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::{Entry, KeyFunction, Store, Version, by_field};
use mizzen_sdk::fifo::{Delta, DeltaFifo};
use mizzen_sdk::watch::{ListWatch, Reflector};
use mizzen_sdk::{Key, Object};
use tokio::time::{Instant, timeout};

use crate::informer::{MINUTE, PATH, change, create};
use crate::start;
use crate::wire::{End, Wire};

fn entry(name: &str, uid: &str, version: u64) -> Entry<Object> {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    );
    Entry::new(text.into_bytes()).unwrap()
}

fn by_uid() -> KeyFunction<Object> {
    Arc::new(|entry| Key::cluster(entry.uid()))
}

#[tokio::test(start_paused = true)]
async fn deltas_are_grouped_by_the_key_function() {
    let known = Store::with_key_function(by_uid());
    known.insert(entry("web", "1", 5));
    let fifo = DeltaFifo::new(known);
    fifo.push(Delta::Updated(entry("web", "1", 5))); // it is known in this version
    fifo.push(Delta::Deleted(entry("web", "9", 6))); // it is not known at all
    assert!(fifo.is_empty());
    fifo.push(Delta::Updated(entry("web", "1", 7)));
    fifo.push(Delta::Added(entry("web", "2", 8)));
    fifo.push(Delta::Updated(entry("renamed", "2", 9)));
    assert_eq!(fifo.list_keys(), [Key::cluster("1"), Key::cluster("2")]);
    let batch = fifo.pop(10).await.unwrap();
    assert_eq!(
        batch.deltas.iter().map(Vec::len).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[tokio::test(start_paused = true)]
async fn replace_compares_by_the_key_function() {
    let known = Store::with_key_function(by_uid());
    known.insert(entry("web", "1", 1));
    let fifo = DeltaFifo::new(known);
    // Another object of the same name. Two deltas of one object are merged.
    fifo.replace(
        vec![entry("web", "2", 3), entry("old-name", "2", 2)],
        Version(3),
    );
    let batch = fifo.pop(10).await.unwrap();
    assert!(matches!(
        &batch.deltas[0][..],
        [Delta::Replaced(_), Delta::Replaced(_)]
    ));
    assert!(matches!(&batch.deltas[1][..], [Delta::Lost(last)] if last.uid() == "1"));
    assert!(batch.synced && fifo.has_synced());
}

#[test]
fn store_uses_its_key_function() {
    let store = Store::with_key_function(by_uid());
    store.add_index("name", by_field("metadata.name"));
    store.insert(entry("web", "1", 1));
    store.insert(entry("web", "2", 2));
    assert_eq!(
        (store.len(), store.by_index("name", "web").unwrap().len()),
        (2, 2)
    );
    assert_eq!(store.get(&Key::cluster("2")).unwrap().version(), Version(2));
    assert!(store.get(&Key::new("default", "web")).is_none());
    store.remove(&Key::cluster("1"));
    assert_eq!(store.by_index("name", "web").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn queued_keys_can_be_listed() {
    let fifo = DeltaFifo::new(Store::new());
    fifo.push(Delta::Added(entry("b", "1", 1)));
    fifo.push(Delta::Added(entry("a", "2", 2)));
    fifo.push(Delta::Updated(entry("b", "1", 3)));
    fifo.push(Delta::Deleted(entry("a", "2", 4)));
    let listed: Vec<String> = fifo
        .list()
        .iter()
        .map(|entry| format!("{entry:?}"))
        .collect();
    assert_eq!(listed, ["default/b@3", "default/a@4"]);
    assert_eq!(fifo.get_by_key(&Key::new("default", "a")).unwrap().len(), 2);
    assert!(fifo.get_by_key(&Key::new("default", "c")).is_none());
    assert_eq!(
        fifo.pop(10).await.unwrap().deltas.len(),
        2,
        "they are still there"
    );
    assert!(fifo.list().is_empty() && fifo.list_keys().is_empty());
}

/// Applies all deltas to the store and returns each as text.
async fn take(fifo: &DeltaFifo<Object>, store: &Store<Object>) -> Vec<String> {
    let batch = fifo.pop(100).await.unwrap();
    let deltas: Vec<_> = batch.deltas.into_iter().flatten().collect();
    deltas
        .iter()
        .for_each(|delta| drop(store.insert(delta.entry().clone())));
    let text = |delta: &Delta<Object>| match delta {
        Delta::Sync(entry) => format!("sync {}", entry.key().name()),
        delta => format!(
            "{} {}",
            if delta.is_gone() { "gone" } else { "here" },
            delta.entry().key().name()
        ),
    };
    deltas.iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn reflector_resyncs_periodically_across_watches() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    create(&cluster, "b").await;
    let store = Store::new();
    let fifo = DeltaFifo::new(store.clone());
    let source = ListWatch::at(wire.client(), PATH);
    let mut reflector: Reflector<Object, _> = Reflector::new(source, fifo.clone());
    reflector.resync = Some(10 * MINUTE);
    let running = tokio::spawn(reflector.run());
    let start = Instant::now();
    assert_eq!(take(&fifo, &store).await, ["here a", "here b"]);
    // The resync period spans watches and events, and does not repeat queued deltas.
    tokio::time::sleep(MINUTE).await;
    wire.hang_up(End::Closed);
    tokio::time::sleep(8 * MINUTE).await;
    change(&cluster, "a", 1).await;
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(take(&fifo, &store).await, ["here a", "sync b"]);
    loop {
        let mut taken = take(&fifo, &store).await;
        taken.sort();
        if !taken.is_empty() {
            assert_eq!(taken, ["sync a", "sync b"]);
            break;
        }
    }
    let minutes = start.elapsed().as_secs() / 60;
    assert_eq!(
        minutes, 20,
        "the second resync is due a period after the first"
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn reflector_without_a_period_never_resyncs() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let store = Store::new();
    let fifo = DeltaFifo::new(store.clone());
    let source = ListWatch::at(cluster.client(), PATH);
    let running = tokio::spawn(Reflector::<Object, _>::new(source, fifo.clone()).run());
    assert_eq!(take(&fifo, &store).await, ["here a"]);
    let quiet = timeout(Duration::from_secs(3600), async {
        while take(&fifo, &store).await.is_empty() {}
    });
    assert!(quiet.await.is_err(), "something was queued");
    running.abort();
}
