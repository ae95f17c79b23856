//! Limits of one connection.
//!
//! The server closes a connection that is idle for long, takes long to send a request head, cancels requests faster than a
//! client has reason to (rapid reset), or does not read its responses.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::inspect::InspectBytes;
use crate::response::{Body, Response, ResponseLease, SharedMemory, TruncatedResponse};
use crate::unsent::{self, Charge};

/// Kubernetes: how long a connection may be idle (server/secure_serving.go).
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Kubernetes: how long the head of a request may take over HTTP/1.1, from its first byte, or from the handshake for the
/// first one of a connection (server/secure_serving.go, net/http's ReadHeaderTimeout).
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// How many unanswered requests a connection may cancel in [`CANCEL_WINDOW`]. Go closes a connection after four times the
/// number of concurrent streams.
const MAX_CANCELLED: u32 = 1_000;
const CANCEL_WINDOW: Duration = Duration::from_secs(10);
/// How often a connection is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// How often a connection with large unread responses is checked: they may keep memory that the store has released.
const RECHARGE_INTERVAL: Duration = Duration::from_secs(1);
/// A response up to this size may stay unread as long as the connection lives.
const SMALL: u64 = 4 * 1024;
/// How much of a response is handed to hyper before some of it must be written. This bounds the cost of a slow reader, over
/// HTTP/1.1 as over HTTP/2.
const IN_FLIGHT: usize = 32 * 1024;
/// A stream is charged from this much in flight; one that is read never has so much.
const CHARGE_FROM: usize = 16 * 1024;
/// How many requests a client may make on a connection after GOAWAY.
const MAX_AFTER_GOAWAY: u32 = 100;
/// How long a client may take to read its last response and close the connection after GOAWAY.
const LINGER: Duration = Duration::from_secs(2);

/// Tracks the requests and responses of one connection. Clones share the connection.
#[derive(Clone)]
pub struct ConnectionTracker(Arc<TrackedConnection>);

struct TrackedConnection {
    /// How long a client may take to read a response.
    read_timeout: Duration,
    /// How many requests are being handled.
    n_pending: watch::Sender<usize>,
    /// Notified to send GOAWAY.
    go_away: Notify,
    /// Notified when the client cancels too many requests.
    flooded: Notify,
    /// Notified when there are responses to recharge.
    recharge: Notify,
    account: Arc<unsent::ConnectionAccount>,
    state: Mutex<ConnectionState>,
}

struct ConnectionState {
    /// Requests whose responses have not been written.
    open: usize,
    /// When the last one was written.
    idle_since: Instant,
    /// When the current request head began.
    head_since: Option<Instant>,
    /// Responses that must be read in time, oldest first.
    unread: BTreeMap<u64, UnreadResponse>,
    /// Whether they are checked every [`RECHARGE_INTERVAL`].
    is_recharged: bool,
    n_responses: u64,
    cancelled: u32,
    window_start: Instant,
    /// How often the client was sent GOAWAY.
    n_goaway: u32,
}

/// A response that must be read in time.
struct UnreadResponse {
    deadline: Instant,
    open: Weak<OpenRequest>,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client should open another connection.
    GoAway,
    /// It has been idle for long.
    Idle,
    /// It exceeds a limit.
    LimitExceeded,
}

impl ConnectionTracker {
    /// `read_timeout` is how long the client may take to read a response.
    pub fn new(
        read_timeout: Duration,
        account: Arc<unsent::ConnectionAccount>,
    ) -> ConnectionTracker {
        let now = Instant::now();
        let state = ConnectionState {
            open: 0,
            idle_since: now,
            head_since: None,
            unread: BTreeMap::new(),
            is_recharged: false,
            n_responses: 0,
            cancelled: 0,
            window_start: now,
            n_goaway: 0,
        };
        ConnectionTracker(Arc::new(TrackedConnection {
            read_timeout,
            n_pending: watch::Sender::new(0),
            go_away: Notify::new(),
            flooded: Notify::new(),
            recharge: Notify::new(),
            account,
            state: Mutex::new(state),
        }))
    }

    /// Times request heads over HTTP/1.1. The timer sees every byte that the connection reads.
    pub fn time_heads(&self) -> HeadTimer {
        self.state().head_since = Some(Instant::now());
        HeadTimer(self.clone())
    }

    /// Counts a request while it is handled, and its response until it has been written.
    ///
    /// Invariant: it counts from this call, not from the first poll of the future: a quick client cancels before that.
    pub fn during<A: Future<Output = Response>>(
        &self,
        cancelled: Cancelled,
        answer: A,
    ) -> impl Future<Output = http::Response<TrackedBody>> + use<A> {
        let (open, answering) = (OpenRequest::new(self), PendingRequest::new(self));
        async move {
            let answer = answer.await;
            answering.end(cancelled.is_set());
            answer.map(|body| open.track_body(body))
        }
    }

    /// Whether several requests are open.
    pub fn is_shared(&self) -> bool {
        self.state().open > 1
    }

    /// Sends GOAWAY; closes the connection if the client goes on for long.
    pub fn request_goaway(&self) {
        let mut state = self.state();
        state.n_goaway += 1;
        match state.n_goaway {
            1 => self.0.go_away.notify_one(),
            times if times > MAX_AFTER_GOAWAY => self.0.flooded.notify_one(),
            _ => {}
        }
    }

    /// Resolves when the connection is to be closed.
    pub async fn close_reason(&self) -> CloseReason {
        loop {
            let until_check = self.state().next_check(Instant::now());
            tokio::select! {
                () = self.0.go_away.notified() => return CloseReason::GoAway,
                () = self.0.flooded.notified() => return CloseReason::LimitExceeded,
                () = self.0.account.closed() => return CloseReason::LimitExceeded,
                () = self.0.recharge.notified() => continue,
                () = sleep(until_check) => {}
            }
            self.recharge();
            if let Some(reason) = self.state().exceeded(Instant::now()) {
                return reason;
            }
        }
    }

    /// Resolves a moment after the last request has been handled, so that a silent client does not delay the shutdown.
    pub async fn drained(&self) {
        let mut requests = self.0.n_pending.subscribe();
        loop {
            let _ = requests.wait_for(|requests| *requests == 0).await;
            sleep(LINGER).await;
            if *requests.borrow_and_update() == 0 {
                return;
            }
        }
    }

    /// Charges responses for memory that the store has released and they keep.
    fn recharge(&self) {
        // Not under the lock: dropping the last handle of a response takes it.
        let unread: Vec<Arc<OpenRequest>> = self
            .state()
            .unread
            .values()
            .filter_map(|unread| unread.open.upgrade())
            .collect();
        for open in unread {
            if let (Some(shared), Some(charge)) = (&open.shared, &open.charge) {
                charge.set(open.retained + shared.stale());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.state.lock()
    }
}

impl ConnectionState {
    fn exceeded(&self, now: Instant) -> Option<CloseReason> {
        let is_unread = self
            .unread
            .values()
            .next()
            .is_some_and(|unread| unread.deadline <= now);
        let is_slow = self
            .head_since
            .is_some_and(|since| now - since >= HEAD_TIMEOUT);
        if is_unread || is_slow {
            return Some(CloseReason::LimitExceeded);
        }
        (self.is_idle() && now - self.idle_since >= self.idle_timeout())
            .then_some(CloseReason::Idle)
    }

    /// How long until the next check.
    fn next_check(&mut self, now: Instant) -> Duration {
        self.is_recharged = !self.unread.is_empty();
        let usual = if self.is_recharged {
            RECHARGE_INTERVAL
        } else {
            CHECK_INTERVAL
        }
        .min(self.idle_timeout());
        let head = self.head_since.map(|since| since + HEAD_TIMEOUT);
        let idle = self
            .is_idle()
            .then_some(self.idle_since + self.idle_timeout());
        let next = [head, idle]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now));
        next.filter(|next| !next.is_zero())
            .unwrap_or(usual)
            .min(usual)
    }

    /// Whether there is neither an open request nor a request head.
    fn is_idle(&self) -> bool {
        self.open == 0 && self.head_since.is_none()
    }

    /// How long the connection may be idle.
    fn idle_timeout(&self) -> Duration {
        if self.n_goaway > 0 {
            LINGER
        } else {
            IDLE_TIMEOUT
        }
    }

    /// Counts a cancelled request. Returns whether there are too many.
    fn count_cancelled(&mut self, now: Instant) -> bool {
        if now - self.window_start > CANCEL_WINDOW {
            (self.cancelled, self.window_start) = (0, now);
        }
        self.cancelled += 1;
        self.cancelled > MAX_CANCELLED
    }
}

/// Notices the first byte of a request head over HTTP/1.1: a byte that arrives while no request is open.
pub struct HeadTimer(ConnectionTracker);

impl InspectBytes for HeadTimer {
    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.state();
        if !bytes.is_empty() && state.open == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
        Ok(())
    }
}

/// Whether a client has cancelled a request while sending it. The response is discarded.
#[derive(Clone, Default)]
pub struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    /// The client has cancelled the request.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is being handled.
struct PendingRequest {
    tracker: ConnectionTracker,
    done: bool,
}

impl PendingRequest {
    fn new(tracker: &ConnectionTracker) -> PendingRequest {
        tracker.0.n_pending.send_modify(|requests| *requests += 1);
        PendingRequest {
            tracker: tracker.clone(),
            done: false,
        }
    }

    /// Ends the request; it counts as cancelled if the client has cancelled it.
    fn end(mut self, is_cancelled: bool) {
        self.done = !is_cancelled;
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.tracker
            .0
            .n_pending
            .send_modify(|requests| *requests -= 1);
        if !self.done && self.tracker.state().count_cancelled(Instant::now()) {
            self.tracker.0.flooded.notify_one();
        }
    }
}

/// A request whose response has not been written. Shared by the body and its bytes in flight.
struct OpenRequest {
    tracker: ConnectionTracker,
    /// The number among the responses that must be read in time.
    unread: Option<u64>,
    /// The user and the seat of the request.
    lease: ResponseLease,
    /// The charge of a response that is no stream, for the memory that it keeps.
    charge: Option<Charge>,
    retained: u64,
    shared: Option<SharedMemory>,
    in_flight: Mutex<InFlight>,
}

/// Bytes that were handed to hyper and have not been written.
#[derive(Default)]
struct InFlight {
    bytes: usize,
    /// The charge of a stream.
    charge: Option<Charge>,
    /// Woken when there is room for more.
    waker: Option<Waker>,
}

impl OpenRequest {
    fn new(tracker: &ConnectionTracker) -> OpenRequest {
        let mut state = tracker.state();
        state.open += 1;
        state.head_since = None;
        drop(state);
        OpenRequest {
            tracker: tracker.clone(),
            unread: None,
            lease: ResponseLease::default(),
            charge: None,
            retained: 0,
            shared: None,
            in_flight: Mutex::default(),
        }
    }

    /// Takes over the response body: it is charged to the user, and a large one must be read in time.
    fn track_body(mut self, mut body: Body) -> TrackedBody {
        self.lease = body.take_lease();
        if !body.is_stream() {
            (self.retained, self.shared) = (body.retained(), body.shared());
            self.charge = Some(
                self.tracker
                    .0
                    .account
                    .charge(&self.lease.user, self.retained),
            );
        }
        let is_large = body
            .size_hint()
            .exact()
            .map_or(!body.is_stream(), |size| size > SMALL);
        if !is_large {
            return TrackedBody {
                body,
                open: Arc::new(self),
            };
        }
        let tracker = self.tracker.clone();
        let mut state = tracker.state();
        let number = state.n_responses;
        state.n_responses += 1;
        self.unread = Some(number);
        let open = Arc::new(self);
        let unread = UnreadResponse {
            deadline: Instant::now() + tracker.0.read_timeout,
            open: Arc::downgrade(&open),
        };
        if open.shared.is_some() && !state.is_recharged {
            tracker.0.recharge.notify_one();
        }
        state.unread.insert(number, unread);
        TrackedBody { body, open }
    }

    /// Whether the limit of bytes in flight is reached. Then the task is woken when some have been written.
    fn is_full(&self, context: &Context) -> bool {
        let mut flight = self.in_flight.lock();
        let is_full = flight.bytes >= IN_FLIGHT;
        flight.waker = is_full.then(|| context.waker().clone());
        is_full
    }

    /// Bytes that count as in flight until they are dropped.
    fn track_bytes(self: &Arc<OpenRequest>, bytes: Bytes) -> Bytes {
        let mut flight = self.in_flight.lock();
        flight.bytes += bytes.len();
        self.charge_stream(&mut flight);
        Bytes::from_owner(InFlightBytes {
            bytes,
            open: self.clone(),
        })
    }

    /// Bytes were written or dropped.
    fn on_written(&self, n_bytes: usize) {
        let mut flight = self.in_flight.lock();
        flight.bytes -= n_bytes;
        self.charge_stream(&mut flight);
        // Fewer bytes are the end of a response, or too few to count as progress.
        if n_bytes >= CHARGE_FROM {
            self.charge
                .iter()
                .chain(&flight.charge)
                .for_each(Charge::progress);
        }
        let waker = if flight.bytes < IN_FLIGHT {
            flight.waker.take()
        } else {
            None
        };
        drop(flight);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Charges a stream for its bytes in flight.
    fn charge_stream(&self, flight: &mut InFlight) {
        if self.charge.is_some() {
            return;
        }
        match &flight.charge {
            _ if flight.bytes < CHARGE_FROM => flight.charge = None,
            Some(charge) => charge.set(flight.bytes as u64),
            None => {
                let charge = self
                    .tracker
                    .0
                    .account
                    .charge(&self.lease.user, flight.bytes as u64);
                flight.charge = Some(charge);
            }
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.tracker.state();
        state.open -= 1;
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
        if let Some(number) = self.unread {
            state.unread.remove(&number);
        }
    }
}

/// A body that counts until its last byte has been written.
pub struct TrackedBody {
    body: Body,
    open: Arc<OpenRequest>,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = TruncatedResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedResponse>>> {
        if self.open.is_full(context) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let counted = |frame: Frame<Bytes>| frame.map_data(|bytes| self.open.track_bytes(bytes));
        Poll::Ready(frame.map(|frame| frame.map(counted)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that wait to be written. The body may be dropped before them.
struct InFlightBytes {
    bytes: Bytes,
    open: Arc<OpenRequest>,
}

impl AsRef<[u8]> for InFlightBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for InFlightBytes {
    fn drop(&mut self) {
        self.open.on_written(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;
    use crate::unsent::{Unsent, UnsentLimits};
    use http_body_util::BodyExt as _;

    const READ_TIMEOUT: Duration = Duration::from_secs(60);

    fn tracker() -> ConnectionTracker {
        ConnectionTracker::new(READ_TIMEOUT, Unsent::new(UnsentLimits::default()).connect())
    }

    async fn respond(tracker: &ConnectionTracker, size: usize) -> http::Response<TrackedBody> {
        tracker
            .during(Cancelled::default(), async {
                response::text(200, "x".repeat(size))
            })
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed() {
        let tracker = tracker();
        let begin = Instant::now();
        assert_eq!(tracker.close_reason().await, CloseReason::Idle);
        assert!(
            begin.elapsed() >= IDLE_TIMEOUT
                && begin.elapsed() < 2 * RECHARGE_INTERVAL + IDLE_TIMEOUT,
            "{:?}",
            begin.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_timeout_starts_at_its_first_byte() {
        let tracker = tracker();
        let mut timer = tracker.time_heads();
        let begin = Instant::now();
        assert_eq!(
            tracker.close_reason().await,
            CloseReason::LimitExceeded,
            "the first head is timed from the start"
        );
        assert_eq!(begin.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
        drop(respond(&tracker, 100).await);
        tokio::time::sleep(Duration::from_secs(60)).await;
        timer.received(b"G").unwrap();
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(20)).await;
        timer.received(b"ET").unwrap();
        assert_eq!(tracker.close_reason().await, CloseReason::LimitExceeded);
        assert_eq!(begin.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_in_flight_are_limited() {
        let tracker = tracker();
        let mut body = respond(&tracker, 1 << 20).await.into_body();
        let (mut frames, mut read) = (Vec::new(), 0);
        while read < 1 << 20 {
            match tokio::time::timeout(Duration::ZERO, body.frame()).await {
                Ok(frame) => frames.push(frame.unwrap().unwrap().into_data().unwrap()),
                // It goes on once these have been written.
                Err(_) => read += frames.drain(..).map(|frame| frame.len()).sum::<usize>(),
            }
            let in_flight: usize = frames.iter().map(Bytes::len).sum();
            assert!(in_flight <= 8 * IN_FLIGHT, "{in_flight} bytes");
        }
    }

    /// Frames of a stream are charged only while they are unread.
    #[tokio::test(start_paused = true)]
    async fn a_stream_counts_its_unread_bytes() {
        struct Endless;
        impl response::FrameSource for Endless {
            fn poll_next(self: Pin<&mut Self>, _: &mut Context) -> Poll<Option<Bytes>> {
                Poll::Ready(Some(Bytes::from_static(&[b' '; 10_000])))
            }
        }
        let unsent = Unsent::new(UnsentLimits::default());
        let tracker = ConnectionTracker::new(READ_TIMEOUT, unsent.connect());
        let answer = async { response::with_body(200, "text/plain", Body::stream(Endless)) };
        let mut body = tracker
            .during(Cancelled::default(), answer)
            .await
            .into_body();
        let mut frames = Vec::new();
        let is_free = || {
            let mut families = mizzen_metrics::Families::default();
            unsent.collect(&mut families);
            let text = families.to_string();
            text.lines()
                .any(|line| line.starts_with("mizzen_unsent_response_bytes 0"))
        };
        frames.push(body.frame().await);
        assert!(is_free(), "what is read at once is not charged");
        while let Ok(frame) = tokio::time::timeout(Duration::ZERO, body.frame()).await {
            frames.push(frame);
        }
        assert_eq!(frames.len(), IN_FLIGHT.div_ceil(10_000));
        assert!(!is_free());
        frames.clear();
        assert!(is_free());
        body.frame().await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_sent_goaway_is_closed_soon() {
        let tracker = tracker();
        let answer = respond(&tracker, 100).await;
        tracker.request_goaway();
        assert_eq!(tracker.close_reason().await, CloseReason::GoAway);
        assert!(
            tokio::time::timeout(10 * LINGER, tracker.close_reason())
                .await
                .is_err(),
            "it still reads"
        );
        drop(answer);
        let begin = Instant::now();
        assert_eq!(tracker.close_reason().await, CloseReason::Idle);
        assert!(begin.elapsed() <= 2 * LINGER, "{:?}", begin.elapsed());
        (0..MAX_AFTER_GOAWAY).for_each(|_| tracker.request_goaway());
        assert_eq!(tracker.close_reason().await, CloseReason::LimitExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_response_may_stay_unread_and_its_connection_is_not_idle() {
        let tracker = tracker();
        let answer = respond(&tracker, 100).await;
        let waited = tokio::time::timeout(10 * IDLE_TIMEOUT, tracker.close_reason()).await;
        assert!(waited.is_err());
        drop(answer);
        assert_eq!(tracker.close_reason().await, CloseReason::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_response_that_is_not_read_closes_the_connection() {
        let tracker = tracker();
        let begin = Instant::now();
        let mut body = respond(&tracker, 1 << 20).await.into_body();
        // The body is gone, but its bytes are still there.
        let frame = body.frame().await;
        drop(body);
        assert_eq!(tracker.close_reason().await, CloseReason::LimitExceeded);
        assert!(begin.elapsed() < READ_TIMEOUT + CHECK_INTERVAL);
        drop(frame);
        assert_eq!(tracker.close_reason().await, CloseReason::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_a_thousand_requests_at_once_closes_the_connection() {
        let tracker = tracker();
        for _ in 0..=MAX_CANCELLED {
            let cancelled = tracker.during(Cancelled::default(), std::future::pending());
            assert!(
                tokio::time::timeout(Duration::ZERO, cancelled)
                    .await
                    .is_err()
            );
        }
        assert_eq!(tracker.close_reason().await, CloseReason::LimitExceeded);
        assert_eq!(*tracker.0.n_pending.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_before_the_first_poll_or_while_sending_counts_too() {
        let tracker = tracker();
        for _ in 0..MAX_CANCELLED / 2 {
            drop(tracker.during(Cancelled::default(), std::future::pending()));
            let cancelled = Cancelled::default();
            cancelled.set();
            tracker
                .during(cancelled, async { response::text(400, "") })
                .await;
        }
        drop(tracker.during(Cancelled::default(), std::future::pending()));
        assert_eq!(tracker.close_reason().await, CloseReason::LimitExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn occasional_cancellations_do_not_close_the_connection() {
        let tracker = tracker();
        let answer = respond(&tracker, 1).await;
        for _ in 0..20 {
            for _ in 0..MAX_CANCELLED / 2 {
                let cancelled = tracker.during(Cancelled::default(), std::future::pending());
                assert!(
                    tokio::time::timeout(Duration::ZERO, cancelled)
                        .await
                        .is_err()
                );
            }
            let waited = tokio::time::timeout(CANCEL_WINDOW, tracker.close_reason()).await;
            assert!(waited.is_err());
        }
        drop(answer);
    }
}
