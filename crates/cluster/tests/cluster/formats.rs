//! Data directories and backups that earlier versions wrote, with real objects. Every later version opens them.
//!
//! A new format gets a directory of its own beside these; none is ever changed or removed. Those of format 1 were made
//! so:
//!
//! ```text
//! mizzen import objects.jsonl --keep all --data-dir plain
//! mizzen import more.jsonl --keep uid --data-dir plain
//! mizzen import objects.jsonl --keep all --data-dir encrypted --encryption-provider-config encryption.yaml
//! mizzen import more.jsonl --keep uid --data-dir encrypted --encryption-provider-config encryption.yaml
//! mizzen backup whole.backup --data-dir plain
//! mizzen export exported.jsonl --all --keep all --data-dir plain
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use crate::backup::succeed;

fn kept(name: &str) -> PathBuf {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/formats/1");
    formats.join(name)
}

/// A directory with a copy of the data directory of that name.
fn copy(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    for entry in fs::read_dir(kept(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
    }
    directory
}

/// The data directory in `directory` is whole and has the objects that were once exported, with their revisions.
fn check(directory: &Path, arguments: &[&str]) {
    let run = |command: &[&str]| succeed(&[command, arguments].concat(), directory);
    let said = run(&["check", "data"]);
    let exported = fs::read_to_string(kept("exported.jsonl")).unwrap();
    let n_objects = exported.lines().count();
    let expected = format!("data is whole: {n_objects} objects of ");
    assert!(said.starts_with(&expected), "{said}");
    run(&[
        "export",
        "now.jsonl",
        "--all",
        "--keep",
        "all",
        "--data-dir",
        "data",
    ]);
    let now = fs::read_to_string(directory.join("now.jsonl")).unwrap();
    // The first exports did not end with the revision of their store.
    let (objects, revision) = now.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(objects, exported.trim_end());
    assert!(revision.contains("\"StoreRevision\""), "{revision}");
}

#[test]
fn a_data_directory_of_format_1_has_its_objects() {
    check(copy("plain").path(), &[]);
}

#[test]
fn an_encrypted_data_directory_of_format_1_has_its_objects() {
    let directory = copy("encrypted");
    let files = fs::read_dir(kept("encrypted")).unwrap();
    let files = files.map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    let prefix = b"k8s:enc:aescbc:v1:key1:";
    assert!(files.into_iter().any(|bytes| has(&bytes, prefix)));
    let configuration = kept("encryption.yaml");
    let configuration = format!(
        "--encryption-provider-config={}",
        configuration.to_str().unwrap()
    );
    check(directory.path(), &[&configuration]);
}

#[test]
fn a_backup_of_format_1_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let backup = kept("whole.backup");
    let restore = ["restore", backup.to_str().unwrap(), "--data-dir", "data"];
    succeed(&restore, directory.path());
    check(directory.path(), &[]);
}
