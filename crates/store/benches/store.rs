//! Reading and writing at different sizes. Claim: no cost grows with the store by more than a logarithm, except that
//! of what is asked for; and a write to disk costs little more than its share of one sync.
//!
//! `MILLION=1 cargo bench -p mizzen-store` adds a million records.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use mizzen_store::{Draft, Expect, Keyspace, Options, Store, WatchScope, Write};
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// How many records are there.
fn sizes() -> Vec<usize> {
    let million = std::env::var_os("MILLION").map(|_| 1_000_000);
    [1000, 100_000].into_iter().chain(million).collect()
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
});

/// 1.5 KB, three terms, one of them rare: every hundredth record has it.
fn draft(n: usize) -> Draft {
    let rare = if n.is_multiple_of(100) {
        "rare"
    } else {
        "common"
    };
    let terms = [
        format!("app={}", n % 10),
        format!("node={}", n % 1000),
        rare.to_owned(),
    ];
    Draft {
        value: vec![b'x'; 1500].into(),
        stamp: Some(700),
        terms: terms.map(Arc::<str>::from).to_vec(),
        ..Draft::default()
    }
}

fn put(space: &Keyspace, n: usize) -> Write {
    Write::put(
        space,
        format!("ns-{}/pod-{n:07}", n % 100),
        Expect::Any,
        draft(n),
    )
}

fn fill(store: Store, n_records: usize) -> (Store, Keyspace) {
    let space = store.keyspace("pods");
    for start in (0..n_records).step_by(1000) {
        let writes = (start..start + 1000).map(|n| put(&space, n)).collect();
        RUNTIME.block_on(store.commit(writes)).unwrap();
    }
    (store, space)
}

/// One store per size, made once.
fn memory(n_records: usize) -> (Store, Keyspace) {
    static STORES: Mutex<Vec<(usize, Store, Keyspace)>> = Mutex::new(Vec::new());
    let mut stores = STORES.lock();
    if let Some((_, store, space)) = stores.iter().find(|(n, ..)| *n == n_records) {
        return (store.clone(), space.clone());
    }
    let (store, space) = fill(Store::in_memory(Options::default()), n_records);
    stores.push((n_records, store.clone(), space.clone()));
    (store, space)
}

#[divan::bench(args = sizes())]
fn snapshot_and_get(bencher: Bencher, n_records: usize) {
    let (_, space) = memory(n_records);
    bencher.bench(|| {
        space
            .snapshot()
            .get(black_box("ns-77/pod-0000777"))
            .cloned()
    });
}

#[divan::bench(args = sizes())]
fn page_of_500(bencher: Bencher, n_records: usize) {
    let (_, space) = memory(n_records);
    let snapshot = space.snapshot();
    let page = || {
        snapshot
            .range("", Some("ns-3/"))
            .take(500)
            .map(|record| record.value.len())
            .sum::<usize>()
    };
    bencher.counter(ItemsCount::new(500_usize)).bench(page);
}

#[divan::bench(args = sizes())]
fn one_record_in_a_hundred_by_term(bencher: Bencher, n_records: usize) {
    let (_, space) = memory(n_records);
    let snapshot = space.snapshot();
    let find = || {
        snapshot
            .with_term("rare", "", None)
            .map(|record| record.value.len())
            .sum::<usize>()
    };
    bencher
        .counter(ItemsCount::new(n_records / 100))
        .bench(find);
}

#[divan::bench(args = sizes())]
fn update_in_memory(bencher: Bencher, n_records: usize) {
    let (store, space) = memory(n_records);
    let mut n = 0;
    let next = || {
        n = (n + 7919) % n_records;
        put(&space, n)
    };
    bencher
        .with_inputs(next)
        .bench_local_values(|write| RUNTIME.block_on(store.commit_one(write)).unwrap());
}

/// What waking that many watchers costs the writer.
#[divan::bench(args = [0, 1000], sample_size = 1)]
fn update_in_memory_with_watchers(bencher: Bencher, n_watchers: usize) {
    let (store, space) = fill(Store::in_memory(Options::default()), 1000);
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..n_watchers {
        let mut watch = space.watch(store.revision()).unwrap();
        let told = told.clone();
        RUNTIME.spawn(async move {
            while let Ok(events) = watch.next().await {
                told.fetch_add(events.len(), Ordering::Relaxed);
            }
        });
    }
    let mut n_writes = 0;
    let next = || {
        // All have read the last write, and sleep again, before the clock runs.
        while told.load(Ordering::Relaxed) < n_writes * n_watchers {
            RUNTIME.block_on(tokio::task::yield_now());
        }
        n_writes += 1;
        put(&space, 1)
    };
    let write = |write| RUNTIME.block_on(store.commit_one(write)).unwrap();
    bencher.with_inputs(next).bench_local_values(write);
}

/// An event costs the watches that it concerns, not all: here one of them.
#[divan::bench(args = [10, 10_000])]
fn update_in_memory_with_watches_of_one_key_each(bencher: Bencher, n_watches: usize) {
    let (store, space) = fill(Store::in_memory(Options::default()), n_watches.max(1000));
    let told = Arc::new(AtomicUsize::new(0));
    for n in 0..n_watches {
        let key = put(&space, n).key;
        let scope = WatchScope::Key(key);
        let mut watch = space.watch_scope(store.revision(), scope).unwrap();
        let told = told.clone();
        RUNTIME.spawn(async move {
            while let Ok(events) = watch.next().await {
                told.fetch_add(events.len(), Ordering::Relaxed);
            }
        });
    }
    let mut n_writes = 0;
    bencher.bench_local(|| {
        RUNTIME
            .block_on(store.commit_one(put(&space, n_writes % n_watches)))
            .unwrap();
        n_writes += 1;
        // The watch has read the event.
        while told.load(Ordering::Relaxed) < n_writes {
            RUNTIME.block_on(tokio::task::yield_now());
        }
    });
}

#[divan::bench(args = [1000, 10_000])]
fn look_back_1000_events(bencher: Bencher, n_records: usize) {
    let (store, space) = fill(Store::in_memory(Options::default()), n_records);
    for n in 0..1000 {
        RUNTIME.block_on(store.commit_one(put(&space, n))).unwrap();
    }
    let before = mizzen_store::Revision(store.revision().0 - 1000);
    // A fork has the window and no retained snapshots.
    bencher
        .with_inputs(|| store.fork().keyspace("pods"))
        .bench_local_refs(|space| space.snapshot_at(before).unwrap());
}

/// As many writers as the argument says, each waiting for its write to be on disk.
#[divan::bench(args = [1, 8, 64], sample_count = 20, sample_size = 10)]
fn update_on_disk(bencher: Bencher, n_writers: usize) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (store, space) = fill(Store::open(dir.path(), Options::default()).unwrap(), 10_000);
    let round = |start: usize| {
        let commits =
            (0..n_writers).map(|n| store.commit_one(put(&space, (start + n * 131) % 10_000)));
        RUNTIME.block_on(all(commits));
    };
    let mut start = 0;
    let next = || {
        start += 7919;
        start
    };
    bencher
        .counter(ItemsCount::new(n_writers))
        .with_inputs(next)
        .bench_local_values(round);
}

/// Polls all of them together.
async fn all<F: Future>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// How fast a store is opened, of which all files are in the page cache. Dropping it is not measured.
#[divan::bench(args = sizes(), sample_count = 5, sample_size = 1)]
fn open(bencher: Bencher, n_records: usize) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(fill(
        Store::open(dir.path(), Options::default()).unwrap(),
        n_records,
    ));
    open_dir(bencher, &dir);
}

/// The same after a third of the records were written again, in another order than that of their keys.
#[divan::bench(args = sizes(), sample_count = 5, sample_size = 1)]
fn open_after_updates(bencher: Bencher, n_records: usize) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (store, space) = fill(
        Store::open(dir.path(), Options::default()).unwrap(),
        n_records,
    );
    let updates: Vec<_> = (0..n_records / 3).map(|n| n * 7919 % n_records).collect();
    for updates in updates.chunks(100) {
        let writes = updates.iter().map(|&n| put(&space, n)).collect();
        RUNTIME.block_on(store.commit(writes)).unwrap();
    }
    drop((store, space));
    open_dir(bencher, &dir);
}

fn open_dir(bencher: Bencher, dir: &TempDir) {
    let files = std::fs::read_dir(dir.path()).unwrap().flatten();
    // The reserve is not read.
    let read = files.filter(|file| file.file_name() != "reserve");
    let n_bytes: u64 = read.map(|file| file.metadata().unwrap().len()).sum();
    bencher
        .counter(BytesCount::new(n_bytes))
        .bench_local(|| Store::open(dir.path(), Options::default()).unwrap());
}
