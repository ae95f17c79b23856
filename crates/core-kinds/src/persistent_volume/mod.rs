//! PersistentVolumes.

pub(crate) mod sources;

use mizzen_object::validate::{field, meta, selector};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Map, Str, Value, value};

use super::fields::dns_subdomain;
use super::persistent_volume_claim::BETA_CLASS;
use super::resources;
use crate::Behaviour;
use crate::pod;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<PersistentVolumeStrategy>();

/// Sets the defaults that the specs of all volumes share, those inside attachments among them.
pub fn default_volume_spec(spec: &mut Value) {
    resources::round(spec.get_mut("capacity"));
    for (source, field, default) in [
        ("hostPath", "type", Value::from("")),
        ("azureDisk", "readOnly", Value::from(false)),
    ] {
        if let Some(source) = spec.get_mut(source).filter(|source| !source.is_null()) {
            source.set_default(field, default);
        }
    }
}

pub(super) struct PersistentVolumeStrategy;

impl KindStrategy for PersistentVolumeStrategy {
    fn default(volume: &mut Value) {
        volume.entry("status").set_default("phase", "Pending");
        let spec = volume.entry("spec");
        spec.set_default("persistentVolumeReclaimPolicy", "Retain");
        spec.set_default("volumeMode", "Filesystem");
        default_volume_spec(spec);
    }

    fn prepare(volume: &mut Value, old: Option<&Value>, context: &HookContext) {
        match (context.action, old) {
            (Action::Create, _) => {
                volume.set(
                    "status",
                    value!({"phase": "Pending", "lastPhaseTransitionTime": (context.now)}),
                );
            }
            (Action::Status, Some(old)) => {
                // Sets the phase transition time, unless the client does.
                let status = volume.entry("status");
                let old = &old["status"];
                let now = context.now;
                let time = "lastPhaseTransitionTime";
                let is_same_phase = status["phase"] == old["phase"];
                if is_same_phase && status[time].is_null() {
                    status.set(time, old[time].clone());
                } else if !is_same_phase && (status[time].is_null() || status[time] == old[time]) {
                    status.set(time, now);
                }
            }
            _ => {}
        }
    }

    /// Kubernetes: an update is validated twice, so that what is wrong is reported twice; the metadata, too, for which the
    /// first time is before this runs.
    fn validate(
        volume: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            return;
        }
        whole(volume, old, violations);
        const SUPPORTING: [&str; 13] = [
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "glusterfs",
            "nfs",
            "rbd",
            "quobyte",
            "iscsi",
            "cinder",
            "cephfs",
            "azureFile",
            "vsphereVolume",
            "azureDisk",
            "photonPersistentDisk",
        ];
        let supports = SUPPORTING
            .iter()
            .any(|source| !volume["spec"][*source].is_null());
        if !supports
            && volume["metadata"]["annotations"]
                .get(MOUNT_OPTIONS)
                .is_some()
        {
            let path = Path::new("metadata");
            let path = path.child("annotations");
            violations.forbidden(
                path.child(MOUNT_OPTIONS),
                "may not specify mount options for this volume type",
            );
        }
        if let (Action::Update, Some(old)) = (context.action, old) {
            meta::native_object_meta(&volume["metadata"], false, NameRule::Subdomain, violations);
            whole(volume, Some(old), violations);
            let (spec, old_spec) = (&volume["spec"], &old["spec"]);
            // The secret for expanding a volume may be added later.
            let mut new_source = source(spec);
            if old_spec["csi"]["controllerExpandSecretRef"].is_null()
                && let Some(csi) = new_source.get_mut("csi")
            {
                csi.remove("controllerExpandSecretRef");
            }
            let (new_source, old_source) = (new_source, source(old_spec));
            if new_source != old_source {
                let difference =
                    pod::difference("PersistentVolumeSource", &old_source, &new_source);
                let message = format!(
                    "spec.persistentvolumesource is immutable after creation\n{difference}"
                );
                violations.forbidden("spec.persistentvolumesource", &message);
            }
            field::immutable(
                &spec["volumeMode"],
                &old_spec["volumeMode"],
                &Path::new("volumeMode"),
                violations,
            );
            let affinity = &spec["nodeAffinity"];
            if !old_spec["nodeAffinity"].is_null()
                && *affinity != promoted(&old_spec["nodeAffinity"], affinity)
            {
                let message = "field is immutable, except for updating from beta label to GA";

                let shown_affinity = match &affinity["required"] {
                    _ if affinity.is_null() => Value::Null,
                    Value::Null => value!({"Required": null}),
                    required => value!({"Required": (pod::form("NodeSelector", required))}),
                };
                violations.invalid("nodeAffinity", shown_affinity, message);
            }
            let class = "volumeAttributesClassName";
            if !old_spec[class].is_null() && spec[class].is_null() {
                let message = "update from non-nil value to nil is forbidden";
                violations.forbidden(Path::new("spec").child(class), message);
            }
        }
    }

    fn warnings(volume: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let spec = &volume["spec"];
        let mut warnings = deprecated_annotations(&volume["metadata"]["annotations"]);
        if spec["persistentVolumeReclaimPolicy"].str() == "Recycle" {
            warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .into(),
        );
        }

        for (term_idx, term) in spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
            .items()
            .enumerate()
        {
            for (index, requirement) in term["matchExpressions"].items().enumerate() {
                let key = requirement["key"].str();
                if let Some(advice) = pod::old_node_label(key) {
                    let place =
                        format!("nodeSelectorTerms[{term_idx}].matchExpressions[{index}].key");
                    warnings.push(format!(
                        "spec.nodeAffinity.required.{place}: {key} is {advice}"
                    ));
                }
            }
        }
        // Kubernetes: the warning spells one field as Go does.
        for (field, shown, since) in [
            (
                "cephfs",
                "cephfs",
                "deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                "photonPersistentDisk",
                "photonPersistentDisk",
                "deprecated in v1.11, non-functional in v1.16+",
            ),
            (
                "scaleIO",
                "scaleIO",
                "deprecated in v1.16, non-functional in v1.22+",
            ),
            (
                "storageos",
                "storageOS",
                "deprecated in v1.22, non-functional in v1.25+",
            ),
            (
                "glusterfs",
                "glusterfs",
                "deprecated in v1.25, non-functional in v1.26+",
            ),
            (
                "rbd",
                "rbd",
                "deprecated in v1.28, non-functional in v1.31+",
            ),
        ] {
            if !spec[field].is_null() {
                warnings.push(format!("spec.{shown}: {since}"));
            }
        }
        warnings
    }

    /// Kubernetes: `name` is kept for compatibility.
    fn selectable(volume: &Value, field: &str) -> Option<Str> {
        (field == "name").then(|| volume["metadata"]["name"].str().into())
    }
}

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

fn whole(volume: &Value, old: Option<&Value>, violations: &mut Violations) {
    let (spec, path) = (&volume["spec"], Path::new("spec"));
    let modes = &spec["accessModes"];
    let place = path.child("accessModes");
    if modes.is_empty() {
        violations.required(place, "");
    }
    for mode in modes.list() {
        field::one_of(mode.str(), ACCESS_MODES, &place, violations);
    }
    let has = |wanted: fn(&str) -> bool| modes.items().any(|mode| wanted(mode.str()));
    if has(|mode| mode == "ReadWriteOncePod") && has(|mode| ACCESS_MODES[..3].contains(&mode)) {
        violations.forbidden(
            place,
            "may not use ReadWriteOncePod with other access modes",
        );
    }
    capacity(&spec["capacity"], &path.child("capacity"), violations);
    let policy = spec["persistentVolumeReclaimPolicy"].str();
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    field::one_of(
        policy,
        &["Delete", "Recycle", "Retain"],
        &policy_path,
        violations,
    );
    let affinity = &spec["nodeAffinity"];
    let place = path.child("nodeAffinity");
    if !affinity.is_null() {
        let node_affinity_path = place.child("required");
        if affinity["required"].is_null() {
            violations.required(node_affinity_path, "must specify required node constraints");
        } else {
            let any_values = old.is_some_and(|old| {
                let terms = old["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].list();
                terms.iter().any(selector::has_invalid_value)
            });
            pod::validate_node_selector(
                &affinity["required"],
                any_values,
                &node_affinity_path,
                violations,
            );
        }
    }
    sources::validate(volume, &path, violations);
    let host_path = spec["hostPath"]["path"].str();
    let mut parts = host_path.split('/');
    let is_root = host_path.starts_with('/') && parts.all(|part| matches!(part, "" | "."));
    if policy == "Recycle" && is_root {
        violations.forbidden(
            policy_path,
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
    if !spec["storageClassName"].is_empty() {
        dns_subdomain(
            spec["storageClassName"].str(),
            &path.child("storageClassName"),
            violations,
        );
    }
    if let Some(mode) = spec["volumeMode"].as_str() {
        field::one_of(
            mode,
            &["Block", "Filesystem"],
            &path.child("volumeMode"),
            violations,
        );
    }
    let Some(class) = spec["volumeAttributesClassName"].as_str() else {
        return;
    };
    let class_path = path.child("volumeAttributesClassName");
    match class {
        "" => violations.required(class_path, "an empty string is disallowed"),
        class => dns_subdomain(class, &class_path, violations),
    }
    if spec["csi"].is_null() {
        violations.required(
            path.child("csi"),
            "has to be specified when using volumeAttributesClassName",
        );
    }
}

fn capacity(capacity: &Value, path: &Path, violations: &mut Violations) {
    if capacity.is_empty() {
        violations.required(path, "");
    }
    if capacity["storage"].is_null() || capacity.entries().count() > 1 {
        violations.not_supported(path, capacity.clone(), &["storage"]);
    }
    for (resource, amount) in capacity.entries() {
        let path = path.key(resource);
        resources::reported(amount, &path, violations);
        if Quantity::parse_or_zero(amount.str()) <= Quantity::default() {
            violations.invalid(path, amount.str(), "must be greater than zero");
        }
    }
}

/// The source alone: everything that is no other field of a volume.
fn source(spec: &Value) -> Value {
    const OTHERS: [&str; 9] = [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    ];
    let fields = spec
        .entries()
        .filter(|(name, value)| !OTHERS.contains(name) && !value.is_null());
    Value::Map(
        fields
            .map(|(name, value)| (name, value.clone()))
            .collect::<Map>(),
    )
}

/// Labels that had another name before they were settled.
const SETTLED: [(&str, &str); 5] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
];

/// The old affinity with the labels settled that the new one has settled.
fn promoted(old: &Value, new: &Value) -> Value {
    let mut old = old.clone();
    let terms = old
        .at_mut("required.nodeSelectorTerms")
        .map(Value::list_mut)
        .unwrap_or_default();
    for (term_idx, term) in terms.iter_mut().enumerate() {
        let new_term = &new["required"]["nodeSelectorTerms"][term_idx];
        for list in ["matchExpressions", "matchFields"] {
            let Some(requirements) = term.get_mut(list) else {
                continue;
            };
            for (index, requirement) in requirements.list_mut().iter_mut().enumerate() {
                let key = new_term[list][index]["key"].str();
                if SETTLED.contains(&(requirement["key"].str(), key)) {
                    requirement.set("key", key);
                }
            }
        }
    }
    old
}

fn deprecated_annotations(annotations: &Value) -> Vec<String> {
    let deprecated = [
        (
            BETA_CLASS,
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        (
            MOUNT_OPTIONS,
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ];
    let present = deprecated
        .iter()
        .filter(|(key, _)| annotations.get(key).is_some());
    present
        .map(|(key, advice)| format!("metadata.annotations[{key}]: {advice}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    fn volume(spec: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"v"}},"spec":{{"capacity":{{"storage":"1Gi"}},"accessModes":["ReadWriteOnce"],{spec}}}}}"#
        )
    }

    #[track_caller]
    fn refused(spec: &str, expected: &[&str]) {
        check(BEHAVIOUR).create(&volume(spec)).refused(expected);
    }

    #[test]
    fn a_new_volume_is_pending() {
        check(BEHAVIOUR)
            .create(&volume(r#""hostPath":{"path":"/x"}"#))
            .has("spec.hostPath", r#"{"path":"/x","type":""}"#)
            .has("spec.persistentVolumeReclaimPolicy", r#""Retain""#)
            .has(
                "status",
                r#"{"phase":"Pending","lastPhaseTransitionTime":"2026-01-01T00:00:00Z"}"#,
            )
            .refused(&[]);
    }

    #[test]
    fn a_volume_has_one_sound_source() {
        refused(
            r#""volumeMode":"Block""#,
            &["spec: Required value: must specify a volume type"],
        );
        refused(
            r#""hostPath":{"path":"../x"},"nfs":{"server":"s","path":"/p"}"#,
            &[
                r#"spec.hostPath.path: Invalid value: "../x": must not contain '..'"#,
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ],
        );
        refused(
            r#""csi":{}"#,
            &[
                "spec.csi.driver: Required value",
                "spec.csi.volumeHandle: Required value",
            ],
        );
        refused(
            r#""nfs":{"path":"rel"}"#,
            &[
                "spec.nfs.server: Required value",
                r#"spec.nfs.path: Invalid value: "rel": must be an absolute path"#,
            ],
        );
        refused(
            r#""iscsi":{"targetPortal":"p","iqn":"iqn.2001-04.com.example:s","lun":256}"#,
            &["spec.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive"],
        );
        refused(
            r#""local":{"path":"/x"}"#,
            &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
        );
        refused(
            r#""gcePersistentDisk":{}"#,
            &["spec.persistentDisk.pdName: Required value"],
        );
    }

    #[test]
    fn a_volume_has_a_size_and_a_use() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"capacity":{"cpu":"0"},"accessModes":["Weird"],"nfs":{"server":"s","path":"/"}}}"#)
            .refused(&[
                r#"spec.accessModes: Unsupported value: "Weird": supported values: "ReadOnlyMany""#,
                r#"spec.capacity: Unsupported value: {"cpu":"0"}: supported values: "storage""#,
                r#"spec.capacity[cpu]: Invalid value: "0": must be greater than zero"#,
            ]);
        refused(
            r#""hostPath":{"path":"/"},"persistentVolumeReclaimPolicy":"Recycle""#,
            &[
                "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
            ],
        );
    }

    #[test]
    fn a_source_stays() {
        let old = volume(r#""hostPath":{"path":"/x"}"#);
        check(BEHAVIOUR)
            .update(&volume(r#""hostPath":{"path":"/y"},"volumeMode":"Block""#), &old)
            .refused(&[
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
                r#"volumeMode: Invalid value: "Block": field is immutable"#,
            ]);
    }

    #[test]
    fn affinity_stays_but_for_settled_labels() {
        let with = |key: &str| {
            volume(&format!(
                r#""hostPath":{{"path":"/x"}},"nodeAffinity":{{"required":{{"nodeSelectorTerms":[
                    {{"matchExpressions":[{{"key":"{key}","operator":"Exists"}}]}}]}}}}"#
            ))
        };
        let old = with("beta.kubernetes.io/os");
        check(BEHAVIOUR)
            .update(&with("kubernetes.io/os"), &old)
            .refused(&[]);
        check(BEHAVIOUR)
            .update(&with("other"), &old)
            .refused(&["nodeAffinity: Invalid value: {\"Required\":"]);
        check(BEHAVIOUR).update(&volume(r#""hostPath":{"path":"/x"}"#), &old).refused(&[
            "nodeAffinity: Invalid value: null: field is immutable, except for updating from beta label to GA",
        ]);
    }

    #[test]
    fn a_change_of_phase_is_timed() {
        let status = |phase: &str| format!(r#"{{"status":{{"phase":"{phase}"}}}}"#);
        check(BEHAVIOUR)
            .status(
                &status("Bound"),
                r#"{"status":{"phase":"Pending","lastPhaseTransitionTime":"then"}}"#,
            )
            .has(
                "status.lastPhaseTransitionTime",
                r#""2026-01-01T00:00:00Z""#,
            );
        check(BEHAVIOUR)
            .status(
                &status("Bound"),
                r#"{"status":{"phase":"Bound","lastPhaseTransitionTime":"then"}}"#,
            )
            .has("status.lastPhaseTransitionTime", r#""then""#);
    }

    #[test]
    fn storage_of_the_past_is_warned_about() {
        check(BEHAVIOUR)
            .create(&volume(r#""storageos":{},"persistentVolumeReclaimPolicy":"Recycle""#))
            .warns(&[
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning.",
                "spec.storageOS: deprecated in v1.22, non-functional in v1.25+",
            ]);
    }
}
