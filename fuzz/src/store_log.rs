//! A store's log whose frames have the right checksums, but hold anything: opening it succeeds or names the file, and what
//! was opened once opens again with the same content.

#![allow(
    unreachable_pub,
    reason = "tests include this file as a module of their own"
)]

use std::fs;
use std::path::Path;

use mizzen_store::{OpenError, Options, Store};

/// The frames of a log, each with its length in front (two bytes, little-endian).
pub fn store_log(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let log = log(bytes);
    fs::write(dir.path().join("00000001.log"), &log).expect("a file");
    fs::write(dir.path().join("tip"), tip(&log)).expect("a file");
    let Some(first) = open(dir.path()) else {
        return;
    };
    assert_eq!(open(dir.path()), Some(first));
}

/// The revision and the number of records in the keyspace `s`; `None` if the log is rejected.
fn open(dir: &Path) -> Option<(String, usize)> {
    match Store::open(dir, Options::default()) {
        Ok(store) => Some((
            store.revision().to_string(),
            store.keyspace("s").snapshot().len(),
        )),
        // Without a key encrypted records cannot be decrypted.
        Err(OpenError::Decrypt { .. }) => None,
        Err(error @ OpenError::Corrupt { .. }) => {
            assert!(error.to_string().contains("00000001.log"), "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const GENERATION: u64 = 1;

/// All of the log was acknowledged.
fn tip(log: &[u8]) -> Vec<u8> {
    let tip = [GENERATION.to_le_bytes(), (log.len() as u64).to_le_bytes()].concat();
    let checksum = crc32fast::hash(&tip);
    [&tip[..], &checksum.to_le_bytes()].concat()
}

/// A log of the first generation in format 1: a header, and frames under checksums that cover their place.
fn log(mut bytes: &[u8]) -> Vec<u8> {
    const ROLE: u64 = 2;
    let mut file = b"mizzen\r\n".to_vec();
    for number in [1, ROLE, GENERATION] {
        file.extend(number.to_le_bytes());
    }
    file.extend(crc32fast::hash(&file).to_le_bytes());
    while let [low, high, rest @ ..] = bytes {
        let (payload, rest) =
            rest.split_at(rest.len().min(u16::from_le_bytes([*low, *high]).into()));
        let mut covered = Vec::new();
        for number in [ROLE, GENERATION, file.len() as u64, payload.len() as u64] {
            covered.extend(number.to_le_bytes());
        }
        covered.extend(payload);
        file.extend((payload.len() as u32).to_le_bytes());
        file.extend(crc32fast::hash(&covered).to_le_bytes());
        file.extend(payload);
        bytes = rest;
    }
    file
}
