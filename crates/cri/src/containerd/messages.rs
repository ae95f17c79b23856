//! The messages of containerd's own services, version 1, as far as they are used.
//!
//! By hand, as those of the interface are. Field numbers are those of containerd, `api/services`.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Enumeration, Message};

/// A blob of the content store.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Descriptor {
    /// What it is.
    #[prost(string, tag = "1")]
    pub media_type: String,
    /// The digest, such as `sha256:…`.
    #[prost(string, tag = "2")]
    pub digest: String,
    /// The number of bytes.
    #[prost(int64, tag = "3")]
    pub size: i64,
}

/// A mount that makes the files of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct SnapshotMount {
    /// The file system, or `bind`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The source.
    #[prost(string, tag = "2")]
    pub source: String,
    /// The options, as in a table of file systems.
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// Which fields of a message are changed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FieldMask {
    /// The paths of the fields.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

/// Makes a lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateLeaseRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its labels, such as its end.
    #[prost(btree_map = "string, string", tag = "3")]
    pub labels: BTreeMap<String, String>,
}

/// Ends a lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteLeaseRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// What is done in a stream of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum WriteAction {
    /// The state of the write is returned.
    Stat = 0,
    /// Data is appended.
    Write = 1,
    /// The blob is complete.
    Commit = 2,
}

/// Writes a part of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteContentRequest {
    /// What is done.
    #[prost(enumeration = "WriteAction", tag = "1")]
    pub action: i32,
    /// The name of the write.
    #[prost(string, tag = "2")]
    pub r#ref: String,
    /// The size of the blob.
    #[prost(int64, tag = "3")]
    pub total: i64,
    /// The digest of the blob; empty if it is not known.
    #[prost(string, tag = "4")]
    pub expected: String,
    /// Where the part belongs.
    #[prost(int64, tag = "5")]
    pub offset: i64,
    /// The part.
    #[prost(bytes = "bytes", tag = "6")]
    pub data: Bytes,
}

/// The state of a write.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteContentResponse {
    /// How much was written.
    #[prost(int64, tag = "4")]
    pub offset: i64,
}

/// Reads a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadContentRequest {
    /// Its digest.
    #[prost(string, tag = "1")]
    pub digest: String,
}

/// A part of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadContentResponse {
    /// The part.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// What is known of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContentInfo {
    /// Its digest.
    #[prost(string, tag = "1")]
    pub digest: String,
    /// The number of bytes.
    #[prost(int64, tag = "2")]
    pub size: i64,
    /// Its labels, such as the blobs that it needs.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
}

/// Asks for what is known of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContentInfoRequest {
    /// Its digest.
    #[prost(string, tag = "1")]
    pub digest: String,
}

/// What is known of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContentInfoResponse {
    /// The blob.
    #[prost(message, optional, tag = "1")]
    pub info: Option<ContentInfo>,
}

/// Changes labels of a blob.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateContentRequest {
    /// The blob with its labels.
    #[prost(message, optional, tag = "1")]
    pub info: Option<ContentInfo>,
    /// Which labels are changed.
    #[prost(message, optional, tag = "2")]
    pub update_mask: Option<FieldMask>,
}

/// A name of an image.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NamedImage {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "2")]
    pub labels: BTreeMap<String, String>,
    /// Its manifest, or the index of its manifests.
    #[prost(message, optional, tag = "3")]
    pub target: Option<Descriptor>,
}

/// Asks for the image of a name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetImageRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The image of a name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetImageResponse {
    /// The image.
    #[prost(message, optional, tag = "1")]
    pub image: Option<NamedImage>,
}

/// Names an image.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateImageRequest {
    /// The image.
    #[prost(message, optional, tag = "1")]
    pub image: Option<NamedImage>,
}

/// Gives a name to another image.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateImageRequest {
    /// The image.
    #[prost(message, optional, tag = "1")]
    pub image: Option<NamedImage>,
}

/// Makes a snapshot that can be written.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PrepareSnapshotRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The key of the snapshot.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The snapshot below it; empty for none.
    #[prost(string, tag = "3")]
    pub parent: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
}

/// Makes a snapshot that can only be read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ViewSnapshotRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The key of the snapshot.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The snapshot below it.
    #[prost(string, tag = "3")]
    pub parent: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
}

/// Asks for the mounts of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MountsRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The key of the snapshot.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// The mounts of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MountsResponse {
    /// In the order in which they are mounted.
    #[prost(message, repeated, tag = "1")]
    pub mounts: Vec<SnapshotMount>,
}

/// Makes a prepared snapshot the parent of others.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CommitSnapshotRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The name as a parent.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The key of the snapshot.
    #[prost(string, tag = "3")]
    pub key: String,
}

/// Removes a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RemoveSnapshotRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The key of the snapshot.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// Asks whether there is a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatSnapshotRequest {
    /// The snapshotter.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The key of the snapshot.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// Writes the files of a layer into a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ApplyRequest {
    /// The layer.
    #[prost(message, optional, tag = "1")]
    pub diff: Option<Descriptor>,
    /// The mounts of the snapshot.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<SnapshotMount>,
}

/// A layer that was applied.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ApplyResponse {
    /// The layer without its compression.
    #[prost(message, optional, tag = "1")]
    pub applied: Option<Descriptor>,
}
