//! Time zone offsets.

use crate::value::EvalError;
use mizzen_value::time;

/// The offset of a zone from UTC in seconds at a given time. A zone is a name or `+hh:mm`.
pub(super) fn offset(zone: &str, at: i64) -> Result<i64, EvalError> {
    match zone.split_once(':') {
        Some((hours, minutes)) => {
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let minutes = if zone.starts_with('-') {
                hours * 60 - minutes
            } else {
                hours * 60 + minutes
            };
            Ok(minutes * 60)
        }
        None => time::zone::offset(zone, at)
            .ok_or_else(|| EvalError::new(format!("unknown time zone {zone}"))),
    }
}

fn number(text: &str) -> Result<i64, EvalError> {
    let refuse = |_| EvalError::new(format!("strconv.Atoi: parsing {text:?}: invalid syntax"));
    text.parse::<i32>().map(i64::from).map_err(refuse)
}
