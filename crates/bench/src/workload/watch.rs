//! Fan-out: the cost of one delivery of an event to one watcher.
//!
//! Watchers of the whole collection are opened from one resourceVersion and spread over connections. Then one object is
//! updated, and again as soon as every watcher has the event. One operation is one delivery; its latency is measured
//! from the PUT. The same updates without watchers are measured before, and their cost is subtracted.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{ApiCall, ApiCallError, ApiConnection};
use crate::load::{BenchOperation, LoadBudget, LoadClient, LoadSpec, WorkloadError, drive};
use crate::meter::{ServerMeter, settle};
use crate::objects::{Collection, drop_resource_version, scan_string, set_turn};
use crate::report::{WorkloadOutcome, micros};
use crate::session::Session;

/// The timeout for opening a watch and for the delivery of an event.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest measurement of updates without watchers.
const BASELINE: Duration = Duration::from_secs(2);
/// The object that is updated.
const TARGET: u64 = 0;
const EVENT: &[u8] = b"{\"type\":\"MODIFIED\"";

pub(super) async fn run(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
    n_watchers: usize,
) -> Result<WorkloadOutcome, WorkloadError> {
    let update = TargetUpdate::prepare(session, collection).await?;
    let baseline = update.measure_baseline(session, &name).await?;
    let version = update.version().await?;

    let board = Arc::new(DeliveryBoard::new());
    let mut watchers = OpenWatches::open(session, collection, &version, n_watchers, &board).await?;
    let mut connection = session.endpoint().connect().await?;
    settle(&session.servers).await?;
    let line = session.progress.line(&name, None);
    let meter = ServerMeter::start(&session.servers)?;
    let n_updates = update
        .deliver(&mut connection, &mut watchers, &board, &line.ticks)
        .await?;
    let mut reading = meter.stop()?;

    if let (Some(total), Some(each)) = (reading.server_cpu, baseline) {
        reading.server_cpu =
            Some(total.saturating_sub(Duration::from_secs_f64(each * n_updates as f64 / 1e6)));
    }
    let latencies = std::mem::take(&mut *board.latencies.lock());
    Ok(WorkloadOutcome::new(
        name,
        &reading,
        latencies,
        board.bytes.load(Ordering::Relaxed),
    ))
}

/// Updates of one object.
#[derive(Clone)]
struct TargetUpdate {
    session: Arc<Session>,
    path: String,
    /// The object without a resourceVersion, so that every PUT succeeds.
    object: Vec<u8>,
}

impl TargetUpdate {
    async fn prepare(
        session: &Arc<Session>,
        collection: &Collection,
    ) -> Result<Self, WorkloadError> {
        let path = collection.item(TARGET);
        let get = ApiCall::get(&path);
        let mut object = session.call(&get).await?.to_vec();
        drop_resource_version(&mut object).ok_or_else(|| get.unexpected("no resourceVersion"))?;
        set_turn(&mut object, 0).ok_or_else(|| get.unexpected("the object lost its turn"))?;
        Ok(Self {
            session: session.clone(),
            path,
            object,
        })
    }

    fn call(&self) -> ApiCall {
        let mut object = self.object.clone();
        set_turn(&mut object, self.session.next_turn()).expect("checked when it was prepared");
        ApiCall::put(&self.path, object)
    }

    /// The current resourceVersion.
    async fn version(&self) -> Result<String, WorkloadError> {
        let get = ApiCall::get(&self.path);
        let object = self.session.call(&get).await?;
        let version = scan_string(&object, "resourceVersion");
        Ok(version
            .ok_or_else(|| get.unexpected("no resourceVersion"))?
            .to_owned())
    }

    /// Updates until the budget of deliveries is spent. Returns the number of updates.
    async fn deliver(
        &self,
        connection: &mut ApiConnection,
        watchers: &mut OpenWatches,
        board: &DeliveryBoard,
        ticks: &AtomicU64,
    ) -> Result<u64, WorkloadError> {
        let budget = self.session.budget();
        let begin = Instant::now();
        let mut n_updates = 0;
        loop {
            let spent = match budget {
                LoadBudget::Operations(deliveries) => {
                    n_updates * watchers.len() as u64 >= deliveries
                }
                LoadBudget::Time(time) => begin.elapsed() >= time,
            };
            if spent {
                return Ok(n_updates);
            }
            let put = self.call();
            board.start_update(watchers.len());
            let response = async { connection.count(&put).await.map_err(WorkloadError::from) };
            tokio::try_join!(response, watchers.wait_for_delivery(board))?;
            n_updates += 1;
            ticks.fetch_add(watchers.len() as u64, Ordering::Relaxed);
        }
    }

    /// Server CPU of one update without watchers, in microseconds.
    async fn measure_baseline(
        &self,
        session: &Session,
        name: &str,
    ) -> Result<Option<f64>, WorkloadError> {
        let budget = match session.budget() {
            LoadBudget::Operations(operations) => LoadBudget::Operations(operations.min(1000)),
            LoadBudget::Time(time) => LoadBudget::Time(time.min(BASELINE)),
        };
        let load = LoadSpec {
            budget,
            warm_up: 20,
            ..LoadSpec::new(session, format!("{name}, updates alone"), 1)
        };
        Ok(drive(session, load, self.clone()).await?.cpu_us_per_op)
    }
}

impl BenchOperation for TargetUpdate {
    async fn perform(&self, client: &mut LoadClient, _turn: u64) -> Result<u64, ApiCallError> {
        Ok(client.connection.count(&self.call()).await?.bytes)
    }
}

/// The deliveries of the current update.
struct DeliveryBoard {
    epoch: Instant,
    /// When the current update was sent, in microseconds since `epoch`.
    sent: AtomicU64,
    /// The number of watchers without the event.
    missing: AtomicUsize,
    all_delivered: Notify,
    bytes: AtomicU64,
    latencies: Mutex<Vec<u32>>,
}

impl DeliveryBoard {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            sent: AtomicU64::new(0),
            missing: AtomicUsize::new(0),
            all_delivered: Notify::new(),
            bytes: AtomicU64::new(0),
            latencies: Mutex::new(Vec::new()),
        }
    }

    fn start_update(&self, n_watchers: usize) {
        self.missing.store(n_watchers, Ordering::Relaxed);
        self.sent.store(self.now(), Ordering::Release);
    }

    /// Records a delivery.
    fn record_delivery(&self) {
        let latency = self.now() - self.sent.load(Ordering::Acquire);
        self.latencies
            .lock()
            .push(latency.try_into().unwrap_or(u32::MAX));
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_delivered.notify_one();
        }
    }

    fn now(&self) -> u64 {
        micros(self.epoch.elapsed()) as u64
    }
}

/// Open watches, each read by a task; they are closed when dropped.
struct OpenWatches {
    tasks: JoinSet<WorkloadError>,
    /// A connection is closed when its handle is dropped.
    _connections: Vec<ApiConnection>,
}

impl OpenWatches {
    /// Opens the watches. Returns when the server has accepted all of them.
    async fn open(
        session: &Session,
        collection: &Collection,
        version: &str,
        n_watchers: usize,
        board: &Arc<DeliveryBoard>,
    ) -> Result<Self, WorkloadError> {
        let line = session.progress.line(
            &format!("open {n_watchers} watches"),
            Some(n_watchers as u64),
        );
        let call = ApiCall::get(format!(
            "{}?watch=true&resourceVersion={version}",
            collection.path
        ));
        let most_streams = session.options.streams_per_connection;
        let mut watchers = Self {
            tasks: JoinSet::new(),
            _connections: Vec::new(),
        };
        while watchers.len() < n_watchers {
            let mut connection = session.endpoint().connect().await?;
            let mut n_streams = 0;
            // Checked each time: the server's limit is known only after its first responses.
            while watchers.len() < n_watchers
                && n_streams < most_streams.min(connection.max_streams())
            {
                watchers.add(&mut connection, &call, board).await?;
                n_streams += 1;
                line.ticks.store(watchers.len() as u64, Ordering::Relaxed);
            }
            watchers._connections.push(connection);
        }
        Ok(watchers)
    }

    fn len(&self) -> usize {
        self.tasks.len()
    }

    async fn add(
        &mut self,
        connection: &mut ApiConnection,
        call: &ApiCall,
        board: &Arc<DeliveryBoard>,
    ) -> Result<(), WorkloadError> {
        let opening = timeout(TIMEOUT, connection.open(call)).await;
        let body = opening.map_err(|_| call.unexpected("the watch was not accepted"))??;
        self.tasks
            .spawn(read_events(body, call.clone(), board.clone()));
        Ok(())
    }

    /// Waits until every watcher has the event.
    async fn wait_for_delivery(&mut self, board: &DeliveryBoard) -> Result<(), WorkloadError> {
        tokio::select! {
            () = board.all_delivered.notified() => Ok(()),
            Some(ended) = self.tasks.join_next() => Err(ended.expect("a watcher does not panic")),
            () = tokio::time::sleep(TIMEOUT) => {
                let missing = board.missing.load(Ordering::Relaxed);
                Err(WorkloadError::Wrong(format!("{missing} watchers did not get an event within 30 s")))
            }
        }
    }
}

/// Reads events, one per line. Returns why the watch ended.
async fn read_events(
    mut body: Incoming,
    call: ApiCall,
    board: Arc<DeliveryBoard>,
) -> WorkloadError {
    let mut at_line_start = true;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return call.unexpected(format!("the watch broke: {error}")).into(),
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let known = data.len().min(EVENT.len());
        if at_line_start && data[..known] != EVENT[..known] {
            let event = String::from_utf8_lossy(&data[..data.len().min(300)]).into_owned();
            return call.unexpected(format!("unexpected event {event}")).into();
        }
        board.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let n_events = data.iter().filter(|&&byte| byte == b'\n').count();
        (0..n_events).for_each(|_| board.record_delivery());
        at_line_start = data.last().map_or(at_line_start, |&byte| byte == b'\n');
    }
    call.unexpected("the watch ended").into()
}
