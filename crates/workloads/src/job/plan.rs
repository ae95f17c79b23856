//! Decides which pods a job creates or deletes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::backoff::{Elapsed, remaining_of_index};
use super::facts::{self, completion_index, valid_completion_index};
use super::progress::{IndexProgress, JobProgress};
use crate::common::pod::is_terminating;
use crate::common::pod_rank::PodRank;

/// How many pods a sync creates or deletes at most.
const MAX_PODS_PER_SYNC: usize = 500;

/// The plan. Pods are never created and deleted in the same sync.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JobPlan {
    Keep,
    Delete(Vec<Arc<Object>>),
    /// Create as many pods as there are items, each with its index.
    Create(Vec<Option<i64>>),
    /// Create pods later.
    Wait(Duration),
}

/// Plans for a job that is not finished.
pub(super) fn plan(job: &Value, progress: &JobProgress, elapsed: Elapsed) -> JobPlan {
    if facts::is_suspended(job) {
        return match progress.active.is_empty() {
            true => JobPlan::Keep,
            false => JobPlan::Delete(progress.active.clone()),
        };
    }
    let (n_wanted, n_active) = (n_wanted(job, progress), progress.active.len() as i64);
    let mut surplus = surplus(job, progress, (n_active - n_wanted).max(0) as usize);
    if !surplus.is_empty() {
        surplus.truncate(MAX_PODS_PER_SYNC);
        return JobPlan::Delete(surplus);
    }
    let n_leaving = if facts::only_replaces_failed(job) {
        progress.n_terminating
    } else {
        0
    };
    match n_wanted - n_leaving - n_active {
        ..=0 => JobPlan::Keep,
        n => progress.plan_creation(job, (n as usize).min(MAX_PODS_PER_SYNC), elapsed),
    }
}

/// How many pods should be active.
fn n_wanted(job: &Value, progress: &JobProgress) -> i64 {
    let parallelism = job["spec"]["parallelism"].int();
    match job["spec"]["completions"].as_int() {
        Some(completions) => (completions - progress.n_succeeded).min(parallelism).max(0),
        // After the first success the active pods may finish, and no new ones are created.
        None if progress.n_succeeded > 0 => progress.active.len() as i64,
        None => parallelism,
    }
}

/// At least `n` active pods to delete; all with a missing, duplicate or too large index.
fn surplus(job: &Value, progress: &JobProgress, n: usize) -> Vec<Arc<Object>> {
    let mut pods = progress.active.clone();
    pods.sort_by(|one, other| PodRank::from_pod(one).compare(&PodRank::from_pod(other)));
    let (mut surplus, left) = if facts::is_indexed(job) {
        misplaced(job, pods)
    } else {
        (Vec::new(), pods)
    };
    let n_more = n.saturating_sub(surplus.len());
    surplus.extend(left.into_iter().take(n_more));
    surplus
}

/// The pods with an invalid or duplicate index, and the rest. Of duplicates the last one stays.
fn misplaced(job: &Value, pods: Vec<Arc<Object>>) -> (Vec<Arc<Object>>, Vec<Arc<Object>>) {
    let mut seen = HashSet::new();
    let (mut placed, mut misplaced): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .rev()
        .partition(|pod| valid_completion_index(job, pod).is_some_and(|index| seen.insert(index)));
    placed.reverse();
    misplaced.reverse();
    (misplaced, placed)
}

impl JobProgress {
    fn plan_creation(&self, job: &Value, n: usize, elapsed: Elapsed) -> JobPlan {
        let has_own_limit = facts::has_limit_per_index(job);
        let wait = self.backoff.remaining(elapsed);
        if !has_own_limit && !wait.is_zero() {
            return JobPlan::Wait(wait);
        }
        let Some(indexes) = &self.indexes else {
            return JobPlan::Create(vec![None; n]);
        };
        let pending = pending(job, self, indexes, n);
        if has_own_limit {
            return indexes.create_due_indexes(pending, elapsed);
        }
        create_for(pending)
    }
}

fn create_for(indexes: Vec<i64>) -> JobPlan {
    match indexes.is_empty() {
        true => JobPlan::Keep,
        false => JobPlan::Create(indexes.into_iter().map(Some).collect()),
    }
}

/// The first `n` indexes that have no pod and are not finished.
fn pending(job: &Value, progress: &JobProgress, indexes: &IndexProgress, n: usize) -> Vec<i64> {
    let active = progress
        .active
        .iter()
        .filter_map(|pod| completion_index(pod));
    let mut busy = indexes.succeeded.with(active);
    if facts::only_replaces_failed(job) {
        let leaving = progress.pods.iter().filter(|pod| is_terminating(pod));
        busy = busy.with(leaving.filter_map(|pod| completion_index(pod)));
    }
    if let Some(failed) = &indexes.failed {
        busy = busy.union(failed);
    }
    busy.first_missing(n, job["spec"]["completions"].int())
}

impl IndexProgress {
    /// Each index has its own back-off; indexes whose back-off is over are created now.
    fn create_due_indexes(&self, pending: Vec<i64>, elapsed: Elapsed) -> JobPlan {
        let wait = |index: &i64| remaining_of_index(self.last_failed.get(index), elapsed);
        let shortest = pending.iter().map(wait).min();
        let due: Vec<i64> = pending
            .into_iter()
            .filter(|index| wait(index).is_zero())
            .collect();
        match shortest {
            Some(shortest) if due.is_empty() => JobPlan::Wait(shortest),
            _ => create_for(due),
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::job::backoff::JobBackoff;
    use crate::job::sample::{indexed_pod, job, pod};

    fn decide(spec: Value, pods: Vec<Object>) -> JobPlan {
        let job = job(spec);
        let progress = JobProgress::from_pods(
            &job,
            pods.into_iter().map(Arc::new).collect(),
            JobBackoff::default(),
        );
        plan(&job, &progress, &|second| {
            Duration::from_secs(u64::try_from(100 - second).unwrap_or_default())
        })
    }

    #[track_caller]
    fn creates(spec: Value, pods: Vec<Object>, expect: &[Option<i64>]) {
        assert_eq!(decide(spec, pods), JobPlan::Create(expect.to_vec()));
    }

    #[track_caller]
    fn deletes(spec: Value, pods: Vec<Object>, expect: &[&str]) {
        let JobPlan::Delete(victims) = decide(spec, pods) else {
            panic!("nothing is deleted")
        };
        assert_eq!(
            victims.iter().map(|pod| pod.uid()).collect::<Vec<_>>(),
            expect
        );
    }

    #[test]
    fn active_pods_are_limited_by_completions_and_parallelism() {
        let spec = || value!({"completions": 5, "parallelism": 2});
        creates(spec(), vec![], &[None, None]);
        creates(spec(), vec![pod("a", "Running")], &[None]);
        assert_eq!(
            decide(spec(), vec![pod("a", "Running"), pod("b", "Pending")]),
            JobPlan::Keep
        );
        let done = || {
            (0..4)
                .map(|n| pod(&n.to_string(), "Succeeded"))
                .collect::<Vec<_>>()
        };
        creates(spec(), done(), &[None]);
    }

    #[test]
    fn a_work_queue_is_left_alone_after_its_first_success() {
        let spec = || value!({"parallelism": 3});
        creates(spec(), vec![pod("a", "Running")], &[None, None]);
        assert_eq!(
            decide(spec(), vec![pod("a", "Running"), pod("b", "Succeeded")]),
            JobPlan::Keep
        );
    }

    #[test]
    fn surplus_pods_are_deleted_in_rank_order() {
        let spec = value!({"completions": 5, "parallelism": 1});
        deletes(
            spec,
            vec![
                pod("a", "Running"),
                pod("b", "Pending"),
                pod("c", "Running"),
            ],
            &["b", "a"],
        );
        deletes(
            value!({"suspend": true}),
            vec![pod("a", "Running"), pod("b", "Failed")],
            &["a"],
        );
        assert_eq!(decide(value!({"suspend": true}), vec![]), JobPlan::Keep);
    }

    #[test]
    fn each_index_has_one_pod() {
        let spec = || value!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
        creates(
            spec(),
            vec![
                indexed_pod("a", "Running", 1),
                indexed_pod("b", "Succeeded", 2),
            ],
            &[Some(0), Some(3)],
        );
        let twice = vec![
            indexed_pod("a", "Pending", 1),
            indexed_pod("b", "Running", 1),
            indexed_pod("c", "Running", 9),
        ];
        deletes(spec(), twice, &["a", "c"]);
        deletes(spec(), vec![pod("a", "Running")], &["a"]);
    }

    #[test]
    fn a_terminating_pod_keeps_its_index_with_replacement_policy_failed() {
        let leaving = || {
            let mut pod = indexed_pod("a", "Running", 0);
            pod.entry("metadata")
                .set("deletionTimestamp", "1970-01-01T00:00:00Z");
            vec![pod]
        };
        let spec = |policy: &str| {
            let mode = "Indexed";
            value!({"completionMode": mode, "completions": 2, "parallelism": 2, "podReplacementPolicy": policy})
        };
        creates(spec("Failed"), leaving(), &[Some(1)]);
    }

    #[test]
    fn new_pods_wait_after_a_failure() {
        let mut failed = pod("a", "Failed");
        failed
            .entry("metadata")
            .set("creationTimestamp", "1970-01-01T00:01:37Z");
        assert_eq!(
            decide(value!({"completions": 1, "parallelism": 1}), vec![failed]),
            JobPlan::Wait(Duration::from_secs(7))
        );
    }

    #[test]
    fn each_index_waits_for_itself() {
        let spec = |completions: i64| value!({"completionMode": "Indexed", "completions": completions, "parallelism": 2, "backoffLimitPerIndex": 3});
        let mut failed = indexed_pod("a", "Failed", 0);
        failed
            .entry("metadata")
            .set("creationTimestamp", "1970-01-01T00:01:37Z");
        creates(spec(2), vec![failed.clone()], &[Some(1)]);
        assert_eq!(
            decide(spec(1), vec![failed]),
            JobPlan::Wait(Duration::from_secs(7))
        );
    }

    #[test]
    fn a_sync_creates_and_deletes_at_most_the_limit() {
        let JobPlan::Create(pods) =
            decide(value!({"completions": 900, "parallelism": 900}), vec![])
        else {
            panic!()
        };
        assert_eq!(pods.len(), MAX_PODS_PER_SYNC);
        let many = (0..600).map(|n| pod(&n.to_string(), "Running")).collect();
        let JobPlan::Delete(pods) = decide(value!({"completions": 1, "parallelism": 0}), many)
        else {
            panic!()
        };
        assert_eq!(pods.len(), MAX_PODS_PER_SYNC);
    }
}
