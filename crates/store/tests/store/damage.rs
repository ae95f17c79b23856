//! Damaged files: opening gives everything or an error that names the file, never less.

use std::fs;

use mizzen_store::{OpenError, Options, Store};
use tempfile::TempDir;

use crate::rig::{Rig, draft, dump, tagged};

/// The files of a store that has been through a few generations, and what it holds.
struct Sample {
    files: Vec<File>,
    content: Vec<String>,
    /// Where copies are opened.
    copy: TempDir,
}

#[derive(Clone)]
struct File {
    name: String,
    bytes: Vec<u8>,
    /// How many of the bytes say something: a log ends with zeros.
    used: usize,
}

fn options() -> Options {
    Options {
        compaction_bytes: 1500,
        ..Options::default()
    }
}

async fn sample() -> Sample {
    let mut rig = Rig::disk(options());
    for n in 0..40 {
        rig.put_draft(
            &format!("{}", n % 5),
            tagged(&format!("{n}{}", "x".repeat(40)), &["a=b"]),
        )
        .await;
    }
    rig.delete("3").await;
    rig.put_until_folded("2", "x").await;
    // The last log holds something too, whenever the last fold was.
    rig.reopen().await;
    rig.put_draft("last", draft("1")).await;
    rig.delete("4").await;
    rig.store.close().await;
    let content = content(&rig.store);
    Sample {
        files: files(&rig.dir.unwrap()),
        content,
        copy: tempfile::tempdir().unwrap(),
    }
}

fn content(store: &Store) -> Vec<String> {
    let snapshot = store.keyspace("things").snapshot();
    let mut content = dump(&snapshot);
    content.extend(
        snapshot
            .with_term("a=b", "", None)
            .map(|record| format!("{record:?}")),
    );
    content.push(format!("at {}", store.revision()));
    content
}

/// All that say something, and of the zeros that end a log only some.
fn files(dir: &TempDir) -> Vec<File> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (name, mut bytes) = (
            entry.file_name().into_string().unwrap(),
            fs::read(entry.path()).unwrap(),
        );
        let mut used = bytes.len();
        if name.ends_with(".log") {
            used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
            bytes.truncate(used + 64);
        }
        files.push(File { name, bytes, used });
    }
    files.retain(|file| !["lock", "reserve"].contains(&file.name.as_str()));
    files
}

impl Sample {
    fn open(&self, files: &[File]) -> Result<Store, OpenError> {
        fs::remove_dir_all(&self.copy).unwrap();
        fs::create_dir(&self.copy).unwrap();
        files
            .iter()
            .for_each(|file| fs::write(self.copy.path().join(&file.name), &file.bytes).unwrap());
        Store::open(&self.copy, options())
    }

    /// Whether opening refuses after `damage` to one file, and names a file. If it does not, all must be there.
    #[track_caller]
    fn notices(&self, file: &File, damage: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut files = self.files.clone();
        let damaged = files
            .iter_mut()
            .find(|damaged| damaged.name == file.name)
            .unwrap();
        damage(&mut damaged.bytes);
        match self.open(&files) {
            Ok(store) => {
                assert_eq!(content(&store), self.content, "silent loss");
                false
            }
            Err(OpenError::Corrupt { path, .. }) => path.parent() == Some(self.copy.path()),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn undamaged_files_open() {
    let sample = sample().await;
    assert!(sample.files.iter().any(|file| file.name.ends_with(".base")));
    assert_eq!(
        content(&sample.open(&sample.files).unwrap()),
        sample.content
    );
}

#[tokio::test]
async fn a_flipped_bit_is_detected_at_every_offset() {
    let sample = sample().await;
    for file in &sample.files {
        for at in 0..file.used {
            assert!(
                sample.notices(file, |bytes| bytes[at] ^= 1 << (at % 8)),
                "{} at {at}",
                file.name
            );
        }
    }
}

#[tokio::test]
async fn a_truncated_file_is_detected_at_every_length() {
    let sample = sample().await;
    for file in &sample.files {
        for length in 0..file.used {
            assert!(
                sample.notices(file, |bytes| bytes.truncate(length)),
                "{} cut at {length}",
                file.name
            );
        }
    }
}

#[tokio::test]
async fn overwritten_ranges_are_detected() {
    let sample = sample().await;
    for file in &sample.files {
        for start in (0..file.used).step_by(37) {
            for (length, byte) in [(8, 0), (64, 0), (512, 0xff)] {
                let stretch = start..(start + length).min(file.used);
                let same = file.bytes[stretch.clone()].iter().all(|&old| old == byte);
                let noticed = sample.notices(file, |bytes| bytes[stretch].fill(byte));
                assert_eq!(noticed, !same, "{} at {start}", file.name);
            }
        }
    }
}

#[tokio::test]
async fn a_missing_file_is_detected_and_named() {
    let sample = sample().await;
    for file in &sample.files {
        let mut files = sample.files.clone();
        files.retain(|kept| kept.name != file.name);
        let missing = sample.copy.path().join(&file.name);
        let error = sample.open(&files).unwrap_err();
        assert!(
            matches!(&error, OpenError::Corrupt { path, .. } if *path == missing),
            "{error}"
        );
    }
}

#[tokio::test]
async fn swapped_files_are_detected() {
    let sample = sample().await;
    for file in &sample.files {
        for other in sample.files.iter().filter(|other| other.name != file.name) {
            assert!(
                sample.notices(file, |bytes| bytes.clone_from(&other.bytes)),
                "{} is {}",
                file.name,
                other.name
            );
        }
    }
}

#[tokio::test]
async fn an_unknown_format_is_distinguished_from_corruption() {
    let mut sample = sample().await;
    let log = sample
        .files
        .iter_mut()
        .find(|file| file.name.ends_with(".log"))
        .unwrap();
    log.bytes[8] = 9;
    let checksum = crc32fast::hash(&log.bytes[..32]);
    log.bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
    let error = sample.open(&sample.files).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Version {
                found: 9,
                supported: 1,
                ..
            }
        ),
        "{error}"
    );
}
