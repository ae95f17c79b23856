//! What does one connection cost, and when is that too much?
//!
//! A connection is ended that asks for nothing for long, that takes long to send a head, that gives up what it asks for
//! faster than anybody has reason to, or that does not read what it has asked for.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::answer::{Answer, Body, Broken, Lease, Shared};
use crate::metrics::lock;
use crate::tap::Inspect;
use crate::unsent::{self, Charge};

/// Kubernetes: how long a connection may ask for nothing (server/secure_serving.go).
const IDLE: Duration = Duration::from_secs(90);
/// Kubernetes: how long the head of a request may take over HTTP/1.1, from its first byte; the first one of a connection from
/// the handshake (server/secure_serving.go, net/http's ReadHeaderTimeout).
const HEAD: Duration = Duration::from_secs(32);
/// How many requests a connection may give up, before they are answered, in [`SPAN`]. Upstream's library hangs up when
/// four times as many as may be under way have been begun and reset.
const MAX_GIVEN_UP: u32 = 1_000;
/// The time in which they are counted.
const SPAN: Duration = Duration::from_secs(10);
/// How often a connection is looked at.
const LOOK: Duration = Duration::from_secs(15);
/// How often one is looked at that has long answers to read: they may keep what the store has given up.
const RECOUNT: Duration = Duration::from_secs(1);
/// An answer that is no longer than this may wait for its reader as long as the connection lives.
const SMALL: u64 = 4 * 1024;
/// How much of an answer is handed out and not written. More is not asked for until some of it has been, which bounds what
/// a reader who does not read costs, in HTTP/1.1 as in HTTP/2.
const IN_FLIGHT: usize = 32 * 1024;
/// From how much in flight a stream is charged: one that is read never has so much.
const CHARGED: usize = 16 * 1024;
/// How many answers a client gets on a connection after it was first asked to use another one.
const MAX_SENT_AWAY: u32 = 100;
/// How long an answered client may take to read the end of its answer, and to hang up, when it was asked to go.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection has under way. Clones are of the same connection.
#[derive(Clone)]
pub(crate) struct Load(Arc<Connection>);

struct Connection {
    /// How long a client may take to read an answer.
    patience: Duration,
    /// How many requests are being answered.
    answering: watch::Sender<usize>,
    /// Rung when the client is to go elsewhere.
    go_away: Notify,
    /// Rung when the client gives up too much.
    flooded: Notify,
    /// Rung when there is something to look at often.
    recount: Notify,
    account: Arc<unsent::Connection>,
    state: Mutex<State>,
}

struct State {
    /// Requests whose answers have not gone.
    open: usize,
    /// When the last one went.
    idle_since: Instant,
    /// When the head that is being sent was begun.
    head_since: Option<Instant>,
    /// Answers that their clients must read in time, in the order in which they were made.
    unread: BTreeMap<u64, Unread>,
    /// Whether they are looked at often.
    is_recounted: bool,
    n_answers: u64,
    given_up: u32,
    counted_since: Instant,
    /// How often the client was asked to go.
    sent_away: u32,
}

/// An answer that must be read.
struct Unread {
    deadline: Instant,
    open: Weak<Open>,
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its client shall use another one from now on.
    GoAway,
    /// It is of no use.
    Idle,
    /// It costs too much.
    TooMuch,
}

impl Load {
    /// Of a connection whose client may take so long to read an answer.
    pub(crate) fn new(patience: Duration, account: Arc<unsent::Connection>) -> Load {
        let now = Instant::now();
        let state = State {
            open: 0,
            idle_since: now,
            head_since: None,
            unread: BTreeMap::new(),
            is_recounted: false,
            n_answers: 0,
            given_up: 0,
            counted_since: now,
            sent_away: 0,
        };
        Load(Arc::new(Connection {
            patience,
            answering: watch::Sender::new(0),
            go_away: Notify::new(),
            flooded: Notify::new(),
            recount: Notify::new(),
            account,
            state: Mutex::new(state),
        }))
    }

    /// Counts the time that heads take, from now on. The connection reports every byte that it reads over HTTP/1.1.
    pub(crate) fn time_heads(&self) -> HeadTimer {
        self.state().head_since = Some(Instant::now());
        HeadTimer(self.clone())
    }

    /// Counts a request while it is answered, and its answer until it has gone.
    ///
    /// Invariant: it counts from here on, not from when the future is first polled: a client that is quick enough
    /// gives up before that.
    pub(crate) fn during<A: Future<Output = Answer>>(
        &self,
        given_up: GivenUp,
        answer: A,
    ) -> impl Future<Output = Response<Counted>> + use<A> {
        let (open, answering) = (Open::new(self), Answering::new(self));
        async move {
            let answer = answer.await;
            answering.end(given_up.is_known());
            answer.map(|body| open.hand_over(body))
        }
    }

    /// Asks the client to use another connection.
    pub(crate) fn send_away(&self) {
        let mut state = self.state();
        state.sent_away += 1;
        match state.sent_away {
            1 => self.0.go_away.notify_one(),
            times if times > MAX_SENT_AWAY => self.0.flooded.notify_one(),
            _ => {}
        }
    }

    /// Resolves when the connection shall not go on as it did.
    pub(crate) async fn verdict(&self) -> Verdict {
        loop {
            let look = self.state().look(Instant::now());
            tokio::select! {
                () = self.0.go_away.notified() => return Verdict::GoAway,
                () = self.0.flooded.notified() => return Verdict::TooMuch,
                () = self.0.account.closed() => return Verdict::TooMuch,
                () = self.0.recount.notified() => continue,
                () = sleep(look) => {}
            }
            self.recharge();
            if let Some(verdict) = self.state().judge(Instant::now()) {
                return verdict;
            }
        }
    }

    /// Resolves a moment after nothing is being answered any more: a client that is silent when the server
    /// stops does not hold it up.
    pub(crate) async fn answered(&self) {
        let mut requests = self.0.answering.subscribe();
        loop {
            let _ = requests.wait_for(|requests| *requests == 0).await;
            sleep(LINGER).await;
            if *requests.borrow_and_update() == 0 {
                return;
            }
        }
    }

    /// Charges answers with what the store has given up since and they keep.
    fn recharge(&self) {
        // Not under the lock: the last to hold an answer takes it.
        let unread: Vec<Arc<Open>> = self
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

impl State {
    fn judge(&self, now: Instant) -> Option<Verdict> {
        let is_unread = self
            .unread
            .values()
            .next()
            .is_some_and(|unread| unread.deadline <= now);
        let is_slow = self.head_since.is_some_and(|since| now - since >= HEAD);
        if is_unread || is_slow {
            return Some(Verdict::TooMuch);
        }
        (self.is_idle() && now - self.idle_since >= self.patience()).then_some(Verdict::Idle)
    }

    /// When to look next.
    fn look(&mut self, now: Instant) -> Duration {
        self.is_recounted = !self.unread.is_empty();
        let usual = if self.is_recounted { RECOUNT } else { LOOK }.min(self.patience());
        let head = self.head_since.map(|since| since + HEAD);
        let idle = self.is_idle().then_some(self.idle_since + self.patience());
        let next = [head, idle]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now));
        next.filter(|next| !next.is_zero())
            .unwrap_or(usual)
            .min(usual)
    }

    /// Whether nothing is asked for, and nothing is being asked.
    fn is_idle(&self) -> bool {
        self.open == 0 && self.head_since.is_none()
    }

    /// How long the connection may be idle.
    fn patience(&self) -> Duration {
        if self.sent_away > 0 { LINGER } else { IDLE }
    }

    /// Counts a request that was given up; whether there are too many.
    fn give_up(&mut self, now: Instant) -> bool {
        if now - self.counted_since > SPAN {
            (self.given_up, self.counted_since) = (0, now);
        }
        self.given_up += 1;
        self.given_up > MAX_GIVEN_UP
    }
}

/// Notices the first byte of a head over HTTP/1.1: what comes while nothing is being answered.
pub(crate) struct HeadTimer(Load);

impl Inspect for HeadTimer {
    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.state();
        if !bytes.is_empty() && state.open == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
        Ok(())
    }
}

/// Whether a client has given up a request that it was still sending. What is answered then reaches nobody.
#[derive(Clone, Default)]
pub(crate) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// It has.
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is being answered.
struct Answering {
    load: Load,
    done: bool,
}

impl Answering {
    fn new(load: &Load) -> Answering {
        load.0.answering.send_modify(|requests| *requests += 1);
        Answering {
            load: load.clone(),
            done: false,
        }
    }

    /// It has been answered, unless nobody waits any more.
    fn end(mut self, is_given_up: bool) {
        self.done = !is_given_up;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.load.0.answering.send_modify(|requests| *requests -= 1);
        if !self.done && self.load.state().give_up(Instant::now()) {
            self.load.0.flooded.notify_one();
        }
    }
}

/// A request whose answer has not gone. It is shared by the body and what has been handed out of it.
struct Open {
    load: Load,
    /// The place among answers that must be read in time.
    unread: Option<u64>,
    /// The user and the seat of the request.
    lease: Lease,
    /// Of an answer that is no stream: what it is charged with, for the memory that it keeps.
    charge: Option<Charge>,
    retained: u64,
    shared: Option<Shared>,
    in_flight: Mutex<InFlight>,
}

/// What has been handed out and not been written.
#[derive(Default)]
struct InFlight {
    bytes: usize,
    /// Of a stream.
    charge: Option<Charge>,
    /// Waits for more room.
    waker: Option<Waker>,
}

impl Open {
    fn new(load: &Load) -> Open {
        let mut state = load.state();
        state.open += 1;
        state.head_since = None;
        drop(state);
        Open {
            load: load.clone(),
            unread: None,
            lease: Lease::default(),
            charge: None,
            retained: 0,
            shared: None,
            in_flight: Mutex::default(),
        }
    }

    /// The answer is there. From now on its client is charged with it, and has so much time to read.
    fn hand_over(mut self, mut body: Body) -> Counted {
        self.lease = body.take_lease();
        if !body.is_stream() {
            (self.retained, self.shared) = (body.retained(), body.shared());
            self.charge = Some(self.load.0.account.charge(&self.lease.user, self.retained));
        }
        let is_large = body
            .size_hint()
            .exact()
            .map_or(!body.is_stream(), |size| size > SMALL);
        if !is_large {
            return Counted {
                body,
                open: Arc::new(self),
            };
        }
        let load = self.load.clone();
        let mut state = load.state();
        let number = state.n_answers;
        state.n_answers += 1;
        self.unread = Some(number);
        let open = Arc::new(self);
        let unread = Unread {
            deadline: Instant::now() + load.0.patience,
            open: Arc::downgrade(&open),
        };
        if open.shared.is_some() && !state.is_recounted {
            load.0.recount.notify_one();
        }
        state.unread.insert(number, unread);
        Counted { body, open }
    }

    /// Whether so much is in flight that its reader has to read first. Then the task is woken when some of it has been
    /// written.
    fn is_full(&self, context: &Context) -> bool {
        let mut flight = lock(&self.in_flight);
        let is_full = flight.bytes >= IN_FLIGHT;
        flight.waker = is_full.then(|| context.waker().clone());
        is_full
    }

    /// Bytes that count until they are dropped.
    fn hand_out(self: &Arc<Open>, bytes: Bytes) -> Bytes {
        let mut flight = lock(&self.in_flight);
        flight.bytes += bytes.len();
        self.recount(&mut flight);
        Bytes::from_owner(Waiting {
            bytes,
            open: self.clone(),
        })
    }

    /// Bytes have been written, or never will be.
    fn written(&self, n_bytes: usize) {
        let mut flight = lock(&self.in_flight);
        flight.bytes -= n_bytes;
        self.recount(&mut flight);
        // What is shorter than that is all there is of it, or too little to count as reading.
        if n_bytes >= CHARGED {
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

    /// Charges a stream with what is in flight.
    fn recount(&self, flight: &mut InFlight) {
        if self.charge.is_some() {
            return;
        }
        match &flight.charge {
            _ if flight.bytes < CHARGED => flight.charge = None,
            Some(charge) => charge.set(flight.bytes as u64),
            None => {
                let charge = self
                    .load
                    .0
                    .account
                    .charge(&self.lease.user, flight.bytes as u64);
                flight.charge = Some(charge);
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.load.state();
        state.open -= 1;
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
        if let Some(number) = self.unread {
            state.unread.remove(&number);
        }
    }
}

/// A body that is counted until the last of it has gone.
pub(crate) struct Counted {
    body: Body,
    open: Arc<Open>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.open.is_full(context) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let counted = |frame: Frame<Bytes>| frame.map_data(|bytes| self.open.hand_out(bytes));
        Poll::Ready(frame.map(|frame| frame.map(counted)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that wait to be sent. The body may be gone long before they are.
struct Waiting {
    bytes: Bytes,
    open: Arc<Open>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.open.written(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer;
    use crate::unsent::{Unsent, UnsentLimits};
    use http_body_util::BodyExt as _;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn load() -> Load {
        Load::new(PATIENCE, Unsent::new(UnsentLimits::default()).connect())
    }

    async fn answered(load: &Load, size: usize) -> Response<Counted> {
        load.during(GivenUp::default(), async {
            answer::text(200, "x".repeat(size))
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asks_for_nothing_is_of_no_use() {
        let load = load();
        let begin = Instant::now();
        assert_eq!(load.verdict().await, Verdict::Idle);
        assert!(
            begin.elapsed() >= IDLE && begin.elapsed() < 2 * RECOUNT + IDLE,
            "{:?}",
            begin.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte() {
        let load = load();
        let mut timer = load.time_heads();
        let begin = Instant::now();
        assert_eq!(
            load.verdict().await,
            Verdict::TooMuch,
            "the first head is expected at once"
        );
        assert_eq!(begin.elapsed().as_secs(), HEAD.as_secs());
        drop(answered(&load, 100).await);
        tokio::time::sleep(Duration::from_secs(60)).await;
        timer.received(b"G").unwrap();
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(20)).await;
        timer.received(b"ET").unwrap();
        assert_eq!(load.verdict().await, Verdict::TooMuch);
        assert_eq!(begin.elapsed().as_secs(), HEAD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_handed_out_than_a_reader_has_room_for() {
        let load = load();
        let mut body = answered(&load, 1 << 20).await.into_body();
        let (mut frames, mut read) = (Vec::new(), 0);
        while read < 1 << 20 {
            match tokio::time::timeout(Duration::ZERO, body.frame()).await {
                Ok(frame) => frames.push(frame.unwrap().unwrap().into_data().unwrap()),
                // It goes on when that has been written.
                Err(_) => read += frames.drain(..).map(|frame| frame.len()).sum::<usize>(),
            }
            let in_flight: usize = frames.iter().map(Bytes::len).sum();
            assert!(in_flight <= 8 * IN_FLIGHT, "{in_flight} bytes");
        }
    }

    /// What a stream's frames are charged with, besides what every response is.
    #[tokio::test(start_paused = true)]
    async fn a_stream_is_charged_with_what_its_client_has_not_read() {
        struct Endless;
        impl answer::Source for Endless {
            fn poll_next(self: Pin<&mut Self>, _: &mut Context) -> Poll<Option<Bytes>> {
                Poll::Ready(Some(Bytes::from_static(&[b' '; 10_000])))
            }
        }
        let unsent = Unsent::new(UnsentLimits::default());
        let load = Load::new(PATIENCE, unsent.connect());
        let answer = async { answer::answer(200, "text/plain", Body::stream(Endless)) };
        let mut body = load.during(GivenUp::default(), answer).await.into_body();
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
    async fn a_client_that_was_asked_to_go_goes_soon() {
        let load = load();
        let answer = answered(&load, 100).await;
        load.send_away();
        assert_eq!(load.verdict().await, Verdict::GoAway);
        assert!(
            tokio::time::timeout(10 * LINGER, load.verdict())
                .await
                .is_err(),
            "it still reads"
        );
        drop(answer);
        let begin = Instant::now();
        assert_eq!(load.verdict().await, Verdict::Idle);
        assert!(begin.elapsed() <= 2 * LINGER, "{:?}", begin.elapsed());
        (0..MAX_SENT_AWAY).for_each(|_| load.send_away());
        assert_eq!(load.verdict().await, Verdict::TooMuch);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_answer_may_wait_and_its_connection_is_not_idle() {
        let load = load();
        let answer = answered(&load, 100).await;
        let waited = tokio::time::timeout(10 * IDLE, load.verdict()).await;
        assert!(waited.is_err());
        drop(answer);
        assert_eq!(load.verdict().await, Verdict::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_that_nobody_reads_is_too_much() {
        let load = load();
        let begin = Instant::now();
        let mut body = answered(&load, 1 << 20).await.into_body();
        // The body has been handed on; what counts is that the bytes are still there.
        let frame = body.frame().await;
        drop(body);
        assert_eq!(load.verdict().await, Verdict::TooMuch);
        assert!(begin.elapsed() < PATIENCE + LOOK);
        drop(frame);
        assert_eq!(load.verdict().await, Verdict::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_a_thousand_requests_at_once_is_too_much() {
        let load = load();
        for _ in 0..=MAX_GIVEN_UP {
            let given_up = load.during(GivenUp::default(), std::future::pending());
            assert!(
                tokio::time::timeout(Duration::ZERO, given_up)
                    .await
                    .is_err()
            );
        }
        assert_eq!(load.verdict().await, Verdict::TooMuch);
        assert_eq!(*load.0.answering.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_before_anybody_has_looked_or_while_sending_counts_too() {
        let load = load();
        for _ in 0..MAX_GIVEN_UP / 2 {
            drop(load.during(GivenUp::default(), std::future::pending()));
            let given_up = GivenUp::default();
            given_up.tell();
            load.during(given_up, async { answer::text(400, "") }).await;
        }
        drop(load.during(GivenUp::default(), std::future::pending()));
        assert_eq!(load.verdict().await, Verdict::TooMuch);
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_requests_now_and_then_is_not() {
        let load = load();
        let answer = answered(&load, 1).await;
        for _ in 0..20 {
            for _ in 0..MAX_GIVEN_UP / 2 {
                let given_up = load.during(GivenUp::default(), std::future::pending());
                assert!(
                    tokio::time::timeout(Duration::ZERO, given_up)
                        .await
                        .is_err()
                );
            }
            let waited = tokio::time::timeout(SPAN, load.verdict()).await;
            assert!(waited.is_err());
        }
        drop(answer);
    }
}
