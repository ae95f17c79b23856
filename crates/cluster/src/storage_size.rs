//! The size of the store's files, for `/metrics`.

use std::fs;
use std::path::PathBuf;

use mizzen_metrics::{Collector, Families};

/// The directory of a store on disk.
#[derive(Debug)]
pub(crate) struct StorageSize(pub PathBuf);

impl Collector for StorageSize {
    fn collect(&self, families: &mut Families) {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let files = files.filter_map(|entry| entry.metadata().ok());
        let bytes: u64 = files
            .filter(fs::Metadata::is_file)
            .map(|file| file.len())
            .sum();
        families
            .gauge(
                "apiserver_storage_size_bytes",
                "The size of the files of the store.",
            )
            .add(&[("storage_cluster_id", "default")], bytes);
    }
}
