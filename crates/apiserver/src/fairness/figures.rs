//! What metrics say of levels and flow schemas, under upstream's names.

use std::fmt::Write as _;

use super::flows::Flows;
use super::house::{House, Phase};
use super::room::{Room, State};
use super::tally::Tally;
use super::usage::LevelUsage;
use crate::metrics::{Histogram, head};

/// What is said of a level: the name, what it is, and where it is found.
type OfLevel = (&'static str, &'static str, fn(&State) -> f64);
/// What is said of a flow schema at a level: the name, the kind, what it is, and where it is found.
type OfSchema = (&'static str, &'static str, &'static str, fn(&Tally) -> f64);
/// A histogram of a flow schema at a level, by one more label.
type Spread = (
    &'static str,
    &'static str,
    fn(&Tally) -> Vec<(&'static str, &Histogram)>,
);

/// A histogram of what a level uses, by one more label.
type OfUsage = (
    &'static str,
    &'static str,
    fn(&LevelUsage) -> Vec<(&'static str, &Histogram)>,
);

const LEVEL_FIGURES: [OfLevel; 12] = [
    (
        "nominal_limit_seats",
        "Seats that are a level's own.",
        |state| state.seats.nominal as f64,
    ),
    (
        "lower_limit_seats",
        "Seats that a level keeps when it lends.",
        |state| state.seats.lower as f64,
    ),
    (
        "upper_limit_seats",
        "Seats that a level may have when it borrows.",
        |state| state.seats.upper as f64,
    ),
    (
        "current_limit_seats",
        "Seats that a level has now.",
        |state| state.queues.limit() as f64,
    ),
    (
        "demand_seats_high_watermark",
        "The most seats that a level wanted lately.",
        |state| state.seen.high_water as f64,
    ),
    (
        "demand_seats_average",
        "The average of seats that a level wanted lately.",
        |state| state.seen.average,
    ),
    (
        "demand_seats_stdev",
        "The standard deviation of seats that a level wanted lately.",
        |state| state.seen.deviation,
    ),
    (
        "demand_seats_smoothed",
        "Seats that a level is thought to want.",
        |state| state.seen.smoothed,
    ),
    (
        "target_seats",
        "Seats that a level should have, if there were enough.",
        |state| state.target,
    ),
    (
        "current_r",
        "The progress of a level's queues when it last changed.",
        |state| state.queues.progress.as_f64(),
    ),
    (
        "dispatch_r",
        "The progress of a level's queues when a request last went.",
        |state| state.queues.last_dispatch.progress.as_f64(),
    ),
    (
        "latest_s",
        "When the request that went last was due on the meter of progress.",
        |state| state.queues.last_dispatch.next.as_f64(),
    ),
];

const SCHEMA_FIGURES: [OfSchema; 6] = [
    (
        "dispatched_requests_total",
        "counter",
        "Requests that were let in.",
        |tally| tally.dispatched as f64,
    ),
    (
        "current_inqueue_requests",
        "gauge",
        "Requests that wait.",
        |tally| tally.waiting as f64,
    ),
    (
        "current_inqueue_seats",
        "gauge",
        "Seats for which requests wait.",
        |tally| tally.waiting_seats as f64,
    ),
    (
        "current_executing_requests",
        "gauge",
        "Requests that are being answered.",
        |tally| tally.executing as f64,
    ),
    (
        "current_executing_seats",
        "gauge",
        "Seats that are taken.",
        |tally| tally.executing_seats as f64,
    ),
    (
        "request_dispatch_no_accommodation_total",
        "counter",
        "How often the next in line needed more seats than were free.",
        |tally| tally.not_accommodated as f64,
    ),
];

const SPREADS: [Spread; 5] = [
    (
        "request_wait_duration_seconds",
        "How long requests waited.",
        |tally| {
            vec![
                (",execute=\"false\"", &tally.waits[0]),
                (",execute=\"true\"", &tally.waits[1]),
            ]
        },
    ),
    (
        "request_execution_seconds",
        "How long answering took; of a watch, how long it took to begin.",
        |tally| {
            vec![
                (",type=\"regular\"", &tally.executions[0]),
                (",type=\"watch\"", &tally.executions[1]),
            ]
        },
    ),
    (
        "request_queue_length_after_enqueue",
        "How many waited in a queue with one more.",
        |tally| vec![("", &tally.queue_lengths)],
    ),
    (
        "watch_count_samples",
        "How many watchers heard of a write.",
        |tally| vec![("", &tally.watches)],
    ),
    (
        "work_estimated_seats",
        "How many seats a request took.",
        |tally| vec![("", &tally.seats)],
    ),
];

const USAGES: [OfUsage; 3] = [
    (
        "priority_level_seat_utilization",
        "How much of a level's seats is taken.",
        |usage| vec![("phase=\"executing\",", &usage.seats.spread)],
    ),
    (
        "priority_level_request_utilization",
        "How many requests there are, of those that may be.",
        |usage| {
            vec![
                ("phase=\"executing\",", &usage.executing.spread),
                ("phase=\"waiting\",", &usage.waiting.spread),
            ]
        },
    ),
    (
        "demand_seats",
        "How many seats a level could use, of those that it has.",
        |usage| vec![("", &usage.demand.spread)],
    ),
];

/// Writes it all in Prometheus' text form.
pub(super) fn write(flows: &Flows, house: &House, out: &mut String) {
    for (name, help, figure) in LEVEL_FIGURES {
        let name = begin(out, name, "gauge", help);
        each(flows, |room, state| {
            line(out, &name, &level(room), figure(state))
        });
    }
    write_bounds(flows, out);
    for (name, help, spread) in USAGES {
        let name = begin(out, name, "histogram", help);
        each(flows, |room, state| {
            for (more, histogram) in spread(&state.queues.usage) {
                histogram.write(out, &name, &format!("{more}{}", level(room)));
            }
        });
    }
    write_kinds(house, out);
    let name = begin(
        out,
        "seat_fair_frac",
        "gauge",
        "The fraction of its target that a level got.",
    );
    let _ = writeln!(out, "{name} {}", flows.fraction());
    for (name, kind, help, figure) in SCHEMA_FIGURES {
        let name = begin(out, name, kind, help);
        each_schema(flows, |labels, tally| {
            line(out, &name, labels, figure(tally))
        });
    }
    write_rejected(flows, out);
    for (name, help, spread) in SPREADS {
        let name = begin(out, name, "histogram", help);
        each_schema(flows, |labels, tally| {
            for (more, histogram) in spread(tally)
                .into_iter()
                .filter(|(_, histogram)| !histogram.is_empty())
            {
                histogram.write(out, &name, &format!("{labels}{more}"));
            }
        });
    }
}

fn write_kinds(house: &House, out: &mut String) {
    const WAITING: &str = "apiserver_current_inqueue_requests";
    let (mut waiting, mut spreads) = (String::new(), String::new());
    let help = "How many requests there are by kind, of those that may be.";
    let name = begin(
        &mut spreads,
        "read_vs_write_current_requests",
        "histogram",
        help,
    );
    house.look(|standing, size, spread| {
        let [phase, kind] = standing.words();
        spread.write(
            &mut spreads,
            &name,
            &format!("phase=\"{phase}\",request_kind=\"{kind}\""),
        );
        if standing.phase == Phase::Waiting {
            line(
                &mut waiting,
                WAITING,
                &format!("request_kind=\"{kind}\""),
                size as f64,
            );
        }
    });
    head(out, WAITING, "gauge", "Requests that wait for their turn.");
    out.push_str(&waiting);
    out.push_str(&spreads);
}

fn write_rejected(flows: &Flows, out: &mut String) {
    let name = begin(
        out,
        "rejected_requests_total",
        "counter",
        "Requests that were turned away.",
    );
    each_schema(flows, |labels, tally| {
        for (reason, count) in &tally.rejected {
            line(
                out,
                &name,
                &format!("{labels},reason=\"{reason}\""),
                *count as f64,
            );
        }
    });
}

fn write_bounds(flows: &Flows, out: &mut String) {
    let help = "The least and the greatest reading at which a queue's next request is due.";
    for (name, is_discounted) in [("next_s_bounds", false), ("next_discounted_s_bounds", true)] {
        let name = begin(out, name, "gauge", help);
        each(flows, |room, state| {
            let last = &state.queues.last_dispatch;
            let bounds = if is_discounted {
                last.discounted
            } else {
                last.bounds
            };
            for (bound, reading) in ["min", "max"].iter().zip(bounds) {
                line(
                    out,
                    &name,
                    &format!("bound=\"{bound}\",{}", level(room)),
                    reading.as_f64(),
                );
            }
        });
    }
}

fn begin(out: &mut String, name: &str, kind: &str, help: &str) -> String {
    let name = format!("apiserver_flowcontrol_{name}");
    head(out, &name, kind, help);
    name
}

fn level(room: &Room) -> String {
    format!("priority_level=\"{}\"", room.name)
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// One level after another, so that nobody waits for all of it to be written.
fn each(flows: &Flows, mut write: impl FnMut(&Room, &State)) {
    flows
        .rooms
        .values()
        .for_each(|room| room.look(|state| write(room, state)));
}

fn each_schema(flows: &Flows, mut write: impl FnMut(&str, &Tally)) {
    each(flows, |room, state| {
        for tally in &state.queues.tallies {
            write(
                &format!("flow_schema=\"{}\",{}", tally.schema, level(room)),
                tally,
            );
        }
    });
}
