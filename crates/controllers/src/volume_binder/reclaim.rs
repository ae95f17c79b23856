//! Reclaim policies of released volumes.

use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, value};

use super::legacy::is_external;
use super::names::{MIGRATED_TO, PROVISIONED_BY, annotation, has_annotation};

/// What to do with a released volume.
#[derive(Debug, PartialEq)]
pub(super) enum ReclaimPlan {
    Keep,
    /// Delete the object: what it stands for is gone.
    Delete,
    Fail {
        reason: &'static str,
        message: String,
    },
    Recycle,
}

pub(super) fn plan_reclaim(volume: &Object) -> ReclaimPlan {
    if annotation(volume, MIGRATED_TO).is_some_and(|driver| !driver.is_empty()) {
        return ReclaimPlan::Keep;
    }
    match volume["spec"]["persistentVolumeReclaimPolicy"].str() {
        "Retain" => ReclaimPlan::Keep,
        "Delete" => plan_delete(volume),
        "Recycle" if recycled_source(volume).is_some() => ReclaimPlan::Recycle,
        "Recycle" => fail(
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!",
        ),
        _ => fail(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ),
    }
}

fn fail(reason: &'static str, message: impl Into<String>) -> ReclaimPlan {
    ReclaimPlan::Fail {
        reason,
        message: message.into(),
    }
}

fn plan_delete(volume: &Object) -> ReclaimPlan {
    let cannot = |why: String| fail("VolumeFailedDelete", why);
    let plugin = annotation(volume, PROVISIONED_BY).unwrap_or_default();
    let by_source = |why: &str| {
        cannot(format!(
            "error getting deleter volume plugin for volume {:?}: {why}",
            volume.name()
        ))
    };
    let spec = &volume["spec"];
    match plugin {
        "kubernetes.io/host-path" => delete_directory(volume),
        "kubernetes.io/nfs" => cannot("no deletable volume plugin matched".into()),
        "" if has_annotation(volume, MIGRATED_TO) || !spec["csi"].is_null() => ReclaimPlan::Keep,
        "" if !spec["hostPath"].is_null() => delete_directory(volume),
        "" if !spec["nfs"].is_null() => by_source("no deletable volume plugin matched"),
        "" => by_source("no volume plugin matched"),
        plugin if is_external(plugin) => ReclaimPlan::Keep,
        plugin => cannot(format!("no volume plugin matched name: {plugin}")),
    }
}

/// Kubernetes: the in-tree host path plug-in deletes directories below /tmp, for tests
/// (host_path.go). Here only the object is deleted: the directory belongs to the node.
fn delete_directory(volume: &Object) -> ReclaimPlan {
    let path = volume["spec"]["hostPath"]["path"].str();
    let is_temporary = path
        .split_once("/tmp/")
        .is_some_and(|(_, rest)| !rest.is_empty());
    match (volume["spec"]["hostPath"].is_null(), is_temporary) {
        (true, _) => {
            let why = "spec.PersistentVolumeSource.HostPath is nil";
            fail(
                "VolumeFailedDelete",
                format!(
                    "failed to create deleter for volume {:?}: {why}",
                    volume.name()
                ),
            )
        }
        (false, true) => ReclaimPlan::Delete,
        (false, false) => fail(
            "VolumeFailedDelete",
            format!("host_path deleter only supports /tmp/.+ but received provided {path}"),
        ),
    }
}

/// The volume source that a recycler pod mounts, and its minimum timeout in seconds; none for
/// volumes that cannot be recycled.
fn recycled_source(volume: &Object) -> Option<(Value, i64)> {
    let spec = &volume["spec"];
    match (&spec["hostPath"], &spec["nfs"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, nfs) => Some((
            value!({"nfs": {"server": (nfs["server"].clone()), "path": (nfs["path"].clone())}}),
            300,
        )),
        (host, _) => Some((value!({"hostPath": {"path": (host["path"].clone())}}), 60)),
    }
}

/// The name of the recycler pod; its namespace is `default`.
pub(super) fn recycler_name(volume: &str) -> String {
    format!("recycler-for-{volume}")
}

/// The recycler pod of a volume.
pub(super) fn recycler_pod(volume: &Object) -> Option<Value> {
    let (mut mounted, least) = recycled_source(volume)?;
    let gibibytes =
        Quantity::parse_or_zero(volume["spec"]["capacity"]["storage"].str()).value() >> 30;
    let seconds = (gibibytes * 30).max(least);
    mounted.set("name", "vol");
    let script = "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
    Some(value!({
        "metadata": {"name": (recycler_name(volume.name())), "namespace": "default"},
        "spec": {
            "activeDeadlineSeconds": seconds,
            "restartPolicy": "Never",
            "volumes": [mounted],
            "containers": [{
                "name": "pv-recycler",
                "image": "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6",
                "command": ["/bin/sh"],
                "args": ["-c", script],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    }))
}

/// The outcome of a recycler pod; none while it runs.
pub(super) fn recycler_outcome(pod: &Value) -> Option<Result<(), String>> {
    let known_message = |message: &str| match message {
        "" => "pod failed, pod.Status.Message unknown".to_string(),
        message => message.to_string(),
    };
    match pod["status"]["phase"].str() {
        "Succeeded" => Some(Ok(())),
        "Failed" => Some(Err(format!(
            "Recycle failed: failed to recycle volume: {}",
            known_message(pod["status"]["message"].str())
        ))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_binder::names::annotate;

    #[track_caller]
    fn check(policy: &str, source: Value, provisioned_by: &str, wanted: Result<ReclaimPlan, &str>) {
        let mut volume = Object(value!({"metadata": {"name": "v"}, "spec": source}));
        volume
            .entry("spec")
            .set("persistentVolumeReclaimPolicy", policy);
        if !provisioned_by.is_empty() {
            annotate(&mut volume, PROVISIONED_BY, provisioned_by);
        }
        match (plan_reclaim(&volume), wanted) {
            (ReclaimPlan::Fail { message, .. }, Err(wanted)) => assert_eq!(message, wanted),
            (plan, wanted) => assert_eq!(Ok(plan), wanted),
        }
    }

    #[test]
    fn a_reclaim_policy_is_applied_by_the_responsible_component() {
        let nfs = || value!({"nfs": {"server": "s", "path": "/x"}});
        let path = |path: &str| value!({"hostPath": {"path": path}});
        check("Retain", nfs(), "", Ok(ReclaimPlan::Keep));
        check("Delete", value!({"csi": {}}), "", Ok(ReclaimPlan::Keep));
        check("Delete", nfs(), "example.com/p", Ok(ReclaimPlan::Keep));
        check("Delete", path("/tmp/x"), "", Ok(ReclaimPlan::Delete));
        check(
            "Delete",
            path("/var/x"),
            "",
            Err("host_path deleter only supports /tmp/.+ but received provided /var/x"),
        );
        check(
            "Delete",
            nfs(),
            "",
            Err(
                "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
            ),
        );
        check(
            "Delete",
            value!({"local": {}}),
            "",
            Err("error getting deleter volume plugin for volume \"v\": no volume plugin matched"),
        );
        check(
            "Delete",
            nfs(),
            "kubernetes.io/odd",
            Err("no volume plugin matched name: kubernetes.io/odd"),
        );
        check("Recycle", nfs(), "", Ok(ReclaimPlan::Recycle));
        check(
            "Recycle",
            value!({"local": {}}),
            "",
            Err("No recycler plugin found for the volume!"),
        );
        check(
            "Odd",
            nfs(),
            "",
            Err("Volume has unrecognized PersistentVolumeReclaimPolicy"),
        );
    }

    #[test]
    fn a_larger_volume_has_a_longer_recycler_timeout() {
        let volume = |size: &str| {
            Object(
                value!({"spec": {"capacity": {"storage": size}, "hostPath": {"path": "/tmp/x"}}}),
            )
        };
        let seconds =
            |size| recycler_pod(&volume(size)).unwrap()["spec"]["activeDeadlineSeconds"].int();
        assert_eq!((seconds("1Gi"), seconds("10Gi")), (60, 300));
    }
}
