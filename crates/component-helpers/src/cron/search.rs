//! The next time that matches all fields of a cron schedule.
//!
//! Kubernetes: upstream's parser goes on field by field, from the month down, and so do we: that decides what happens
//! where the clocks of a zone are put forward or back (github.com/robfig/cron, spec.go).

use mizzen_value::time::{date_of, day_of, zone};

use super::CronField;

/// Looks for the next moment that all fields allow.
pub(super) struct ScheduleSearch<'a> {
    zone: &'a str,
    fields: &'a [CronField; 5],
    at: i64,
    /// Whether the smaller units have been set back to their beginning, which is done once.
    is_reset: bool,
}

/// What the clock on the wall shows.
struct WallClock {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    weekday: i64,
}

impl<'a> ScheduleSearch<'a> {
    /// Looks from the second after `after`.
    pub(super) fn new(zone: &'a str, fields: &'a [CronField; 5], after: i64) -> ScheduleSearch<'a> {
        ScheduleSearch {
            zone,
            fields,
            at: after + 1,
            is_reset: false,
        }
    }

    /// The moment; none if there is none within five years.
    pub(super) fn find(mut self) -> Option<i64> {
        let [minute, hour, _, month, _] = self.fields;
        if [minute, hour, month].iter().any(|field| field.bits == 0) {
            return None;
        }
        let last_year = self.clock().year + 5;
        // Whenever a unit wraps around, the larger ones may no longer fit.
        while self.clock().year <= last_year {
            if self.find_month()
                && self.find_day()
                && self.find_hour()
                && self.find_minute()
                && self.find_second()
            {
                return Some(self.at);
            }
        }
        None
    }

    /// Goes on to the next month that fits; false where a year begins on the way.
    fn find_month(&mut self) -> bool {
        while !self.fields[3].allows(self.clock().month) {
            let mut clock = self.clock();
            if !self.reset() {
                clock = self.clock_of(clock.year, clock.month, 1, 0);
            }
            self.at = self.moment(
                clock.year,
                clock.month + 1,
                clock.day,
                clock.seconds_of_day(),
            );
            if self.clock().month == 1 {
                return false;
            }
        }
        true
    }

    /// Goes on to the next day that fits; false where a month begins on the way.
    fn find_day(&mut self) -> bool {
        while !self.allows_day(&self.clock()) {
            let mut clock = self.clock();
            if !self.reset() {
                clock = self.clock_of(clock.year, clock.month, clock.day, 0);
            }
            self.at = self.moment(
                clock.year,
                clock.month,
                clock.day + 1,
                clock.seconds_of_day(),
            );
            // Where midnight does not exist, the hour before or after it was found.
            let hour = self.clock().hour;
            self.at += if hour > 12 {
                (24 - hour) * 3600
            } else {
                -hour * 3600
            };
            if self.clock().day == 1 {
                return false;
            }
        }
        true
    }

    /// Kubernetes: if both the day of the month and that of the week are restricted, one of them is enough.
    fn allows_day(&self, clock: &WallClock) -> bool {
        let [.., day, _, weekday] = self.fields;
        let (fits_day, fits_weekday) = (day.allows(clock.day), weekday.allows(clock.weekday));
        if day.is_star || weekday.is_star {
            fits_day && fits_weekday
        } else {
            fits_day || fits_weekday
        }
    }

    fn find_hour(&mut self) -> bool {
        while !self.fields[1].allows(self.clock().hour) {
            let clock = self.clock();
            if !self.reset() {
                self.at = self.moment(clock.year, clock.month, clock.day, clock.hour * 3600);
            }
            self.at += 3600;
            if self.clock().hour == 0 {
                return false;
            }
        }
        true
    }

    fn find_minute(&mut self) -> bool {
        while !self.fields[0].allows(self.clock().minute) {
            if !self.reset() {
                self.at -= self.at.rem_euclid(60);
            }
            self.at += 60;
            if self.clock().minute == 0 {
                return false;
            }
        }
        true
    }

    /// Only the first second of a minute fits.
    fn find_second(&mut self) -> bool {
        let second = self.clock().second;
        if second == 0 {
            return true;
        }
        self.is_reset = true;
        self.at += 60 - second;
        false
    }

    /// Notes that the smaller units are at their beginning; returns whether they were already.
    fn reset(&mut self) -> bool {
        std::mem::replace(&mut self.is_reset, true)
    }

    fn clock(&self) -> WallClock {
        let local = self.at + self.offset(self.at);
        let (days, seconds) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = date_of(days);
        WallClock {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            weekday: (days + 4).rem_euclid(7),
        }
    }

    /// What the clock shows at a time, if need be at one close to it that exists.
    fn clock_of(&self, year: i64, month: i64, day: i64, seconds: i64) -> WallClock {
        ScheduleSearch {
            at: self.moment(year, month, day, seconds),
            ..*self
        }
        .clock()
    }

    /// When the clock shows a time. Months and days may go beyond their end.
    ///
    /// Kubernetes: where the clock skips a time or shows it twice, the moment is that which Go's `time.Date` finds.
    fn moment(&self, year: i64, month: i64, day: i64, seconds: i64) -> i64 {
        let (year, month) = if month > 12 {
            (year + 1, month - 12)
        } else {
            (year, month)
        };
        let local = (day_of(year, month, 1) + day - 1) * 86_400 + seconds;
        match self.offset(local) {
            0 => local,
            guess => local - self.offset(local - guess),
        }
    }

    fn offset(&self, at: i64) -> i64 {
        zone::offset(self.zone, at).unwrap_or_default()
    }
}

impl WallClock {
    fn seconds_of_day(&self) -> i64 {
        self.hour * 3600 + self.minute * 60 + self.second
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::time::{from_unix, to_unix};

    use crate::cron::Schedule;

    /// The moments after `after`, one after the other.
    #[track_caller]
    fn check(schedule: &str, after: &str, expect: &[&str]) {
        let schedule = Schedule::parse(schedule).unwrap();
        let next = |at: &i64| schedule.next(*at);
        let moments = std::iter::successors(schedule.next(to_unix(after).unwrap()), next);
        assert_eq!(
            moments
                .take(expect.len())
                .map(from_unix)
                .collect::<Vec<_>>(),
            expect
        );
    }

    #[test]
    fn the_next_time_matches_all_fields() {
        check(
            "*/15 * * * *",
            "2024-01-01T00:00:00Z",
            &["2024-01-01T00:15:00Z", "2024-01-01T00:30:00Z"],
        );
        check(
            "30 9-17/4 * * 1-5",
            "2024-01-05T17:00:00Z",
            &["2024-01-05T17:30:00Z", "2024-01-08T09:30:00Z"],
        );
        check(
            "0 0 29 2 *",
            "2024-02-29T00:00:00Z",
            &["2028-02-29T00:00:00Z"],
        );
        check(
            "5/20 * * * *",
            "2024-01-01T00:00:07Z",
            &["2024-01-01T00:05:00Z", "2024-01-01T00:25:00Z"],
        );
        check(
            "0 0 31 * *",
            "2024-01-31T00:00:00Z",
            &["2024-03-31T00:00:00Z"],
        );
    }

    #[test]
    fn one_of_both_days_is_enough_unless_one_is_a_star() {
        check(
            "0 0 13 * 5",
            "2024-09-10T00:00:00Z",
            &["2024-09-13T00:00:00Z", "2024-09-20T00:00:00Z"],
        );
        check(
            "0 0 * * 5",
            "2024-09-10T00:00:00Z",
            &["2024-09-13T00:00:00Z", "2024-09-20T00:00:00Z"],
        );
        check(
            "0 0 */2 * 5",
            "2024-09-10T00:00:00Z",
            &["2024-09-11T00:00:00Z", "2024-09-13T00:00:00Z"],
        );
    }

    #[test]
    fn a_day_that_never_comes_is_given_up() {
        assert_eq!(Schedule::parse("59 23 31 2 *").unwrap().next(0), None);
        assert_eq!(Schedule::parse(", * * * *").unwrap().next(0), None);
    }

    #[test]
    fn every_counts_from_the_last_time() {
        check(
            "@every 90s",
            "2024-01-01T00:00:05Z",
            &["2024-01-01T00:01:35Z", "2024-01-01T00:03:05Z"],
        );
        check(
            "@every 1ms",
            "2024-01-01T00:00:05Z",
            &["2024-01-01T00:00:06Z"],
        );
    }

    #[test]
    fn descriptors_are_due_at_the_beginning() {
        check("@hourly", "2024-01-01T00:00:00Z", &["2024-01-01T01:00:00Z"]);
        check("@weekly", "2024-01-01T00:00:00Z", &["2024-01-07T00:00:00Z"]);
        check("@yearly", "2024-01-01T00:00:00Z", &["2025-01-01T00:00:00Z"]);
    }

    #[test]
    fn the_clock_of_the_zone_counts() {
        check(
            "TZ=Asia/Tokyo 0 9 * * *",
            "2024-01-01T00:00:00Z",
            &["2024-01-02T00:00:00Z"],
        );
        check(
            "CRON_TZ=America/New_York 0 0 1 * *",
            "2024-02-15T00:00:00Z",
            &["2024-03-01T05:00:00Z"],
        );
    }

    /// Clocks in New York went from 2:00 to 3:00 on March 11, 2012.
    #[test]
    fn a_time_that_the_clock_skips_is_skipped() {
        let skipped = "TZ=America/New_York 30 2 * * *";
        check(skipped, "2012-03-11T05:00:00Z", &["2012-03-12T06:30:00Z"]);
        let hourly = "TZ=America/New_York 0 * * * *";
        check(
            hourly,
            "2012-03-11T06:00:00Z",
            &["2012-03-11T07:00:00Z", "2012-03-11T08:00:00Z"],
        );
    }

    /// They went from 2:00 back to 1:00 on November 4, 2012.
    #[test]
    fn a_time_that_the_clock_shows_twice_is_due_twice() {
        let hourly = "TZ=America/New_York 0 * * * *";
        let expect = [
            "2012-11-04T04:00:00Z",
            "2012-11-04T05:00:00Z",
            "2012-11-04T06:00:00Z",
            "2012-11-04T07:00:00Z",
        ];
        check(hourly, "2012-11-04T03:00:00Z", &expect);
        let twice = "TZ=America/New_York 30 1 * * *";
        check(
            twice,
            "2012-11-04T04:00:00Z",
            &["2012-11-04T05:30:00Z", "2012-11-04T06:30:00Z"],
        );
    }

    /// In Sao Paulo midnight of November 4, 2018, was skipped.
    #[test]
    fn a_day_without_midnight_begins_an_hour_later() {
        let midnight = "TZ=America/Sao_Paulo 0 0 * * *";
        check(midnight, "2018-11-03T12:00:00Z", &["2018-11-05T02:00:00Z"]);
        let late = "TZ=America/Sao_Paulo 0 1 4 11 *";
        check(late, "2018-10-01T12:00:00Z", &["2018-11-04T03:00:00Z"]);
    }
}
