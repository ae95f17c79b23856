//! A sustained load: clients write at a fixed rate for a long time, while every object is watched.
//!
//! Each client patches its objects in turn, at the times of a schedule, and reads one in ten back. A latency is measured
//! from the scheduled time, so that a server that stalls is charged for all requests that it delayed. What a client that waits
//! for nothing is late by is the generator's own, and reported beside it. There is a report for each quarter of the time:
//! memory that grows, and latencies that do, show in the last one, and fail the run if they exceed the limits of the options.
//! In the end every object has its last acknowledged value, and its watch has seen as many events as there were patches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::point;
use crate::chain;
use crate::client::{ApiCall, ApiConnection};
use crate::load::WorkloadError;
use crate::meter::ServerMeter;
use crate::objects::{Collection, ObjectKind, scan_string};
use crate::report::{BenchReport, WorkloadOutcome, mebibytes, millis};
use crate::session::Session;

/// One in so many patches is followed by a read of the object.
const READ_SHARE: usize = 10;
/// The timeout for opening a watch, and for events after the last patch.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
const N_REPORTS: u32 = 4;

/// Runs it. A failure is reported.
pub(super) async fn run(session: &Arc<Session>, rate: f64, report: &mut BenchReport) {
    if let Err(error) = sustain(session, rate, report).await {
        report.fail("sustained".to_owned(), chain(&error));
    }
}

async fn sustain(
    session: &Arc<Session>,
    rate: f64,
    report: &mut BenchReport,
) -> Result<(), WorkloadError> {
    let collection = Collection::new(ObjectKind::Configmaps, &session.namespace);
    let n_objects = session.options.objects.max(session.options.clients as u64);
    point::create_range(session, &collection, "fill".into(), 0, n_objects).await?;
    let objects = (0..n_objects).map(|_| ObjectTally::default()).collect();
    let load = Arc::new(SustainedLoad {
        session: session.clone(),
        collection,
        objects,
        quarter: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    let _connections = load.open_watches(&mut tasks).await?;

    let begin = Instant::now() + POLL;
    let length = Duration::from_secs_f64(session.options.seconds);
    let mut clients = JoinSet::new();
    for client_idx in 0..session.options.clients {
        clients.spawn(
            load.clone()
                .run_client(client_idx, rate, begin, begin + length),
        );
    }
    let mut quarters = Vec::new();
    for quarter in 1..=N_REPORTS {
        let meter = ServerMeter::start(&session.servers)?;
        tokio::select! {
            () = sleep_until((begin + length * quarter / N_REPORTS).into()) => {}
            Some(ended) = tasks.join_next() => return Err(ended.expect("a watcher does not panic")),
        }
        let reading = meter.stop()?;
        let QuarterTally {
            patches,
            reads,
            late,
        } = std::mem::take(&mut *load.quarter.lock());
        let outcomes = [("patch", patches), ("get", reads), ("late", late)];
        let outcomes = outcomes.map(|(verb, latencies)| {
            let name = format!("sustained-{quarter}/{verb}");
            WorkloadOutcome::new(name, &reading, latencies, 0)
        });
        outcomes.iter().for_each(|it| report.add(it.clone()));
        quarters.push(outcomes);
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic")?;
    }
    load.check_events().await?;
    load.check_objects().await?;
    let limits = SustainedLimits {
        p99_ms: session.options.max_p99,
        memory_growth_mib: session.options.max_memory_growth,
    };
    limits.check(&quarters)
}

/// What a run must not exceed.
struct SustainedLimits {
    p99_ms: Option<f64>,
    memory_growth_mib: Option<u64>,
}

impl SustainedLimits {
    /// Fails with every limit that the quarters exceed. Each has the outcomes of patches, reads and lateness.
    fn check(&self, quarters: &[[WorkloadOutcome; 3]]) -> Result<(), WorkloadError> {
        let exceeded: Vec<_> = self.slow(quarters).chain(self.growth(quarters)).collect();
        match exceeded.is_empty() {
            true => Ok(()),
            false => Err(WorkloadError::Wrong(exceeded.join("; "))),
        }
    }

    fn slow(&self, quarters: &[[WorkloadOutcome; 3]]) -> impl Iterator<Item = String> {
        let limit = self.p99_ms.unwrap_or(f64::INFINITY);
        let measured = quarters.iter().flat_map(|[patches, reads, late]| {
            [patches, reads].map(|outcome| (outcome, millis(outcome.p99_us), late))
        });
        let slow = measured.filter(move |(_, p99, _)| *p99 > limit);
        slow.map(move |(outcome, p99, late)| {
            let (name, late) = (&outcome.name, millis(late.p99_us));
            format!(
                "p99 of {name} is {p99} ms, above {limit} ms (the generator's lateness: {late} ms)"
            )
        })
    }

    fn growth(&self, quarters: &[[WorkloadOutcome; 3]]) -> Option<String> {
        let limit = self.memory_growth_mib?;
        let resident = |quarter: &[WorkloadOutcome; 3]| quarter[0].rss_bytes;
        let (first, last) = (resident(quarters.first()?)?, resident(quarters.last()?)?);
        let is_above = last > first.saturating_add(limit.saturating_mul(1 << 20));
        is_above.then(|| {
            let [first, last] = [first, last].map(mebibytes);
            format!(
                "resident memory grew from {first:.1} to {last:.1} MiB, by more than {limit} MiB"
            )
        })
    }
}

struct SustainedLoad {
    session: Arc<Session>,
    collection: Collection,
    objects: Vec<ObjectTally>,
    quarter: Mutex<QuarterTally>,
}

/// What was acknowledged and delivered of an object.
#[derive(Default)]
struct ObjectTally {
    n_patches: AtomicU64,
    last_turn: AtomicU64,
    n_events: AtomicU64,
    n_watches: AtomicU64,
}

/// Latencies in microseconds.
#[derive(Default)]
struct QuarterTally {
    patches: Vec<u32>,
    reads: Vec<u32>,
    /// How long after their time patches were sent by clients that waited for no response then.
    late: Vec<u32>,
}

impl SustainedLoad {
    /// Patches the objects of a client, as many per second as its share of `rate`.
    async fn run_client(
        self: Arc<Self>,
        client_idx: usize,
        rate: f64,
        begin: Instant,
        end: Instant,
    ) -> Result<(), WorkloadError> {
        let n_clients = self.session.options.clients;
        let period = Duration::from_secs_f64(n_clients as f64 / rate);
        let mut connection = self.session.connections[client_idx].lock().await;
        let mut due = begin + period.mul_f64(client_idx as f64 / n_clients as f64);
        let own = (client_idx..self.objects.len()).step_by(n_clients);
        for (number, object_idx) in own.cycle().enumerate() {
            if due >= end {
                break;
            }
            if Instant::now() < due {
                sleep_until(due.into()).await;
                self.quarter.lock().late.push(micros_since(due));
            }
            let (n, turn) = (object_idx as u64, self.session.next_turn());
            connection
                .count(&self.collection.merge_patch(n, turn))
                .await?;
            self.quarter.lock().patches.push(micros_since(due));
            let object = &self.objects[object_idx];
            object.n_patches.fetch_add(1, Ordering::Relaxed);
            object.last_turn.store(turn, Ordering::Relaxed);
            // Not all clients in the same round: reads are spread as evenly as patches.
            if (number + client_idx).is_multiple_of(READ_SHARE) {
                let sent = Instant::now();
                self.check_object(&mut connection, object_idx).await?;
                self.quarter.lock().reads.push(micros_since(sent));
            }
            due += period;
        }
        Ok(())
    }

    /// Reads an object, which has its last value.
    async fn check_object(
        &self,
        connection: &mut ApiConnection,
        object_idx: usize,
    ) -> Result<(), WorkloadError> {
        let get = ApiCall::get(self.collection.item(object_idx as u64));
        let body = connection.fetch(&get).await?;
        let turn = scan_string(&body, "turn").and_then(|turn| turn.parse().ok());
        let expected = self.objects[object_idx].last_turn.load(Ordering::Relaxed);
        match turn == Some(expected) {
            true => Ok(()),
            false => Err(get
                .unexpected(format!("turn {turn:?}, not {expected}"))
                .into()),
        }
    }

    /// Opens as many watches as the options say, each of one object, as kubelets watch those of their pods.
    async fn open_watches(
        self: &Arc<Self>,
        tasks: &mut JoinSet<WorkloadError>,
    ) -> Result<Vec<ApiConnection>, WorkloadError> {
        let options = &self.session.options;
        let n_watches = options.watchers.first().copied().unwrap_or_default();
        let line = self
            .session
            .progress
            .line(&format!("open {n_watches} watches"), Some(n_watches as u64));
        let mut connections: Vec<ApiConnection> = Vec::new();
        let mut n_streams = 0;
        for watch_idx in 0..n_watches {
            let object_idx = watch_idx % self.objects.len();
            let item = self.collection.item(object_idx as u64);
            let (path, name) = item.rsplit_once('/').expect("an item has a name");
            let version = self.session.call(&ApiCall::get(&item)).await?;
            let version = scan_string(&version, "resourceVersion").unwrap_or_default();
            let watch = ApiCall::get(format!(
                "{path}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
            ));
            let has_room = connections.last().is_some_and(|connection| {
                n_streams < options.streams_per_connection.min(connection.max_streams())
            });
            if !has_room {
                connections.push(self.session.endpoint().connect().await?);
                n_streams = 0;
            }
            let connection = connections.last_mut().expect("one was just added");
            let opened = timeout(TIMEOUT, connection.open(&watch)).await;
            let body = opened.map_err(|_| watch.unexpected("the watch was not accepted"))??;
            n_streams += 1;
            self.objects[object_idx]
                .n_watches
                .fetch_add(1, Ordering::Relaxed);
            tasks.spawn(self.clone().read_events(body, watch, object_idx));
            line.ticks.store(watch_idx as u64 + 1, Ordering::Relaxed);
        }
        Ok(connections)
    }

    /// Counts the events of an object. Returns why the watch ended.
    async fn read_events(
        self: Arc<Self>,
        mut body: Incoming,
        watch: ApiCall,
        object_idx: usize,
    ) -> WorkloadError {
        while let Some(frame) = body.frame().await {
            let Some(data) = frame.ok().and_then(|frame| frame.into_data().ok()) else {
                return watch.unexpected("the watch broke").into();
            };
            let n_events = data.iter().filter(|&&byte| byte == b'\n').count() as u64;
            let counter = &self.objects[object_idx].n_events;
            counter.fetch_add(n_events, Ordering::Relaxed);
        }
        watch.unexpected("the watch ended").into()
    }

    /// Waits until every watch has as many events as there were patches, and no more.
    async fn check_events(&self) -> Result<(), WorkloadError> {
        let count = |fits: fn(u64, u64) -> bool| {
            let objects = self.objects.iter().filter(|object| {
                let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let expected = of(&object.n_patches) * of(&object.n_watches);
                !fits(of(&object.n_events), expected)
            });
            objects.count()
        };
        let complete = async {
            while count(|n_events, expected| n_events >= expected) > 0 {
                sleep(POLL).await;
            }
        };
        let _ = timeout(TIMEOUT, complete).await;
        let (n_short, n_wrong) = (
            count(|n_events, expected| n_events >= expected),
            count(|n_events, expected| n_events == expected),
        );
        match n_wrong {
            0 => Ok(()),
            _ => Err(WorkloadError::Wrong(format!(
                "watches of {n_short} objects miss events, and those of {} have too many",
                n_wrong - n_short
            ))),
        }
    }

    /// Every object that was patched has its last acknowledged value.
    async fn check_objects(&self) -> Result<(), WorkloadError> {
        let mut connection = self.session.connections[0].lock().await;
        for (object_idx, object) in self.objects.iter().enumerate() {
            if object.n_patches.load(Ordering::Relaxed) > 0 {
                self.check_object(&mut connection, object_idx).await?;
            }
        }
        Ok(())
    }
}

fn micros_since(instant: Instant) -> u32 {
    let elapsed = instant.elapsed().as_micros();
    elapsed.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::MeterReading;

    /// A quarter with a p99 of patches, reads and lateness in milliseconds, and resident memory at its end in MiB.
    fn quarter(p99_ms: [u32; 3], resident_mib: u64) -> [WorkloadOutcome; 3] {
        let reading = MeterReading {
            elapsed: Duration::from_secs(1),
            server_cpu: None,
            own_cpu: None,
            resident: Some(resident_mib << 20),
        };
        let [patch, get, late] = p99_ms.map(|p99_ms| vec![p99_ms * 1000]);
        [("patch", patch), ("get", get), ("late", late)]
            .map(|(name, latencies)| WorkloadOutcome::new(name, &reading, latencies, 0))
    }

    /// What a run of two quarters exceeds.
    fn exceeded(p99_ms: Option<f64>, memory_growth_mib: Option<u64>) -> String {
        let limits = SustainedLimits {
            p99_ms,
            memory_growth_mib,
        };
        let quarters = [quarter([20, 10, 1], 100), quarter([60, 40, 2], 130)];
        match limits.check(&quarters) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_run_within_its_limits_succeeds() {
        assert_eq!(exceeded(None, None), "");
        assert_eq!(exceeded(Some(60.0), Some(30)), "");
    }

    #[test]
    fn a_quarter_with_a_larger_p99_fails_the_run_and_says_what_the_generator_added() {
        assert_eq!(
            exceeded(Some(50.0), None),
            "p99 of patch is 60 ms, above 50 ms (the generator's lateness: 2 ms)"
        );
        assert_eq!(exceeded(Some(39.5), None).matches("p99 of").count(), 2);
    }

    #[test]
    fn memory_that_grows_after_the_first_quarter_fails_the_run() {
        assert_eq!(
            exceeded(None, Some(29)),
            "resident memory grew from 100.0 to 130.0 MiB, by more than 29 MiB"
        );
        let both = exceeded(Some(50.0), Some(29));
        assert!(both.contains("p99") && both.contains("MiB"), "{both}");
    }
}
