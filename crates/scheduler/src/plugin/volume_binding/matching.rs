//! Matching PersistentVolumes to claims.

use std::cmp::Ordering;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;

use super::requested_storage;
use crate::model::Labels;
use crate::storage::PersistentVolume;

/// The volume that is pre-bound to a claim, or the smallest that matches it and can be used on the
/// node (upstream: FindMatchingVolume).
pub(super) fn find_matching_volume<'a>(
    claim: &Object,
    volumes: &'a [Arc<PersistentVolume>],
    labels: &Labels,
    taken: &[&str],
) -> Option<&'a Arc<PersistentVolume>> {
    let text = |object: &Object, field: &str| object["spec"][field].str().to_string();
    let mode = |object: &Object| match text(object, "volumeMode") {
        mode if mode.is_empty() => "Filesystem".to_string(),
        mode => mode,
    };
    let usable_claims = volumes.iter().filter(|volume| {
        let object = &volume.object;
        !taken.contains(&object.name())
            && (object["spec"]["claimRef"].is_null() || volume.is_bound_or_prebound_to(claim))
            && capacity(object).partial_cmp(&requested_storage(claim)) != Some(Ordering::Less)
            && mode(claim) == mode(object)
            && text(claim, "volumeAttributesClassName") == text(object, "volumeAttributesClassName")
            && !object.is_terminating()
    });
    let mut smallest: Option<&Arc<PersistentVolume>> = None;
    for volume in usable_claims {
        if volume.is_bound_or_prebound_to(claim) {
            return Some(volume).filter(|volume| volume.allows_node(labels));
        }
        let is_smaller = smallest.is_none_or(|known| {
            capacity(&known.object).partial_cmp(&capacity(&volume.object))
                == Some(Ordering::Greater)
        });
        if is_smaller && is_available(claim, volume) && volume.allows_node(labels) {
            smallest = Some(volume);
        }
    }
    smallest
}

fn capacity(volume: &Object) -> Quantity {
    Quantity::parse_or_zero(volume["spec"]["capacity"]["storage"].str())
}

/// Whether a volume without a claimRef is available, and matches the selector and access modes of a
/// claim.
fn is_available(claim: &Object, volume: &PersistentVolume) -> bool {
    let selector = LabelSelector::from_value(&claim["spec"]["selector"]);
    let modes = volume.object["spec"]["accessModes"].list();
    volume.object["status"]["phase"].str() == "Available"
        && selector.is_none_or(|selector| volume.labels.match_selector(&selector))
        && claim["spec"]["accessModes"]
            .list()
            .iter()
            .all(|mode| modes.contains(mode))
}
