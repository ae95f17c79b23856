//! Which volume suits a claim?

use std::cmp::Ordering;
use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;

use super::size;
use crate::model::Labels;
use crate::storage::Volume;

/// The volume that was made for a claim, or the smallest that suits it and can be used on the node.
pub(super) fn find<'a>(
    claim: &Object,
    volumes: &'a [Arc<Volume>],
    labels: &Labels,
    taken: &[&str],
) -> Option<&'a Arc<Volume>> {
    let usable = volumes.iter().filter(|volume| {
        let reference = &volume.object["spec"]["claimRef"];
        !taken.contains(&volume.object.name())
            && (reference.is_null() || volume.is_for(claim))
            && suits(claim, &volume.object)
    });
    let mut smallest: Option<&Arc<Volume>> = None;
    for volume in usable {
        if volume.is_for(claim) {
            return Some(volume).filter(|volume| volume.reaches(labels));
        }
        let is_smaller = smallest.is_none_or(|known| {
            capacity(&known.object).partial_cmp(&capacity(&volume.object))
                == Some(Ordering::Greater)
        });
        if is_smaller && is_free(claim, volume) && volume.reaches(labels) {
            smallest = Some(volume);
        }
    }
    smallest
}

fn capacity(volume: &Object) -> Quantity {
    Quantity::of(volume["spec"]["capacity"]["storage"].str())
}

/// Whether a volume is large enough and of the right sort.
fn suits(claim: &Object, volume: &Object) -> bool {
    let mode = |object: &Object| match object["spec"]["volumeMode"].str() {
        "" => "Filesystem".to_string(),
        mode => mode.to_string(),
    };
    let attributes = |object: &Object| {
        object["spec"]["volumeAttributesClassName"]
            .str()
            .to_string()
    };
    capacity(volume).partial_cmp(&size(claim)) != Some(Ordering::Less)
        && mode(claim) == mode(volume)
        && attributes(claim) == attributes(volume)
        && !volume.is_going()
}

/// Whether a volume that was made for nobody can be had.
fn is_free(claim: &Object, volume: &Volume) -> bool {
    let selector = LabelSelector::of(&claim["spec"]["selector"]);
    let modes = volume.object["spec"]["accessModes"].list();
    volume.object["status"]["phase"].str() == "Available"
        && selector.is_none_or(|selector| volume.labels.match_selector(&selector))
        && claim["spec"]["accessModes"]
            .list()
            .iter()
            .all(|mode| modes.contains(mode))
}
