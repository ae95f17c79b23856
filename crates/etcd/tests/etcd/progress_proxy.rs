//! A proxy before a real etcd that stands for a newer version: it names that version, and answers requests for the
//! progress of a watch itself. How it answers is what tests vary.
//!
//! The progress that an older etcd tells is not to be trusted. The proxy watches all keys instead, and sends on the
//! events of the keys that were asked for. Every revision has an event, so it knows how far it has come.

use std::convert::Infallible;
use std::future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizzen_etcd::messages::{
    RangeRequest, ResponseHeader, StatusResponse, WatchCreateRequest, WatchRequest,
    WatchRequestUnion, WatchResponse,
};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;
type Frames = mpsc::Sender<Result<Frame<Bytes>, hyper::Error>>;

const RANGE: &str = "/etcdserverpb.KV/Range";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// More frames than wait for an end that reads.
const MAX_FRAMES: usize = 1_000;
/// The compression flag and the length before a message of gRPC.
const PREFIX: usize = 5;

/// How a request for progress is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// With the revision up to which all events were sent.
    Correct,
    /// Not at all, so many times; then correctly.
    Dropped(usize),
    /// With the revision of etcd, whatever was sent: the bug of old versions.
    Ahead,
}

/// A proxy that runs until it is dropped.
pub(crate) struct ProgressProxy {
    pub(crate) endpoint: String,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

/// What connections share with the test.
struct State {
    target: String,
    version: &'static str,
    progress: watch::Sender<Progress>,
    /// Whether events are held back.
    is_holding: watch::Sender<bool>,
    /// How many watches have begun, and how many of them are sent nothing more.
    n_watches: AtomicUsize,
    n_silent: AtomicUsize,
    /// The largest page of a list that is answered.
    max_page: AtomicI64,
    /// How many lists, and requests for progress, there were.
    n_lists: AtomicUsize,
    n_progress: AtomicUsize,
}

impl ProgressProxy {
    /// Before the etcd at `target`, which it calls `version`.
    pub(crate) async fn start(target: &str, version: &'static str) -> ProgressProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            target: target.replace("http://", ""),
            version,
            progress: watch::Sender::new(Progress::Correct),
            is_holding: watch::Sender::new(false),
            n_watches: AtomicUsize::new(0),
            n_silent: AtomicUsize::new(0),
            max_page: AtomicI64::new(i64::MAX),
            n_lists: AtomicUsize::new(0),
            n_progress: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, state.clone()));
        ProgressProxy {
            endpoint,
            state,
            _tasks: tasks,
        }
    }

    /// How requests for progress are answered from now on.
    pub(crate) fn answer(&self, progress: Progress) {
        self.state.progress.send_replace(progress);
    }

    /// Holds events back, or sends on what was held back.
    pub(crate) fn hold(&self, is_holding: bool) {
        self.state.is_holding.send_replace(is_holding);
    }

    /// Sends nothing more to the watches that run.
    pub(crate) fn silence(&self) {
        let n_watches = self.state.n_watches.load(Ordering::SeqCst);
        self.state.n_silent.store(n_watches, Ordering::SeqCst);
    }

    /// Answers no list that asks for more keys at once.
    pub(crate) fn limit_pages(&self, max_page: i64) {
        self.state.max_page.store(max_page, Ordering::SeqCst);
    }

    /// How many lists there were.
    pub(crate) fn n_lists(&self) -> usize {
        self.state.n_lists.load(Ordering::SeqCst)
    }

    /// How many requests for progress there were.
    pub(crate) fn n_progress(&self) -> usize {
        self.state.n_progress.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let target = TcpStream::connect(&state.target).await.unwrap();
            let handshake =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(target));
            let (sender, driver) = handshake.await.unwrap();
            let service = service_fn(|request| serve(request, sender.clone(), state.clone()));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let served = server.serve_connection(TokioIo::new(stream), service);
            // The end of either is that of both.
            tokio::select! {
                _ = served => {}
                _ = driver => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(
    request: Request<Incoming>,
    mut etcd: SendRequest<Body>,
    state: Arc<State>,
) -> Result<Response<Body>, hyper::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    head.uri = Uri::try_from(format!("http://{}{path}", state.target)).unwrap();
    if path == WATCH {
        return serve_watch(Request::from_parts(head, ()), body, etcd, state).await;
    }
    let body = body.collect().await?.to_bytes();
    if path == RANGE {
        let range = RangeRequest::decode(&body[PREFIX..]).unwrap();
        let is_list = !range.range_end.is_empty();
        state.n_lists.fetch_add(is_list.into(), Ordering::SeqCst);
        if range.limit > state.max_page.load(Ordering::SeqCst) {
            future::pending::<()>().await;
        }
    }
    let request = Request::from_parts(head, full(body));
    let (head, body) = etcd.send_request(request).await?.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let mut bytes = body.to_bytes();
    if path == STATUS {
        let mut status = StatusResponse::decode(&bytes[PREFIX..]).unwrap();
        status.version = state.version.to_owned();
        bytes = message(&status);
    }
    let body = Full::new(bytes).map_err(|never: Infallible| match never {});
    let body = body.with_trailers(async { trailers.map(Ok) });
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// One watch of a stream of its own.
struct ProxiedWatch {
    create: WatchCreateRequest,
    /// How many there were before.
    number: usize,
    /// Up to which revision events have come from etcd, and were sent on.
    received: AtomicI64,
    sent: AtomicI64,
}

impl ProxiedWatch {
    fn is_silent(&self, state: &State) -> bool {
        self.number < state.n_silent.load(Ordering::SeqCst)
    }

    fn has(&self, key: &[u8]) -> bool {
        match self.create.range_end.is_empty() {
            true => key == self.create.key,
            false => (&self.create.key[..]..&self.create.range_end[..]).contains(&key),
        }
    }
}

async fn serve_watch(
    head: Request<()>,
    requests: Incoming,
    mut etcd: SendRequest<Body>,
    state: Arc<State>,
) -> Result<Response<Body>, hyper::Error> {
    let mut requests = Messages::new(requests);
    let first: WatchRequest = requests.next().await?.expect("a request");
    let Some(WatchRequestUnion::Create(create)) = first.request else {
        panic!("it does not begin with a watch");
    };
    let before = create.start_revision - 1;
    assert!(before >= 0, "it begins after a list");
    let all = WatchCreateRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        fragment: false,
        progress_notify: false,
        ..create.clone()
    };
    let watch = Arc::new(ProxiedWatch {
        create,
        number: state.n_watches.fetch_add(1, Ordering::SeqCst),
        received: AtomicI64::new(before),
        sent: AtomicI64::new(before),
    });
    let (to_etcd, body) = channel();
    let begin = WatchRequest {
        request: Some(WatchRequestUnion::Create(all)),
    };
    send(&to_etcd, &begin);
    let request = Request::from_parts(head.into_parts().0, body);
    let (head, responses) = etcd.send_request(request).await?.into_parts();

    let (to_client, body) = channel();
    let (watched, held, sender) = (watch.clone(), state.clone(), to_client.clone());
    tokio::spawn(async move {
        let mut responses = Messages::new(responses);
        while let Ok(Some(response)) = responses.next::<WatchResponse>().await {
            send_on(response, &watched, &held, &sender).await;
        }
        // Either has ended the watch, or etcd said why in the trailers.
        if let Some(trailers) = responses.trailers {
            send_frame(&sender, Frame::trailers(trailers));
        }
    });
    tokio::spawn(async move {
        while let Ok(Some(request)) = requests.next::<WatchRequest>().await {
            match request.request {
                Some(WatchRequestUnion::Progress(_)) => tell_progress(&watch, &state, &to_client),
                other => panic!("one watch in a stream, not {other:?}"),
            }
        }
        drop(to_etcd);
    });
    Ok(Response::from_parts(head, body))
}

/// Sends what of a response is about the keys of the watch, unless that is held back.
async fn send_on(mut response: WatchResponse, watch: &ProxiedWatch, state: &State, to: &Frames) {
    if response.events.is_empty() {
        send(to, &response);
        return;
    }
    let revisions = response.events.iter().filter_map(|event| event.kv.as_ref());
    let last = revisions.map(|kv| kv.mod_revision).max().unwrap();
    watch.received.store(last, Ordering::SeqCst);
    response
        .events
        .retain(|event| event.kv.as_ref().is_some_and(|kv| watch.has(&kv.key)));
    if !response.events.is_empty() && !watch.is_silent(state) {
        let mut holding = state.is_holding.subscribe();
        let _ = holding.wait_for(|is_holding| !is_holding).await;
        send(to, &response);
    }
    watch.sent.store(last, Ordering::SeqCst);
}

fn tell_progress(watch: &ProxiedWatch, state: &State, to: &Frames) {
    state.n_progress.fetch_add(1, Ordering::SeqCst);
    if watch.is_silent(state) {
        return;
    }
    let mut revision = watch.sent.load(Ordering::SeqCst);
    let is_dropped = state.progress.send_if_modified(|progress| match progress {
        Progress::Dropped(0) | Progress::Correct => false,
        Progress::Dropped(left) => {
            *left -= 1;
            true
        }
        Progress::Ahead => {
            revision = watch.received.load(Ordering::SeqCst);
            false
        }
    });
    if !is_dropped {
        let header = ResponseHeader {
            revision,
            ..ResponseHeader::default()
        };
        let progress = WatchResponse {
            header: Some(header),
            watch_id: -1,
            ..WatchResponse::default()
        };
        send(to, &progress);
    }
}

/// The messages of a body.
struct Messages {
    body: Incoming,
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
}

impl Messages {
    fn new(body: Incoming) -> Messages {
        Messages {
            body,
            bytes: BytesMut::new(),
            trailers: None,
        }
    }

    /// The next message; none at the end.
    async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, hyper::Error> {
        loop {
            if let Some(mut prefix) = self.bytes.get(..PREFIX) {
                assert_eq!(prefix.get_u8(), 0, "it is not compressed");
                let length = prefix.get_u32() as usize;
                if self.bytes.len() >= PREFIX + length {
                    self.bytes.advance(PREFIX);
                    let message = M::decode(self.bytes.split_to(length));
                    return Ok(Some(message.expect("a message")));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.bytes.put(data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }
}

/// A body, and how its frames are sent.
fn channel() -> (Frames, Body) {
    let (sender, mut receiver) = mpsc::channel(MAX_FRAMES);
    let frames = stream::poll_fn(move |context| receiver.poll_recv(context));
    (sender, StreamBody::new(frames).boxed_unsync())
}

fn full(bytes: Bytes) -> Body {
    let body = Full::new(bytes).map_err(|never: Infallible| match never {});
    body.boxed_unsync()
}

fn send(to: &Frames, message_to_send: &impl Message) {
    send_frame(to, Frame::data(message(message_to_send)));
}

fn send_frame(to: &Frames, frame: Frame<Bytes>) {
    // The other end may have gone.
    let is_sent = !matches!(to.try_send(Ok(frame)), Err(TrySendError::Full(_)));
    assert!(is_sent, "the other end does not read");
}

/// A message as gRPC frames it.
fn message(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("a small message"));
    message.encode(&mut bytes).expect("there is space");
    bytes.freeze()
}
