//! The trigger time annotation: when the change happened that a controller publishes, for latency
//! metrics.
//!
//! Kubernetes: it is the earliest change since the last sync, and there is none if nothing changed
//! (endpointslice/util/trigger_time_tracker.go).

use parking_lot::Mutex;
use std::collections::HashMap;

use mizzen_sdk::Key;
use mizzen_value::{Value, time};

use super::member::condition;

pub(crate) const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The last change times of each service.
#[derive(Default)]
pub(crate) struct TriggerTimeTracker(Mutex<HashMap<Key, ServiceChangeTimes>>);

/// When a service and its pods last changed.
#[derive(Default)]
struct ServiceChangeTimes {
    service: Option<i64>,
    pods: HashMap<String, i64>,
}

impl TriggerTimeTracker {
    /// The earliest change since the last sync, in the format of the annotation.
    pub(crate) fn compute_trigger_time<'a>(
        &self,
        service: &Value,
        pods: impl Iterator<Item = &'a Value>,
    ) -> Option<String> {
        let metadata = &service["metadata"];
        let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
        let seen = ServiceChangeTimes::new(service, pods);
        let mut all = self.0.lock();
        let moment = match all.get(&key) {
            None => seen.service,
            Some(before) => seen.earliest_change_since(before),
        };
        all.insert(key, seen);
        moment.map(time::from_unix)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl ServiceChangeTimes {
    fn new<'a>(service: &Value, pods: impl Iterator<Item = &'a Value>) -> ServiceChangeTimes {
        let of = |pod: &Value| {
            let changed = time::to_unix(condition(pod, "Ready")["lastTransitionTime"].str())?;
            Some((pod["metadata"]["name"].str().to_string(), changed))
        };
        ServiceChangeTimes {
            service: time::to_unix(service["metadata"]["creationTimestamp"].str()),
            pods: pods.filter_map(of).collect(),
        }
    }

    fn earliest_change_since(&self, before: &ServiceChangeTimes) -> Option<i64> {
        let is_later =
            |(name, at): &(&String, &i64)| before.pods.get(*name).is_none_or(|known| *at > known);
        let pods = self.pods.iter().filter(is_later).map(|(_, at)| *at);
        pods.chain(self.service.filter(|_| self.service > before.service))
            .min()
    }
}

/// Sets the annotation, or removes an old one.
pub(crate) fn annotate(object: &mut Value, moment: Option<&str>) {
    let annotations = object.entry("metadata").entry("annotations");
    match moment {
        Some(moment) => annotations.set(ANNOTATION, moment),
        None => {
            annotations.make_map().remove(ANNOTATION);
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn pod(name: &str, minute: u32) -> Value {
        let at = format!("2024-01-01T00:{minute:02}:00Z");
        let conditions = value!([{"type": "Ready", "status": "True", "lastTransitionTime": (at)}]);
        value!({"metadata": {"name": (name)}, "status": {"conditions": (conditions)}})
    }

    #[test]
    fn the_earliest_change_since_the_last_sync_counts() {
        let service = value!({"metadata": {"namespace": "a", "name": "s", "creationTimestamp": "2024-01-01T00:00:00Z"}});
        let triggers = TriggerTimeTracker::default();
        let look = |pods: &[Value]| triggers.compute_trigger_time(&service, pods.iter());
        let at = |minute: u32| Some(format!("2024-01-01T00:{minute:02}:00Z"));

        assert_eq!(
            look(&[pod("a", 5)]),
            at(0),
            "a new service counts from its creation"
        );
        assert_eq!(look(&[pod("a", 5)]), None);
        assert_eq!(look(&[pod("a", 9), pod("b", 7)]), at(7));
        triggers.forget(&Key::new("a", "s"));
        assert_eq!(look(&[]), at(0));
    }

    #[test]
    fn an_old_trigger_time_is_removed() {
        let mut object = value!({});
        annotate(&mut object, Some("2024-01-01T00:00:00Z"));
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION].str(),
            "2024-01-01T00:00:00Z"
        );
        annotate(&mut object, None);
        assert_eq!(object, value!({"metadata": {"annotations": {}}}));
    }
}
