//! Jobs and pods for tests.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::facts::{COMPLETION_INDEX, TRACKING_FINALIZER};

/// A job with the server's defaults.
pub(super) fn job(spec: Value) -> Object {
    let mut job =
        value!({"metadata": {"namespace": "ns", "name": "j", "uid": "job"}, "spec": spec});
    job.entry("spec").set_default("backoffLimit", 6);
    job.entry("spec").set_default("parallelism", 1);
    Object::from(job)
}

/// A pod of that job with the tracking finalizer, created at second 0.
pub(super) fn pod(uid: &str, phase: &str) -> Object {
    Object::from(value!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid, "finalizers": [TRACKING_FINALIZER], "creationTimestamp": "1970-01-01T00:00:00Z"},
        "status": {"phase": phase},
    }))
}

/// The same with an index.
pub(super) fn indexed_pod(uid: &str, phase: &str, index: i64) -> Object {
    let mut pod = pod(uid, phase);
    pod.entry("metadata")
        .entry("annotations")
        .set(COMPLETION_INDEX, index.to_string());
    pod
}
