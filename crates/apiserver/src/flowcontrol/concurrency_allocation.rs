//! How many seats does each level have now? What one does not use, others may borrow.

use super::demand::SeatDemandStats;

/// The least target: what is divided by must not be nothing.
const LEAST: f64 = 0.001;
/// Sums that differ by less are the same.
const EPSILON: f64 = 1e-7;

/// A level that takes part.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocationItem {
    /// Whether requests of this level are never held up. What they take is taken from the others.
    pub is_exempt: bool,
    /// The seats that are its own.
    pub nominal: usize,
    /// What it keeps of them when it lends.
    pub lower: usize,
    /// What it may have when it borrows.
    pub upper: usize,
    /// What it wanted lately.
    pub demand: SeatDemandStats,
}

impl AllocationItem {
    /// What it has at least for now: what it wanted of its own, or what it keeps anyway.
    fn least(&self) -> usize {
        match self.is_exempt {
            true => self.lower.max(self.demand.high_water),
            false => self.lower.max(self.nominal.min(self.demand.high_water)),
        }
    }

    /// What it should have, if there were enough.
    pub(super) fn target(&self) -> f64 {
        self.demand.smoothed.max(self.least() as f64)
    }
}

/// What each has from now on, and the fraction of its target that everybody gets who is within bounds. None if things
/// must stay as they are.
pub(super) fn allocate_concurrency(parts: &[AllocationItem]) -> Option<(Vec<usize>, f64)> {
    let limited = || parts.iter().filter(|part| !part.is_exempt);
    limited().next()?;
    let nominal: usize = parts.iter().map(|part| part.nominal).sum();
    let exempt: usize = parts
        .iter()
        .filter(|part| part.is_exempt)
        .map(AllocationItem::least)
        .sum();
    let left = nominal.saturating_sub(exempt);
    let lower: usize = limited().map(|part| part.lower).sum();
    let least: usize = limited().map(AllocationItem::least).sum();
    if left <= lower {
        return Some((
            parts
                .iter()
                .map(|part| {
                    if part.is_exempt {
                        part.least()
                    } else {
                        part.lower
                    }
                })
                .collect(),
            0.0,
        ));
    }
    if left <= least {
        let share = (left - lower) as f64 / (least - lower) as f64;
        let between = |part: &AllocationItem| {
            part.lower + ((part.least() - part.lower) as f64 * share).round() as usize
        };
        return Some((
            parts
                .iter()
                .map(|part| {
                    if part.is_exempt {
                        part.least()
                    } else {
                        between(part)
                    }
                })
                .collect(),
            0.0,
        ));
    }
    // Kubernetes: all seats are given away once more, those that exempt requests take included (apf_controller.go).
    let fraction = fair_fraction(
        nominal as f64,
        &limited().map(AllocationRange::of).collect::<Vec<_>>(),
    )?;
    let given = |part: &AllocationItem| match part.is_exempt {
        true => part.least(),
        false => AllocationRange::of(part).at(fraction).round() as usize,
    };
    Some((parts.iter().map(given).collect(), fraction))
}

/// What a level may get.
struct AllocationRange {
    target: f64,
    lower: f64,
    upper: f64,
}

impl AllocationRange {
    fn of(part: &AllocationItem) -> AllocationRange {
        AllocationRange {
            target: part.target().max(LEAST),
            lower: part.least() as f64,
            upper: part.upper as f64,
        }
    }

    /// What it gets if everybody gets this fraction of his target.
    fn at(&self, fraction: f64) -> f64 {
        (fraction * self.target).min(self.upper).max(self.lower)
    }
}

/// The fraction at which all seats are given away. What is given grows with the fraction, in straight lines between the
/// fractions at which somebody reaches a bound.
fn fair_fraction(sum: f64, ranges: &[AllocationRange]) -> Option<f64> {
    let given = |fraction: f64| ranges.iter().map(|range| range.at(fraction)).sum::<f64>();
    let mut bends: Vec<f64> = ranges
        .iter()
        .flat_map(|range| [range.lower / range.target, range.upper / range.target])
        .collect();
    bends.sort_by(f64::total_cmp);
    let mut before = *bends.first()?;
    if given(before) - sum > EPSILON {
        return None;
    }
    for bend in bends {
        let (less, more) = (given(before), given(bend));
        if more >= sum - EPSILON {
            let way = if more > less {
                ((sum - less) / (more - less)).clamp(0.0, 1.0)
            } else {
                1.0
            };
            return Some(before + (bend - before) * way);
        }
        before = bend;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(nominal: usize, lower: usize, upper: usize, wanted: usize) -> AllocationItem {
        let seen = SeatDemandStats {
            high_water: wanted,
            smoothed: wanted as f64,
            ..SeatDemandStats::default()
        };
        AllocationItem {
            is_exempt: false,
            nominal,
            lower,
            upper,
            demand: seen,
        }
    }

    fn exempt(wanted: usize) -> AllocationItem {
        AllocationItem {
            is_exempt: true,
            ..part(0, 0, 600, wanted)
        }
    }

    #[track_caller]
    fn check(parts: &[AllocationItem], expected: &[usize]) {
        let (given, _) = allocate_concurrency(parts).expect("a solution");
        assert_eq!(given, expected);
    }

    #[test]
    fn what_one_does_not_use_another_borrows() {
        check(
            &[part(100, 10, 600, 0), part(100, 10, 600, 300)],
            &[10, 190],
        );
    }

    #[test]
    fn those_who_want_more_than_there_is_share_by_what_they_want() {
        check(
            &[part(100, 10, 600, 300), part(100, 10, 600, 300)],
            &[100, 100],
        );
        check(
            &[
                part(100, 50, 200, 60),
                part(100, 50, 200, 90),
                part(100, 50, 200, 0),
            ],
            &[90, 135, 75],
        );
    }

    #[test]
    fn nobody_borrows_more_than_is_allowed_or_lends_more_than_is_lendable() {
        check(
            &[part(100, 100, 600, 0), part(100, 10, 600, 300)],
            &[100, 100],
        );
        check(
            &[part(100, 10, 600, 0), part(100, 10, 120, 300)],
            &[80, 120],
        );
    }

    #[test]
    fn what_exempt_requests_take_is_taken_from_what_was_borrowed() {
        check(
            &[
                exempt(150),
                part(100, 10, 600, 100),
                part(100, 10, 600, 100),
            ],
            &[150, 25, 25],
        );
        check(
            &[
                exempt(190),
                part(100, 10, 600, 100),
                part(100, 10, 600, 100),
            ],
            &[190, 10, 10],
        );
    }

    #[test]
    fn bounds_that_cannot_be_met_change_nothing() {
        assert!(allocate_concurrency(&[part(100, 10, 50, 0)]).is_none());
        assert!(allocate_concurrency(&[exempt(3)]).is_none());
    }
}
