//! On which node does making room hurt least?

use std::cmp::Reverse;

use super::victims::Candidate;

/// The candidate with the fewest broken budgets; then the one whose most important victim is least important; then the least
/// important victims together; then the fewest; then those that began last; then the first.
pub(crate) fn best(candidates: Vec<Candidate>, now: i64) -> Option<Candidate> {
    candidates
        .into_iter()
        .min_by_key(|candidate| hurt(candidate, now))
}

fn hurt(candidate: &Candidate, now: i64) -> (usize, i32, i64, usize, Reverse<i64>) {
    let victims = &candidate.victims;
    let highest = victims.first().map_or(i32::MIN, |pod| pod.priority);
    // All are made positive, so that fewer victims of negative priority are better than more.
    let sum = victims
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::pod;

    /// Victims' priorities and beginnings, and how many break a budget.
    type Row<'a> = (&'a [(i32, &'a str)], usize);

    /// The first candidate shall be best.
    #[track_caller]
    fn check(candidates: &[Row]) {
        let candidate = |(at, (victims, n_violations)): (usize, &Row)| Candidate {
            node: format!("n{at}").into(),
            victims: victims
                .iter()
                .map(|(priority, began)| victim(*priority, began))
                .collect(),
            n_violations: *n_violations,
        };
        for reversed in [false, true] {
            let mut all: Vec<Candidate> = candidates.iter().enumerate().map(candidate).collect();
            if reversed {
                all.reverse();
            }
            assert_eq!(
                best(all, 2_000_000_000).map(|one| one.node),
                Some("n0".into())
            );
        }
    }

    fn victim(priority: i32, began: &str) -> std::sync::Arc<crate::model::Pod> {
        pod(
            "v",
            &format!("{{spec: {{priority: {priority}}}, status: {{startTime: '{began}'}}}}"),
        )
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-06-01T00:00:00Z";

    #[test]
    fn what_hurts_least_is_best() {
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
