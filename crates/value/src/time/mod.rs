//! Timestamps and durations as Go parses and prints them.
//!
//! A timestamp is RFC 3339 text in UTC, to the second or to the microsecond; [`Moment`] is its
//! value. A duration is Go's `1h30m0s`. Errors have Go's wording, because clients see them.
//!
//! Invariant: nothing here reads a clock.

pub mod zone;
mod zone_rule;

use std::fmt::Write;

/// The canonical form of a timestamp, to the second: `2024-01-01T00:00:00Z`. Go's zero time is
/// `None`, because it is written as `null`.
pub fn parse_time(text: &str) -> Result<Option<String>, TimeError> {
    let moment = Moment::parse(text)?;
    Ok((!moment.is_zero()).then(|| moment.to_string()))
}

/// The canonical form of a timestamp, to the microsecond: `2024-01-01T00:00:00.000000Z`.
pub fn parse_micro_time(text: &str) -> Result<Option<String>, TimeError> {
    let moment = Moment::parse_micro(text)?;
    Ok((!moment.is_zero()).then(|| moment.to_micro_string()))
}

/// The timestamp of Unix seconds.
pub fn from_unix(seconds: i64) -> String {
    Moment { seconds, nanos: 0 }.to_string()
}

/// The Unix seconds of a timestamp, to the second or finer; `None` if it is invalid.
pub fn to_unix(text: &str) -> Option<i64> {
    Moment::parse(text).ok().map(|moment| moment.seconds)
}

/// Why a string is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A part of the layout was not found.
    #[error("parsing time {} as \"{layout}\": cannot parse {} as \"{wanted}\"", quote(.text), quote(.found))]
    Part {
        /// The whole string.
        text: String,
        /// The layout that was expected.
        layout: &'static str,
        /// The text that was found.
        found: String,
        /// The part of the layout that was expected.
        wanted: &'static str,
    },
    /// A part is out of range.
    #[error("parsing time {}: {part} out of range", quote(.text))]
    Range {
        /// The whole string.
        text: String,
        /// The part.
        part: &'static str,
    },
    /// There is text after it.
    #[error("parsing time {}: extra text: {}", quote(.text), quote(.rest))]
    Extra {
        /// The whole string.
        text: String,
        /// The text after it.
        rest: String,
    },
}

/// Kubernetes: Go's time package quotes bytes, not characters (time/format.go).
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte.into()]),
            b' '..=0x7f => out.push(byte.into()),
            _ => write!(out, "\\x{byte:02x}").expect("a string takes all text"),
        }
    }
    out.push('"');
    out
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Unix seconds.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanos: u32,
}

const DAY: i64 = 86_400;
const TIME: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME: &str = "2006-01-02T15:04:05.000000Z07:00";

impl Moment {
    /// The first instant of year 1, Go's zero time.
    pub const ZERO: Moment = Moment {
        seconds: -62_135_596_800,
        nanos: 0,
    };

    /// Whether this is Go's zero time.
    pub fn is_zero(&self) -> bool {
        *self == Moment::ZERO
    }

    /// Parses a timestamp; fractional seconds are allowed.
    pub fn parse(text: &str) -> Result<Moment, TimeError> {
        TimeReader {
            layout: TIME,
            text,
            rest: text,
        }
        .moment()
    }

    /// Parses a timestamp with exactly six decimals.
    pub fn parse_micro(text: &str) -> Result<Moment, TimeError> {
        TimeReader {
            layout: MICRO_TIME,
            text,
            rest: text,
        }
        .moment()
    }

    /// The timestamp to the microsecond.
    pub fn to_micro_string(&self) -> String {
        let mut text = self.local_text();
        text.push('.');
        push_padded(&mut text, i64::from(self.nanos / 1000), 6);
        text.push('Z');
        text
    }

    fn local_text(&self) -> String {
        let (year, month, day) = date_of(self.seconds.div_euclid(DAY));
        let second = self.seconds.rem_euclid(DAY);
        let parts = [
            (if year < 0 { "-" } else { "" }, year.abs(), 4),
            ("-", month, 2),
            ("-", day, 2),
            ("T", second / 3600, 2),
            (":", second / 60 % 60, 2),
            (":", second % 60, 2),
        ];
        let mut text = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
        for (before, number, width) in parts {
            text.push_str(before);
            push_padded(&mut text, number, width);
        }
        text
    }
}

/// Appends a number with at least `width` digits. Not `format!`, because every write prints a
/// timestamp.
fn push_padded(text: &mut String, number: i64, width: usize) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number);
    text.extend(std::iter::repeat_n('0', width.saturating_sub(digits.len())));
    text.push_str(digits);
}

/// The timestamp to the second.
impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}Z", self.local_text())
    }
}

/// The date of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Years start in March here, so that the leap day is the last day of a year.
pub fn date_of(day: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The day of a date, counted from 1970-01-01.
pub fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The number of days of a month.
pub(crate) fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Parses a timestamp part by part and reports where it failed.
struct TimeReader<'a> {
    layout: &'static str,
    text: &'a str,
    rest: &'a str,
}

impl TimeReader<'_> {
    fn moment(mut self) -> Result<Moment, TimeError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", "month", 1..=12)?;
        self.literal("-")?;
        let day = self.number("02", "day", 0..=99)?;
        self.literal("T")?;
        let hour = self.hour()?;
        self.literal(":")?;
        let minute = self.number("04", "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.number("05", "second", 0..=59)?;
        let nanos = if self.layout == TIME {
            self.optional_fraction()
        } else {
            self.micros()?
        };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError::Extra {
                text: self.text.into(),
                rest: self.rest.into(),
            });
        }
        if day < 1 || day > days_in(year, month) {
            return Err(self.out_of_range("day"));
        }
        let seconds = day_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Ok(Moment { seconds, nanos })
    }

    fn year(&mut self) -> Result<i64, TimeError> {
        match self
            .rest
            .get(..4)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        {
            Some(year) => {
                self.rest = &self.rest[4..];
                Ok(number(year))
            }
            None => Err(self.wrong("2006")),
        }
    }

    fn literal(&mut self, wanted: &'static str) -> Result<(), TimeError> {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.wrong(wanted)),
        }
    }

    /// Parses two digits.
    fn number(
        &mut self,
        wanted: &'static str,
        part: &'static str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, TimeError> {
        if self.n_digits() < 2 {
            return Err(self.wrong(wanted));
        }
        let (digits, rest) = self.rest.split_at(2);
        self.rest = rest;
        let value = number(digits);
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(self.out_of_range(part))
        }
    }

    /// Kubernetes: Go takes an hour of one digit too.
    fn hour(&mut self) -> Result<i64, TimeError> {
        if self.n_digits() != 1 {
            return self.number("15", "hour", 0..=23);
        }
        let (digit, rest) = self.rest.split_at(1);
        self.rest = rest;
        Ok(number(digit))
    }

    fn n_digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    fn optional_fraction(&mut self) -> u32 {
        let Some(fraction) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let n_digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if n_digits == 0 {
            return 0;
        }
        self.rest = &fraction[n_digits..];
        nanos(&fraction[..n_digits])
    }

    fn micros(&mut self) -> Result<u32, TimeError> {
        const WANTED: &str = ".000000";
        let fraction = self
            .rest
            .strip_prefix(['.', ','])
            .and_then(|rest| rest.get(..6));
        let Some(fraction) = fraction else {
            return Err(self.wrong(WANTED));
        };
        let digits = fraction.strip_prefix(['+', '-']).unwrap_or(fraction);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong(WANTED));
        }
        let micros = number(digits);
        if fraction.starts_with('-') && micros != 0 {
            return Err(self.out_of_range("fractional second"));
        }
        self.rest = &self.rest[7..];
        Ok(micros as u32 * 1000)
    }

    /// The offset from UTC in seconds.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let (Some(zone), true) = (
            self.rest.get(..6),
            self.rest.as_bytes().get(3) == Some(&b':'),
        ) else {
            return Err(self.wrong("Z07:00"));
        };
        let two_digits = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| number(text))
        };
        let hour = zone.get(1..3).and_then(two_digits);
        let minute = hour.and_then(|_| zone.get(4..6)).and_then(two_digits);
        if minute.is_some_and(|minute| minute > 60) {
            return Err(self.out_of_range("time zone offset minute"));
        }
        if hour.is_some_and(|hour| hour > 24) {
            return Err(self.out_of_range("time zone offset hour"));
        }
        let sign = match (zone.as_bytes()[0], hour, minute) {
            (b'+', Some(_), Some(_)) => 1,
            (b'-', Some(_), Some(_)) => -1,
            _ => return Err(self.wrong("Z07:00")),
        };
        self.rest = &self.rest[6..];
        Ok(sign * (hour.unwrap_or(0) * 3600 + minute.unwrap_or(0) * 60))
    }

    fn wrong(&self, wanted: &'static str) -> TimeError {
        TimeError::Part {
            text: self.text.into(),
            layout: self.layout,
            found: self.rest.into(),
            wanted,
        }
    }

    fn out_of_range(&self, part: &'static str) -> TimeError {
        TimeError::Range {
            text: self.text.into(),
            part,
        }
    }
}

/// The value of a few digits.
fn number(digits: &str) -> i64 {
    digits.parse().unwrap_or_default()
}

/// The nanoseconds of the decimals of a second; digits after the ninth are ignored.
fn nanos(decimals: &str) -> u32 {
    let digits = decimals.bytes().chain(std::iter::repeat(b'0')).take(9);
    digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
}

/// An age in seconds as kubectl prints it: `5s`, `3m20s`, `4h5m`, `12d`, `2y30d`.
pub fn age(seconds: i64) -> String {
    // Kubernetes: Go's durations end at 292 years.
    let seconds = seconds.min(i64::MAX / 1_000_000_000);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    // The smaller unit is printed unless it is zero.
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        // Clocks may differ by a second or so.
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// Why a string is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It does not match the syntax, or is out of range.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    NoUnit(String),
    /// A number has an unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(.0), quote(.1))]
    Unit(String, String),
}

/// The canonical form of a duration: `90m` is `1h30m0s`.
pub fn parse_duration(text: &str) -> Result<String, DurationError> {
    duration_nanos(text).map(duration_text)
}

/// The nanoseconds of a duration.
pub fn duration_nanos(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.into());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match unsigned {
        "0" => return Ok(0),
        "" => return Err(invalid()),
        _ => {}
    }
    let (mut total, mut rest) = (0u64, unsigned);
    while !rest.is_empty() {
        let (span, after) = parse_span(text, rest)?;
        total = total
            .checked_add(span)
            .filter(|total| *total <= 1 << 63)
            .ok_or_else(invalid)?;
        rest = after;
    }
    match text.starts_with('-') {
        true => Ok((total as i64).wrapping_neg()),
        false => i64::try_from(total).map_err(|_| invalid()),
    }
}

/// The nanoseconds of one number with its unit, and the rest of the text.
fn parse_span<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.into());
    let (whole, rest) = split_at_first(rest, |byte| !byte.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_at_first(rest, |byte| !byte.is_ascii_digit()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let amount: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| invalid())?
    };
    if amount > 1 << 63 {
        return Err(invalid());
    }
    let (name, rest) = split_at_first(rest, |byte| byte == b'.' || byte.is_ascii_digit());
    if name.is_empty() {
        return Err(DurationError::NoUnit(text.into()));
    }
    let unit = unit(name).ok_or_else(|| DurationError::Unit(name.into(), text.into()))?;
    let span = amount
        .checked_mul(unit)
        .and_then(|span| span.checked_add(part_of(fraction, unit)));
    let span = span.filter(|span| *span <= 1 << 63).ok_or_else(invalid)?;
    Ok((span, rest))
}

fn split_at_first(text: &str, stop: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(stop).unwrap_or(text.len()))
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The nanoseconds of a fraction of a unit; in floating point, as Go computes it.
fn part_of(decimals: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0u64, 1f64);
    for digit in decimals.bytes().map(|byte| u64::from(byte - b'0')) {
        match number
            .checked_mul(10)
            .and_then(|number| number.checked_add(digit))
        {
            Some(next) if number <= i64::MAX as u64 / 10 && next <= 1 << 63 => number = next,
            _ => break,
        }
        scale *= 10.0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// The canonical form of a duration in nanoseconds.
pub fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    match nanos {
        0 => return "0s".into(),
        1..1_000 => return format!("{sign}{nanos}ns"),
        1_000..1_000_000 => return format!("{sign}{}\u{b5}s", decimal(nanos, 3)),
        1_000_000..1_000_000_000 => return format!("{sign}{}ms", decimal(nanos, 6)),
        _ => {}
    }
    let minutes = nanos / 60_000_000_000;
    let seconds = decimal(nanos % 60_000_000_000, 9);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `number` / 10^`places` without trailing zeros.
fn decimal(number: u64, places: u32) -> String {
    let one = 10u64.pow(places);
    let fraction = format!("{:0width$}", number % one, width = places as usize);
    match fraction.trim_end_matches('0') {
        "" => format!("{}", number / one),
        fraction => format!("{}.{fraction}", number / one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(show(parse_time(text)), expect);
    }

    #[track_caller]
    fn check_micro(text: &str, expect: &str) {
        assert_eq!(show(parse_micro_time(text)), expect);
    }

    fn show(outcome: Result<Option<String>, TimeError>) -> String {
        match outcome {
            Ok(canonical) => canonical.unwrap_or("null".into()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_timestamp_is_printed_in_utc_to_the_second() {
        check("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z");
        check("2024-01-01T00:30:00.999+01:00", "2023-12-31T23:30:00Z");
        check("2024-01-01T5:00:00Z", "2024-01-01T05:00:00Z");
        check("9999-12-31T23:59:59-01:00", "10000-01-01T00:59:59Z");
        check("0000-01-01T00:00:00+01:00", "-0001-12-31T23:00:00Z");
        check("0001-01-01T00:00:00Z", "null");
    }

    #[test]
    fn an_invalid_timestamp_has_gos_error() {
        check(
            "x",
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
        );
        check(
            "",
            r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
        );
        check(
            "2024-01-01 00:00",
            r#"parsing time "2024-01-01 00:00" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00" as "T""#,
        );
        check(
            "2024-13-01T00:00:00Z",
            r#"parsing time "2024-13-01T00:00:00Z": month out of range"#,
        );
        check(
            "2023-02-29T00:00:00Z",
            r#"parsing time "2023-02-29T00:00:00Z": day out of range"#,
        );
        check(
            "2024-01-01T00:00:00Zé",
            r#"parsing time "2024-01-01T00:00:00Z\xc3\xa9": extra text: "\xc3\xa9""#,
        );
        check(
            "2024-01-01T00:00:00",
            r#"parsing time "2024-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
        );
    }

    #[test]
    fn a_micro_time_has_six_decimals() {
        check_micro("2024-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.123456Z");
        check_micro(
            "2024-01-01T00:00:00Z",
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
        );
        check_micro(
            "2024-01-01T00:00:00.1234567Z",
            r#"parsing time "2024-01-01T00:00:00.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
        );
    }

    #[test]
    fn unix_seconds_round_trip() {
        for seconds in [
            0,
            951_782_400,
            -1,
            1_700_000_000,
            253_402_300_799,
            -62_135_596_799,
        ] {
            assert_eq!(to_unix(&from_unix(seconds)), Some(seconds));
        }
        for seconds in [i64::MIN, i64::MAX] {
            assert!(from_unix(seconds).ends_with('Z'));
        }
    }

    #[test]
    fn an_age_shows_two_units_at_most() {
        let ages = [
            -5, -1, 0, 119, 120, 599, 600, 10_800, 25_260, 28_800, 176_400, 700_000, 63_072_000,
            70_000_000,
        ];
        let expect = "<invalid> 0s 0s 119s 2m 9m59s 10m 3h 7h1m 8h 2d1h 8d 2y 2y80d";
        assert_eq!(ages.map(age).join(" "), expect);
        assert_eq!(age(i64::MAX), "292y");
    }

    #[test]
    fn a_duration_is_printed_from_hours_down() {
        let check = |text: &str, expect: &str| {
            let answer = parse_duration(text).unwrap_or_else(|error| error.to_string());
            assert_eq!(answer, expect);
        };
        check("90m", "1h30m0s");
        check("-1.5h", "-1h30m0s");
        check("1h1ms", "1h0m0.001s");
        check("1500us", "1.5ms");
        check("0", "0s");
        check("", r#"time: invalid duration """#);
        check("1", r#"time: missing unit in duration "1""#);
        check("1d", r#"time: unknown unit "d" in duration "1d""#);
        check("9999999h", r#"time: invalid duration "9999999h""#);
    }
    mod any_input {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn any_text_is_parsed_or_rejected(text in r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}T)?[0-9:.,+é\-]{0,12}[hmsZ:é0-9]{0,8}") {
                let _ = (parse_micro_time(&text), parse_duration(&text));
                if let Ok(Some(canonical)) = parse_time(&text) {
                    // Years of more than four digits can be printed but not parsed.
                    prop_assert!(parse_time(&canonical).is_ok() || canonical.len() != 20, "{}", canonical);
                }
            }
        }
    }
}
