//! Metrics of priority levels and flow schemas, under upstream's names.

use mizzen_metrics::{Families, Histogram};

use super::flow_schema_counts::FlowSchemaCounts;
use super::flows::FlowConfiguration;
use super::priority_level::{PriorityLevel, PriorityLevelState};
use super::server_concurrency::{Phase, ServerConcurrency};
use super::utilization::LevelUtilization;

/// A label that distinguishes series of one level or flow schema.
type Label = (&'static str, &'static str);
/// A gauge of a level: name, help, value.
type OfLevel = (&'static str, &'static str, fn(&PriorityLevelState) -> f64);
/// A series of a flow schema at a level: name, type, help, value.
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

/// A histogram of a level's utilization, by one more label.
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
        |counts| counts.dispatched as f64,
    ),
    (
        "current_inqueue_requests",
        "gauge",
        "Requests that wait.",
        |counts| counts.waiting as f64,
    ),
    (
        "current_inqueue_seats",
        "gauge",
        "Seats for which requests wait.",
        |counts| counts.waiting_seats as f64,
    ),
    (
        "current_executing_requests",
        "gauge",
        "Requests that are being answered.",
        |counts| counts.executing as f64,
    ),
    (
        "current_executing_seats",
        "gauge",
        "Seats that are taken.",
        |counts| counts.executing_seats as f64,
    ),
    (
        "request_dispatch_no_accommodation_total",
        "counter",
        "How often the next in line needed more seats than were free.",
        |counts| counts.not_accommodated as f64,
    ),
];

const SPREADS: [Spread; 5] = [
    (
        "request_wait_duration_seconds",
        "How long requests waited.",
        |counts| {
            vec![
                (Some(("execute", "false")), &counts.waits[0]),
                (Some(("execute", "true")), &counts.waits[1]),
            ]
        },
    ),
    (
        "request_execution_seconds",
        "How long answering took; of a watch, how long it took to begin.",
        |counts| {
            vec![
                (Some(("type", "regular")), &counts.executions[0]),
                (Some(("type", "watch")), &counts.executions[1]),
            ]
        },
    ),
    (
        "request_queue_length_after_enqueue",
        "How many waited in a queue with one more.",
        |counts| vec![(None, &counts.queue_lengths)],
    ),
    (
        "watch_count_samples",
        "How many watchers heard of a write.",
        |counts| vec![(None, &counts.watches)],
    ),
    (
        "work_estimated_seats",
        "How many seats a request took.",
        |counts| vec![(None, &counts.seats)],
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

/// Adds all series to a scrape. One level is locked at a time.
pub(super) fn collect(
    configuration: &FlowConfiguration,
    server: &ServerConcurrency,
    out: &mut Families,
) {
    for level in configuration.levels.values() {
        level.inspect(|state| collect_level(level, state, out));
    }
    server.for_each_class(|class, size, histogram| {
        let [phase, kind] = class.labels();
        let kind = ("request_kind", kind);
        out.histogram(
            name("read_vs_write_current_requests"),
            "How many requests there are by kind, of those that may be.",
        )
        .add_histogram(&[("phase", phase), kind], histogram);
        if class.phase == Phase::Waiting {
            out.gauge(
                "apiserver_current_inqueue_requests",
                "Requests that wait in queues.",
            )
            .add(&[kind], size);
        }
    });
    out.gauge(
        name("seat_fair_frac"),
        "The fraction of its target that a level got.",
    )
    .add(&[], configuration.fair_fraction());
}

fn collect_level(level: &PriorityLevel, state: &PriorityLevelState, out: &mut Families) {
    let level = ("priority_level", &*level.name);
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
    for counts in &state.queues.schema_counts {
        collect_schema(level, counts, out);
    }
}

fn collect_schema(level: (&str, &str), counts: &FlowSchemaCounts, out: &mut Families) {
    let schema = ("flow_schema", &*counts.schema);
    for (figure, kind, help, value) in SCHEMA_FIGURES {
        let family = match kind {
            "counter" => out.counter(name(figure), help),
            _ => out.gauge(name(figure), help),
        };
        family.add(&[schema, level], value(counts));
    }
    let rejected = out.counter(
        name("rejected_requests_total"),
        "Requests that were rejected.",
    );
    for (reason, count) in &counts.rejected {
        rejected.add(&[schema, level, ("reason", &reason.to_string())], *count);
    }
    for (figure, help, spread) in SPREADS {
        let family = out.histogram(name(figure), help);
        for (more, histogram) in spread(counts) {
            if !histogram.is_empty() {
                let labels: Vec<_> = more.into_iter().chain([schema, level]).collect();
                family.add_histogram(&labels, histogram);
            }
        }
    }
}

fn name(figure: &str) -> String {
    format!("apiserver_flowcontrol_{figure}")
}
