//! Concurrency allocation: how many seats each level has now, with lending and borrowing
//! (upstream's conc_alloc.go).

use super::demand::SeatDemandStats;

/// The least target, so that no division is by zero.
const LEAST: f64 = 0.001;
/// Sums that differ by less are equal.
const EPSILON: f64 = 1e-7;

/// One level in the allocation problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocationItem {
    /// Whether the level is exempt. Its seats are taken from all other levels.
    pub is_exempt: bool,
    /// Its nominal seats.
    pub nominal: usize,
    /// The minimum when it lends.
    pub lower: usize,
    /// The maximum when it borrows.
    pub upper: usize,
    /// Statistics of its demand.
    pub demand: SeatDemandStats,
}

impl AllocationItem {
    /// The current minimum: the demand within the nominal seats, or the configured minimum.
    fn least(&self) -> usize {
        match self.is_exempt {
            true => self.lower.max(self.demand.high_water),
            false => self.lower.max(self.nominal.min(self.demand.high_water)),
        }
    }

    /// The unconstrained allocation.
    pub(super) fn target(&self) -> f64 {
        self.demand.smoothed.max(self.least() as f64)
    }
}

/// The limits of all levels, and the fair fraction of its target that each level within its bounds
/// gets. None if nothing changes.
pub(super) fn allocate_concurrency(items: &[AllocationItem]) -> Option<(Vec<usize>, f64)> {
    let limited = || items.iter().filter(|item| !item.is_exempt);
    limited().next()?;
    let nominal: usize = items.iter().map(|item| item.nominal).sum();
    let exempt: usize = items
        .iter()
        .filter(|item| item.is_exempt)
        .map(AllocationItem::least)
        .sum();
    let left = nominal.saturating_sub(exempt);
    let lower: usize = limited().map(|item| item.lower).sum();
    let least: usize = limited().map(AllocationItem::least).sum();
    if left <= lower {
        return Some((
            items
                .iter()
                .map(|item| {
                    if item.is_exempt {
                        item.least()
                    } else {
                        item.lower
                    }
                })
                .collect(),
            0.0,
        ));
    }
    if left <= least {
        let share = (left - lower) as f64 / (least - lower) as f64;
        let between = |item: &AllocationItem| {
            item.lower + ((item.least() - item.lower) as f64 * share).round() as usize
        };
        return Some((
            items
                .iter()
                .map(|item| {
                    if item.is_exempt {
                        item.least()
                    } else {
                        between(item)
                    }
                })
                .collect(),
            0.0,
        ));
    }
    // Kubernetes: all seats are allocated away once more, those that exempt requests take included (apf_controller.go).
    let fraction = fair_fraction(
        nominal as f64,
        &limited()
            .map(AllocationRange::from_item)
            .collect::<Vec<_>>(),
    )?;
    let allocated = |item: &AllocationItem| match item.is_exempt {
        true => item.least(),
        false => AllocationRange::from_item(item).at(fraction).round() as usize,
    };
    Some((items.iter().map(allocated).collect(), fraction))
}

/// The bounds and the target of a level.
struct AllocationRange {
    target: f64,
    lower: f64,
    upper: f64,
}

impl AllocationRange {
    fn from_item(item: &AllocationItem) -> AllocationRange {
        AllocationRange {
            target: item.target().max(LEAST),
            lower: item.least() as f64,
            upper: item.upper as f64,
        }
    }

    /// The allocation if every level gets this fraction of its target.
    fn at(&self, fraction: f64) -> f64 {
        (fraction * self.target).min(self.upper).max(self.lower)
    }
}

/// The fraction at which all seats are allocated. The sum of allocations is piecewise linear in the
/// fraction, with a bend where a level reaches a bound.
fn fair_fraction(sum: f64, ranges: &[AllocationRange]) -> Option<f64> {
    let allocated = |fraction: f64| ranges.iter().map(|range| range.at(fraction)).sum::<f64>();
    let mut bends: Vec<f64> = ranges
        .iter()
        .flat_map(|range| [range.lower / range.target, range.upper / range.target])
        .collect();
    bends.sort_by(f64::total_cmp);
    let mut before = *bends.first()?;
    if allocated(before) - sum > EPSILON {
        return None;
    }
    for bend in bends {
        let (less, more) = (allocated(before), allocated(bend));
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

    fn item(nominal: usize, lower: usize, upper: usize, wanted: usize) -> AllocationItem {
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
            ..item(0, 0, 600, wanted)
        }
    }

    #[track_caller]
    fn check(items: &[AllocationItem], expected: &[usize]) {
        let (allocated, _) = allocate_concurrency(items).expect("a solution");
        assert_eq!(allocated, expected);
    }

    #[test]
    fn unused_seats_of_a_level_are_borrowed() {
        check(
            &[item(100, 10, 600, 0), item(100, 10, 600, 300)],
            &[10, 190],
        );
    }

    #[test]
    fn levels_share_seats_by_their_demand() {
        check(
            &[item(100, 10, 600, 300), item(100, 10, 600, 300)],
            &[100, 100],
        );
        check(
            &[
                item(100, 50, 200, 60),
                item(100, 50, 200, 90),
                item(100, 50, 200, 0),
            ],
            &[90, 135, 75],
        );
    }

    #[test]
    fn borrowing_and_lending_stay_within_their_limits() {
        check(
            &[item(100, 100, 600, 0), item(100, 10, 600, 300)],
            &[100, 100],
        );
        check(
            &[item(100, 10, 600, 0), item(100, 10, 120, 300)],
            &[80, 120],
        );
    }

    #[test]
    fn seats_of_exempt_requests_reduce_borrowing() {
        check(
            &[
                exempt(150),
                item(100, 10, 600, 100),
                item(100, 10, 600, 100),
            ],
            &[150, 25, 25],
        );
        check(
            &[
                exempt(190),
                item(100, 10, 600, 100),
                item(100, 10, 600, 100),
            ],
            &[190, 10, 10],
        );
    }

    #[test]
    fn unsatisfiable_bounds_change_nothing() {
        assert!(allocate_concurrency(&[item(100, 10, 50, 0)]).is_none());
        assert!(allocate_concurrency(&[exempt(3)]).is_none());
    }
}
