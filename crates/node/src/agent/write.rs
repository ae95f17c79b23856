//! Writes about a pod: its status, or its deletion.

use kube::Error;
use mizzen_sdk::Key;
use mizzen_sdk::cache::Version;
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, PatchType};
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_value::Value;

/// A write.
pub(super) enum PodWrite {
    /// The status patch.
    Status(Value),
    /// The final deletion of a pod without containers.
    Delete,
}

/// What was written.
pub(super) enum PodWriteOutcome {
    /// The status, with the version that the write left.
    Status(Version),
    Deleted,
    /// The pod did not exist any more.
    Gone,
}

/// The result of a write.
pub(super) struct PodWriteResult {
    pub key: Key,
    pub uid: Box<str>,
    pub outcome: Result<PodWriteOutcome, Error>,
}

impl PodWrite {
    /// The same write to the mirror pod of a static pod, whose UID is `mirror`. The agent deletes
    /// mirror pods by itself.
    pub(super) fn for_mirror(self, mirror: Option<Value>) -> Option<PodWrite> {
        match (self, mirror) {
            (PodWrite::Status(mut patch), Some(uid)) => {
                patch.entry("metadata").set("uid", uid);
                Some(PodWrite::Status(patch))
            }
            _ => None,
        }
    }

    /// Writes, if the pod still has this UID.
    pub(super) async fn run(self, api: DynamicClient, key: Key, uid: Box<str>) -> PodWriteResult {
        let outcome = match &self {
            PodWrite::Status(patch) => {
                let patched = api
                    .patch(&PODS, &key, "status", PatchType::Strategic, patch)
                    .await;
                patched.map(|object| PodWriteOutcome::Status(Version::parse(object.version())))
            }
            PodWrite::Delete => {
                let options = DeleteOptions {
                    uid: Some(&*uid),
                    grace_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                api.delete(&PODS, &key, &options)
                    .await
                    .map(|_| PodWriteOutcome::Deleted)
            }
        };
        let outcome = match outcome {
            Err(error) if is_not_found(&error) => Ok(PodWriteOutcome::Gone),
            outcome => outcome,
        };
        PodWriteResult { key, uid, outcome }
    }
}
