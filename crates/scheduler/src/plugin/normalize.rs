//! Normalizing scores.

use super::MAX_NODE_SCORE;

/// Scales scores to the range up to the maximum; reversed if `reverse` (upstream:
/// DefaultNormalizeScore).
pub(super) fn normalize(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let scaled = if most == 0 {
            0
        } else {
            MAX_NODE_SCORE * *score / most
        };
        *score = if reverse {
            MAX_NODE_SCORE - scaled
        } else {
            scaled
        };
    }
}
