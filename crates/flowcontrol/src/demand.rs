//! Seat demand of a level over time, the input of lending and borrowing.

use super::work_estimate::Nanos;

/// The weight of the previous smoothed demand. It halves in five minutes of adjustments every ten
/// seconds.
const SMOOTHING: f64 = 0.977;

/// Integrates the seat demand over time.
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
    pub(super) fn set(&mut self, now: Nanos, wanted: usize) {
        self.advance(now);
        self.wanted = wanted as f64;
        self.most = self.most.max(self.wanted);
    }

    /// Updates the statistics with the time since the last call, and starts over.
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

/// Statistics of a level's seat demand.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SeatDemandStats {
    /// The maximum since the adjustment before the last.
    pub high_water: usize,
    /// The average over that time.
    pub average: f64,
    /// The standard deviation over that time.
    pub deviation: f64,
    /// The envelope of average and deviation. It rises at once and decays slowly.
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
    fn fluctuating_demand_counts_by_average_and_deviation() {
        let (mut demand, mut seen) = (DemandIntegrator::default(), SeatDemandStats::default());
        demand.set(5 * SECOND, 10);
        demand.reset_into(10 * SECOND, &mut seen);
        assert_eq!(
            (seen.high_water, seen.average, seen.deviation, seen.smoothed),
            (10, 5.0, 5.0, 10.0)
        );
    }
}
