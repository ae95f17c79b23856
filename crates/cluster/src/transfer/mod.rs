//! Objects on their way out of a cluster and in again: what `mizzen export` and `mizzen import` do.
//!
//! An export is `source` → `selection` → `strip` → `stream`, an import `stream` → `selection` → `strip` → `order` → `target`.
//!
//! | module | content |
//! |---|---|
//! | `pattern`, `selection` | which objects: kinds, groups, names, namespaces, labels |
//! | `generated` | objects that every cluster makes itself, and that are left out by default |
//! | `keep`, `strip` | which fields: what names or describes an object in one cluster only is removed |
//! | `stream` | objects in a file: YAML documents or JSON lines, compressed or not |
//! | `request` | requests with bounded retries |
//! | `served` | the resource types of a server |
//! | `source` | where objects come from |
//! | `order` | owners before dependents, definitions before their objects |
//! | `target` | where objects go: an API server, a data directory that no server uses, or etcd |
//! | `apply` | one object into an API server |
//! | `exact` | objects with uid and revision into a data directory or etcd |
//! | `copy` | all objects of one store in another |
//! | `numbered` | records with their revisions into an etcd that has none |
//! | `directory` | a data directory that no server uses, or etcd, and an API server over it in this process |
//! | `report` | what became of each object |
//!
//! Invariant: an object is in the report of an import exactly once.

mod apply;
mod copy;
mod directory;
mod exact;
mod generated;
mod keep;
mod numbered;
mod order;
mod pattern;
mod report;
mod request;
mod selection;
mod served;
mod source;
mod stream;
mod strip;
mod target;

pub(crate) use apply::OnConflict;
pub(crate) use copy::{CopyError, copy_exactly};
pub(crate) use directory::EtcdObjects;
pub(crate) use keep::{Keep, KeepArgs};
pub(crate) use report::{Outcome, Report};
pub(crate) use selection::{SelectionArgs, SelectionError};
pub(crate) use source::{Exported, Source, SourceError};
pub(crate) use stream::{FileContent, FileError, Format, ObjectFile};
pub(crate) use target::{ImportOptions, Target, TargetError};

use mizzen_value::Value;

/// How messages name an object: `deployment.apps shop/web`.
fn title(object: &Value) -> String {
    let kind = object["kind"].str().to_lowercase();
    let kind = match group_of(object["apiVersion"].str()) {
        "" => kind,
        group => format!("{kind}.{group}"),
    };
    let metadata = &object["metadata"];
    match metadata["namespace"].str() {
        "" => format!("{kind} {}", metadata["name"].str()),
        namespace => format!("{kind} {namespace}/{}", metadata["name"].str()),
    }
}

/// The group of an apiVersion; empty for the core group.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
