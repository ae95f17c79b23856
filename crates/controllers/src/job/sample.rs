//! Jobs and pods for tests.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::facts::{INDEX, TRACKING};

/// A job that the server would have filled with defaults.
pub(super) fn job(spec: Value) -> Object {
    let mut job =
        value!({"metadata": {"namespace": "ns", "name": "j", "uid": "job"}, "spec": spec});
    job.entry("spec").set_default("backoffLimit", 6);
    job.entry("spec").set_default("parallelism", 1);
    Object::from(job)
}

/// A pod of that job that is not counted yet, made at second 0.
pub(super) fn pod(uid: &str, phase: &str) -> Object {
    Object::from(value!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid, "finalizers": [TRACKING], "creationTimestamp": "1970-01-01T00:00:00Z"},
        "status": {"phase": phase},
    }))
}

/// The same with an index.
pub(super) fn indexed_pod(uid: &str, phase: &str, index: i64) -> Object {
    let mut pod = pod(uid, phase);
    pod.entry("metadata")
        .entry("annotations")
        .set(INDEX, index.to_string());
    pod
}
