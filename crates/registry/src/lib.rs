//! Create, read, update, delete, list and watch for any kind: where objects meet the store.
//!
//! A [`Resource`] is a kind joined with the place where its objects are kept. Each verb is a file; a write
//! is prepared, validated, admitted by a [`ValidatingAdmission`], stamped and committed, and retried after a conflict.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), mizzen_object::Status> {
//! use std::sync::Arc;
//!
//! use mizzen_object::{Kind, NoHooks, schema};
//! use mizzen_registry::{Create, Key, Registry, Resource, Store, StoreOptions};
//! use mizzen_value::clock::{Clock, Random};
//! use mizzen_value::value;
//!
//! /// A clock that stands still, and bytes that are not random: what a test wants.
//! struct Fixed;
//!
//! impl Clock for Fixed {
//!     fn now(&self) -> (i64, u32) {
//!         (1_800_000_000, 0)
//!     }
//! }
//!
//! impl Random for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) {
//!         bytes.fill(7);
//!     }
//! }
//!
//! const KINDS: &str = "
//! group example.com
//! version v1
//! kind Pizza
//!   names pizzas pizza
//!   verbs create get
//! type Pizza
//!   1 metadata !ObjectMeta
//!   2 topping string
//! type ObjectMeta
//!   1 name string
//!   2 namespace string
//! ";
//! let schemas = schema::parse([("pizza.kinds", KINDS)]).unwrap();
//! let kind = Kind { data: Arc::new(schemas.kinds[0].clone()), hooks: Arc::new(NoHooks) };
//!
//! let registry = Registry::new(Store::in_memory(StoreOptions::default()), Arc::new(Fixed), Arc::new(Fixed));
//! let pizzas = Resource::new(registry.store(), kind, None);
//!
//! let napoli = value!({"metadata": {"name": "napoli"}, "topping": "anchovies"});
//! registry.create(Create::new(&pizzas, "default", napoli)).await?;
//!
//! let stored = registry.get(&pizzas, &Key::new("default", "napoli"), "")?.value();
//! assert_eq!(stored["topping"].str(), "anchovies");
//! assert_eq!(stored["metadata"]["creationTimestamp"].str(), "2027-01-15T08:00:00Z");
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: no kind is named here. Differences between kinds are data or hooks.

mod admission;
mod attempt;
pub mod clock;
mod compact;
mod convert;
mod copy;
mod create;
mod decode;
mod delete;
mod encode;
mod follow;
mod fresh;
mod get;
mod header;
mod key;
mod list;
mod object;
mod prepare;
mod render;
mod resource;
mod status;
mod storage_codec;
mod storage_prefix;
mod token;
mod update;
mod validate;
mod version;
mod warnings;
mod watch;

pub use admission::{NoAdmission, UpdateFn, ValidatingAdmission};
pub use convert::Convert;
pub use create::Create;
pub use delete::{DeleteOptions, Deleted, Propagation};
pub use follow::{Changed, FollowedChanges, Follower};
pub use key::Key;
pub use list::{ListOptions, ObjectList, Selection};
pub use object::Object;
pub use resource::Resource;
pub use storage_codec::{StorageCodec, undecodable};
pub use update::{Update, Updated};
pub use version::{Match, VersionError, parse_version};
pub use warnings::Warnings;
pub use watch::{ResourceWatch, WatchEvent, WatchEventType as WatchChange, WatchOptions};

use std::sync::Arc;

pub use mizzen_store::{
    AppendError, BoxFuture, Codec, Draft, EncodedRecord, EngineCheck, Expect, Health, Journal,
    JournalEntry, Keyspace, OpenError, Options as StoreOptions, Record, Revision, Saved, Store,
    WindowLimits, Write, WriteError,
};
use mizzen_value::clock::{Clock, Random};
use mizzen_value::time::{self, Moment};

/// The registry of all resources. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Registry {
    /// A registry over `store`, with an injected clock and source of randomness.
    pub fn new(store: Store, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Registry {
        Registry {
            store,
            clock,
            random,
        }
    }

    /// The same clock and randomness over another store.
    pub fn with_store(&self, store: Store) -> Registry {
        Registry {
            store,
            ..self.clone()
        }
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The time, in Unix seconds.
    pub fn now(&self) -> i64 {
        self.clock.now().0
    }

    /// The time, in the resolution of the clock.
    pub fn moment(&self) -> Moment {
        let (seconds, nanos) = self.clock.now();
        Moment { seconds, nanos }
    }

    /// The source of randomness.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// The current time in RFC 3339, as in objects.
    pub fn timestamp(&self) -> String {
        time::from_unix(self.now())
    }

    /// Deletes expired objects and returns their number.
    pub async fn expire(&self) -> usize {
        let now = u64::try_from(self.now()).unwrap_or_default();
        self.store.expire(now).await.unwrap_or_default()
    }
}
