//! Fan-out: what it costs to tell one change to one more watcher.
//!
//! Watchers of the whole collection are opened from one resourceVersion and spread over connections. Then one object is
//! updated, and again as soon as every watcher has heard of it. One operation is one delivery; its latency runs from
//! the moment the PUT is sent. The same updates without watchers are measured before, and their cost is taken off.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Call, CallError, Connection};
use crate::load::{Budget, Load, Operation, Worker, WorkloadError, drive};
use crate::meter::{Meter, settle};
use crate::objects::{Collection, drop_resource_version, scan_string, set_turn};
use crate::report::{Outcome, micros};
use crate::session::Session;

/// How long a watcher may take to be accepted, or to hear of one update.
const PATIENCE: Duration = Duration::from_secs(30);
/// Updates without watchers are measured no longer than this.
const BASELINE: Duration = Duration::from_secs(2);
/// The object that is updated.
const TARGET: u64 = 0;
const EVENT: &[u8] = b"{\"type\":\"MODIFIED\"";

pub(super) async fn run(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
    n_watchers: usize,
) -> Result<Outcome, WorkloadError> {
    let update = Update::prepare(session, collection).await?;
    let baseline = update_cost(session, &name, update.clone()).await?;
    let version = update.version().await?;

    let board = Arc::new(Board::new());
    let mut watchers = Watchers::open(session, collection, &version, n_watchers, &board).await?;
    let mut connection = session.endpoint().connect().await?;
    settle(&session.servers).await?;
    let line = session.progress.line(&name, None);
    let meter = Meter::start(&session.servers)?;
    let n_updates = deliver(&update, &mut connection, &mut watchers, &board, &line.ticks).await?;
    let mut reading = meter.stop()?;

    if let (Some(total), Some(each)) = (reading.server_cpu, baseline) {
        reading.server_cpu =
            Some(total.saturating_sub(Duration::from_secs_f64(each * n_updates as f64 / 1e6)));
    }
    let latencies = std::mem::take(&mut *board.latencies.lock());
    Ok(Outcome::new(
        name,
        &reading,
        latencies,
        board.bytes.load(Ordering::Relaxed),
    ))
}

/// Updates until the budget (of deliveries) is spent. Answers how many it took.
async fn deliver(
    update: &Update,
    connection: &mut Connection,
    watchers: &mut Watchers,
    board: &Board,
    ticks: &AtomicU64,
) -> Result<u64, WorkloadError> {
    let budget = update.session.budget();
    let begin = Instant::now();
    let mut n_updates = 0;
    loop {
        let spent = match budget {
            Budget::Operations(deliveries) => n_updates * watchers.len() as u64 >= deliveries,
            Budget::Time(time) => begin.elapsed() >= time,
        };
        if spent {
            return Ok(n_updates);
        }
        let put = update.call();
        board.announce(watchers.len());
        let answer = async { connection.count(&put).await.map_err(WorkloadError::from) };
        tokio::try_join!(answer, watchers.hear(board))?;
        n_updates += 1;
        ticks.fetch_add(watchers.len() as u64, Ordering::Relaxed);
    }
}

/// Server CPU of one update that nobody watches, in microseconds.
async fn update_cost(
    session: &Session,
    name: &str,
    update: Update,
) -> Result<Option<f64>, WorkloadError> {
    let budget = match session.budget() {
        Budget::Operations(operations) => Budget::Operations(operations.min(1000)),
        Budget::Time(time) => Budget::Time(time.min(BASELINE)),
    };
    let load = Load {
        budget,
        warm_up: 20,
        ..Load::new(session, format!("{name}, updates alone"), 1)
    };
    Ok(drive(session, load, update).await?.cpu_us_per_op)
}

/// Writes one object over and over, each time changed.
#[derive(Clone)]
struct Update {
    session: Arc<Session>,
    path: String,
    /// The object without its resourceVersion: every PUT of it succeeds.
    object: Vec<u8>,
}

impl Update {
    async fn prepare(
        session: &Arc<Session>,
        collection: &Collection,
    ) -> Result<Self, WorkloadError> {
        let path = collection.item(TARGET);
        let get = Call::get(&path);
        let mut object = session.call(&get).await?.to_vec();
        drop_resource_version(&mut object).ok_or_else(|| get.unexpected("no resourceVersion"))?;
        set_turn(&mut object, 0).ok_or_else(|| get.unexpected("the object lost its turn"))?;
        Ok(Self {
            session: session.clone(),
            path,
            object,
        })
    }

    fn call(&self) -> Call {
        let mut object = self.object.clone();
        set_turn(&mut object, self.session.next_turn()).expect("checked when it was prepared");
        Call::put(&self.path, object)
    }

    /// The resourceVersion now.
    async fn version(&self) -> Result<String, WorkloadError> {
        let get = Call::get(&self.path);
        let object = self.session.call(&get).await?;
        let version = scan_string(&object, "resourceVersion");
        Ok(version
            .ok_or_else(|| get.unexpected("no resourceVersion"))?
            .to_owned())
    }
}

impl Operation for Update {
    async fn perform(&self, worker: &mut Worker, _turn: u64) -> Result<u64, CallError> {
        Ok(worker.connection.count(&self.call()).await?.bytes)
    }
}

/// Where watchers write down what they hear.
struct Board {
    epoch: Instant,
    /// When the current update was sent, in microseconds since `epoch`.
    sent: AtomicU64,
    /// How many watchers have not heard of it.
    missing: AtomicUsize,
    all_heard: Notify,
    bytes: AtomicU64,
    latencies: Mutex<Vec<u32>>,
}

impl Board {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            sent: AtomicU64::new(0),
            missing: AtomicUsize::new(0),
            all_heard: Notify::new(),
            bytes: AtomicU64::new(0),
            latencies: Mutex::new(Vec::new()),
        }
    }

    fn announce(&self, n_watchers: usize) {
        self.missing.store(n_watchers, Ordering::Relaxed);
        self.sent.store(self.now(), Ordering::Release);
    }

    /// A watcher got the current update.
    fn heard(&self) {
        let latency = self.now() - self.sent.load(Ordering::Acquire);
        self.latencies
            .lock()
            .push(latency.try_into().unwrap_or(u32::MAX));
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_heard.notify_one();
        }
    }

    fn now(&self) -> u64 {
        micros(self.epoch.elapsed()) as u64
    }
}

/// Open watches, each read by a task; dropping them closes them.
struct Watchers {
    tasks: JoinSet<WorkloadError>,
    /// A connection lives as long as somebody may send on it.
    _connections: Vec<Connection>,
}

impl Watchers {
    /// Returns when the server has accepted every one.
    async fn open(
        session: &Session,
        collection: &Collection,
        version: &str,
        n_watchers: usize,
        board: &Arc<Board>,
    ) -> Result<Self, WorkloadError> {
        let line = session.progress.line(
            &format!("open {n_watchers} watches"),
            Some(n_watchers as u64),
        );
        let call = Call::get(format!(
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
            // Asked each time: the server's limit is known only after its first answers.
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
        connection: &mut Connection,
        call: &Call,
        board: &Arc<Board>,
    ) -> Result<(), WorkloadError> {
        let opening = timeout(PATIENCE, connection.open(call)).await;
        let body = opening.map_err(|_| call.unexpected("the watch was not accepted"))??;
        self.tasks.spawn(listen(body, call.clone(), board.clone()));
        Ok(())
    }

    /// Waits until everyone heard of the current update.
    async fn hear(&mut self, board: &Board) -> Result<(), WorkloadError> {
        tokio::select! {
            () = board.all_heard.notified() => Ok(()),
            Some(ended) = self.tasks.join_next() => Err(ended.expect("a watcher does not panic")),
            () = tokio::time::sleep(PATIENCE) => {
                let missing = board.missing.load(Ordering::Relaxed);
                Err(WorkloadError::Wrong(format!("{missing} watchers did not hear of an update within 30 s")))
            }
        }
    }
}

/// Reads events, one a line, until the watch ends, which it should not.
async fn listen(mut body: Incoming, call: Call, board: Arc<Board>) -> WorkloadError {
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
        (0..n_events).for_each(|_| board.heard());
        at_line_start = data.last().map_or(at_line_start, |&byte| byte == b'\n');
    }
    call.unexpected("the watch ended").into()
}
