//! What was written, and when? Bytes without meaning: keys, one global revision, compare-and-commit.
//!
//! A [`Store`] holds named [`Keyspace`]s, each an ordered map from key to [`Record`]. A transaction of
//! [`Write`]s commits whole or not at all and takes the next [`Revision`]. Readers take a
//! [`Snapshot`] in constant time and never wait for a writer's disk; a [`Watch`] is a cursor into the
//! watch window of the space, so a slow reader costs nothing.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), mizzen_store::WriteError> {
//! use mizzen_store::{Draft, Expect, Options, Store, Write};
//!
//! let store = Store::in_memory(Options::default());
//! let space = store.keyspace("colours");
//! let draft = Draft { value: "blue".into(), ..Draft::default() };
//! store.commit_one(Write::put(&space, "sky", Expect::Absent, draft)).await?;
//! assert_eq!(space.snapshot().get("sky").unwrap().value, "blue");
//! # Ok(())
//! # }
//! ```
//!
//! In the order of a write: `write` (transactions), `engine` (what decides and keeps them; `memory`, `disk_engine`, and the
//! crate `mizzen-etcd`), `sequencer` (checks and orders them), `journal` and `disk` (make them durable, encrypted by
//! `encryption`; `load` reads them at start), `feed` (publishes what another process decided, read with a `codec`), `state`
//! and `window` (what is published), `watch_index` (which watches are notified), `snapshot` and `watch` (how it is read).
//!
//! Invariant: nothing here parses a value, knows a kind or reads a clock.
//! Invariant: what a reader sees was durable first.

mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
mod encryption;
mod record;
mod revision;
mod write;

mod disk;
mod disk_engine;
mod engine;
mod feed;
mod health;
mod journal;
mod load;
mod memory;
mod open;
mod sequencer;
mod staged;
mod store;

mod keyspace;
mod keyspaces;
mod ledger;
mod retained;
mod revision_times;
mod state;
mod window;

mod snapshot;
mod watch;
mod watch_index;

pub use codec::{Codec, EncodedRecord};
pub use disk::{CreatedRecord, backup, create};
pub use encryption::{EncryptedContent, EncryptionError, Encryptor, KeyMark};
pub use engine::{BoxFuture, CommitResult, Engine, EngineCheck, ReadError};
pub use feed::{Feed, FeedChange, Replacement};
pub use health::{Health, WriteFailures};
pub use journal::{AppendError, Journal, JournalEntry, LiveRecords, Saved};
pub use keyspace::{Keyspace, KeyspaceStats};
pub use open::OpenError;
pub use record::Record;
pub use revision::Revision;
pub use snapshot::Snapshot;
pub use store::{Options, Store};
pub use watch::{Expired, Watch};
pub use watch_index::WatchScope;
pub use window::{Event, EventKind, WindowLimits};
pub use write::{Draft, Expect, Write, WriteError, WriteOperation};
