//! How often did somebody act as somebody else, and how long did it take to find out whether they may? Under upstream's
//! names (impersonation/metrics/metrics.go).

use std::fmt::Write as _;
use std::time::Duration;

use super::mode::Mode;
use crate::metrics::{DOUBLING, Timings, head};

/// What is counted.
pub(crate) struct Counts {
    /// Attempts that came to nothing.
    denied: Timings,
    /// Others, by the way that was found.
    allowed: [Timings; 5],
    /// Questions by way: no, and yes.
    asked: [[Timings; 2]; 5],
}

impl Default for Counts {
    fn default() -> Counts {
        let timings = |()| Timings::new(&DOUBLING);
        Counts {
            denied: timings(()),
            allowed: [(); 5].map(timings),
            asked: [(); 5].map(|()| [(); 2].map(timings)),
        }
    }
}

impl Counts {
    /// Somebody found a way, or none.
    pub(super) fn attempted(&self, mode: Option<Mode>, took: Duration) {
        mode.map_or(&self.denied, |mode| &self.allowed[mode as usize])
            .observe(took);
    }

    /// Authorizers were asked about a part of the way.
    pub(super) fn asked(&self, mode: Mode, is_allowed: bool, took: Duration) {
        self.asked[mode as usize][usize::from(is_allowed)].observe(took);
    }

    /// In Prometheus' text form.
    pub(crate) fn write(&self, out: &mut String) {
        let allowed = Mode::ALL
            .iter()
            .zip(&self.allowed)
            .map(|(mode, timings)| (mode.word(), "allowed", timings));
        let attempts: Vec<_> = std::iter::once(("", "denied", &self.denied))
            .chain(allowed)
            .collect();
        write(out, "attempts", &attempts);
        let asked = Mode::ALL
            .iter()
            .zip(&self.asked)
            .flat_map(|(mode, timings)| {
                ["denied", "allowed"]
                    .into_iter()
                    .zip(timings)
                    .map(|(decision, timings)| (mode.word(), decision, timings))
            });
        write(out, "authorization_attempts", &asked.collect::<Vec<_>>());
    }
}

fn write(out: &mut String, name: &str, all: &[(&str, &str, &Timings)]) {
    let labels = |mode: &str, decision: &str| format!("decision=\"{decision}\",mode=\"{mode}\"");
    let total = format!("apiserver_impersonation_{name}_total");
    head(out, &total, "counter", "By what came of it.");
    for (mode, decision, timings) in all.iter().filter(|(_, _, timings)| timings.count() > 0) {
        let _ = writeln!(
            out,
            "{total}{{{}}} {}",
            labels(mode, decision),
            timings.count()
        );
    }
    let took = format!("apiserver_impersonation_{name}_duration_seconds");
    head(out, &took, "histogram", "How long it took.");
    all.iter()
        .for_each(|(mode, decision, timings)| timings.write(out, &took, &labels(mode, decision)));
}
