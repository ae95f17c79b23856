//! What metrics say of levels and flow schemas, under upstream's names.

use mizzen_metrics::{Families, Histogram};

use super::flow_schema_counts::FlowSchemaCounts;
use super::flows::FlowConfiguration;
use super::priority_level::{PriorityLevel, PriorityLevelState};
use super::server_concurrency::{Phase, ServerConcurrency};
use super::utilization::LevelUtilization;

/// A label that tells series of one level or flow schema apart.
type Label = (&'static str, &'static str);
/// What is said of a level: the name, what it is, and where it is found.
type OfLevel = (&'static str, &'static str, fn(&PriorityLevelState) -> f64);
/// What is said of a flow schema at a level: the name, the kind, what it is, and where it is found.
type OfSchema = (
    &'static str,
    &'static str,
    &'static str,
    fn(&FlowSchemaCounts) -> f64,
);
/// A histogram of a flow schema at a level, by one more label.
type Spread = (
    &'static str,
    &'static str,
    fn(&FlowSchemaCounts) -> Vec<(Option<Label>, &Histogram)>,
);

/// A histogram of what a level uses, by one more label.
type OfUsage = (
    &'static str,
    &'static str,
    fn(&LevelUtilization) -> Vec<(Option<Label>, &Histogram)>,
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
        |state| state.demand_stats.high_water as f64,
    ),
    (
        "demand_seats_average",
        "The average of seats that a level wanted lately.",
        |state| state.demand_stats.average,
    ),
    (
        "demand_seats_stdev",
        "The standard deviation of seats that a level wanted lately.",
        |state| state.demand_stats.deviation,
    ),
    (
        "demand_seats_smoothed",
        "Seats that a level is thought to want.",
        |state| state.demand_stats.smoothed,
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
                (Some(("execute", "false")), &tally.waits[0]),
                (Some(("execute", "true")), &tally.waits[1]),
            ]
        },
    ),
    (
        "request_execution_seconds",
        "How long answering took; of a watch, how long it took to begin.",
        |tally| {
            vec![
                (Some(("type", "regular")), &tally.executions[0]),
                (Some(("type", "watch")), &tally.executions[1]),
            ]
        },
    ),
    (
        "request_queue_length_after_enqueue",
        "How many waited in a queue with one more.",
        |tally| vec![(None, &tally.queue_lengths)],
    ),
    (
        "watch_count_samples",
        "How many watchers heard of a write.",
        |tally| vec![(None, &tally.watches)],
    ),
    (
        "work_estimated_seats",
        "How many seats a request took.",
        |tally| vec![(None, &tally.seats)],
    ),
];

const USAGES: [OfUsage; 3] = [
    (
        "priority_level_seat_utilization",
        "How much of a level's seats is taken.",
        |usage| vec![(Some(("phase", "executing")), &usage.seats.histogram)],
    ),
    (
        "priority_level_request_utilization",
        "How many requests there are, of those that may be.",
        |usage| {
            vec![
                (Some(("phase", "executing")), &usage.executing.histogram),
                (Some(("phase", "waiting")), &usage.waiting.histogram),
            ]
        },
    ),
    (
        "demand_seats",
        "How many seats a level could use, of those that it has.",
        |usage| vec![(None, &usage.demand.histogram)],
    ),
];

/// Adds it all to a scrape.
pub(super) fn collect(flows: &FlowConfiguration, house: &ServerConcurrency, out: &mut Families) {
    each(flows, |room, state| collect_level(room, state, out));
    collect_kinds(house, out);
    out.gauge(
        name("seat_fair_frac"),
        "The fraction of its target that a level got.",
    )
    .add(&[], flows.fair_fraction());
}

fn collect_level(room: &PriorityLevel, state: &PriorityLevelState, out: &mut Families) {
    let level = ("priority_level", &*room.name);
    for (figure, help, value) in LEVEL_FIGURES {
        out.gauge(name(figure), help).add(&[level], value(state));
    }
    let last = &state.queues.last_dispatch;
    for (figure, bounds) in [
        ("next_s_bounds", last.bounds),
        ("next_discounted_s_bounds", last.discounted),
    ] {
        let help = "The least and the greatest reading at which a queue's next request is due.";
        let family = out.gauge(name(figure), help);
        for (bound, reading) in ["min", "max"].iter().zip(bounds) {
            family.add(&[("bound", bound), level], reading.as_f64());
        }
    }
    for (figure, help, spread) in USAGES {
        let family = out.histogram(name(figure), help);
        for (more, histogram) in spread(&state.queues.usage) {
            let labels: Vec<_> = more.into_iter().chain([level]).collect();
            family.add_histogram(&labels, histogram);
        }
    }
    for tally in &state.queues.schema_counts {
        collect_schema(level, tally, out);
    }
}

/// The figures of a flow schema at a level.
fn collect_schema(level: (&str, &str), tally: &FlowSchemaCounts, out: &mut Families) {
    let schema = ("flow_schema", &*tally.schema);
    for (figure, kind, help, value) in SCHEMA_FIGURES {
        let family = match kind {
            "counter" => out.counter(name(figure), help),
            _ => out.gauge(name(figure), help),
        };
        family.add(&[schema, level], value(tally));
    }
    let rejected = out.counter(
        name("rejected_requests_total"),
        "Requests that were rejected.",
    );
    for (reason, count) in &tally.rejected {
        rejected.add(&[schema, level, ("reason", &reason.to_string())], *count);
    }
    for (figure, help, spread) in SPREADS {
        let family = out.histogram(name(figure), help);
        for (more, histogram) in spread(tally) {
            if !histogram.is_empty() {
                let labels: Vec<_> = more.into_iter().chain([schema, level]).collect();
                family.add_histogram(&labels, histogram);
            }
        }
    }
}

fn collect_kinds(house: &ServerConcurrency, out: &mut Families) {
    house.for_each_class(|standing, size, spread| {
        let [phase, kind] = standing.labels();
        let kind = ("request_kind", kind);
        out.histogram(
            name("read_vs_write_current_requests"),
            "How many requests there are by kind, of those that may be.",
        )
        .add_histogram(&[("phase", phase), kind], spread);
        if standing.phase == Phase::Waiting {
            out.gauge(
                "apiserver_current_inqueue_requests",
                "Requests that wait in queues.",
            )
            .add(&[kind], size);
        }
    });
}

fn name(figure: &str) -> String {
    format!("apiserver_flowcontrol_{figure}")
}

/// One level after another, so that no lock is held for all of it.
fn each(flows: &FlowConfiguration, mut collect: impl FnMut(&PriorityLevel, &PriorityLevelState)) {
    flows
        .levels
        .values()
        .for_each(|room| room.inspect(|state| collect(room, state)));
}
