//! The debug dumps of levels, queues and requests.

use mizzen_request::ResourcePath;
use mizzen_value::time::{Moment, duration_text};

use super::entry::RequestEntry;
use super::flows::FlowConfiguration;
use super::queue_set::QueueSet;
use super::schema::Distinguisher;
use super::work_estimate::Nanos;

pub(super) const ROOT: &str = "/debug/api_priority_and_fairness/";

/// A dump by its name. `began` is when the server started, in Unix seconds.
pub(super) fn render_dump(
    flows: &FlowConfiguration,
    name: &str,
    has_details: bool,
    began: i64,
) -> Option<String> {
    let rows = match name {
        "dump_priority_levels" => levels(flows),
        "dump_queues" => queues(flows),
        "dump_requests" => requests(flows, has_details, began),
        _ => return None,
    };
    Some(table(&rows))
}

fn levels(flows: &FlowConfiguration) -> Vec<Vec<String>> {
    let mut rows = vec![heading(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ])];
    rows.extend(flows.levels.values().map(|level| {
        level.inspect(|state| {
            let queues = &state.queues;
            let n_active = queues
                .all()
                .iter()
                .filter(|queue| !queue.waiting.is_empty())
                .count();
            let totals = queues.totals;
            vec![
                level.name.to_string(),
                n_active.to_string(),
                queues.is_idle().to_string(),
                state.is_quiescing.to_string(),
                queues.waiting.to_string(),
                queues.executing.to_string(),
                totals.dispatched.to_string(),
                totals.rejected.to_string(),
                // Kubernetes: requests that time out are counted as cancelled (queueset.go).
                "0".into(),
                totals.cancelled.to_string(),
            ]
        })
    }));
    rows
}

fn queues(flows: &FlowConfiguration) -> Vec<Vec<String>> {
    let mut rows = vec![heading(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ])];
    for level in flows.levels.values() {
        level.inspect(|state| {
            rows.extend(state.queues.all().iter().enumerate().map(|(at, queue)| {
                vec![
                    level.name.to_string(),
                    at.to_string(),
                    queue.waiting.len().to_string(),
                    queue.executing.to_string(),
                    queue.seats_in_use.to_string(),
                    queue.next_dispatch_r.to_string(),
                    queue.first_seats_waiting.to_string(),
                    queue.seats_waiting.to_string(),
                    queue.work_waiting.to_string(),
                ]
            }));
        });
    }
    rows
}

fn requests(flows: &FlowConfiguration, has_details: bool, began: i64) -> Vec<Vec<String>> {
    let mut headings = heading(&[
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ]);
    if has_details {
        let more = [
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ];
        headings.extend(heading(&more));
    }
    let mut rows = vec![headings];
    for level in flows.levels.values() {
        level.inspect(|state| {
            for (place, entry) in in_order(&state.queues) {
                let schema = &state.queues.schema_counts[entry.counts_idx].schema;
                let mut row = vec![level.name.to_string(), schema.to_string()];
                row.extend(request(place, entry, began));
                if has_details {
                    row.extend(details(entry));
                }
                rows.push(row);
            }
        });
    }
    rows
}

/// Requests by queue: the waiting ones in order, then the executing ones; those without a queue
/// last.
fn in_order(queues: &QueueSet) -> Vec<(Option<usize>, &RequestEntry)> {
    let waiting = queues
        .all()
        .iter()
        .flat_map(|queue| queue.waiting.iter().enumerate());
    let waiting = waiting.map(|(place, key)| (Some(place), &queues.entries[*key]));
    let executing = queues
        .entries
        .iter()
        .filter(|entry| entry.started.is_some() && !entry.is_finished);
    let mut all: Vec<_> = waiting
        .chain(executing.map(|entry| (None, entry)))
        .collect();
    all.sort_by_key(|(place, entry)| {
        (
            entry.queue.unwrap_or(usize::MAX),
            place.unwrap_or(usize::MAX),
        )
    });
    all
}

fn request(place: Option<usize>, entry: &RequestEntry, began: i64) -> Vec<String> {
    let index = |index: Option<usize>| index.map_or("-1".into(), |index| index.to_string());
    let distinguisher = match entry.digest.flow {
        Distinguisher::None => "",
        Distinguisher::User => &entry.digest.user,
        Distinguisher::Namespace => entry.digest.info.resource().map_or("", ResourcePath::scope),
    };
    let latency = i64::try_from(entry.work.additional_latency.as_nanos()).unwrap_or(i64::MAX);
    vec![
        index(entry.queue),
        index(place),
        distinguisher.to_string(),
        time_text(began, entry.arrived),
        entry.work.initial_seats.to_string(),
        entry.work.final_seats.to_string(),
        duration_text(latency),
        match entry.started {
            Some(at) => time_text(began, at),
            None => Moment::ZERO.to_string(),
        },
    ]
}

fn details(entry: &RequestEntry) -> Vec<String> {
    let (digest, info) = (&entry.digest, &entry.digest.info);
    let none = ResourcePath::default();
    let path = info.resource().unwrap_or(&none);
    let version = match path.group.as_str() {
        "" => path.version.to_string(),
        group => format!("{group}/{}", path.version),
    };
    vec![
        digest.user.to_string(),
        info.verb().to_string(),
        digest.uri.path().to_string(),
        path.scope().to_string(),
        info.name().to_string(),
        version,
        path.resource.to_string(),
        path.subresource.to_string(),
    ]
}

/// A time with nanoseconds, without trailing zeros.
fn time_text(began: i64, nanos: Nanos) -> String {
    let moment = Moment {
        seconds: began.saturating_add_unsigned(nanos / 1_000_000_000),
        nanos: (nanos % 1_000_000_000) as u32,
    };
    let (whole, fraction) = (moment.to_string(), format!("{:09}", moment.nanos));
    match fraction.trim_end_matches('0') {
        "" => whole,
        fraction => format!("{}.{fraction}Z", whole.trim_end_matches('Z')),
    }
}

fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Rows as Go's tabwriter aligns them: columns of at least eight characters, separated by a comma
/// and a blank.
fn table(rows: &[Vec<String>]) -> String {
    let n_columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..n_columns)
        .map(|column| (width(column) + 2).max(8))
        .collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            match column + 1 == row.len() {
                true => text.push_str(cell),
                false => text.push_str(&format!("{:<1$}", format!("{cell},"), widths[column])),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_to_the_nanosecond() {
        assert_eq!(time_text(0, 1_051_741_700), "1970-01-01T00:00:01.0517417Z");
        assert_eq!(time_text(5, 0), "1970-01-01T00:00:05Z");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["Name", "Is", "Last"]), row(["a-long-name", "no", "x"])]);
        assert_eq!(text, "Name,        Is,     Last\na-long-name, no,     x\n");
    }
}
