//! Selecting the node on which preemption hurts least.

use std::cmp::Reverse;

use super::victims::PreemptionCandidate;

/// The candidate with the fewest PDB violations; then with the lowest highest priority; then with
/// the lowest sum of priorities; then with the fewest victims; then with the latest start time;
/// then the first (upstream: pickOneNodeForPreemption).
pub(crate) fn pick_one_node(
    candidates: Vec<PreemptionCandidate>,
    now: i64,
) -> Option<PreemptionCandidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let victims = &candidate.victims;
        let highest = victims.first().map_or(i32::MIN, |pod| pod.priority);
        // Priorities are made positive, so that fewer victims of negative priority are better than
        // more.
        let sum: i64 = victims
            .iter()
            .map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1)
            .sum();
        let most_important = victims.iter().filter(|pod| pod.priority == highest);
        let began = most_important
            .map(|pod| pod.started.unwrap_or(now))
            .min()
            .unwrap_or(now);
        (
            candidate.n_violations,
            highest,
            sum,
            victims.len(),
            Reverse(began),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::pod;

    /// Victims' priorities and start times, and the number of PDB violations.
    type Row<'a> = (&'a [(i32, &'a str)], usize);

    /// Checks that the first candidate is selected.
    #[track_caller]
    fn check(candidates: &[Row]) {
        let candidate = |(at, (victims, n_violations)): (usize, &Row)| PreemptionCandidate {
            node: format!("n{at}").into(),
            victims: victims
                .iter()
                .map(|(priority, began)| victim(*priority, began))
                .collect(),
            n_violations: *n_violations,
        };
        for reversed in [false, true] {
            let mut all: Vec<PreemptionCandidate> =
                candidates.iter().enumerate().map(candidate).collect();
            if reversed {
                all.reverse();
            }
            assert_eq!(
                pick_one_node(all, 2_000_000_000).map(|one| one.node),
                Some("n0".into())
            );
        }
    }

    fn victim(priority: i32, began: &str) -> std::sync::Arc<crate::model::PodInfo> {
        pod(
            "v",
            &format!("{{spec: {{priority: {priority}}}, status: {{startTime: '{began}'}}}}"),
        )
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-06-01T00:00:00Z";

    #[test]
    fn the_node_with_the_least_harm_is_selected() {
        check(&[(&[(9, EARLY)], 0), (&[(1, EARLY)], 1)]);
        check(&[(&[(1, EARLY), (1, EARLY)], 0), (&[(2, EARLY)], 0)]);
        check(&[
            (&[(2, EARLY), (0, EARLY)], 0),
            (&[(2, EARLY), (1, EARLY)], 0),
        ]);
        check(&[(&[(-5, EARLY)], 0), (&[(-5, EARLY), (-5, EARLY)], 0)]);
        check(&[(&[(1, LATE)], 0), (&[(1, EARLY)], 0)]);
    }
}
