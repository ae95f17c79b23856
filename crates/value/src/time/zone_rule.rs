//! POSIX time zone rules: `CET-1CEST,M3.5.0,M10.5.0/3`.

use super::{date_of, day_of};

/// The offset from UTC in seconds at a given time; `None` if the rule is invalid.
pub(super) fn offset(rule: &str, at: i64) -> Option<i64> {
    let rest = skip_name(rule)?;
    let (winter, rest) = duration(rest)?;
    let winter = -winter;
    if rest.is_empty() {
        return Some(winter);
    }
    let rest = skip_name(rest)?;
    let (summer, rest) = match rest.starts_with(',') {
        true => (winter + 3600, rest),
        false => duration(rest).map(|(span, rest)| (-span, rest))?,
    };
    let (start, end) = rest.strip_prefix(',')?.split_once(',')?;
    let (year, ..) = date_of((at + winter).div_euclid(86_400));
    let (start, end) = (change(start, year)? - winter, change(end, year)? - summer);
    let is_summer = if start < end {
        (start..end).contains(&at)
    } else {
        !(end..start).contains(&at)
    };
    Some(if is_summer { summer } else { winter })
}

/// Skips the name of a zone: letters, or anything in angle brackets.
fn skip_name(rule: &str) -> Option<&str> {
    match rule.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>').map(|(_, rest)| rest),
        None => Some(rule.trim_start_matches(|c: char| c.is_ascii_alphabetic())),
    }
}

/// Parses `[+-]hh[:mm[:ss]]` as seconds, and returns the rest.
fn duration(text: &str) -> Option<(i64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != ':')
        .unwrap_or(unsigned.len());
    let mut seconds = 0;
    for (part, unit) in unsigned[..end].split(':').zip([3600, 60, 1]) {
        seconds += part.parse::<i64>().ok()? * unit;
    }
    Some((
        if text.starts_with('-') {
            -seconds
        } else {
            seconds
        },
        &unsigned[end..],
    ))
}

/// The local time of a transition like `M3.5.0/2` in a year, in seconds since 1970.
fn change(rule: &str, year: i64) -> Option<i64> {
    let (day, time) = rule.split_once('/').unwrap_or((rule, "2"));
    let (time, _) = duration(time)?;
    let days = match day.strip_prefix('M') {
        Some(parts) => {
            let mut parts = parts.split('.').map(|part| part.parse::<i64>().ok());
            weekday_of_month(year, parts.next()??, parts.next()??, parts.next()??)
        }
        None => match day.strip_prefix('J') {
            // The leap day is not counted.
            Some(number) => {
                let number = number.parse::<i64>().ok()?;
                let leap = days_before(year + 1) - days_before(year) == 366;
                days_before(year) + number - 1 + i64::from(leap && number >= 60)
            }
            None => days_before(year) + day.parse::<i64>().ok()?,
        },
    };
    Some(days * 86_400 + time)
}

/// The `week`th `weekday` of a month, or the last one if there are fewer.
fn weekday_of_month(year: i64, month: i64, week: i64, weekday: i64) -> i64 {
    let first = day_of(year, month, 1);
    let next = if month == 12 {
        days_before(year + 1)
    } else {
        day_of(year, month + 1, 1)
    };
    let day = first + (weekday - (first + 4)).rem_euclid(7) + (week - 1) * 7;
    if day >= next { day - 7 } else { day }
}

/// The number of days from 1970 to a year.
fn days_before(year: i64) -> i64 {
    day_of(year, 1, 1)
}
