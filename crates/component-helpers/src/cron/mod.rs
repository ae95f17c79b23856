//! Cron schedules of CronJobs: `*/5 * * * *`, `@hourly`, `@every 1h30m`.
//!
//! Kubernetes: error messages are those of upstream's parser (github.com/robfig/cron) and of Go's standard library.

mod search;

use mizzen_value::time::{duration_nanos, zone};

use crate::number;
use search::ScheduleSearch;

/// A cron schedule. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The name of the time zone whose clock counts; none is UTC.
    zone: String,
    times: CronTimes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CronTimes {
    /// Each so many seconds.
    Every(i64),
    /// When the clock shows what all fields allow.
    Fields([CronField; 5]),
}

/// The values that a field allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CronField {
    bits: u64,
    /// Whether it is `*`.
    is_star: bool,
}

impl CronField {
    fn allows(&self, value: i64) -> bool {
        self.bits & (1 << value) != 0
    }
}

impl Schedule {
    /// Parses a schedule.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let (zone, text) = match text
            .strip_prefix("TZ=")
            .or_else(|| text.strip_prefix("CRON_TZ="))
        {
            None => ("", text),
            Some(rest) => {
                let Some((zone, rest)) = rest.split_once(' ') else {
                    return Err(
                        "invalid schedule format: runtime error: slice bounds out of range [:-1]"
                            .into(),
                    );
                };
                check_zone(zone)
                    .map_err(|problem| format!("provided bad location {zone}: {problem}"))?;
                (zone, rest.trim())
            }
        };
        let times = if text.starts_with('@') {
            descriptor(text)
        } else {
            fields(text)
        }?;
        Ok(Schedule {
            zone: if zone == "Local" { "" } else { zone }.into(),
            times,
        })
    }

    /// The first moment after `after`; none if there is none within five years.
    pub fn next(&self, after: i64) -> Option<i64> {
        match &self.times {
            CronTimes::Every(span) => after.checked_add(*span),
            CronTimes::Fields(fields) => ScheduleSearch::new(&self.zone, fields, after).find(),
        }
    }
}

/// Validates the name of a time zone.
pub fn check_zone(name: &str) -> Result<(), String> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".into());
    }
    if name == "Local" || zone::is_known(name) {
        Ok(())
    } else {
        Err(format!("unknown time zone {name}"))
    }
}

/// Whether a part of a time zone's name could be one.
pub fn is_zone_part(part: &str) -> bool {
    !matches!(part, "." | "..")
        && !part.starts_with('-')
        && (1..=14).contains(&part.len())
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
}

fn descriptor(text: &str) -> Result<CronTimes, String> {
    let stands_for = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => match text.strip_prefix("@every ") {
            None => return Err(format!("unrecognized descriptor: {text}")),
            Some(span) => {
                // Each so many whole seconds, and not oftener than each second.
                let nanos = duration_nanos(span)
                    .map_err(|problem| format!("failed to parse duration {text}: {problem}"))?;
                return Ok(CronTimes::Every((nanos / 1_000_000_000).max(1)));
            }
        },
    };
    fields(stands_for)
}

fn fields(text: &str) -> Result<CronTimes, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    };
    Ok(CronTimes::Fields([
        field(minute, &MINUTE)?,
        field(hour, &HOUR)?,
        field(day, &DAY)?,
        field(month, &MONTH)?,
        field(weekday, &WEEKDAY)?,
    ]))
}

/// Ranges with commas between them.
fn field(text: &str, bounds: &FieldBounds) -> Result<CronField, String> {
    let mut field = CronField {
        bits: 0,
        is_star: false,
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let part = range(part, bounds)?;
        field.bits |= part.bits;
        field.is_star |= part.is_star;
    }
    Ok(field)
}

/// What a field can be.
struct FieldBounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTE: FieldBounds = FieldBounds {
    min: 0,
    max: 59,
    names: &[],
};
const HOUR: FieldBounds = FieldBounds {
    min: 0,
    max: 23,
    names: &[],
};
const DAY: FieldBounds = FieldBounds {
    min: 1,
    max: 31,
    names: &[],
};
const MONTH: FieldBounds = FieldBounds {
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAY: FieldBounds = FieldBounds {
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// `*`, `n`, `n-m`, each perhaps with `/step`.
fn range(range: &str, bounds: &FieldBounds) -> Result<CronField, String> {
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut is_star = false;
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => {
            is_star = true;
            (bounds.min, bounds.max)
        }
        [only] => number_or_name(only, bounds).map(|number| (number, number))?,
        [first, last] => (
            number_or_name(first, bounds)?,
            number_or_name(last, bounds)?,
        ),
        [first, ..] => {
            number_or_name(first, bounds)?;
            return Err(format!("too many hyphens: {range}"));
        }
        [] => unreachable!("a split has at least one part"),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    check_range(range, (start, end, step), bounds)?;
    let bits = (start..=end)
        .step_by(step as usize)
        .fold(0, |bits, value| bits | 1 << value);
    Ok(CronField {
        bits,
        is_star: is_star && step == 1,
    })
}

fn check_range(
    range: &str,
    (start, end, step): (u64, u64, u64),
    bounds: &FieldBounds,
) -> Result<(), String> {
    let FieldBounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({min}): {range}"
        ));
    }
    if end > *max {
        return Err(format!(
            "end of range ({end}) above maximum ({max}): {range}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {range}"
        ));
    }
    if step == 0 {
        return Err(format!(
            "step of range should be a positive number: {range}"
        ));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &FieldBounds) -> Result<u64, String> {
    let named = bounds
        .names
        .iter()
        .zip(bounds.min..)
        .find(|(name, _)| text.eq_ignore_ascii_case(name));
    named.map_or_else(|| number(text), |(_, number)| Ok(number))
}

fn number(text: &str) -> Result<u64, String> {
    let number = number::parse("Atoi", text)
        .map_err(|why| format!("failed to parse int from {text}: {why}"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[track_caller]
    fn fine(schedules: &[&str]) {
        for schedule in schedules {
            Schedule::parse(schedule).unwrap_or_else(|problem| panic!("{schedule}: {problem}"));
        }
    }

    #[track_caller]
    fn wrong(schedule: &str, problem: &str) {
        assert_eq!(
            Schedule::parse(schedule),
            Err(problem.to_string()),
            "{schedule}"
        );
    }

    #[test]
    fn fields_are_numbers_names_ranges_and_steps() {
        fine(&[
            "* * * * *",
            "*/5 0-23/2 1,15 jan-DEC ?",
            "0 0 1 1 Sun",
            " 1  2 3 4 5 ",
            "5/15 * * * *",
            ", * * * *",
        ]);
    }

    #[test]
    fn descriptors_stand_for_schedules() {
        fine(&[
            "@hourly",
            "@midnight",
            "@every 1h30m",
            "@every 1.5s",
            "TZ=UTC @daily",
        ]);
        wrong("@fortnightly", "unrecognized descriptor: @fortnightly");
        wrong(
            "@every 1",
            "failed to parse duration @every 1: time: missing unit in duration \"1\"",
        );
        wrong(
            "@every 1.5.5h",
            "failed to parse duration @every 1.5.5h: time: missing unit in duration \"1.5.5h\"",
        );
        wrong(
            "@every x",
            "failed to parse duration @every x: time: invalid duration \"x\"",
        );
        wrong(
            "@every 1x",
            "failed to parse duration @every 1x: time: unknown unit \"x\" in duration \"1x\"",
        );
    }

    #[test]
    fn errors_have_the_words_of_upstreams_parser() {
        wrong("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        wrong("61 * * * *", "end of range (61) above maximum (59): 61");
        wrong("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        wrong("* * * * 7", "end of range (7) above maximum (6): 7");
        wrong(
            "5-3 * * * *",
            "beginning of range (5) beyond end of range (3): 5-3",
        );
        wrong(
            "*/0 * * * *",
            "step of range should be a positive number: */0",
        );
        wrong("1-2-3 * * * *", "too many hyphens: 1-2-3");
        wrong("1/2/3 * * * *", "too many slashes: 1/2/3");
        wrong(
            "a * * * *",
            "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
        );
        wrong("*/-1 * * * *", "negative number (-1) not allowed: -1");
        wrong(
            "TZ=0",
            "invalid schedule format: runtime error: slice bounds out of range [:-1]",
        );
        wrong(
            "TZ=Mars * * * * *",
            "provided bad location Mars: unknown time zone Mars",
        );
    }
}
