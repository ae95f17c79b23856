//! IntOrString values that are numbers or percentages.

use mizzen_value::Value;

/// The rounding of a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// The number, or the percentage of `total`. Kubernetes: `intstr.GetScaledValueFromIntOrPercent`,
/// with its errors.
pub(crate) fn scaled_value(value: &Value, total: i64, round: Rounding) -> Result<i64, String> {
    let Some(text) = value.as_str() else {
        return value
            .as_int()
            .ok_or_else(|| "nil value for IntOrString".into());
    };
    let invalid = |why: String| format!("invalid value for IntOrString: {why}");
    let percent = text
        .strip_suffix('%')
        .ok_or_else(|| invalid("invalid type: string is not a percentage".into()))?;
    let percent: i64 = percent.parse().map_err(|_| {
        invalid(format!(
            "invalid value {text:?}: strconv.Atoi: parsing {percent:?}: invalid syntax"
        ))
    })?;
    let hundredths = percent.saturating_mul(total);
    Ok(match round {
        Rounding::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0),
        Rounding::Down => hundredths.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up_or_down() {
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
            assert_eq!(
                scaled_value(&value, total, Rounding::Up).ok(),
                up,
                "{value:?} up"
            );
            assert_eq!(
                scaled_value(&value, total, Rounding::Down).ok(),
                down,
                "{value:?} down"
            );
        }
    }
}
