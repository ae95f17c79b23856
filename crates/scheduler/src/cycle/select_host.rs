//! Choosing among the nodes with the highest score.

use mizzen_sdk::clock::Rng;

use crate::cache::Slot;

/// A random one of the nodes with the highest score.
pub(crate) fn select_host(nodes: &[Slot], scores: &[i64], chance: &Rng) -> Option<Slot> {
    let best = scores.iter().max()?;
    let n_best = scores.iter().filter(|score| *score == best).count();
    let which = if n_best > 1 {
        (chance() * n_best as f64) as usize
    } else {
        0
    };
    let mut best = nodes.iter().zip(scores).filter(|(_, score)| *score == best);
    best.nth(which.min(n_best - 1)).map(|(slot, _)| *slot)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[track_caller]
    fn check(scores: &[i64], chance: f64, picked: Option<Slot>) {
        let chance: Rng = Arc::new(move || chance);
        let nodes: Vec<Slot> = (10..).take(scores.len()).collect();
        assert_eq!(select_host(&nodes, scores, &chance), picked, "{scores:?}");
    }

    #[test]
    fn the_highest_score_wins_and_ties_are_random() {
        check(&[], 0.0, None);
        check(&[1, 3, 2], 0.9, Some(11));
        check(&[3, 1, 3], 0.0, Some(10));
        check(&[3, 1, 3], 0.5, Some(12));
        check(&[-1, -1], 0.99, Some(11));
    }
}
