//! What does one connection cost, and when is that too much?
//!
//! A connection is ended that asks for nothing for long, that gives up what it asks for faster than anybody has
//! reason to, or that does not read what it has asked for.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::answer::{Answer, Body, Broken};

/// Kubernetes: how long a connection may ask for nothing (server/secure_serving.go).
const IDLE: Duration = Duration::from_secs(90);
/// How many requests a connection may give up, before they are answered, in [`SPAN`]. Upstream's library hangs up when
/// four times as many as may be under way have been begun and reset.
const MAX_GIVEN_UP: u32 = 1_000;
/// The time in which they are counted.
const SPAN: Duration = Duration::from_secs(10);
/// How often a connection is looked at.
const LOOK: Duration = Duration::from_secs(15);
/// An answer that is no longer than this may wait for its reader as long as the connection lives.
const SMALL: u64 = 16 * 1024;
/// How many answers a client gets on a connection after it was first asked to use another one.
const MAX_SENT_AWAY: u32 = 100;
/// How long an answered client may take to read the end of its answer, and to hang up, when it was asked to go.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection has under way. Clones are of the same connection.
#[derive(Clone)]
pub(crate) struct Load(Arc<Shared>);

struct Shared {
    /// How long a client may take to read an answer.
    patience: Duration,
    /// How many requests are being answered.
    answering: watch::Sender<usize>,
    /// Rung when the client is to go elsewhere.
    go_away: Notify,
    /// Rung when the client gives up too much.
    flooded: Notify,
    state: Mutex<State>,
}

struct State {
    /// Requests whose answers have not gone.
    open: usize,
    /// When the last one went.
    idle_since: Instant,
    /// When large answers must have been read, in the order in which they were made.
    unread: BTreeMap<u64, Instant>,
    n_answers: u64,
    given_up: u32,
    counted_since: Instant,
    /// How often the client was asked to go.
    sent_away: u32,
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
    pub fn new(patience: Duration) -> Load {
        let now = Instant::now();
        let state = State {
            open: 0,
            idle_since: now,
            unread: BTreeMap::new(),
            n_answers: 0,
            given_up: 0,
            counted_since: now,
            sent_away: 0,
        };
        Load(Arc::new(Shared {
            patience,
            answering: watch::Sender::new(0),
            go_away: Notify::new(),
            flooded: Notify::new(),
            state: Mutex::new(state),
        }))
    }

    /// Counts a request while it is answered, and its answer until it has gone.
    ///
    /// Invariant: it counts from here on, not from when the future is first polled: a client that is quick enough
    /// gives up before that.
    pub fn during<A: Future<Output = Answer>>(
        &self,
        given_up: GivenUp,
        answer: A,
    ) -> impl Future<Output = Response<Counted>> + use<A> {
        let (mut open, answering) = (Open::new(self), Answering::new(self));
        async move {
            let answer = answer.await;
            answering.end(given_up.is_known());
            let is_large = answer.body().size_hint().exact().is_some_and(|size| size > SMALL);
            if is_large {
                open.expect_reader();
            }
            answer.map(|body| Counted { body, is_large, open: Arc::new(open) })
        }
    }

    /// Asks the client to use another connection.
    pub fn send_away(&self) {
        let mut state = self.state();
        state.sent_away += 1;
        match state.sent_away {
            1 => self.0.go_away.notify_one(),
            times if times > MAX_SENT_AWAY => self.0.flooded.notify_one(),
            _ => {}
        }
    }

    /// Resolves when the connection shall not go on as it did.
    pub async fn verdict(&self) -> Verdict {
        loop {
            tokio::select! {
                () = self.0.go_away.notified() => return Verdict::GoAway,
                () = self.0.flooded.notified() => return Verdict::TooMuch,
                () = sleep(self.state().look()) => {}
            }
            if let Some(verdict) = self.state().judge(Instant::now()) {
                return verdict;
            }
        }
    }

    /// Resolves a moment after nothing is being answered any more: a client that is silent when the server
    /// stops does not hold it up.
    pub async fn answered(&self) {
        let mut requests = self.0.answering.subscribe();
        loop {
            let _ = requests.wait_for(|requests| *requests == 0).await;
            sleep(LINGER).await;
            if *requests.borrow_and_update() == 0 {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn judge(&self, now: Instant) -> Option<Verdict> {
        if self.unread.values().next().is_some_and(|deadline| *deadline <= now) {
            return Some(Verdict::TooMuch);
        }
        let patience = if self.sent_away > 0 { LINGER } else { IDLE };
        (self.open == 0 && now - self.idle_since >= patience).then_some(Verdict::Idle)
    }

    /// When to look next.
    fn look(&self) -> Duration {
        if self.sent_away > 0 { LINGER } else { LOOK }
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

/// Whether a client has given up a request that it was still sending. What is answered then reaches nobody.
#[derive(Clone, Default)]
pub(crate) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// It has.
    pub fn tell(&self) {
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
        Answering { load: load.clone(), done: false }
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

/// A request whose answer has not gone.
struct Open {
    load: Load,
    /// The place among large answers that wait for their reader.
    unread: Option<u64>,
}

impl Open {
    fn new(load: &Load) -> Open {
        load.state().open += 1;
        Open { load: load.clone(), unread: None }
    }

    /// From now on the client has so much time to read.
    fn expect_reader(&mut self) {
        let mut state = self.load.state();
        let (number, deadline) = (state.n_answers, Instant::now() + self.load.0.patience);
        state.n_answers += 1;
        state.unread.insert(number, deadline);
        self.unread = Some(number);
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
    is_large: bool,
    open: Arc<Open>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let open = self.is_large.then(|| self.open.clone());
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match open {
                Some(open) => frame.map_data(|bytes| Bytes::from_owner(Waiting { bytes, _open: open })),
                None => frame,
            })
        }))
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
    _open: Arc<Open>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer;
    use http_body_util::BodyExt as _;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn answered(load: &Load, size: usize) -> Response<Counted> {
        load.during(GivenUp::default(), async { answer::text(200, "x".repeat(size)) }).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asks_for_nothing_is_of_no_use() {
        let load = Load::new(PATIENCE);
        let begin = Instant::now();
        assert_eq!(load.verdict().await, Verdict::Idle);
        assert!(begin.elapsed() >= IDLE && begin.elapsed() < IDLE + LOOK, "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_asked_to_go_goes_soon() {
        let load = Load::new(PATIENCE);
        let answer = answered(&load, 100).await;
        load.send_away();
        assert_eq!(load.verdict().await, Verdict::GoAway);
        assert!(tokio::time::timeout(10 * LINGER, load.verdict()).await.is_err(), "it still reads");
        drop(answer);
        let begin = Instant::now();
        assert_eq!(load.verdict().await, Verdict::Idle);
        assert!(begin.elapsed() <= 2 * LINGER, "{:?}", begin.elapsed());
        (0..MAX_SENT_AWAY).for_each(|_| load.send_away());
        assert_eq!(load.verdict().await, Verdict::TooMuch);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_answer_may_wait_and_its_connection_is_not_idle() {
        let load = Load::new(PATIENCE);
        let answer = answered(&load, 100).await;
        let waited = tokio::time::timeout(10 * IDLE, load.verdict()).await;
        assert!(waited.is_err());
        drop(answer);
        assert_eq!(load.verdict().await, Verdict::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_that_nobody_reads_is_too_much() {
        let load = Load::new(PATIENCE);
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
        let load = Load::new(PATIENCE);
        for _ in 0..=MAX_GIVEN_UP {
            let given_up = load.during(GivenUp::default(), std::future::pending());
            assert!(tokio::time::timeout(Duration::ZERO, given_up).await.is_err());
        }
        assert_eq!(load.verdict().await, Verdict::TooMuch);
        assert_eq!(*load.0.answering.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_before_anybody_has_looked_or_while_sending_counts_too() {
        let load = Load::new(PATIENCE);
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
        let load = Load::new(PATIENCE);
        let answer = answered(&load, 1).await;
        for _ in 0..20 {
            for _ in 0..MAX_GIVEN_UP / 2 {
                let given_up = load.during(GivenUp::default(), std::future::pending());
                assert!(tokio::time::timeout(Duration::ZERO, given_up).await.is_err());
            }
            let waited = tokio::time::timeout(SPAN, load.verdict()).await;
            assert!(waited.is_err());
        }
        drop(answer);
    }
}
