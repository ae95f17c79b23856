//! Which volumes does a container see, and where?

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
    validate_mounts(container, volumes, &path.child("volumeMounts"), violations);
    validate_devices(container, volumes, &path.child("volumeDevices"), violations);
}

fn validate_mounts(container: &Value, volumes: &Volumes, path: &Path, violations: &mut Violations) {
    let devices = container["volumeDevices"].list();
    let mut taken: HashSet<&str> = HashSet::new();
    for (index, mount) in container["volumeMounts"].list().iter().enumerate() {
        let place = path.index(index);
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
        validate_part(mount, &place, path, violations);
        validate_propagation(
            mount,
            container,
            &path.child("mountPropagation"),
            violations,
        );
        validate_recursion(mount, &path.child("recursiveReadOnly"), violations);
    }
}

/// A part of a volume.
///
/// Kubernetes: what is wrong with it is reported at the list.
fn validate_part(mount: &Value, place: &Path, list: &Path, violations: &mut Violations) {
    let (part, expression) = (mount["subPath"].str(), mount["subPathExpr"].str());
    if !part.is_empty() {
        descending_path(part, &list.child("subPath"), violations);
    }
    if !part.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        violations.invalid(place.child("subPathExpr"), expression, detail);
    }
    if !expression.is_empty() {
        descending_path(expression, &list.child("subPathExpr"), violations);
    }
}

fn validate_propagation(
    mount: &Value,
    container: &Value,
    path: &Path,
    violations: &mut Violations,
) {
    let Some(mode) = mount["mountPropagation"].as_str() else {
        return;
    };
    field::one_of(
        mode,
        &["Bidirectional", "HostToContainer", "None"],
        path,
        violations,
    );
    if mode == "Bidirectional" && !container["securityContext"]["privileged"].bool() {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        violations.forbidden(path, detail);
    }
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
    for (index, device) in container["volumeDevices"].list().iter().enumerate() {
        let place = path.index(index);
        let (name, text) = (device["name"].str(), device["devicePath"].str());
        let (name_place, path_place) = (place.child("name"), place.child("devicePath"));
        if name.is_empty() {
            violations.required(name_place, "");
        }
        if names.contains(&name) {
            violations.invalid(name_place, name, "must be unique");
        }
        validate_device_volume(name, volumes, &name_place, violations);
        if text.is_empty() {
            violations.required(path_place, "");
        }
        if paths.contains(&text) {
            violations.invalid(path_place, text, "must be unique");
        }
        if climbs(text) {
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

/// Only what is claimed can be a device.
fn validate_device_volume(name: &str, volumes: &Volumes, path: &Path, violations: &mut Violations) {
    let volume = volumes
        .iter()
        .rfind(|(volume, _)| *volume == name)
        .map(|(_, volume)| volume);
    let is_claimed = |volume: &&Value| {
        !volume["persistentVolumeClaim"].is_null() || !volume["ephemeral"].is_null()
    };
    if volume.is_some_and(|volume| !is_claimed(volume)) {
        let detail =
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
        violations.invalid(path, name, detail);
    }
    if volume.is_none() {
        violations.not_found(path, name);
    }
}

fn climbs(text: &str) -> bool {
    let mut violations = Violations::default();
    no_backsteps(text, &Path::new(""), &mut violations);
    !violations.is_empty()
}
