//! How are scores of different sizes made comparable?

use super::BEST;

/// Scales scores so that the greatest is the best; the least, if `reverse`.
pub(super) fn normalize(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let scaled = if most == 0 { 0 } else { BEST * *score / most };
        *score = if reverse { BEST - scaled } else { scaled };
    }
}
