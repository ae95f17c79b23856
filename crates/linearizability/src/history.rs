//! What clients saw.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Everything that the clients of a run saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Requests for single objects, in any order.
    pub operations: Vec<Operation>,
    /// Reads of single objects that may come from a cache.
    pub reads: Vec<Read>,
    /// Lists.
    pub lists: Vec<List>,
    /// Watches.
    pub watches: Vec<Watch>,
}

impl History {
    /// The keys that were named or seen.
    pub(crate) fn keys(&self) -> BTreeSet<&str> {
        let operations = self.operations.iter().map(|operation| &operation.key);
        let listed = self.lists.iter().flat_map(|list| list.items.keys());
        let watched = self.watches.iter().flat_map(|watch| {
            watch
                .items
                .keys()
                .chain(watch.events.iter().map(|it| &it.key))
        });
        let keys = operations.chain(listed).chain(watched);
        keys.map(String::as_str).collect()
    }
}

/// A request for one object, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client that sent it.
    pub client: usize,
    /// The name of the object.
    pub key: String,
    /// When it was sent: a position in the order of all calls and returns.
    pub called: u64,
    /// When its response was there. Not used if the outcome is unknown.
    pub returned: u64,
    /// What was requested.
    pub action: Action,
    /// What was answered.
    pub outcome: Outcome,
}

impl Operation {
    /// By when it must have taken effect.
    pub(crate) fn deadline(&self) -> u64 {
        match self.outcome {
            Outcome::Unknown => u64::MAX,
            _ => self.returned,
        }
    }

    /// The value that it writes, if it is carried out.
    pub(crate) fn written(&self) -> Option<&str> {
        match &self.action {
            Action::Create { value } | Action::Update { value, .. } => Some(value),
            Action::Delete { .. } | Action::Get => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} [{}, {}] {:?}: {:?}",
            self.client, self.called, self.returned, self.action, self.outcome
        )
    }
}

/// What is requested. Every value is written by one request only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the object.
    Create {
        /// Its content.
        value: String,
    },
    /// Replace the object.
    Update {
        /// Its new content.
        value: String,
        /// Only if this revision wrote it last.
        expected: Option<u64>,
    },
    /// Delete the object.
    Delete {
        /// Only if this revision wrote it last.
        expected: Option<u64>,
    },
    /// Read the object, not from a cache that may be old.
    Get,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A create or update was carried out.
    Stored {
        /// The revision that it took.
        revision: u64,
    },
    /// A delete was carried out.
    Deleted,
    /// A get found the object.
    Found(Version),
    /// There is no such object.
    NotFound,
    /// There is such an object already.
    AlreadyExists,
    /// The last revision of the object is another one.
    Conflict,
    /// The request was rejected for a reason that has nothing to do with the object, such as a full disk.
    Refused,
    /// There was no response: it may take effect at any time from its call on, or never.
    Unknown,
}

/// An object as one write left it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// The revision of the write.
    pub revision: u64,
    /// The content.
    pub value: String,
}

/// A read of one object that is not older than a revision, maybe from a cache: `resourceVersion=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The name of the object.
    pub key: String,
    /// When its response was there.
    pub returned: u64,
    /// The revision whose state, or a later one, was requested.
    pub not_older_than: u64,
    /// The object, if there was one.
    pub found: Option<Version>,
}

/// Which objects a list or watch shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// That of a key.
    Key(String),
    /// Those whose value has this label: what is before its first slash. A write may change it.
    Label(String),
}

impl Scope {
    /// Whether an object is in it.
    pub fn has(&self, key: &str, value: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Key(own) => own == key,
            Scope::Label(label) => value.split_once('/').is_some_and(|(own, _)| own == label),
        }
    }
}

/// A list.
#[derive(Clone, Debug)]
pub struct List {
    /// Which objects were requested.
    pub scope: Scope,
    /// When it was sent.
    pub called: u64,
    /// When its response was there, that of the last page if there were several.
    pub returned: u64,
    /// Which state was requested.
    pub freshness: Freshness,
    /// The revision of the list.
    pub revision: u64,
    /// The objects by key.
    pub items: BTreeMap<String, Version>,
}

/// Which state a list was to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The present.
    MostRecent,
    /// That of a revision: `resourceVersionMatch=Exact`.
    Exact(u64),
    /// That of a revision or of a later one, maybe from a cache: `resourceVersionMatch=NotOlderThan`.
    NotOlderThan(u64),
}

/// A watch: from a list until the watcher had to list again. Connections in between do not count.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Which objects were requested.
    pub scope: Scope,
    /// The watcher.
    pub watcher: usize,
    /// The revision of the list from which it began.
    pub start: u64,
    /// The items of that list.
    pub items: BTreeMap<String, Version>,
    /// Its events, in the order of their arrival.
    pub events: Vec<WatchEvent>,
    /// Every change up to here was delivered: the revision of the last event or bookmark.
    pub end: u64,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which object.
    pub key: String,
    /// The revision and the content of the object; of a deleted one the revision of the delete and the last content. An object
    /// that leaves the scope of the watch is deleted there.
    pub version: Version,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It was replaced.
    Modified,
    /// It was deleted.
    Deleted,
}
