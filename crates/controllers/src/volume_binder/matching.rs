//! Matches volumes with claims.

use std::collections::{BTreeMap, BTreeSet};

use mizzen_object::select::LabelSelector;
use mizzen_sdk::Object;
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::names::{class, is_for, volume_mode};

/// The best of the volumes that are pre-bound to a claim or unclaimed in its class; with `delayed`
/// only pre-bound ones, because the scheduler chooses among the rest.
///
/// Kubernetes: volumes with the fewest access modes come first; only among those does a pre-bound
/// one win over the smallest (persistentvolume/index.go).
pub(super) fn find_matching_volume<'a>(
    claim: &Value,
    volumes: &'a [Object],
    delayed: bool,
) -> Option<&'a Object> {
    let wanted = modes(claim);
    let mut groups: BTreeMap<(usize, BTreeSet<&str>), Vec<&Object>> = BTreeMap::new();
    for volume in volumes {
        let offered = modes(volume);
        if wanted.is_subset(&offered) {
            groups
                .entry((offered.len(), offered))
                .or_default()
                .push(volume);
        }
    }
    groups
        .values()
        .find_map(|group| best_of(claim, group, delayed))
}

/// The best of volumes with the same access modes.
fn best_of<'a>(claim: &Value, volumes: &[&'a Object], delayed: bool) -> Option<&'a Object> {
    let is_usable = |volume: &&Object| {
        (volume["spec"]["claimRef"].is_null() || is_for(volume, claim))
            && size(volume) >= request(claim)
            && volume_mode(claim) == volume_mode(volume)
            && attributes(claim) == attributes(volume)
            && !volume.is_terminating()
    };
    let selector = LabelSelector::from_value(&claim["spec"]["selector"]);
    let is_free = |volume: &&Object| {
        let selector = selector.as_ref();
        volume["status"]["phase"].str() == "Available"
            && selector.is_none_or(|selector| selector.matches(|label| volume.label(label)))
            && class(volume) == class(claim)
    };
    let usable = || volumes.iter().copied().filter(is_usable);
    let pre_bound = usable().find(|volume| is_for(volume, claim));
    let free = usable().filter(|volume| !delayed && is_free(volume));
    pre_bound.or_else(|| {
        free.min_by(|one, other| (size(one), one.name()).cmp(&(size(other), other.name())))
    })
}

/// Why a volume cannot be bound to the claim that names it.
pub(super) fn volume_mismatch(claim: &Value, volume: &Object) -> Option<String> {
    let is_small = size(volume).value() < request(claim).value();
    let fixed = [
        (is_small, "requested PV is too small"),
        (
            class(volume) != class(claim),
            "storageClassName does not match",
        ),
        (
            attributes(volume) != attributes(claim),
            "volumeAttributesClassName does not match",
        ),
        (
            volume_mode(volume) != volume_mode(claim),
            "incompatible volumeMode",
        ),
        (
            !modes(claim).is_subset(&modes(volume)),
            "incompatible accessMode",
        ),
    ];
    if volume.is_terminating() {
        return Some(format!(
            "the volume is marked for deletion {:?}",
            volume.name()
        ));
    }
    fixed
        .iter()
        .find(|(applies, _)| *applies)
        .map(|(_, why)| why.to_string())
}

fn modes(object: &Value) -> BTreeSet<&str> {
    object["spec"]["accessModes"]
        .list()
        .iter()
        .map(Value::str)
        .collect()
}

fn attributes(object: &Value) -> &str {
    object["spec"]["volumeAttributesClassName"].str()
}

fn size(volume: &Value) -> Quantity {
    Quantity::parse_or_zero(volume["spec"]["capacity"]["storage"].str())
}

pub(super) fn request(claim: &Value) -> Quantity {
    Quantity::parse_or_zero(claim["spec"]["resources"]["requests"]["storage"].str())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn volume(name: &str, size: &str, modes: &[&str]) -> Object {
        let modes: Vec<Value> = modes.iter().map(|mode| Value::from(*mode)).collect();
        Object(value!({
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": modes},
            "status": {"phase": "Available"},
        }))
    }

    fn claim() -> Value {
        value!({
            "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}},
        })
    }

    fn with(mut volume: Object, path: &str, new: Value) -> Object {
        let (parent, key) = path.rsplit_once('.').unwrap();
        let place = parent
            .split('.')
            .fold(&mut volume.0, |value, key| value.entry(key));
        place.set(key, new);
        volume
    }

    #[track_caller]
    fn check(claim: &Value, volumes: &[Object], delayed: bool, wanted: Option<&str>) {
        assert_eq!(
            find_matching_volume(claim, volumes, delayed).map(|volume| volume.name()),
            wanted
        );
    }

    const ONCE: [&str; 1] = ["ReadWriteOnce"];

    #[test]
    fn the_smallest_volume_that_is_large_enough_wins() {
        let volumes = [
            volume("a", "10Gi", &ONCE),
            volume("b", "4Gi", &ONCE),
            volume("c", "2Gi", &ONCE),
        ];
        check(&claim(), &volumes, false, Some("b"));
        check(&claim(), &volumes[2..], false, None);
    }

    #[test]
    fn fewer_access_modes_win_over_size() {
        let both = volume("a", "3Gi", &["ReadWriteOnce", "ReadOnlyMany"]);
        check(
            &claim(),
            &[both.clone(), volume("b", "9Gi", &ONCE)],
            false,
            Some("b"),
        );
        check(&claim(), &[both], false, Some("a"));
        check(
            &claim(),
            &[volume("c", "9Gi", &["ReadOnlyMany"])],
            false,
            None,
        );
    }

    #[test]
    fn a_volume_made_for_the_claim_wins_even_while_it_waits_for_a_consumer() {
        let made = |uid: &str| {
            with(
                volume("z", "9Gi", &ONCE),
                "spec.claimRef",
                value!({"namespace": "ns", "name": "c", "uid": uid}),
            )
        };
        let small = volume("a", "3Gi", &ONCE);
        check(&claim(), &[small.clone(), made("")], false, Some("z"));
        check(&claim(), &[small.clone(), made("u")], true, Some("z"));
        check(
            &claim(),
            &[small.clone(), made("another")],
            false,
            Some("a"),
        );
        check(&claim(), &[small], true, None);
    }

    #[test]
    fn unsuitable_volumes_are_skipped() {
        let fit = || volume("a", "3Gi", &ONCE);
        for (path, new) in [
            ("spec.storageClassName", value!("fast")),
            ("spec.volumeMode", value!("Block")),
            ("spec.volumeAttributesClassName", value!("gold")),
            (
                "spec.claimRef",
                value!({"namespace": "ns", "name": "other"}),
            ),
            ("status.phase", value!("Released")),
            ("metadata.deletionTimestamp", value!("2024-01-01T00:00:00Z")),
        ] {
            check(&claim(), &[with(fit(), path, new)], false, None);
        }
        check(
            &claim(),
            &[with(fit(), "spec.volumeMode", value!("Filesystem"))],
            false,
            Some("a"),
        );
    }

    #[test]
    fn a_selector_chooses_by_labels() {
        let mut claim = claim();
        claim
            .entry("spec")
            .set("selector", value!({"matchLabels": {"name": "b"}}));
        check(
            &claim,
            &[volume("a", "3Gi", &ONCE), volume("b", "9Gi", &ONCE)],
            false,
            Some("b"),
        );
    }

    #[test]
    fn the_first_mismatch_is_reported() {
        let against = |volume: Object| volume_mismatch(&claim(), &volume);
        assert_eq!(against(volume("a", "3Gi", &ONCE)), None);
        assert_eq!(
            against(volume("a", "1Gi", &[])).as_deref(),
            Some("requested PV is too small")
        );
        assert_eq!(
            against(volume("a", "3Gi", &[])).as_deref(),
            Some("incompatible accessMode")
        );
        let going = with(
            volume("a", "3Gi", &ONCE),
            "metadata.deletionTimestamp",
            value!("2024-01-01T00:00:00Z"),
        );
        assert_eq!(
            against(going).as_deref(),
            Some("the volume is marked for deletion \"a\"")
        );
    }
}
