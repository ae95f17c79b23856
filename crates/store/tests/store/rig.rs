//! A store under test, and short ways to use it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mizzen_store::{Draft, Expect, Keyspace, Options, Record, Revision, Snapshot, Store, Write};
use tempfile::TempDir;

use crate::toy::Toy;

/// A store and the directory that it may live in.
pub(crate) struct Rig {
    pub store: Store,
    pub options: Options,
    pub dir: Option<TempDir>,
    /// The encryptor, if there is one.
    pub toy: Option<Arc<Toy>>,
}

impl Rig {
    pub(crate) fn memory(options: Options) -> Rig {
        Rig {
            store: Store::in_memory(options.clone()),
            options,
            dir: None,
            toy: None,
        }
    }

    pub(crate) fn disk(options: Options) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        Rig {
            store: Store::open(dir.path(), options.clone()).unwrap(),
            options,
            dir: Some(dir),
            toy: None,
        }
    }

    /// On disk, where all but the spaces `two` and `others` are encrypted.
    pub(crate) fn encrypted(options: Options) -> Rig {
        let toy = Toy::with_keys(&[1]);
        let rig = Rig::disk(Options {
            encryptor: Some(toy.clone()),
            ..options
        });
        Rig {
            toy: Some(toy),
            ..rig
        }
    }

    /// Closes and opens a store on disk; one in memory goes on.
    pub(crate) async fn reopen(&mut self) {
        if let Some(dir) = &self.dir {
            self.store.close().await;
            self.store = Store::open(dir.path(), self.options.clone()).unwrap();
        }
    }

    /// Writes until the log was compacted into a base: the background has its own pace.
    pub(crate) async fn put_until_folded(&self, key: &str, value: &str) {
        let dir = self.dir.as_ref().unwrap().path();
        let is_base = |path: &Path| {
            path.extension()
                .is_some_and(|extension| extension == "base")
        };
        while !fs::read_dir(dir)
            .unwrap()
            .any(|entry| is_base(&entry.unwrap().path()))
        {
            self.put(key, value).await;
        }
    }

    pub(crate) fn space(&self) -> Keyspace {
        self.store.keyspace("things")
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Arc<Record> {
        self.put_draft(key, draft(value)).await
    }

    pub(crate) async fn put_draft(&self, key: &str, draft: Draft) -> Arc<Record> {
        self.store
            .commit_one(Write::put(&self.space(), key, Expect::Any, draft))
            .await
            .unwrap()
    }

    pub(crate) async fn delete(&self, key: &str) -> Arc<Record> {
        self.store
            .commit_one(Write::delete(
                &self.space(),
                key,
                Expect::Any,
                draft("gone"),
            ))
            .await
            .unwrap()
    }
}

pub(crate) fn draft(value: &str) -> Draft {
    Draft {
        value: value.to_owned().into(),
        ..Draft::default()
    }
}

pub(crate) fn tagged(value: &str, terms: &[&str]) -> Draft {
    Draft {
        terms: terms.iter().map(|&term| term.into()).collect(),
        ..draft(value)
    }
}

/// `key=value` of every record, in order.
pub(crate) fn dump(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .range("", None)
        .map(|record| show(record))
        .collect()
}

pub(crate) fn show(record: &Record) -> String {
    format!(
        "{}={}",
        record.key,
        std::str::from_utf8(&record.value).unwrap()
    )
}

pub(crate) fn at(revision: u64) -> Revision {
    Revision(revision)
}
