//! Data directories that earlier versions wrote. Every later version opens them.
//!
//! A new format gets a directory of its own beside these; none is ever changed or removed.

use std::fs;
use std::path::Path;

use mizzen_store::{Options, Revision, Store};

use crate::rig::dump;

/// Opens a copy of the directory of format `format`.
fn open(format: u32) -> (tempfile::TempDir, Store) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/store/formats/{format}"));
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let store = Store::open(copy.path(), Options::default()).unwrap();
    (copy, store)
}

/// A base and the log since; puts, deletes, terms, an expiry, a stamped revision, two spaces.
#[test]
fn a_directory_of_format_1_opens() {
    let (_copy, store) = open(1);
    let things = store.keyspace("things").snapshot();
    assert_eq!(dump(&things), ["a=1", "b=7", r#"stamped={"v":"11"}"#]);
    assert_eq!(dump(&store.keyspace("others").snapshot()), ["é=2"]);
    assert_eq!(store.revision(), Revision(13));
    let stamped = things.get("stamped").unwrap();
    assert_eq!(stamped.digits(), Some(6..8));
    assert_eq!(stamped.expires, Some(4_102_444_800));
    let tagged: Vec<_> = things.with_term("x", "", None).collect();
    assert_eq!(tagged.len(), 1, "{tagged:?}");
}
