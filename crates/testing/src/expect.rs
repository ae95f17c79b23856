//! Assertions with readable differences.

use mizzen_value::Value;

use crate::Cluster;
use crate::diff::{line_diff, missing_fields};
use crate::read::object_path;

/// Asserts that the status of an object has these fields. Others are not compared.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_testing::{Cluster, assert_status};
///
/// let cluster = Cluster::start().await;
/// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}").await;
/// cluster.settle().await;
/// assert_status!(cluster, Pod, "web", {"phase": "Running"});
/// # }
/// ```
#[macro_export]
macro_rules! assert_status {
    ($cluster:expr, $kind:ty, $name:expr, $status:tt) => {{
        let expected = $crate::private::value!($status);
        if let Some(difference) = $cluster.status_difference::<$kind>($name, &expected).await {
            panic!("{difference}");
        }
    }};
}

/// Asserts the reasons of the Events about an object, by its name, in the order in which they first occurred.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mizzen_testing::{Cluster, assert_events};
///
/// let cluster = Cluster::start().await;
/// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}").await;
/// cluster.settle().await;
/// assert_events!(cluster, "web", ["Scheduled", "Pulled", "Created", "Started"]);
/// # }
/// ```
#[macro_export]
macro_rules! assert_events {
    ($cluster:expr, $name:expr, $reasons:expr) => {
        if let Some(difference) = $cluster.events_difference($name, &$reasons).await {
            panic!("{difference}");
        }
    };
}

impl Cluster {
    /// What is different in the status of an object, for [`assert_status!`](crate::assert_status).
    #[doc(hidden)]
    pub async fn status_difference<K>(&self, name: &str, expected: &Value) -> Option<String>
    where
        K: kube::Resource<DynamicType: Default>,
        K::Scope: 'static,
    {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        let (code, object) = self
            .server()
            .ask("GET", &object_path::<K>(name), None)
            .await;
        if code != 200 {
            return Some(format!("{kind} {name}: {}", object["message"].str()));
        }
        let differences = missing_fields("status", &object["status"], expected);
        (!differences.is_empty()).then(|| {
            format!(
                "{kind} {name} has another status:\n  {}\nthe last steps:\n{}",
                differences.join("\n  "),
                self.last_steps(20)
            )
        })
    }

    /// What is different in the Events about an object, for [`assert_events!`](crate::assert_events).
    #[doc(hidden)]
    pub async fn events_difference(&self, name: &str, expected: &[&str]) -> Option<String> {
        let (_, list) = self.server().ask("GET", "/api/v1/events", None).await;
        let events = list["items"].list().iter();
        let mut events: Vec<&Value> = events
            .filter(|event| event["involvedObject"]["name"].str() == name)
            .collect();
        events.sort_by_key(|event| {
            let first = match event["firstTimestamp"].str() {
                "" => event["eventTime"].str(),
                first => first,
            };
            let version: u64 = event["metadata"]["resourceVersion"]
                .str()
                .parse()
                .unwrap_or(0);
            // Seconds and microseconds compare by the second.
            (first.get(..19).unwrap_or(first).to_owned(), version)
        });
        let mut found: Vec<&str> = events.iter().map(|event| event["reason"].str()).collect();
        found.dedup();
        (found != expected).then(|| {
            let lines = |reasons: &[&str]| -> String {
                reasons.iter().map(|one| format!("{one}\n")).collect()
            };
            let (expected, found) = (lines(expected), lines(&found));
            let difference = match line_diff(&expected, &found) {
                same if same.is_empty() => format!("the order is\n{found}"),
                difference => difference,
            };
            format!("the Events about {name} differ:\n{difference}")
        })
    }
}
