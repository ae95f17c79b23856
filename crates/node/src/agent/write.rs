//! One write about a pod, and what came of it.

use kube::Error;
use mizzen_sdk::Key;
use mizzen_sdk::api::{Api, DeleteOptions, Patch};
use mizzen_sdk::cache::Version;
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_value::Value;

/// What is written.
pub(super) enum Write {
    /// What the status lacks.
    Status(Value),
    /// Nothing of it is left here.
    Delete,
}

/// What was done.
pub(super) enum Done {
    /// The status is written; this is the version that it left.
    Status(Version),
    /// The pod may go.
    Deleted,
    /// There is no such pod any more.
    Gone,
}

/// What came of a write.
pub(super) struct Written {
    pub key: Key,
    pub uid: Box<str>,
    pub outcome: Result<Done, Error>,
}

impl Write {
    /// Writes, if the pod is still the one with this uid.
    pub(super) async fn run(self, api: Api, key: Key, uid: Box<str>) -> Written {
        let outcome = match &self {
            Write::Status(patch) => {
                let patched = api
                    .patch(&PODS, &key, "status", Patch::Strategic, patch)
                    .await;
                patched.map(|object| Done::Status(Version::parse(object.version())))
            }
            Write::Delete => {
                let options = DeleteOptions {
                    uid: Some(&*uid),
                    grace_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                api.delete(&PODS, &key, &options)
                    .await
                    .map(|_| Done::Deleted)
            }
        };
        let outcome = match outcome {
            Err(error) if is_not_found(&error) => Ok(Done::Gone),
            outcome => outcome,
        };
        Written { key, uid, outcome }
    }
}
