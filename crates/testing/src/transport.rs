//! The connection of one component to the API server, in process: writes are recorded, and faults are injected.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body as ClientBody;
use mizzen_apiserver::{Body, InProcess, Server, TruncatedResponse, User};
use mizzen_value::json;
use tokio::sync::mpsc::Sender;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::faults::{Fault, Faults, RequestKind, Site};
use crate::request::RequestTarget;
use crate::steps::{RecordedWrite, StepLog};

tokio::task_local! {
    /// Whether the API server works for a client of the test, which sees no faults.
    static IS_FOR_TEST: bool;
}

/// Whether the current task works on a request of the test: through one of its clients, or without any.
pub(crate) fn is_for_test() -> bool {
    IS_FOR_TEST
        .try_with(|is_for_test| *is_for_test)
        .unwrap_or(true)
}

/// What all connections of a cluster share.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) server: Server,
    pub(crate) steps: StepLog,
    pub(crate) faults: Faults,
    /// Requests that are not answered yet, watches excepted; events that are late; processes that are being restarted.
    pub(crate) n_in_flight: Arc<AtomicUsize>,
    /// Whether watches last for years, without bookmarks, so that idle time is cheap.
    pub(crate) has_long_watches: bool,
    /// Whether components have all permissions.
    pub(crate) is_open: bool,
    /// Receives the process of a component that is killed.
    pub(crate) kills: Sender<Process>,
}

/// A process of the cluster: what is killed and started as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Process {
    Controllers,
    Scheduler,
    Nodes,
    /// A program of the test, by name.
    Program(Arc<str>),
}

impl Process {
    /// The user agent, and so the default field manager.
    fn user_agent(&self) -> &'static str {
        match self {
            Process::Controllers => "kube-controller-manager",
            Process::Scheduler => "kube-scheduler",
            Process::Nodes => "kubelet",
            Process::Program(_) => TEST_AGENT,
        }
    }
}

/// The user agent of the test and of its programs.
const TEST_AGENT: &str = "mizzen-testing";

impl Network {
    /// A client of the test: its writes are recorded, and it sees no faults.
    pub(crate) fn test_client(&self, user: User) -> Client {
        Client::new(self.connection(user, "test", None), "default")
    }

    /// A client of a component in `process`.
    pub(crate) fn component_client(&self, user: User, actor: &str, process: Process) -> Client {
        let user = match self.is_open {
            true => User::master(&user.name),
            false => user,
        };
        Client::new(self.connection(user, actor, Some(process)), "default")
    }

    fn connection(&self, user: User, actor: &str, process: Option<Process>) -> Connection {
        let agent = process.as_ref().map_or(TEST_AGENT, Process::user_agent);
        Connection {
            inner: self.server.in_process(user, agent),
            actor: actor.into(),
            process,
            network: self.clone(),
        }
    }
}

/// The connection of a component.
#[derive(Clone)]
struct Connection {
    inner: InProcess,
    actor: Arc<str>,
    /// The process that is killed; none for the test, which sees no faults.
    process: Option<Process>,
    network: Network,
}

/// Counts something that will still happen.
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(crate) fn new(network: &Network) -> InFlight {
        network.n_in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(network.n_in_flight.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    async fn answer(mut self, mut request: Request<ClientBody>) -> Response<FaultyBody> {
        let kind = request_kind(&request);
        let _counted = (kind != RequestKind::Watch).then(|| InFlight::new(&self.network));
        // The test's own watches end when it says.
        let is_long = self.network.has_long_watches && self.process.is_some();
        if kind == RequestKind::Watch && is_long {
            lengthen_watch(&mut request);
        }
        let site = self.site(&request, kind);
        let mut faults = Vec::new();
        if let Some(site) = &site {
            let name = object_name(&mut request).await;
            faults = self.network.faults.on_request(site, kind, &name);
        }
        for fault in &faults {
            match fault {
                Fault::Expired => return refusal(410, "Expired"),
                Fault::Conflict => return refusal(409, "Conflict"),
                Fault::Unavailable => return refusal(503, "ServiceUnavailable"),
                Fault::StaleList { behind } => self.make_stale(&mut request, *behind),
                fault => {
                    if let Some(delay) = fault.delay() {
                        sleep(delay).await;
                    }
                }
            }
        }
        if kind != RequestKind::Write {
            let Ok(answer) = self.inner.call(request).await;
            let cut = faults.iter().find_map(|fault| match fault {
                Fault::CutWatch { after } => Some(*after),
                _ => None,
            });
            let faults = site.filter(|_| kind == RequestKind::Watch);
            let faults = faults.map(|site| Box::new(WatchFaults::new(site, cut, &self.network)));
            return answer.map(|inner| FaultyBody {
                inner: Some(inner),
                is_for_test: self.process.is_none(),
                faults,
            });
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Ok(answer) = self.inner.call(request).await;
        let (parts, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        self.network.steps.record_write(RecordedWrite {
            actor: self.actor.clone(),
            method,
            path,
            code: parts.status.as_u16(),
            answer: body.clone(),
        });
        for fault in faults {
            match fault {
                Fault::LostAnswer { code: 409 } => return refusal(409, "Conflict"),
                Fault::LostAnswer { code } => return refusal(code, "InternalError"),
                Fault::Kill => {
                    if let Some(process) = &self.process {
                        // A process that is being killed already need not be killed again.
                        let _ = self.network.kills.try_send(process.clone());
                        return std::future::pending().await;
                    }
                }
                _ => {}
            }
        }
        Response::from_parts(parts, FaultyBody::whole(body))
    }

    /// The site of a request; none for the test and while faults are off.
    fn site(&self, request: &Request<ClientBody>, kind: RequestKind) -> Option<Site> {
        self.process.as_ref()?;
        if !self.network.faults.is_on() {
            return None;
        }
        let target = RequestTarget::parse(request.uri().path());
        let verb = match kind {
            RequestKind::Watch => "WATCH",
            RequestKind::CachedList => "LIST",
            _ => request.method().as_str(),
        };
        let class = format!("{verb} {}", target.resource_path());
        self.network.faults.next_site(&self.actor, &class)
    }

    /// Makes a list read an older revision.
    fn make_stale(&self, request: &mut Request<ClientBody>, behind: u32) {
        let revision = self.network.server.parts().registry.store().revision().0;
        let old = revision.saturating_sub(u64::from(behind)).max(1);
        let query = request.uri().query().unwrap_or_default();
        let mut kept: Vec<&str> = query
            .split('&')
            .filter(|one| !one.starts_with("resourceVersion"))
            .collect();
        let exact = format!("resourceVersion={old}&resourceVersionMatch=Exact");
        kept.push(&exact);
        let uri = format!("{}?{}", request.uri().path(), kept.join("&"));
        if let Ok(uri) = uri.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
}

/// Removes the timeout and the periodic bookmarks of a watch. A bookmark that ends the initial events stays.
fn lengthen_watch(request: &mut Request<ClientBody>) {
    let query = request.uri().query().unwrap_or_default();
    let has_initial = query.contains("sendInitialEvents=true");
    let kept: Vec<&str> = query
        .split('&')
        .filter(|one| !one.starts_with("timeoutSeconds="))
        .filter(|one| has_initial || *one != "allowWatchBookmarks=true")
        .collect();
    let uri = format!("{}?{}", request.uri().path(), kept.join("&"));
    if let Ok(uri) = uri.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
}

/// The name of the object that a request is about; that of a new object is in the body.
async fn object_name(request: &mut Request<ClientBody>) -> String {
    let name = RequestTarget::parse(request.uri().path()).name.to_owned();
    if !name.is_empty() || *request.method() != Method::POST {
        return name;
    }
    let body = std::mem::replace(request.body_mut(), ClientBody::empty());
    // A body that fails counts as empty, as in the API server.
    let body = body.collect_bytes().await.unwrap_or_default();
    *request.body_mut() = ClientBody::from(body.clone());
    let object = json::parse(&body).unwrap_or_default();
    let name = |field: &str| object["metadata"][field].str().to_owned();
    match object["metadata"]["name"].is_empty() {
        true => name("generateName"),
        false => name("name"),
    }
}

fn request_kind(request: &Request<ClientBody>) -> RequestKind {
    let query = request.uri().query().unwrap_or_default();
    let has = |parameter: &str| query.split('&').any(|one| one == parameter);
    match *request.method() {
        Method::GET if has("watch=true") || has("watch=1") => RequestKind::Watch,
        Method::GET if has("resourceVersion=0") && !has("resourceVersionMatch=Exact") => {
            RequestKind::CachedList
        }
        Method::GET | Method::HEAD | Method::OPTIONS => RequestKind::Read,
        _ => RequestKind::Write,
    }
}

fn refusal(code: u16, reason: &str) -> Response<FaultyBody> {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"injected fault","reason":"{reason}","code":{code}}}"#
    );
    let mut response = Response::new(FaultyBody::whole(status.into()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("the code is valid");
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}

impl Service<Request<ClientBody>> for Connection {
    type Response = Response<FaultyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FaultyBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        let connection = self.clone();
        let is_for_test = self.process.is_none();
        Box::pin(IS_FOR_TEST.scope(
            is_for_test,
            async move { Ok(connection.answer(request).await) },
        ))
    }
}

/// The body of an answer; that of a watch may lose, delay or repeat events.
struct FaultyBody {
    inner: Option<Body>,
    is_for_test: bool,
    faults: Option<Box<WatchFaults>>,
}

impl FaultyBody {
    fn whole(bytes: Bytes) -> FaultyBody {
        FaultyBody {
            inner: Some(Body::from(bytes)),
            is_for_test: false,
            faults: None,
        }
    }
}

/// The event with which a watch ends whose version is too old.
const EXPIRED_EVENT: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}
"#;

/// The faults of one watch.
struct WatchFaults {
    site: Site,
    network: Network,
    /// After how many events the watch is cut.
    cut: Option<u32>,
    n_events: u32,
    /// The beginning of an incomplete line.
    partial: BytesMut,
    /// Whole lines that are not delivered yet.
    lines: VecDeque<Bytes>,
    /// A line that is late, and until when.
    delayed: Option<(Bytes, Pin<Box<Sleep>>, InFlight)>,
    /// Resolves when faults are switched off.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl WatchFaults {
    fn new(site: Site, cut: Option<u32>, network: &Network) -> WatchFaults {
        let mut is_on = network.faults.subscribe();
        let over = Box::pin(async move {
            // The sender is gone when the cluster is.
            let _ = is_on.wait_for(|is_on| !*is_on).await;
        });
        WatchFaults {
            site,
            over,
            network: network.clone(),
            cut,
            n_events: 0,
            partial: BytesMut::new(),
            lines: VecDeque::new(),
            delayed: None,
        }
    }

    fn receive(&mut self, bytes: &Bytes) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            self.lines
                .push_back(self.partial.split_to(end + 1).freeze());
        }
    }

    /// The next lines to deliver; none if more must be received first. Ends with `None` when the watch is cut.
    fn poll_deliver(&mut self, context: &mut Context) -> Poll<Option<Option<Bytes>>> {
        if self.cut == Some(0) {
            return Poll::Ready(None);
        }
        // A client that lost events must list again: it would never get them otherwise.
        if self.over.as_mut().poll(context).is_ready() {
            self.cut = Some(0);
            return Poll::Ready(Some(Some(Bytes::from_static(EXPIRED_EVENT))));
        }
        loop {
            if let Some((line, until, _)) = &mut self.delayed {
                ready!(until.as_mut().poll(context));
                let line = line.clone();
                self.delayed = None;
                return Poll::Ready(Some(Some(line)));
            }
            let Some(line) = self.lines.pop_front() else {
                return Poll::Ready(Some(None));
            };
            // A bookmark that is lost or late would claim that nothing happened.
            if line.starts_with(br#"{"type":"BOOKMARK""#) {
                return Poll::Ready(Some(Some(line)));
            }
            let event = self.n_events;
            self.n_events += 1;
            if self.cut.is_some_and(|cut| event >= cut) {
                return Poll::Ready(None);
            }
            match self.network.faults.on_event(&self.site, event, &line) {
                Some(Fault::DropEvent { .. }) => {}
                Some(Fault::RepeatEvent { .. }) => {
                    return Poll::Ready(Some(Some([&line[..], &line[..]].concat().into())));
                }
                Some(fault) => {
                    let delay = fault.delay().unwrap_or_default();
                    let late = InFlight::new(&self.network);
                    self.delayed = Some((line, Box::pin(sleep(delay)), late));
                }
                None => return Poll::Ready(Some(Some(line))),
            }
        }
    }
}

impl http_body::Body for FaultyBody {
    type Data = Bytes;
    type Error = TruncatedResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedResponse>>> {
        let FaultyBody {
            inner,
            is_for_test,
            faults,
        } = &mut *self;
        let is_for_test = *is_for_test;
        // A watch converts its objects when it is polled.
        let poll_inner = |body: &mut Body, context: &mut Context| {
            IS_FOR_TEST.sync_scope(is_for_test, || Pin::new(body).poll_frame(context))
        };
        loop {
            let Some(body) = inner else {
                return Poll::Ready(None);
            };
            let Some(faults) = faults else {
                return poll_inner(body, context);
            };
            match ready!(faults.poll_deliver(context)) {
                None => *inner = None,
                Some(Some(line)) => return Poll::Ready(Some(Ok(Frame::data(line)))),
                Some(None) => match ready!(poll_inner(body, context)) {
                    Some(Ok(frame)) => faults.receive(&frame.into_data().unwrap_or_default()),
                    end => return Poll::Ready(end),
                },
            }
        }
    }
}
