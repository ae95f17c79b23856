//! How many seats did a level want lately? What lending and borrowing goes by.

use super::work_estimate::Nanos;

/// How much of what was known before is kept at each look: it is halved in five minutes of looks every ten seconds.
const SMOOTHING: f64 = 0.977;

/// Seats that are wanted, followed over time.
#[derive(Debug, Default)]
pub(super) struct DemandIntegrator {
    at: Nanos,
    wanted: f64,
    most: f64,
    seconds: f64,
    /// The integrals of the demand and of its square.
    sum: f64,
    squares: f64,
}

impl DemandIntegrator {
    /// So many are wanted from now on.
    pub(super) fn set(&mut self, now: Nanos, wanted: usize) {
        self.advance(now);
        self.wanted = wanted as f64;
        self.most = self.most.max(self.wanted);
    }

    /// What there is to say of the time since the last look.
    pub(super) fn reset_into(&mut self, now: Nanos, seen: &mut SeatDemandStats) {
        self.advance(now);
        seen.high_water = self.most.round() as usize;
        if self.seconds > 0.0 {
            let average = self.sum / self.seconds;
            let variance = self.squares / self.seconds - average * average;
            seen.update(average, variance.max(0.0).sqrt());
        }
        *self = DemandIntegrator {
            at: now,
            wanted: self.wanted,
            most: self.wanted,
            ..DemandIntegrator::default()
        };
    }

    fn advance(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.at) as f64 / 1e9;
        self.at = self.at.max(now);
        self.seconds += seconds;
        self.sum += self.wanted * seconds;
        self.squares += self.wanted * self.wanted * seconds;
    }
}

/// What is known of a level's demand.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SeatDemandStats {
    /// The most that was wanted at a time, since the look before the last.
    pub high_water: usize,
    /// The average over that time.
    pub average: f64,
    /// The standard deviation over that time.
    pub deviation: f64,
    /// A bit more than the average, which rises at once and falls slowly.
    pub smoothed: f64,
}

impl SeatDemandStats {
    fn update(&mut self, average: f64, deviation: f64) {
        let envelope = average + deviation;
        let smoothed = (SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope).max(envelope);
        *self = SeatDemandStats {
            average,
            deviation,
            smoothed,
            ..*self
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn demand_rises_at_once_and_is_halved_in_five_minutes() {
        let (mut demand, mut seen) = (DemandIntegrator::default(), SeatDemandStats::default());
        demand.set(0, 100);
        demand.reset_into(10 * SECOND, &mut seen);
        assert_eq!((seen.high_water, seen.smoothed), (100, 100.0));
        demand.set(10 * SECOND, 0);
        for look in 2..=31 {
            demand.reset_into(look * 10 * SECOND, &mut seen);
        }
        assert_eq!(seen.high_water, 0);
        assert!((49.0..51.0).contains(&seen.smoothed), "{seen:?}");
    }

    #[test]
    fn what_is_wanted_half_of_the_time_counts_by_average_and_deviation() {
        let (mut demand, mut seen) = (DemandIntegrator::default(), SeatDemandStats::default());
        demand.set(5 * SECOND, 10);
        demand.reset_into(10 * SECOND, &mut seen);
        assert_eq!(
            (seen.high_water, seen.average, seen.deviation, seen.smoothed),
            (10, 5.0, 5.0, 10.0)
        );
    }
}
