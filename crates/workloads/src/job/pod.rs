//! The next pod of a job.

use mizzen_sdk::Object;
use mizzen_sdk::resource::JOBS;
use mizzen_value::value;

use super::facts::{
    self, COMPLETION_INDEX, FAILURE_COUNT, IGNORED_FAILURE_COUNT, TRACKING_FINALIZER,
};
use super::failure::match_pod_failure_policy;
use super::progress::JobProgress;
use crate::common::template;

/// The longest generateName.
const LONGEST_PREFIX: usize = 58;

/// The next pod, with its index if there is one.
pub(super) fn new_pod(job: &Object, progress: &JobProgress, index: Option<i64>) -> Object {
    let mut pod = template::pod_from_template(&job["spec"]["template"], job, &JOBS);
    let finalizers = pod.entry("metadata").entry("finalizers").make_list();
    if !finalizers
        .iter()
        .any(|known| known.str() == TRACKING_FINALIZER)
    {
        finalizers.push(TRACKING_FINALIZER.into());
    }
    if let Some(index) = index {
        set_completion_index(&mut pod, job, index);
        if facts::has_limit_per_index(job) {
            let replaced = progress
                .indexes
                .as_ref()
                .and_then(|indexes| indexes.last_failed.get(&index));
            carry_failure_count(&mut pod, job, replaced.map(AsRef::as_ref));
        }
    }
    pod
}

fn set_completion_index(pod: &mut Object, job: &Object, index: i64) {
    const VARIABLE: &str = "JOB_COMPLETION_INDEX";
    let metadata = pod.entry("metadata");
    metadata.set("generateName", prefix(job.name(), index));
    metadata
        .entry("annotations")
        .set(COMPLETION_INDEX, index.to_string());
    metadata
        .entry("labels")
        .set(COMPLETION_INDEX, index.to_string());
    let spec = pod.entry("spec");
    spec.set("hostname", format!("{}-{index}", job.name()));
    for kind in ["initContainers", "containers"] {
        for container in spec.entry(kind).list_mut() {
            let variables = container.entry("env").make_list();
            if variables
                .iter()
                .all(|known| known["name"].str() != VARIABLE)
            {
                let path = format!("metadata.labels['{COMPLETION_INDEX}']");
                let source = value!({"fieldRef": {"fieldPath": path}});
                variables.push(value!({"name": VARIABLE, "valueFrom": source}));
            }
        }
    }
    if spec["initContainers"].is_null() {
        spec.remove("initContainers");
    }
}

/// The generateName; a long job name is cut before the index.
fn prefix(name: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let room = LONGEST_PREFIX - suffix.len();
    format!("{}{suffix}", name.get(..room).unwrap_or(name))
}

/// Carries the failure counts over from the replaced pod.
fn carry_failure_count(pod: &mut Object, job: &Object, replaced: Option<&Object>) {
    let (n_counted, n_ignored) = match replaced {
        None => (0, 0),
        Some(replaced) => {
            let n_counted = facts::failure_count(replaced);
            let n_ignored = facts::ignored_failure_count(replaced);
            match match_pod_failure_policy(job, replaced).is_counted() {
                true => (n_counted + 1, n_ignored),
                false => (n_counted, n_ignored + 1),
            }
        }
    };
    let annotations = pod.entry("metadata").entry("annotations");
    annotations.set(FAILURE_COUNT, n_counted.to_string());
    if n_ignored > 0 {
        annotations.set(IGNORED_FAILURE_COUNT, n_ignored.to_string());
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::Value;

    use std::sync::Arc;

    use super::*;
    use crate::job::backoff::JobBackoff;
    use crate::job::sample::{indexed_pod, job};

    fn make(mut spec: Value, pods: Vec<Object>, index: Option<i64>) -> Object {
        let containers = value!([{"name": "a"}, {"name": "b", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]}]);
        spec.set(
            "template",
            value!({"metadata": {"labels": {"l": "1"}}, "spec": {"containers": containers}}),
        );
        let job = job(spec);
        let progress = JobProgress::from_pods(
            &job,
            pods.into_iter().map(Arc::new).collect(),
            JobBackoff::default(),
        );
        new_pod(&job, &progress, index)
    }

    #[test]
    fn a_pod_is_tracked_and_owned() {
        let pod = make(value!({}), vec![], None);
        assert_eq!(pod["metadata"]["generateName"].str(), "j-");
        assert!(pod.has_finalizer(TRACKING_FINALIZER) && pod.is_controlled_by("job"));
        assert!(pod.annotation(COMPLETION_INDEX).is_none() && pod["spec"]["hostname"].is_null());
        assert!(pod["spec"]["containers"][0]["env"].is_null());
    }

    #[test]
    fn an_index_is_in_labels_annotations_and_environment() {
        let pod = make(
            value!({"completionMode": "Indexed", "completions": 9}),
            vec![],
            Some(7),
        );
        assert_eq!(pod["metadata"]["generateName"].str(), "j-7-");
        assert_eq!(
            (
                pod.annotation(COMPLETION_INDEX),
                pod.label(COMPLETION_INDEX)
            ),
            (Some("7"), Some("7"))
        );
        assert_eq!(pod["spec"]["hostname"].str(), "j-7");
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        assert_eq!(
            pod["spec"]["containers"][0]["env"][0]
                .at("valueFrom.fieldRef.fieldPath")
                .str(),
            path
        );
        assert_eq!(pod["spec"]["containers"][1]["env"].list().len(), 1);
        assert!(pod["spec"].get("initContainers").is_none());
    }

    #[test]
    fn a_long_name_is_cut_before_the_index() {
        assert_eq!(
            prefix(&"x".repeat(60), 12),
            format!("{}-12-", "x".repeat(54))
        );
        assert_eq!(prefix("short", 0), "short-0-");
    }

    #[test]
    fn failure_counts_are_carried_over() {
        let rules =
            value!([{"action": "Ignore", "onPodConditions": [{"type": "Gone", "status": "True"}]}]);
        let spec = || {
            let policy = value!({"rules": (rules.clone())});
            value!({"completionMode": "Indexed", "completions": 9, "backoffLimitPerIndex": 5, "podFailurePolicy": policy})
        };
        let counts = |pods| {
            let pod = make(spec(), pods, Some(0));
            [FAILURE_COUNT, IGNORED_FAILURE_COUNT]
                .map(|name| pod.annotation(name).map(String::from))
        };
        assert_eq!(counts(vec![]), [Some("0".into()), None]);
        let mut failed = indexed_pod("a", "Failed", 0);
        failed
            .entry("metadata")
            .entry("annotations")
            .set(FAILURE_COUNT, "2");
        assert_eq!(counts(vec![failed.clone()]), [Some("3".into()), None]);
        failed
            .entry("status")
            .set("conditions", value!([{"type": "Gone", "status": "True"}]));
        assert_eq!(counts(vec![failed]), [Some("2".into()), Some("1".into())]);
    }
}
