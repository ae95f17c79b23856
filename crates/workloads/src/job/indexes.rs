//! Sets of completion indexes: `1,3-5,7`.
//!
//! Invariant: intervals are sorted, and there is a gap between any two.

use std::fmt;

/// A set of completion indexes as intervals: a job may have 100,000 of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Parses indexes below `completions`. Invalid parts are left out.
    pub(super) fn parse(text: &str, completions: i64) -> Indexes {
        let intervals = text.split(',').filter_map(interval);
        let below = intervals.take_while(|(first, _)| *first < completions);
        Indexes::from_intervals(
            below
                .map(|(first, last)| (first, last.min(completions - 1)))
                .collect(),
        )
    }

    fn from_intervals(mut intervals: Vec<(i64, i64)>) -> Indexes {
        intervals.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match joined.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Indexes(joined)
    }

    pub(super) fn with(&self, indexes: impl IntoIterator<Item = i64>) -> Indexes {
        self.union(&Indexes(
            indexes.into_iter().map(|index| (index, index)).collect(),
        ))
    }

    pub(super) fn union(&self, other: &Indexes) -> Indexes {
        Indexes::from_intervals(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, index: i64) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(place).is_some_and(|(first, _)| *first <= index)
    }

    /// The size of the intersection.
    pub(super) fn n_common(&self, other: &Indexes) -> i64 {
        let overlap = |(first, last): &(i64, i64)| {
            let start = other.0.partition_point(|(_, end)| end < first);
            let reach = other.0[start..]
                .iter()
                .take_while(|(other, _)| other <= last);
            reach
                .map(|(other, end)| last.min(end) - first.max(other) + 1)
                .sum::<i64>()
        };
        self.0.iter().map(overlap).sum()
    }

    /// The first `n` indexes below `completions` that are not in the set.
    pub(super) fn first_missing(&self, n: usize, completions: i64) -> Vec<i64> {
        let ends = self.0.iter().copied().chain([(completions, completions)]);
        let gaps = ends.scan(0, |next, (first, last)| {
            let gap = *next..first.min(completions);
            *next = last + 1;
            Some(gap)
        });
        gaps.flatten().take(n).collect()
    }
}

/// `3` or `3-5`.
fn interval(text: &str) -> Option<(i64, i64)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = first.parse().ok()?;
    Some((first, last.split('-').next()?.parse().ok()?)).filter(|(first, last)| first <= last)
}

/// Kubernetes: two consecutive indexes are written with a comma, three or more with a hyphen.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let interval = |(first, last): &(i64, i64)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        f.write_str(&self.0.iter().map(interval).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Indexes;

    #[track_caller]
    fn check(text: &str, completions: i64, expect: &str) {
        assert_eq!(Indexes::parse(text, completions).to_string(), expect);
    }

    #[test]
    fn texts_are_read_up_to_the_number_of_completions() {
        check("", 10, "");
        check("1,3-5,7", 10, "1,3-5,7");
        check("1,2,3", 10, "1-3");
        check("3,4", 10, "3,4");
        check("0-9", 5, "0-4");
        check("1,7,8", 5, "1");
        check("x,2,-,4-", 5, "2");
    }

    #[test]
    fn sets_are_joined() {
        let some = Indexes::parse("0,3-5,9", 20);
        assert_eq!(some.with([8, 1, 6, 4]).to_string(), "0,1,3-6,8,9");
        assert_eq!(
            some.union(&Indexes::parse("2,10-12", 20)).to_string(),
            "0,2-5,9-12"
        );
        assert_eq!(some.len(), 5);
    }

    #[test]
    fn members_are_found() {
        let some = Indexes::parse("0,3-5,9", 20);
        let found: Vec<i64> = (0..12).filter(|index| some.has(*index)).collect();
        assert_eq!(found, [0, 3, 4, 5, 9]);
    }

    #[test]
    fn the_intersection_is_counted() {
        let some = Indexes::parse("0-4,8-9,12", 20);
        assert_eq!(some.n_common(&Indexes::parse("3-8,12", 20)), 4);
        assert_eq!(some.n_common(&Indexes::parse("1,3,5", 20)), 2);
        assert_eq!(some.n_common(&Indexes::default()), 0);
    }

    #[test]
    fn gaps_are_filled_from_the_start() {
        let some = Indexes::parse("1,3-5", 20);
        assert_eq!(some.first_missing(3, 20), [0, 2, 6]);
        assert_eq!(some.first_missing(9, 7), [0, 2, 6]);
        assert_eq!(some.first_missing(9, 2), [0]);
        assert_eq!(Indexes::default().first_missing(2, 5), [0, 1]);
        assert!(Indexes::parse("0-4", 5).first_missing(1, 5).is_empty());
    }
}
