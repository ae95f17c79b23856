//! The suite of engines, on those of this crate.

use mizzen_store::conformance::{self, options};
use mizzen_store::{Expect, Options, WindowLimits, Write};

use crate::rig::{Rig, draft};

async fn rig(rig: Rig) -> Vec<conformance::Rig> {
    let mut conforming = conformance::Rig::new(rig.store.clone()).await;
    if let Some(dir) = &rig.dir {
        let (path, options) = (dir.path().to_owned(), rig.options.clone());
        conforming.reopen = Some(Box::new(move || {
            let opened = mizzen_store::Store::open(&path, options.clone());
            Box::pin(std::future::ready(opened.unwrap()))
        }));
    }
    conforming.keep = Box::new((rig.dir, rig.toy));
    vec![conforming]
}

async fn memory_rig() -> Vec<conformance::Rig> {
    rig(Rig::memory(options())).await
}

async fn disk_rig() -> Vec<conformance::Rig> {
    rig(Rig::disk(options())).await
}

async fn encrypted_rig() -> Vec<conformance::Rig> {
    rig(Rig::encrypted(options())).await
}

mod memory {
    mizzen_store::conforms!(super::memory_rig);
}

mod disk {
    mizzen_store::conforms!(super::disk_rig);
}

mod encrypted {
    mizzen_store::conforms!(super::encrypted_rig);
}

#[tokio::test]
async fn all_windows_together_are_bounded() {
    let window = WindowLimits {
        total_bytes: 3 << 20,
        ..WindowLimits::default()
    };
    let rig = Rig::memory(Options {
        window,
        ..Options::default()
    });
    let large = "x".repeat(100 << 10);
    let spaces: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| rig.store.keyspace(name))
        .collect();
    for n in 0..80 {
        let write = Write::put(&spaces[n % 4], "k", Expect::Any, draft(&large));
        rig.store.commit_one(write).await.unwrap();
        let total: u64 = rig.store.stats().iter().map(|stats| stats.superseded).sum();
        // They are looked at whenever a mebibyte has come.
        assert!(total <= 4 << 20, "{total}");
    }
    let stats = rig.store.stats();
    assert!(stats.iter().all(|stats| stats.events > 0), "{stats:?}");
}

#[tokio::test]
#[should_panic(expected = "a put or delete leaves a record")]
async fn one_check_has_no_record_to_return() {
    let rig = Rig::memory(options());
    let check = Write::check(&rig.space(), "a", Expect::Absent);
    let _ = rig.store.commit_one(check).await;
}
