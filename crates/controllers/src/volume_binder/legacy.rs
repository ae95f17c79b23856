//! In-tree volume plug-ins: CSI migration, and the two plug-ins that the controller handles itself.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::names::{
    MIGRATED_TO, OLD_PROVISIONER, PROVISIONED_BY, PROVISIONER, annotate, annotation,
};

/// In-tree plug-ins, the CSI drivers that replaced them, and their volume sources.
const MIGRATED_PLUGINS: [(&str, &str, &str); 7] = [
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
/// The name prefix of in-tree plug-ins.
const IN_TREE_PREFIX: &str = "kubernetes.io/";
/// The finalizer of volumes that the controller deletes.
pub(super) const CONTROLLER_FINALIZER: &str = "kubernetes.io/pv-controller";
/// The finalizer of volumes that an external provisioner deletes.
const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The CSI driver that replaced a plug-in.
pub(super) fn csi_driver(plugin: &str) -> Option<&'static str> {
    MIGRATED_PLUGINS
        .iter()
        .find(|(old, ..)| *old == plugin)
        .map(|(_, driver, _)| *driver)
}

/// The in-tree plug-in of a volume, and the CSI driver that replaced it.
pub(super) fn source_of(volume: &Object) -> Option<(&'static str, &'static str)> {
    let is_it = |source: &str| !volume["spec"][source].is_null();
    MIGRATED_PLUGINS
        .iter()
        .find(|(.., source)| is_it(source))
        .map(|(plugin, driver, _)| (*plugin, *driver))
}

/// Whether a plug-in is external.
pub(super) fn is_external(plugin: &str) -> bool {
    !plugin.starts_with(IN_TREE_PREFIX)
}

/// The error for an in-tree plug-in without a CSI driver.
pub(super) fn unsupported_plugin(plugin: &str) -> String {
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

/// The claim with the migrated-to annotation; none if it is right.
pub(super) fn migrate_claim(claim: &Object) -> Option<Object> {
    let plugin = annotation(claim, PROVISIONER).or(annotation(claim, OLD_PROVISIONER))?;
    migrated(claim, plugin)
}

/// The volume with the migrated-to annotation and the finalizer of its deleter; none if both are
/// right.
pub(super) fn migrate_volume(volume: &Object) -> Option<Object> {
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
    match (csi_driver(plugin), annotation(object, MIGRATED_TO)) {
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
    if csi_driver(plugin).is_some() {
        finalizers.retain(|finalizer| finalizer.str() != CONTROLLER_FINALIZER);
    } else if !is_external(plugin) {
        finalizers.retain(|finalizer| finalizer.str() != PROVISIONER_FINALIZER);
        let is_deleted = volume["spec"]["persistentVolumeReclaimPolicy"].str() == "Delete";
        let has = finalizers
            .iter()
            .any(|finalizer| finalizer.str() == CONTROLLER_FINALIZER);
        match (is_deleted, has) {
            (true, false) => finalizers.push(CONTROLLER_FINALIZER.into()),
            (false, true) => finalizers.retain(|finalizer| finalizer.str() != CONTROLLER_FINALIZER),
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
        let after = migrate_volume(&before);
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
    fn a_volume_has_the_finalizer_of_its_deleter() {
        check("example.com/driver", "Delete", &["x"], None);
        check(
            "kubernetes.io/host-path",
            "Delete",
            &["x", PROVISIONER_FINALIZER],
            Some((None, &["x", CONTROLLER_FINALIZER])),
        );
        check(
            "kubernetes.io/host-path",
            "Retain",
            &[CONTROLLER_FINALIZER],
            Some((None, &[])),
        );
        check(
            "kubernetes.io/aws-ebs",
            "Delete",
            &[CONTROLLER_FINALIZER],
            Some((Some("ebs.csi.aws.com"), &[])),
        );
    }

    #[test]
    fn the_migrated_to_annotation_is_set_once() {
        let mut before = Object::default();
        annotate(&mut before, PROVISIONER, "kubernetes.io/cinder");
        let after = migrate_claim(&before).unwrap();
        assert_eq!(
            annotation(&after, MIGRATED_TO),
            Some("cinder.csi.openstack.org")
        );
        assert!(migrate_claim(&after).is_none());
    }
}
