//! When a pod is to be evicted because of its devices.

use std::sync::Arc;

use mizzen_component_helpers::tolerations::tolerates;
use mizzen_sdk::Object;
use mizzen_value::{Value, time};

/// The eviction time of the pods of a claim, in seconds since 1970; none if they are not evicted.
/// `slices_of` returns the slices of a driver's pool.
pub(super) fn eviction_time(
    claim: &Object,
    slices_of: impl Fn(&str, &str) -> Vec<Arc<Object>>,
) -> Option<i64> {
    let results = claim["status"]["allocation"]["devices"]["results"]
        .list()
        .iter();
    results
        .filter_map(|result| {
            let slices = slices_of(result["driver"].str(), result["pool"].str());
            let device = device(&slices, result["device"].str())?;
            eviction_times(device["taints"].list(), result["tolerations"].list()).min()
        })
        .min()
}

/// A device in the latest generation of its pool.
fn device<'a>(slices: &'a [Arc<Object>], name: &str) -> Option<&'a Value> {
    let generation = |slice: &Object| slice["spec"]["pool"]["generation"].int();
    let latest = slices.iter().map(|slice| generation(slice)).max()?;
    let current = slices.iter().filter(|slice| generation(slice) == latest);
    current
        .flat_map(|slice| slice["spec"]["devices"].list())
        .find(|device| device["name"].str() == name)
}

/// The eviction time of each NoExecute taint that is not tolerated forever.
fn eviction_times(taints: &[Value], tolerations: &[Value]) -> impl Iterator<Item = i64> {
    let evicting = taints
        .iter()
        .filter(|taint| taint["effect"].str() == "NoExecute");
    evicting.filter_map(|taint| {
        let used = || {
            let used = tolerations
                .iter()
                .filter(|one| one["effect"].str() == "NoExecute");
            used.filter(|one| tolerates(one, taint))
        };
        if used().any(|one| one["tolerationSeconds"].is_null()) {
            return None;
        }
        let seconds = used()
            .map(|one| one["tolerationSeconds"].int().max(0))
            .min()
            .unwrap_or_default();
        let since = time::to_unix(taint["timeAdded"].str()).unwrap_or_default();
        Some(since.saturating_add(seconds))
    })
}

/// Whether a claim is reserved for a pod and, if it was created from a template, owned by it.
pub(super) fn is_reserved_for(claim: &Object, pod: &Object, is_made: bool) -> bool {
    let consumers = claim["status"]["reservedFor"].list();
    let is_reserved = consumers
        .iter()
        .any(|consumer| consumer["uid"].str() == pod.uid());
    is_reserved && (!is_made || claim.is_controlled_by(pod.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn slice(generation: i64, taints: &[&str]) -> Arc<Object> {
        let taint = |key: &&str| {
            let (key, effect) = key.split_once(':').unwrap_or((key, "NoExecute"));
            value!({"key": key, "effect": effect, "timeAdded": (time::from_unix(100))})
        };
        let taints: Vec<Value> = taints.iter().map(taint).collect();
        Arc::new(Object(value!({"spec": {
            "pool": {"generation": generation}, "devices": [{"name": "other"}, {"name": "d", "taints": taints}]
        }})))
    }

    #[track_caller]
    fn check(slices: &[Arc<Object>], tolerations: &[(&str, Option<i64>)], expected: Option<i64>) {
        let toleration = |(key, seconds): &(&str, Option<i64>)| value!({"key": (*key), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": (*seconds)});
        let tolerations: Vec<Value> = tolerations.iter().map(toleration).collect();
        let result =
            value!({"driver": "a.io", "pool": "p", "device": "d", "tolerations": tolerations});
        let claim =
            Object(value!({"status": {"allocation": {"devices": {"results": [(result)]}}}}));
        assert_eq!(eviction_time(&claim, |_, _| slices.to_vec()), expected);
    }

    #[test]
    fn a_taint_evicts_from_its_time_added() {
        check(&[slice(1, &["a"])], &[], Some(100));
        check(&[slice(1, &["a:NoSchedule"])], &[], None);
        check(&[slice(1, &[])], &[], None);
        check(&[], &[], None);
    }

    #[test]
    fn a_toleration_delays_or_prevents_the_eviction() {
        check(
            &[slice(1, &["a"])],
            &[("a", Some(30)), ("a", Some(20))],
            Some(120),
        );
        check(&[slice(1, &["a"])], &[("a", Some(30)), ("a", None)], None);
        check(&[slice(1, &["a", "b"])], &[("a", Some(30))], Some(100));
        check(&[slice(1, &["a"])], &[("a", Some(-5))], Some(100));
    }

    #[test]
    fn only_the_latest_generation_counts() {
        check(&[slice(1, &["a"]), slice(2, &[])], &[], None);
        check(&[slice(2, &["a"]), slice(1, &[])], &[], Some(100));
    }
}
