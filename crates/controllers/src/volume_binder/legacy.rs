//! What do the names of old plug-ins mean? Most were replaced by drivers outside; two are left that we can act for.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::names::{
    MIGRATED_TO, OLD_PROVISIONER, PROVISIONED_BY, PROVISIONER, annotate, annotation,
};

/// Plug-ins of old, the drivers that took their place, and what volumes of theirs are called.
const REPLACED: [(&str, &str, &str); 7] = [
    (
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "awsElasticBlockStore",
    ),
    (
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        "gcePersistentDisk",
    ),
    (
        "kubernetes.io/azure-disk",
        "disk.csi.azure.com",
        "azureDisk",
    ),
    (
        "kubernetes.io/azure-file",
        "file.csi.azure.com",
        "azureFile",
    ),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder"),
    (
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
        "vsphereVolume",
    ),
    (
        "kubernetes.io/portworx-volume",
        "pxd.portworx.com",
        "portworxVolume",
    ),
];
/// What names of plug-ins of old begin with.
const OLD: &str = "kubernetes.io/";
/// Keeps a volume until what it stands for is deleted by us.
pub(super) const OURS: &str = "kubernetes.io/pv-controller";
/// Keeps a volume until what it stands for is deleted by its driver.
const THEIRS: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The driver that took a plug-in's place.
pub(super) fn replacement(plugin: &str) -> Option<&'static str> {
    REPLACED
        .iter()
        .find(|(old, ..)| *old == plugin)
        .map(|(_, driver, _)| *driver)
}

/// The plug-in of old that a volume is of, and the driver that took its place.
pub(super) fn source_of(volume: &Object) -> Option<(&'static str, &'static str)> {
    let is_it = |source: &str| !volume["spec"][source].is_null();
    REPLACED
        .iter()
        .find(|(.., source)| is_it(source))
        .map(|(plugin, driver, _)| (*plugin, *driver))
}

/// Whether something of this name is outside of the control plane.
pub(super) fn is_external(plugin: &str) -> bool {
    !plugin.starts_with(OLD)
}

/// Why no volume can be made by a plug-in of old that was not replaced.
pub(super) fn cannot_make(plugin: &str) -> String {
    match plugin {
        "kubernetes.io/host-path" => {
            format!(
                "Failed to create provisioner: provisioning in volume plugin {plugin:?} is disabled"
            )
        }
        "kubernetes.io/nfs" => "no provisionable volume plugin matched".into(),
        _ => format!("no volume plugin matched name: {plugin}"),
    }
}

/// The claim with the annotation that names its driver of today; none if it is right.
pub(super) fn claim(claim: &Object) -> Option<Object> {
    let plugin = annotation(claim, PROVISIONER).or(annotation(claim, OLD_PROVISIONER))?;
    migrated(claim, plugin)
}

/// The volume with the annotation that names its driver of today, and with the finalizer of whoever deletes what it
/// stands for; none if both are right.
pub(super) fn volume(volume: &Object) -> Option<Object> {
    let plugin = annotation(volume, PROVISIONED_BY)?;
    let annotated = migrated(volume, plugin);
    let mut after = annotated.clone().unwrap_or_else(|| volume.clone());
    let before: Vec<Value> = volume["metadata"]["finalizers"].list().to_vec();
    let finalizers = finalizers(volume, plugin, before.clone());
    if finalizers == before {
        return annotated;
    }
    after.entry("metadata").set("finalizers", finalizers);
    Some(after)
}

fn migrated(object: &Object, plugin: &str) -> Option<Object> {
    let mut after = object.clone();
    match (replacement(plugin), annotation(object, MIGRATED_TO)) {
        (Some(driver), said) if said != Some(driver) => annotate(&mut after, MIGRATED_TO, driver),
        (None, Some(said)) if !said.is_empty() => {
            after
                .entry("metadata")
                .entry("annotations")
                .remove(MIGRATED_TO);
        }
        _ => return None,
    }
    Some(after)
}

fn finalizers(volume: &Object, plugin: &str, mut finalizers: Vec<Value>) -> Vec<Value> {
    if replacement(plugin).is_some() {
        finalizers.retain(|finalizer| finalizer.str() != OURS);
    } else if !is_external(plugin) {
        finalizers.retain(|finalizer| finalizer.str() != THEIRS);
        let is_deleted = volume["spec"]["persistentVolumeReclaimPolicy"].str() == "Delete";
        let has = finalizers.iter().any(|finalizer| finalizer.str() == OURS);
        match (is_deleted, has) {
            (true, false) => finalizers.push(OURS.into()),
            (false, true) => finalizers.retain(|finalizer| finalizer.str() != OURS),
            _ => (),
        }
    }
    finalizers
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(
        plugin: &str,
        policy: &str,
        finalizers: &[&str],
        wanted: Option<(Option<&str>, &[&str])>,
    ) {
        let finalizers: Vec<Value> = finalizers.iter().map(|one| Value::from(*one)).collect();
        let mut before = Object(value!({"spec": {"persistentVolumeReclaimPolicy": policy}}));
        before.entry("metadata").set("finalizers", finalizers);
        annotate(&mut before, PROVISIONED_BY, plugin);
        let after = volume(&before);
        let seen = after.as_ref().map(|after| {
            let finalizers = after["metadata"]["finalizers"]
                .list()
                .iter()
                .map(Value::str)
                .collect::<Vec<_>>();
            (annotation(after, MIGRATED_TO), finalizers)
        });
        assert_eq!(
            seen,
            wanted.map(|(driver, finalizers)| (driver, finalizers.to_vec()))
        );
    }

    #[test]
    fn a_volume_is_kept_by_whoever_deletes_it() {
        check("example.com/driver", "Delete", &["x"], None);
        check(
            "kubernetes.io/host-path",
            "Delete",
            &["x", THEIRS],
            Some((None, &["x", OURS])),
        );
        check(
            "kubernetes.io/host-path",
            "Retain",
            &[OURS],
            Some((None, &[])),
        );
        check(
            "kubernetes.io/aws-ebs",
            "Delete",
            &[OURS],
            Some((Some("ebs.csi.aws.com"), &[])),
        );
    }

    #[test]
    fn a_claim_learns_its_driver_once() {
        let mut before = Object::default();
        annotate(&mut before, PROVISIONER, "kubernetes.io/cinder");
        let after = claim(&before).unwrap();
        assert_eq!(
            annotation(&after, MIGRATED_TO),
            Some("cinder.csi.openstack.org")
        );
        assert!(claim(&after).is_none());
    }
}
