//! The ReplicaSets of a deployment.

use std::cmp::Ordering;
use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Value;

use crate::common::int_or_percent::{Rounding, scaled_value};

/// The label with the pod template hash.
pub(super) const HASH: &str = "pod-template-hash";

/// A ReplicaSet from the cache or the server.
pub(super) type Set = Arc<Object>;

/// The ReplicaSets of a deployment: the new one, which has its template, and the old ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReplicaSets {
    pub new: Option<Set>,
    /// The old sets, oldest first.
    pub old: Vec<Set>,
}

impl ReplicaSets {
    /// Splits the sets. Of several with the deployment's template, the oldest is the new set.
    pub(super) fn from_deployment(deployment: &Object, mut all: Vec<Set>) -> ReplicaSets {
        all.sort_by(by_age);
        let template = &deployment["spec"]["template"];
        let new = all
            .iter()
            .position(|set| is_same_template(&set["spec"]["template"], template));
        let new = new.map(|place| all.remove(place));
        ReplicaSets { new, old: all }
    }

    /// All sets, the new one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    /// The sets with replicas, the new one last.
    pub(super) fn active(&self) -> Vec<Set> {
        self.all()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect()
    }

    /// The old sets with replicas.
    pub(super) fn active_old(&self) -> Vec<Set> {
        self.old
            .iter()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect()
    }

    /// Replaces a set by its written version.
    pub(super) fn replace(&mut self, written: &Set) {
        for set in self.old.iter_mut().chain(&mut self.new) {
            if set.uid() == written.uid() {
                *set = written.clone();
            }
        }
    }

    /// The sum of `spec.replicas`.
    pub(super) fn n_replicas(&self) -> i64 {
        self.all().map(|set| replicas(set)).sum()
    }

    /// The sum of a status field.
    pub(super) fn sum(&self, field: &str) -> i64 {
        self.all().map(|set| set["status"][field].int()).sum()
    }
}

/// `spec.replicas`.
pub(super) fn replicas(object: &Object) -> i64 {
    object["spec"]["replicas"].int()
}

/// `status.availableReplicas`.
pub(super) fn available(set: &Object) -> i64 {
    set["status"]["availableReplicas"].int()
}

/// Oldest first.
pub(super) fn by_age(one: &Set, another: &Set) -> Ordering {
    let key = |set: &Set| (set.created(), set.name().to_string());
    key(one).cmp(&key(another))
}

/// Whether two templates are equal except for the hash label.
pub(super) fn is_same_template(one: &Value, another: &Value) -> bool {
    let plain = |template: &Value| {
        let mut template = template.clone();
        if let Some(labels) = template.at_mut("metadata.labels") {
            labels.remove(HASH);
        }
        if template["metadata"]["labels"].is_empty() {
            template.entry("metadata").remove("labels");
        }
        template
    };
    one["spec"] == another["spec"] && plain(one) == plain(another)
}

/// Whether the strategy is RollingUpdate.
pub(super) fn is_rolling(deployment: &Object) -> bool {
    deployment["spec"]["strategy"]["type"].str() == "RollingUpdate"
}

pub(super) fn max_surge(deployment: &Object) -> i64 {
    if is_rolling(deployment) {
        resolve_fenceposts(deployment).0
    } else {
        0
    }
}

pub(super) fn max_unavailable(deployment: &Object) -> i64 {
    let n_wanted = replicas(deployment);
    if is_rolling(deployment) {
        resolve_fenceposts(deployment).1.min(n_wanted)
    } else {
        0
    }
}

/// maxSurge and maxUnavailable. If both round to zero, maxUnavailable is 1, so that the rollout can
/// proceed.
fn resolve_fenceposts(deployment: &Object) -> (i64, i64) {
    let limits = &deployment["spec"]["strategy"]["rollingUpdate"];
    let n_wanted = replicas(deployment);
    let limit =
        |field: &str, round| scaled_value(&limits[field], n_wanted, round).unwrap_or_default();
    match (
        limit("maxSurge", Rounding::Up),
        limit("maxUnavailable", Rounding::Down),
    ) {
        (0, 0) => (0, 1),
        limits => limits,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mizzen_value::{json, value};

    use super::*;

    pub(crate) fn deployment(replicas: i64, surge: &str, unavailable: &str) -> Object {
        let value = |text: &str| json::parse(text.as_bytes()).expect("JSON");
        let limits = value!({"maxSurge": (value(surge)), "maxUnavailable": (value(unavailable))});
        Object(value!({
            "metadata": {"name": "web", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}
        }))
    }

    /// A set by name, creation second, size and available replicas.
    pub(crate) fn set(name: &str, created: i64, replicas: i64, available: i64) -> Set {
        let created = mizzen_value::time::from_unix(created);
        Arc::new(Object(value!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas, "availableReplicas": available}
        })))
    }

    fn check(n_wanted: i64, surge: &str, unavailable: &str, expect: (i64, i64)) {
        let deployment = deployment(n_wanted, surge, unavailable);
        assert_eq!(
            (max_surge(&deployment), max_unavailable(&deployment)),
            expect
        );
    }

    #[test]
    fn surge_is_rounded_up_and_unavailability_down() {
        check(4, r#""25%""#, r#""25%""#, (1, 1));
        check(10, r#""25%""#, r#""25%""#, (3, 2));
        check(1, r#""25%""#, r#""25%""#, (1, 0));
        check(10, "3", "2", (3, 2));
    }

    #[test]
    fn a_rollout_can_always_begin() {
        check(2, "0", r#""1%""#, (0, 1));
        check(1, r#""0%""#, r#""1%""#, (0, 1));
    }

    #[test]
    fn not_more_than_all_can_be_unavailable() {
        check(2, "0", "5", (0, 2));
        check(0, "0", "1", (0, 0));
    }

    #[test]
    fn nothing_surges_when_pods_are_recreated() {
        let mut recreate = deployment(4, "1", "1");
        recreate
            .entry("spec")
            .set("strategy", value!({"type": "Recreate"}));
        assert_eq!((max_surge(&recreate), max_unavailable(&recreate)), (0, 0));
    }

    fn template(labels: &str, image: &str) -> Value {
        let labels = json::parse(labels.as_bytes()).expect("JSON");
        value!({"metadata": {"labels": labels}, "spec": {"containers": [{"image": image}]}})
    }

    #[test]
    fn templates_are_the_same_whatever_their_hash() {
        let plain = template(r#"{"app": "a"}"#, "one");
        assert!(is_same_template(
            &template(r#"{"app": "a", "pod-template-hash": "x"}"#, "one"),
            &plain
        ));
        assert!(!is_same_template(
            &template(r#"{"app": "a"}"#, "two"),
            &plain
        ));
        assert!(!is_same_template(
            &template(r#"{"app": "b"}"#, "one"),
            &plain
        ));
    }

    #[test]
    fn the_oldest_set_with_the_template_is_the_new_one() {
        let with = |name: &str, created: i64, image: &str| {
            let mut set = Object::clone(&set(name, created, 1, 1));
            set.entry("spec").set("template", template("{}", image));
            Arc::new(set)
        };
        let mut deployment = deployment(1, "1", "1");
        deployment
            .entry("spec")
            .set("template", template("{}", "two"));
        let sets = ReplicaSets::from_deployment(
            &deployment,
            vec![
                with("c", 30, "two"),
                with("b", 20, "two"),
                with("a", 10, "one"),
            ],
        );
        assert_eq!(
            sets.new.map(|set| set.name().to_string()).as_deref(),
            Some("b")
        );
        let old: Vec<&str> = sets.old.iter().map(|set| set.name()).collect();
        assert_eq!(old, ["a", "c"]);
    }
}
