//! The progress of a job: counts from its status and its pods.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::backoff::JobBackoff;
use super::facts::{
    self, completion_index, has_failed, has_succeeded, is_tracked, valid_completion_index,
};
use super::failure::{FailurePolicyAction, match_pod_failure_policy};
use super::indexes::Indexes;
use crate::common::pod::{is_active, is_ready, is_terminating};

/// What a job's status and pods say together.
#[derive(Debug)]
pub(super) struct JobProgress {
    pub pods: Vec<Arc<Object>>,
    pub active: Vec<Arc<Object>>,
    pub n_ready: i64,
    pub n_terminating: i64,
    /// Succeeded pods, or indexes if the job is Indexed.
    pub n_succeeded: i64,
    /// Failed pods without the ignored ones.
    pub n_failed: i64,
    pub indexes: Option<IndexProgress>,
    pub backoff: JobBackoff,
    /// The uids in `status.uncountedTerminatedPods`.
    pub uncounted: Uncounted,
}

/// The progress of a job's indexes.
#[derive(Debug)]
pub(super) struct IndexProgress {
    /// `status.completedIndexes`.
    pub known: Indexes,
    pub succeeded: Indexes,
    /// The failed indexes, with backoffLimitPerIndex.
    pub failed: Option<Indexes>,
    /// The last failed pod of each index to retry, with backoffLimitPerIndex.
    pub last_failed: BTreeMap<i64, Arc<Object>>,
}

/// The uids of finished pods that may have lost their finalizer and are not counted yet.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    pub succeeded: HashSet<String>,
    pub failed: HashSet<String>,
}

impl Uncounted {
    fn from_job(job: &Value) -> Uncounted {
        let uncounted = &job["status"]["uncountedTerminatedPods"];
        let uids = |field: &str| {
            uncounted[field]
                .list()
                .iter()
                .map(|uid| uid.str().to_string())
                .collect()
        };
        Uncounted {
            succeeded: uids("succeeded"),
            failed: uids("failed"),
        }
    }
}

impl JobProgress {
    /// `backoff` is the state before.
    pub(super) fn from_pods(
        job: &Value,
        pods: Vec<Arc<Object>>,
        backoff: JobBackoff,
    ) -> JobProgress {
        let uncounted = Uncounted::from_job(job);
        let new = |counted: &HashSet<String>, has_ended: &dyn Fn(&Object) -> bool| {
            let is_new = |pod: &&Arc<Object>| {
                is_tracked(pod)
                    && (!facts::is_indexed(job) || valid_completion_index(job, pod).is_some())
                    && !counted.contains(pod.uid())
                    && has_ended(pod)
            };
            pods.iter().filter(is_new).cloned().collect::<Vec<_>>()
        };
        let succeeded = new(&uncounted.succeeded, &has_succeeded);
        let failed = new(&uncounted.failed, &|pod| has_failed(job, pod));
        let n_counted = failed
            .iter()
            .filter(|pod| match_pod_failure_policy(job, pod).is_counted())
            .count();
        let count = |field: &str, n_new: usize, n_uncounted: usize| {
            job["status"][field].int() + (n_new + n_uncounted) as i64
        };
        let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
        let indexes = facts::is_indexed(job).then(|| IndexProgress::from_pods(job, &pods, &active));
        let n_succeeded = count("succeeded", succeeded.len(), uncounted.succeeded.len());
        JobProgress {
            n_ready: active.iter().filter(|pod| is_ready(pod)).count() as i64,
            n_terminating: pods.iter().filter(|pod| is_terminating(pod)).count() as i64,
            n_succeeded: indexes
                .as_ref()
                .map_or(n_succeeded, |indexes| indexes.succeeded.len()),
            n_failed: count("failed", n_counted, uncounted.failed.len()),
            backoff: backoff.after_finished_pods(&succeeded, &failed),
            indexes,
            active,
            pods,
            uncounted,
        }
    }
}

impl IndexProgress {
    fn from_pods(job: &Value, pods: &[Arc<Object>], active: &[Arc<Object>]) -> IndexProgress {
        let read = |field: &str| {
            Indexes::parse(job["status"][field].str(), job["spec"]["completions"].int())
        };
        let tracked = || pods.iter().filter(|pod| is_tracked(pod));
        let known = read("completedIndexes");
        let indexes = tracked()
            .filter(|pod| has_succeeded(pod))
            .filter_map(|pod| valid_completion_index(job, pod));
        let succeeded = known.with(indexes);
        let failed = facts::has_limit_per_index(job).then(|| {
            let failed = tracked().filter(|pod| has_failed_for_good(job, pod));
            read("failedIndexes").with(failed.filter_map(|pod| valid_completion_index(job, pod)))
        });
        let last_failed = match &failed {
            None => BTreeMap::new(),
            Some(failed) => {
                let running = active.iter().filter_map(|pod| completion_index(pod));
                last_failed(job, tracked(), &succeeded.union(failed).with(running))
            }
        };
        IndexProgress {
            known,
            succeeded,
            failed,
            last_failed,
        }
    }
}

/// Whether a failed pod makes its index fail.
fn has_failed_for_good(job: &Value, pod: &Object) -> bool {
    if !has_failed(job, pod) {
        return false;
    }
    let limit = job["spec"]["backoffLimitPerIndex"].int();
    match match_pod_failure_policy(job, pod) {
        FailurePolicyAction::FailIndex => true,
        action => action.is_counted() && facts::failure_count(pod) >= limit,
    }
}

/// The last failed pod of each index that is neither succeeded nor failed.
///
/// It keeps its finalizer until the next one is created, which carries its failure count over.
fn last_failed<'a>(
    job: &Value,
    pods: impl Iterator<Item = &'a Arc<Object>>,
    settled: &Indexes,
) -> BTreeMap<i64, Arc<Object>> {
    let rank = |pod: &Object| {
        (
            facts::failure_count(pod) + facts::ignored_failure_count(pod),
            facts::finish_time(pod),
        )
    };
    let mut last: BTreeMap<i64, Arc<Object>> = BTreeMap::new();
    for pod in pods.filter(|pod| has_failed(job, pod)) {
        let Some(index) = valid_completion_index(job, pod).filter(|index| !settled.has(*index))
        else {
            continue;
        };
        let is_later = last.get(&index).is_none_or(|known| {
            let ((n, time), (n_known, known_time)) = (rank(pod), rank(known));
            n >= n_known && time >= known_time
        });
        if is_later {
            last.insert(index, pod.clone());
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::job::sample::{job, pod};

    fn progress(job: &Value, pods: Vec<Object>) -> JobProgress {
        JobProgress::from_pods(
            job,
            pods.into_iter().map(Arc::new).collect(),
            JobBackoff::default(),
        )
    }

    #[test]
    fn pods_are_counted_once() {
        let mut job = job(value!({"completions": 5}));
        job.0.set(
            "status",
            value!({
                "succeeded": 2,
                "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["d"]},
            }),
        );
        let mut counted = pod("e", "Succeeded");
        counted.entry("metadata").remove("finalizers");
        let pods = vec![
            pod("a", "Succeeded"),
            pod("b", "Succeeded"),
            pod("c", "Failed"),
            pod("d", "Failed"),
            pod("f", "Running"),
            counted,
        ];
        let progress = progress(&job, pods);
        assert_eq!(
            (
                progress.n_succeeded,
                progress.n_failed,
                progress.active.len()
            ),
            (4, 2, 1)
        );
    }

    #[test]
    fn indexes_succeed_and_fail_for_themselves() {
        let job =
            job(value!({"completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1}));
        let indexed = |uid: &str, phase: &str, index: &str, failures: &str| {
            let mut pod = pod(uid, phase);
            pod.entry("metadata")
                .entry("annotations")
                .set(facts::COMPLETION_INDEX, index);
            pod.entry("metadata")
                .entry("annotations")
                .set(facts::FAILURE_COUNT, failures);
            pod
        };
        let pods = vec![
            indexed("a", "Succeeded", "0", "0"),
            indexed("b", "Failed", "1", "1"),
            indexed("c", "Failed", "2", "0"),
            indexed("d", "Failed", "3", "0"),
            indexed("e", "Running", "3", "1"),
            indexed("f", "Succeeded", "7", "0"),
        ];
        let progress = progress(&job, pods);
        let indexes = progress.indexes.unwrap();
        assert_eq!(
            (indexes.succeeded.to_string(), progress.n_succeeded),
            ("0".into(), 1)
        );
        assert_eq!(indexes.failed.unwrap().to_string(), "1");
        let waiting: Vec<_> = indexes
            .last_failed
            .iter()
            .map(|(index, pod)| (*index, pod.uid()))
            .collect();
        assert_eq!(waiting, [(2, "c")]);
    }

    #[test]
    fn a_failure_that_is_ignored_is_not_counted() {
        let rule = value!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let job = job(value!({"podFailurePolicy": {"rules": [rule]}}));
        let mut ignored = pod("a", "Failed");
        ignored.entry("status").set(
            "conditions",
            value!([{"type": "DisruptionTarget", "status": "True"}]),
        );
        assert_eq!(
            progress(&job, vec![ignored, pod("b", "Failed")]).n_failed,
            1
        );
    }
}
