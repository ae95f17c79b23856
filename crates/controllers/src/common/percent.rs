//! How many are `25%` of something?

use mizzen_object::Value;

/// Which way a part of a pod is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// To more.
    Up,
    /// To less.
    Down,
}

/// A number, or a percentage of `total`. None for what is neither.
pub(crate) fn scaled(value: &Value, total: i64, round: Round) -> Option<i64> {
    let Some(text) = value.as_str() else {
        return value.as_int();
    };
    let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
    let hundredths = percent.checked_mul(total)?;
    Some(match round {
        Round::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0),
        Round::Down => hundredths.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        let cases: [(Value, i64, Option<i64>, Option<i64>); 7] = [
            (3.into(), 10, Some(3), Some(3)),
            ("25%".into(), 10, Some(3), Some(2)),
            ("25%".into(), 4, Some(1), Some(1)),
            ("0%".into(), 10, Some(0), Some(0)),
            ("100%".into(), 3, Some(3), Some(3)),
            ("25".into(), 10, None, None),
            (Value::Null, 10, None, None),
        ];
        for (value, total, up, down) in cases {
            assert_eq!(scaled(&value, total, Round::Up), up, "{value:?} up");
            assert_eq!(scaled(&value, total, Round::Down), down, "{value:?} down");
        }
    }
}
