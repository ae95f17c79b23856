//! Faults between components and the server.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body::Frame;
use kube::client::Body as ClientBody;
use mizzen_apiserver::{Body, InProcess};
use tokio::time::Instant;
use tower::Service;

/// Random numbers of one seed. Clones share the state.
#[derive(Clone)]
pub(super) struct SeededRandom(Arc<AtomicU64>);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> SeededRandom {
        SeededRandom(Arc::new(AtomicU64::new(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1),
        )))
    }

    pub(super) fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
    }

    /// A number below `end`.
    pub(super) fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    /// True `n` times in a hundred.
    pub(super) fn percent(&self, n: u64) -> bool {
        self.below(100) < n
    }

    pub(super) fn fraction(&self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }
}

/// The recorded writes, in order.
pub(super) type Log = Arc<Mutex<Vec<Write>>>;

/// A recorded write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    /// The time in seconds.
    pub at: u64,
    pub actor: String,
    pub method: Method,
    pub path: String,
}

/// A transport to the server with faults, while they are switched on.
#[derive(Clone)]
pub(super) struct FaultyService {
    pub inner: InProcess,
    /// The user.
    pub actor: String,
    pub log: Log,
    pub began: Instant,
    pub random: SeededRandom,
    pub is_on: Arc<AtomicBool>,
}

impl FaultyService {
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    async fn answer(mut self, request: Request<ClientBody>) -> Response<Lossy> {
        let is_write = request.method() != Method::GET;
        if is_write {
            let (method, path) = (request.method().clone(), request.uri().path().to_string());
            self.log.lock().push(Write {
                at: self.began.elapsed().as_secs(),
                actor: self.actor.clone(),
                method,
                path,
            });
        }
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        if is_watch && self.is_on() && self.random.percent(20) {
            return refusal(410, "Expired");
        }
        let Ok(answer) = self.inner.call(request).await;
        if is_write && self.is_on() && self.random.percent(10) {
            // The write was applied, but the client gets an error.
            return match self.random.percent(50) {
                true => refusal(409, "Conflict"),
                false => refusal(500, "InternalError"),
            };
        }
        let cut = (is_watch && self.is_on()).then(|| self.random.below(40) as usize);
        let trouble = is_watch.then(|| (self.random.clone(), self.is_on.clone()));
        answer.map(|body| Lossy {
            inner: Some(body),
            trouble,
            cut,
            waiting: BytesMut::new(),
        })
    }
}

fn refusal(code: u16, reason: &str) -> Response<Lossy> {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"trouble","reason":"{reason}","code":{code}}}"#
    );
    let body = Lossy {
        inner: Some(Body::from(status)),
        trouble: None,
        cut: None,
        waiting: BytesMut::new(),
    };
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body)
        .unwrap()
}

impl Service<Request<ClientBody>> for FaultyService {
    type Response = Response<Lossy>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Lossy>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        let troubled = self.clone();
        Box::pin(async move { Ok(troubled.answer(request).await) })
    }
}

/// A watch body that loses events.
pub(super) struct Lossy {
    inner: Option<Body>,
    trouble: Option<(SeededRandom, Arc<AtomicBool>)>,
    /// The number of events after which the watch is cut.
    cut: Option<usize>,
    /// The beginning of an incomplete line.
    waiting: BytesMut,
}

impl Lossy {
    /// The bytes that are delivered.
    fn let_through(&mut self, bytes: &Bytes) -> Bytes {
        let Some((random, is_on)) = &self.trouble else {
            return bytes.clone();
        };
        self.waiting.extend_from_slice(bytes);
        let mut through = BytesMut::new();
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line = self.waiting.split_to(end + 1);
            let is_bookmark = line.starts_with(br#"{"type":"BOOKMARK""#);
            if is_bookmark || !is_on.load(Ordering::Relaxed) || !random.percent(30) {
                through.extend_from_slice(&line);
            }
            self.cut = self.cut.map(|left| left.saturating_sub(1));
        }
        through.freeze()
    }
}

impl http_body::Body for Lossy {
    type Data = Bytes;
    type Error = mizzen_apiserver::TruncatedResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, mizzen_apiserver::TruncatedResponse>>> {
        if self.cut == Some(0) {
            self.inner = None;
        }
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        match Pin::new(inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.into_data().unwrap_or_default();
                Poll::Ready(Some(Ok(Frame::data(self.let_through(&bytes)))))
            }
            other => other,
        }
    }
}
