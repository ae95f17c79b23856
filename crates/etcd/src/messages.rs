//! The messages of etcd's API, as far as they are used.
//!
//! The `etcd-client` crate has all of them, and needs `protoc` to compile: `cargo run` would no longer work with a Rust
//! toolchain alone. Field numbers are those of `etcdserverpb/rpc.proto` and `mvccpb/kv.proto`; a field that is missing
//! here is ignored when a message is read, and has its default when it is written.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// What every response tells of the member that answered.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseHeader {
    /// The cluster.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The member.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The revision of the store when the request was executed.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of the leader.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The revision at which the key was created.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision of the last change.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// How often it was changed since it was created; 0 if it was deleted.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The lease with which the key expires; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Put or delete.
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// The key after the change.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    /// The key before the change.
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

/// How a key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// It was written.
    Put = 0,
    /// It was deleted, or has expired.
    Delete = 1,
}

/// In which order a range is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// By key.
    None = 0,
    /// Smallest first.
    Ascend = 1,
    /// Largest first.
    Descend = 2,
}

/// By what a range is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// The key.
    Key = 0,
    /// How often it was changed.
    Version = 1,
    /// When it was created.
    Create = 2,
    /// When it was changed last.
    Mod = 3,
    /// The value.
    Value = 4,
}

/// Reads keys from `key` up to `range_end`.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    /// The first key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The key before which it ends; empty for one key.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// The most keys to return; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read at; 0 for the latest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// In which order.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// By what.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// Read what the member has, which may be old.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Return no values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Return the number of keys alone.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

/// The keys of a range.
#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    /// When it was read.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The keys.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether there are more than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// How many there are, whatever the limit.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The lease with which it expires; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

/// A key was written.
#[derive(Clone, PartialEq, Message)]
pub struct PutResponse {
    /// When it was written.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Deletes keys from `key` up to `range_end`.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    /// The first key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The key before which it ends; empty for one key.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
}

/// Keys were deleted.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    /// When they were deleted.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// How many there were.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    /// Which.
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

/// The operations of a transaction.
#[derive(Clone, PartialEq, Oneof)]
pub enum Request {
    /// Read.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// Write.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// Delete.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The result of one operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    /// Of which.
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub response: Option<Response>,
}

/// The results of operations.
#[derive(Clone, PartialEq, Oneof)]
pub enum Response {
    /// Of a read.
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    /// Of a write.
    #[prost(message, tag = "2")]
    Put(PutResponse),
    /// Of a delete.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// How the two sides are compared.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// What of the key is compared.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// With what.
    #[prost(oneof = "CompareWith", tags = "4, 5, 6")]
    pub with: Option<CompareWith>,
}

/// How two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    /// They are equal.
    Equal = 0,
    /// The key's side is greater.
    Greater = 1,
    /// The key's side is less.
    Less = 2,
    /// They differ.
    NotEqual = 3,
}

/// What of a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// How often it was changed.
    Version = 0,
    /// When it was created; 0 if it does not exist.
    Create = 1,
    /// When it was changed last; 0 if it does not exist.
    Mod = 2,
}

/// The other side of a comparison.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum CompareWith {
    /// For [`CompareTarget::Version`].
    #[prost(int64, tag = "4")]
    Version(i64),
    /// For [`CompareTarget::Create`].
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// For [`CompareTarget::Mod`].
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

/// Executes `success` if all comparisons hold, else `failure`, in one revision.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    /// The conditions.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// What is executed if they hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// What is executed if one does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    /// When it was executed.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether the conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// The results of the operations.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Compacts history before a revision.
#[derive(Clone, PartialEq, Message)]
pub struct CompactionRequest {
    /// The oldest revision that stays readable.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Wait until the space is free.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

/// History was compacted.
#[derive(Clone, PartialEq, Message)]
pub struct CompactionResponse {
    /// When.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// A message to a stream of watches.
#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    /// Which.
    #[prost(oneof = "WatchRequestUnion", tags = "1, 2, 3")]
    pub request: Option<WatchRequestUnion>,
}

/// The messages to a stream of watches.
#[derive(Clone, PartialEq, Oneof)]
pub enum WatchRequestUnion {
    /// Begins a watch.
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    /// Ends a watch.
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
    /// Asks for the revision up to which all events were sent.
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

/// Begins a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    /// The first key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The key before which it ends; empty for one key.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// The first revision; 0 for what comes.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Send a message without events now and then.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// Send keys as they were before the change, too.
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    /// Cut large messages into fragments.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// Ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCancelRequest {
    /// Which.
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// Asks for the progress of all watches of the stream.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WatchProgressRequest {}

/// A message from a stream of watches.
#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    /// The revision of the member, or of the progress.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The watch; -1 for all of the stream.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// The watch has begun.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// The watch has ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The oldest revision that can be watched, if an older one was asked for.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why it has ended.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Whether more fragments of this message follow.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    /// The changes.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// Makes a lease.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseGrantRequest {
    /// Seconds until it expires.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// Its identifier; 0 lets etcd choose.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// A lease.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantResponse {
    /// When it was made.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Its identifier.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds until it expires.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Why there is none.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseRevokeRequest {
    /// Which.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// A lease has ended.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseRevokeResponse {
    /// When.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Asks a member about itself.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct StatusRequest {}

/// What a member tells about itself.
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// Who answers.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The version of etcd.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The size of its file, in bytes.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// The leader; 0 if there is none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// What is wrong: alarms, no leader.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// What of the file is in use, in bytes.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
}

impl Compare {
    /// The key was changed last at `revision`; 0: it does not exist.
    pub fn mod_revision(key: impl Into<Bytes>, revision: i64) -> Compare {
        Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key.into(),
            with: Some(CompareWith::ModRevision(revision)),
        }
    }

    /// The key exists.
    pub fn exists(key: impl Into<Bytes>) -> Compare {
        Compare {
            result: CompareResult::Greater.into(),
            ..Compare::mod_revision(key, 0)
        }
    }

    /// The key was changed `version` times since it was created; 0: it does not exist.
    pub fn version(key: impl Into<Bytes>, version: i64) -> Compare {
        Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: key.into(),
            with: Some(CompareWith::Version(version)),
        }
    }
}

impl RequestOp {
    /// Reads one key.
    pub fn get(key: impl Into<Bytes>) -> RequestOp {
        RequestOp::range(RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        })
    }

    /// Reads a range.
    pub fn range(range: RangeRequest) -> RequestOp {
        RequestOp {
            request: Some(Request::Range(range)),
        }
    }

    /// Writes one key, with the lease of that number; 0 for none.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: i64) -> RequestOp {
        let (key, value) = (key.into(), value.into());
        RequestOp {
            request: Some(Request::Put(PutRequest { key, value, lease })),
        }
    }

    /// Gives a write another lease.
    pub fn set_lease(&mut self, id: i64) {
        if let Some(Request::Put(put)) = &mut self.request {
            put.lease = id;
        }
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<Bytes>) -> RequestOp {
        let delete = DeleteRangeRequest {
            key: key.into(),
            ..DeleteRangeRequest::default()
        };
        RequestOp {
            request: Some(Request::DeleteRange(delete)),
        }
    }
}
