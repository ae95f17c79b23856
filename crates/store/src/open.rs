//! Why a store could not be opened.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::EncryptionError;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{} is damaged: {detail}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// How it is known.
        detail: String,
    },
    /// A file has an unknown format.
    #[error("{} has format {found}, this version reads {supported}", path.display())]
    Version {
        /// The file in question.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// Ours.
        supported: u64,
    },
    /// A record cannot be decrypted, or is in plain text and must not be.
    #[error("{space} {key} cannot be opened")]
    Decrypt {
        /// The record's space.
        space: Arc<str>,
        /// The record's key.
        key: Arc<str>,
        /// Why not.
        source: EncryptionError,
    },
    /// The operating system refused.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file in question.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}
