//! Which pods is a job to make, which to delete?

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::backoff::{Elapsed, remaining_of_index};
use super::facts::{self, index_of, valid_index_of};
use super::progress::{IndexProgress, Progress};
use crate::common::pod::is_terminating;
use crate::common::rank::Standing;

/// How many pods one round makes or deletes at most.
const LIMIT: usize = 500;

/// What is to be done about pods. Never both at once: pods are deleted first.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    /// Nothing.
    Keep,
    /// Delete these.
    Delete(Vec<Arc<Object>>),
    /// Make as many as there are items, each for an index if there are any.
    Create(Vec<Option<i64>>),
    /// Make some later.
    Wait(Duration),
}

/// Decides what is to be done for a job that is not over.
pub(super) fn plan(job: &Value, progress: &Progress, elapsed: Elapsed) -> Plan {
    if facts::is_suspended(job) {
        return delete(progress.active.clone());
    }
    let (n_wanted, n_active) = (n_wanted(job, progress), progress.active.len() as i64);
    let mut surplus = surplus(job, progress, (n_active - n_wanted).max(0) as usize);
    if !surplus.is_empty() {
        surplus.truncate(LIMIT);
        return Plan::Delete(surplus);
    }
    let n_leaving = if facts::only_replaces_failed(job) {
        progress.n_terminating
    } else {
        0
    };
    match n_wanted - n_leaving - n_active {
        ..=0 => Plan::Keep,
        n => create(job, progress, (n as usize).min(LIMIT), elapsed),
    }
}

/// How many pods should be active.
fn n_wanted(job: &Value, progress: &Progress) -> i64 {
    let parallelism = job["spec"]["parallelism"].int();
    match job["spec"]["completions"].as_int() {
        Some(completions) => (completions - progress.n_succeeded).min(parallelism).max(0),
        // After the first success those that run may end, and nobody follows.
        None if progress.n_succeeded > 0 => progress.active.len() as i64,
        None => parallelism,
    }
}

fn delete(pods: Vec<Arc<Object>>) -> Plan {
    if pods.is_empty() {
        Plan::Keep
    } else {
        Plan::Delete(pods)
    }
}

/// At least `n` active pods that are too many; all that have no index where they should, one that is out of range, or
/// one that another has.
fn surplus(job: &Value, progress: &Progress, n: usize) -> Vec<Arc<Object>> {
    let mut pods = progress.active.clone();
    pods.sort_by(|one, other| Standing::of(one).compare(&Standing::of(other)));
    let (mut surplus, left) = if facts::is_indexed(job) {
        misplaced(job, pods)
    } else {
        (Vec::new(), pods)
    };
    let n_more = n.saturating_sub(surplus.len());
    surplus.extend(left.into_iter().take(n_more));
    surplus
}

/// Pods that have no place among the indexes of a job, and those that have one. Of two with the same index the last
/// stays.
fn misplaced(job: &Value, pods: Vec<Arc<Object>>) -> (Vec<Arc<Object>>, Vec<Arc<Object>>) {
    let mut seen = HashSet::new();
    let (mut placed, mut misplaced): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .rev()
        .partition(|pod| valid_index_of(job, pod).is_some_and(|index| seen.insert(index)));
    placed.reverse();
    misplaced.reverse();
    (misplaced, placed)
}

fn create(job: &Value, progress: &Progress, n: usize, elapsed: Elapsed) -> Plan {
    let has_own_limit = facts::has_limit_per_index(job);
    let wait = progress.backoff.remaining(elapsed);
    if !has_own_limit && !wait.is_zero() {
        return Plan::Wait(wait);
    }
    let Some(indexes) = &progress.indexes else {
        return Plan::Create(vec![None; n]);
    };
    let pending = pending(job, progress, indexes, n);
    if has_own_limit {
        return create_those_due(pending, indexes, elapsed);
    }
    create_for(pending)
}

fn create_for(indexes: Vec<i64>) -> Plan {
    match indexes.is_empty() {
        true => Plan::Keep,
        false => Plan::Create(indexes.into_iter().map(Some).collect()),
    }
}

/// The first `n` indexes that have neither ended nor a pod.
fn pending(job: &Value, progress: &Progress, indexes: &IndexProgress, n: usize) -> Vec<i64> {
    let active = progress.active.iter().filter_map(|pod| index_of(pod));
    let mut busy = indexes.succeeded.with(active);
    if facts::only_replaces_failed(job) {
        let leaving = progress.pods.iter().filter(|pod| is_terminating(pod));
        busy = busy.with(leaving.filter_map(|pod| index_of(pod)));
    }
    if let Some(failed) = &indexes.failed {
        busy = busy.union(failed);
    }
    busy.first_missing(n, job["spec"]["completions"].int())
}

/// Each index waits for itself; those that need not wait any longer do not wait for the others.
fn create_those_due(pending: Vec<i64>, indexes: &IndexProgress, elapsed: Elapsed) -> Plan {
    let wait = |index: &i64| remaining_of_index(indexes.last_failed.get(index), elapsed);
    let shortest = pending.iter().map(wait).min();
    let due: Vec<i64> = pending
        .into_iter()
        .filter(|index| wait(index).is_zero())
        .collect();
    match shortest {
        Some(shortest) if due.is_empty() => Plan::Wait(shortest),
        _ => create_for(due),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::job::backoff::Backoff;
    use crate::job::sample::{indexed_pod, job, pod};

    fn decide(spec: Value, pods: Vec<Object>) -> Plan {
        let job = job(spec);
        let progress = Progress::of(
            &job,
            pods.into_iter().map(Arc::new).collect(),
            Backoff::default(),
        );
        plan(&job, &progress, &|second| {
            Duration::from_secs(u64::try_from(100 - second).unwrap_or_default())
        })
    }

    #[track_caller]
    fn creates(spec: Value, pods: Vec<Object>, expect: &[Option<i64>]) {
        assert_eq!(decide(spec, pods), Plan::Create(expect.to_vec()));
    }

    #[track_caller]
    fn deletes(spec: Value, pods: Vec<Object>, expect: &[&str]) {
        let Plan::Delete(victims) = decide(spec, pods) else {
            panic!("nothing is deleted")
        };
        assert_eq!(
            victims.iter().map(|pod| pod.uid()).collect::<Vec<_>>(),
            expect
        );
    }

    #[test]
    fn as_many_run_as_are_left_but_no_more_than_may() {
        let spec = || value!({"completions": 5, "parallelism": 2});
        creates(spec(), vec![], &[None, None]);
        creates(spec(), vec![pod("a", "Running")], &[None]);
        assert_eq!(
            decide(spec(), vec![pod("a", "Running"), pod("b", "Pending")]),
            Plan::Keep
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
            Plan::Keep
        );
    }

    #[test]
    fn those_that_are_too_many_go_the_least_useful_first() {
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
        assert_eq!(decide(value!({"suspend": true}), vec![]), Plan::Keep);
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
    fn a_pod_that_leaves_keeps_its_place_if_the_job_waits_for_it() {
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
            Plan::Wait(Duration::from_secs(7))
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
            Plan::Wait(Duration::from_secs(7))
        );
    }

    #[test]
    fn a_round_makes_and_deletes_no_more_than_it_can() {
        let Plan::Create(pods) = decide(value!({"completions": 900, "parallelism": 900}), vec![])
        else {
            panic!()
        };
        assert_eq!(pods.len(), LIMIT);
        let many = (0..600).map(|n| pod(&n.to_string(), "Running")).collect();
        let Plan::Delete(pods) = decide(value!({"completions": 1, "parallelism": 0}), many) else {
            panic!()
        };
        assert_eq!(pods.len(), LIMIT);
    }
}
