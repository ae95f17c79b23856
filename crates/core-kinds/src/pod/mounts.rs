//! Validation of volume mounts and volume devices.

use std::collections::HashSet;

use mizzen_object::validate::field;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::volumes::{descending_path, no_backsteps};

type Volumes<'a> = [(&'a str, &'a Value)];

/// As directories or as devices, each at a place of its own.
pub(super) fn validate(
    container: &Value,
    volumes: &Volumes,
    path: &Path,
    violations: &mut Violations,
) {
    let volume_mounts_path = path.child("volumeMounts");
    let devices = container["volumeDevices"].list();
    let mut taken: HashSet<&str> = HashSet::new();
    for (index, mount) in container["volumeMounts"].items().enumerate() {
        let place = volume_mounts_path.index(index);
        let (name, text) = (mount["name"].str(), mount["mountPath"].str());
        if name.is_empty() {
            violations.required(place.child("name"), "");
        }
        if !volumes.iter().any(|(volume, _)| *volume == name) {
            violations.not_found(place.child("name"), name);
        }
        if text.is_empty() {
            violations.required(place.child("mountPath"), "");
        }
        if taken.contains(&text) {
            violations.invalid(place.child("mountPath"), text, "must be unique");
        }
        taken.insert(text);
        if devices.iter().any(|device| device["name"].str() == name) {
            violations.invalid(
                place.child("name"),
                name,
                "must not already exist in volumeDevices",
            );
        }
        if devices
            .iter()
            .any(|device| device["devicePath"].str() == text)
        {
            let detail = "must not already exist as a path in volumeDevices";
            violations.invalid(place.child("mountPath"), text, detail);
        }
        // A part of a volume.
        //
        // Kubernetes: violations are reported at the list.
        let (part, expression) = (mount["subPath"].str(), mount["subPathExpr"].str());
        if !part.is_empty() {
            descending_path(part, &volume_mounts_path.child("subPath"), violations);
        }
        if !part.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            violations.invalid(place.child("subPathExpr"), expression, detail);
        }
        if !expression.is_empty() {
            descending_path(
                expression,
                &volume_mounts_path.child("subPathExpr"),
                violations,
            );
        }
        let path = volume_mounts_path.child("mountPropagation");
        if let Some(mode) = mount["mountPropagation"].as_str() {
            field::one_of(
                mode,
                &["Bidirectional", "HostToContainer", "None"],
                &path,
                violations,
            );
            if mode == "Bidirectional" && !container["securityContext"]["privileged"].bool() {
                let detail =
                    "Bidirectional mount propagation is available only to privileged containers";
                violations.forbidden(path, detail);
            }
        }
        validate_recursion(
            mount,
            &volume_mounts_path.child("recursiveReadOnly"),
            violations,
        );
    }
    validate_devices(container, volumes, &path.child("volumeDevices"), violations);
}

fn validate_recursion(mount: &Value, path: &Path, violations: &mut Violations) {
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount["readOnly"].bool() {
                violations.forbidden(path, "may only be specified when readOnly is true");
            }
            if mount["mountPropagation"]
                .as_str()
                .is_some_and(|mode| mode != "None")
            {
                let detail = "may only be specified when mountPropagation is None or not specified";
                violations.forbidden(path, detail);
            }
        }
        Some(other) => {
            violations.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"])
        }
    }
}

fn validate_devices(
    container: &Value,
    volumes: &Volumes,
    path: &Path,
    violations: &mut Violations,
) {
    let mounts = container["volumeMounts"].list();
    let (mut names, mut paths): (HashSet<&str>, HashSet<&str>) = Default::default();
    for (index, device) in container["volumeDevices"].items().enumerate() {
        let place = path.index(index);
        let (name, text) = (device["name"].str(), device["devicePath"].str());
        let (name_place, path_place) = (place.child("name"), place.child("devicePath"));
        if name.is_empty() {
            violations.required(name_place, "");
        }
        if names.contains(&name) {
            violations.invalid(name_place, name, "must be unique");
        }
        // Only what is claimed can be a device.
        let volume = volumes
            .iter()
            .rfind(|(volume, _)| *volume == name)
            .map(|(_, volume)| volume);
        let is_claimed = |volume: &&Value| {
            !volume["persistentVolumeClaim"].is_null() || !volume["ephemeral"].is_null()
        };
        if volume.is_some_and(|volume| !is_claimed(volume)) {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            violations.invalid(name_place, name, detail);
        }
        if volume.is_none() {
            violations.not_found(name_place, name);
        }
        if text.is_empty() {
            violations.required(path_place, "");
        }
        if paths.contains(&text) {
            violations.invalid(path_place, text, "must be unique");
        }
        let mut backsteps = Violations::default();
        no_backsteps(text, &Path::new(""), &mut backsteps);
        if !backsteps.is_empty() {
            violations.invalid(path_place, text, "can not contain backsteps ('..')");
        } else {
            paths.insert(text);
        }
        if mounts.iter().any(|mount| mount["name"].str() == name) {
            violations.invalid(name_place, name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| mount["mountPath"].str() == text) {
            violations.invalid(
                path_place,
                text,
                "must not already exist as a path in volumeMounts",
            );
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
