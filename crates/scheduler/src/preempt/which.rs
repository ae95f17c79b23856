//! On which node does making room hurt least?

use std::cmp::Reverse;

use super::victims::Candidate;

/// The candidate with the fewest broken budgets; then the one whose most important victim is least important; then the least
/// important victims together; then the fewest; then those that began last; then the first.
pub(crate) fn best(candidates: Vec<Candidate>, now: i64) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| hurt(candidate, now))
}

fn hurt(candidate: &Candidate, now: i64) -> (usize, i32, i64, usize, Reverse<i64>) {
    let victims = &candidate.victims;
    let highest = victims.first().map_or(i32::MIN, |pod| pod.priority);
    // All are made positive, so that fewer victims of negative priority are better than more.
    let sum = victims.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
    let most_important = victims.iter().filter(|pod| pod.priority == highest);
    let began = most_important.map(|pod| pod.started.unwrap_or(now)).min().unwrap_or(now);
    (candidate.n_violations, highest, sum, victims.len(), Reverse(began))
}
