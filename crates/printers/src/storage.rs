//! Table cells of storage.k8s.io, volumes and devices.

use mizzen_value::Value;

use super::text::{NONE, UNSET, age, given_or, join, join_member, only_age};
use super::{Cells, nothing, row};

pub(super) fn core(kind: &str) -> Cells {
    if kind == "PersistentVolume" {
        |object, now| {
            let (spec, status) = (&object["spec"], &object["status"]);
            let claim = &spec["claimRef"];
            let claim_name = format!("{}/{}", claim["namespace"].str(), claim["name"].str());
            row![
                given_or(&spec["capacity"]["storage"], "0"),
                access_modes(&spec["accessModes"]),
                spec["persistentVolumeReclaimPolicy"].str(),
                phase(object),
                if claim.is_null() {
                    String::new()
                } else {
                    claim_name
                },
                class(object),
                given_or(&spec["volumeAttributesClassName"], UNSET),
                status["reason"].str(),
                age(object, now),
                given_or(&spec["volumeMode"], UNSET),
            ]
        }
    } else {
        claim
    }
}

pub(super) fn cells(kind: &str) -> Cells {
    match kind {
        "CSIDriver" => |object, now| {
            let spec = &object["spec"];
            let requests = &spec["tokenRequests"];
            let modes = join(&spec["volumeLifecycleModes"], ",");
            row![
                spec["attachRequired"].as_bool().unwrap_or(true),
                spec["podInfoOnMount"].bool(),
                spec["storageCapacity"].bool(),
                if requests.is_null() {
                    UNSET.into()
                } else {
                    join_member(requests, "audience")
                },
                spec["requiresRepublish"].bool(),
                if modes.is_empty() { NONE.into() } else { modes },
                age(object, now),
            ]
        },
        "CSINode" => |object, now| {
            row![
                object["spec"]["drivers"].list().len() as i64,
                age(object, now)
            ]
        },
        "StorageClass" => |object, now| {
            let metadata = &object["metadata"];
            let marks = [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ];
            let is_default = marks
                .into_iter()
                .any(|mark| metadata["annotations"][mark].str() == "true");
            row![
                format!(
                    "{}{}",
                    metadata["name"].str(),
                    if is_default { " (default)" } else { "" }
                ),
                given_or(&object["reclaimPolicy"], "Delete"),
                given_or(&object["volumeBindingMode"], "Immediate"),
                object["allowVolumeExpansion"].bool(),
                age(object, now),
            ]
        },
        "VolumeAttachment" => |object, now| {
            row![
                object["spec"]["source"]["persistentVolumeName"].str(),
                age(object, now)
            ]
        },
        "VolumeAttributesClass" => only_age,
        _ => nothing,
    }
}

pub(super) fn devices(kind: &str) -> Cells {
    match kind {
        "ResourceClaim" => |object, now| {
            let status = &object["status"];
            let is_going = !object["metadata"]["deletionTimestamp"].is_null();
            let is_allocated = !status["allocation"].is_null();
            let is_reserved = is_allocated && !status["reservedFor"].list().is_empty();
            let states = [
                (is_going, "deleted"),
                (!is_allocated && !is_going, "pending"),
                (is_allocated, "allocated"),
                (is_reserved, "reserved"),
            ];
            let states: Vec<_> = states
                .into_iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, state)| state)
                .collect();
            row![states.join(","), age(object, now)]
        },
        "ResourceSlice" => |object, now| row![object["spec"]["nodeName"].str(), age(object, now)],
        _ => only_age,
    }
}

fn claim(object: &Value, now: i64) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let is_bound = !spec["volumeName"].str().is_empty();
    let (capacity, modes) = match is_bound {
        true => (
            given_or(&status["capacity"]["storage"], "0"),
            access_modes(&status["accessModes"]),
        ),
        false => ("", String::new()),
    };
    row![
        phase(object),
        spec["volumeName"].str(),
        capacity,
        modes,
        class(object),
        given_or(&spec["volumeAttributesClassName"], UNSET),
        age(object, now),
        given_or(&spec["volumeMode"], UNSET),
    ]
}

fn phase(object: &Value) -> &str {
    let is_going = !object["metadata"]["deletionTimestamp"].is_null();
    if is_going {
        "Terminating"
    } else {
        object["status"]["phase"].str()
    }
}

fn class(object: &Value) -> &str {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    given_or(annotation, object["spec"]["storageClassName"].str())
}

fn access_modes(modes: &Value) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.items().any(|it| it.str() == mode);
    short
        .into_iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| short)
        .collect::<Vec<_>>()
        .join(",")
}
