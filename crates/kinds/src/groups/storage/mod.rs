//! storage.k8s.io: storage classes, CSI drivers and volume attachments.

mod attachment;
mod capacity;
mod class;
mod driver;
mod node;

use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};

use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "StorageClass" => class::STORAGE,
        "VolumeAttributesClass" => class::ATTRIBUTES,
        "CSIDriver" => driver::DRIVER,
        "CSINode" => node::NODE,
        "CSIStorageCapacity" => capacity::CAPACITY,
        "VolumeAttachment" => attachment::ATTACHMENT,
        _ => Behaviour::NONE,
    }
}

/// The name of a CSI driver, in either case.
pub(super) fn driver_name(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    if name.len() > 63 {
        violations.too_long(path, 63);
    }
    let wrong = names::is_dns1123_subdomain(&name.to_lowercase());
    mizzen_object::validate::field::all(wrong, name, path, violations);
}

/// What an old node label is to be replaced by, in words.
fn label_warning(place: String, key: &str) -> Option<String> {
    mizzen_core_kinds::pod::old_node_label(key).map(|message| format!("{place}: {message}"))
}
