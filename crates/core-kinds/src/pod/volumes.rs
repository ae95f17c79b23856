//! Validation of pod volumes.
//!
//! A volume has a unique name and one source; `sources` validates sources.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{Options, sources};
use crate::fields::dns_label;

/// What is known around a volume.
pub(super) struct VolumeContext<'a> {
    /// The volume's name.
    pub(super) name: &'a str,
    /// The pod's name, unless this is a template.
    pub(super) pod: Option<&'a str>,
    pub(super) options: &'a Options,
    /// Where the volume is.
    pub(super) path: &'a Path<'a>,
}

/// Answers the volumes with which nothing is wrong, by name.
pub(super) fn validate<'a>(
    spec: &'a Value,
    pod: Option<&str>,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) -> Vec<(&'a str, &'a Value)> {
    let volumes = spec["volumes"].list();
    let mut sound: Vec<(&str, &Value)> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let (name, known) = (volume["name"].str(), violations.0.len());
        sources::validate(
            volume,
            &VolumeContext {
                name,
                pod,
                options,
                path: &path,
            },
            violations,
        );
        validate_name(name, &path.child("name"), violations);
        if sound.iter().any(|(other, _)| *other == name) {
            violations.duplicate(path.child("name"), name);
        }
        if violations.0.len() == known {
            sound.push((name, volume));
        }
        // A claim that is made for one volume of the pod is not for another.
        let Some(pod) = pod.filter(|pod| !pod.is_empty()) else {
            continue;
        };
        let claim = volume["persistentVolumeClaim"]["claimName"].str();
        let is_made = |volume: &Value| {
            !volume["ephemeral"].is_null() && claim == format!("{pod}-{}", volume["name"].str())
        };
        if !volume["persistentVolumeClaim"].is_null() && volumes.iter().any(is_made) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            violations.invalid(
                path.child("persistentVolumeClaim").child("claimName"),
                claim,
                detail,
            );
        }
    }
    sound
}

/// The name of a volume, or of something that is named like one.
pub(super) fn validate_name(name: &str, path: &Path, violations: &mut Violations) {
    match name {
        "" => violations.required(path, ""),
        name => dns_label(name, path, violations),
    }
}

/// A path below another that does not climb out, nor starts as hidden files of volumes do.
pub(super) fn local_path(text: &str, path: &Path, violations: &mut Violations) {
    descending_path(text, path, violations);
    if text.starts_with("..") && !text.starts_with("../") {
        violations.invalid(path, text, "must not start with '..'");
    }
}

/// A path below another that does not climb out.
pub(super) fn descending_path(text: &str, path: &Path, violations: &mut Violations) {
    if text.starts_with('/') {
        violations.invalid(path, text, "must be a relative path");
    }
    no_backsteps(text, path, violations);
}

/// A path without `..` in it.
pub(super) fn no_backsteps(text: &str, path: &Path, violations: &mut Violations) {
    if text.split('/').any(|part| part == "..") {
        violations.invalid(path, text, "must not contain '..'");
    }
}
