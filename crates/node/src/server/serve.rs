//! The endpoints of a kubelet, over HTTPS, for all nodes of the process, and
//! `/containerLogs/{namespace}/{pod}/{container}`.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mizzen_sdk::Key;
use mizzen_sdk::metrics::Families;
use mizzen_value::Str;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::container_logs::{ContainerInstance, HttpError, LogPrinter, PodLogOptions};
use super::log_file::LogFile;
use super::measured;
use super::reviews::Reviews;
use super::tls::{ClientIdentity, Serving};
use crate::agent::{AgentHandle, PodView};
use crate::moment::Moment;
use crate::pod::spec;
use crate::resource_metrics;
use crate::runtime::{ContainerLife, ContainerRuntime};
use crate::settings::NodeSettings;
use crate::stats::MeasuredPods;
use crate::streaming::{SessionStarter, Sessions, is_stream};

/// The most concurrent connections.
const MOST_CONNECTIONS: usize = 1000;
/// The time limit of a TLS handshake, and of the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often a followed log is polled.
pub(crate) const FOLLOW: Duration = Duration::from_millis(100);
/// How long to wait after `accept` has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The body of a response.
pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// The kubelet server.
#[derive(Clone)]
pub(crate) struct KubeletServer {
    pub settings: Arc<NodeSettings>,
    pub agent: AgentHandle,
    /// Starts sessions on upgraded connections.
    pub sessions: SessionStarter,
    /// What the API server has said about users.
    pub reviews: Arc<Reviews>,
}

/// Serves until the future is dropped.
pub(crate) async fn serve(serving: Serving, settings: Arc<NodeSettings>, agent: AgentHandle) {
    let (acceptor, room) = (
        TlsAcceptor::from(serving.tls),
        Arc::new(Semaphore::new(MOST_CONNECTIONS)),
    );
    let reviews = Arc::new(Reviews::new(settings.reviews));
    let sessions = Sessions::default();
    let server = KubeletServer {
        settings,
        agent,
        sessions: sessions.starter(),
        reviews,
    };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        match serving.listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                connections.spawn(async move {
                    server.serve_connection(stream, acceptor).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

impl KubeletServer {
    async fn serve_connection(self, stream: TcpStream, acceptor: TlsAcceptor) {
        // As Go's server does: otherwise a response waits 40 ms for the client's kernel to
        // acknowledge earlier TLS records.
        let _ = stream.set_nodelay(true);
        let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else {
            return;
        };
        let peer = ClientIdentity::from_certificates(stream.get_ref().1.peer_certificates());
        let local = stream.get_ref().0.local_addr();
        let local = local.ok().map(|address| address.ip());
        let (server, peer) = (&self, &peer);
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(server.handle(peer, local, request).await)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE);
        let _ = builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
    }

    async fn handle(
        &self,
        peer: &ClientIdentity,
        local: Option<IpAddr>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        let forwarded_uri = request.headers().get("x-forwarded-uri");
        let node = self.node(forwarded_uri, local, path).await;
        // Kubernetes: a certificate counts before a token.
        let authorized = match peer {
            ClientIdentity::Trusted => Ok(()),
            ClientIdentity::User(user) => self.authorize(user, &node, method, path).await,
            ClientIdentity::Anonymous => {
                let token = request.headers().get(header::AUTHORIZATION);
                match self.user_of_token(token, &node).await {
                    Some(user) => self.authorize(&user, &node, method, path).await,
                    None => Err(HttpError(401, "Unauthorized".into())),
                }
            }
        };
        if let Err(HttpError(code, why)) = authorized {
            return text(code, why);
        }
        if is_stream(path) {
            return self.stream(&node, request).await;
        }
        self.answer(node, &request).await
    }

    /// Answers a request that is authorized.
    async fn answer(&self, node: Str, request: &Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match (method, segments.as_slice()) {
            (&Method::GET, ["containerLogs", namespace, pod, container]) => {
                let query = request.uri().query().unwrap_or_default();
                let key = Key::new(*namespace, *pod);
                let response = self.container_logs(&node, key, container, query).await;
                response.unwrap_or_else(|HttpError(code, what)| text(code, what))
            }
            (&Method::GET, ["healthz"]) => text(200, "ok"),
            (&Method::GET, ["pods"] | ["pods", ""]) => self.pods(node).await,
            (&Method::GET, ["metrics"]) => self.metrics(node).await,
            (&Method::GET, ["metrics", "cadvisor"]) => self.cadvisor().await,
            (&Method::GET, ["metrics", "resource"]) => self.resource_metrics(&node).await,
            (&Method::GET, ["metrics", "nodes", named, "metrics", "resource"])
                if node.as_str() == *named =>
            {
                self.resource_metrics(&node).await
            }
            (&Method::GET, ["metrics", "probes"]) => self.probe_metrics(),
            (&Method::GET, ["stats", "summary"]) => self.summary(node).await,
            (&Method::GET, ["runningpods"] | ["runningpods", ""]) => self.running_pods(node).await,
            (_, ["configz"]) => self.configz(),
            (&Method::POST, ["checkpoint", namespace, pod, container]) => {
                let key = Key::new(*namespace, *pod);
                self.checkpoint(&node, &key, container).await
            }
            // Kubernetes: what the configuration of a kubelet disables.
            (_, ["logs", ..]) => text(405, "logs endpoint is disabled.\n"),
            (_, ["debug", "pprof", ..]) => text(405, "profiling endpoint is disabled.\n"),
            (_, ["debug", "flags", "v"]) => text(405, "flags endpoint is disabled.\n"),
            (
                _,
                ["pods"]
                | ["runningpods", ..]
                | ["stats", "summary"]
                | ["containerLogs", _, _, _]
                | ["checkpoint", _, _, _],
            ) => text(405, "405: Method Not Allowed"),
            _ => text(404, "404 page not found\n"),
        }
    }

    async fn resource_metrics(&self, node: &str) -> Response<Body> {
        let usage = match self.settings.node_stats(MeasuredPods::All).await {
            Some(stats) => Some(measured::usage(&stats)),
            None => self.agent.usage(node).await,
        };
        match usage {
            Some(usage) => prometheus(resource_metrics::write(&usage)),
            None => text(404, "404 page not found\n"),
        }
    }

    /// `/metrics/probes`; empty where nothing is probed.
    fn probe_metrics(&self) -> Response<Body> {
        let mut families = Families::default();
        self.settings.runtime.collect_probes(&mut families);
        prometheus(families.to_string())
    }

    /// `/checkpoint/…`: what is asked for is looked up, but no container is checkpointed.
    async fn checkpoint(&self, node: &str, key: &Key, container: &str) -> Response<Body> {
        let Some(view) = self.pod_of_node(node, key).await else {
            return text(404, "pod does not exist");
        };
        if spec::container(&view.pod, container).is_null() {
            return text(404, format!("container {container} does not exist"));
        }
        text(
            500,
            format!("checkpointing of {key}/{container} failed (the node cannot checkpoint)"),
        )
    }

    /// `/metrics/cadvisor`, of a node that is measured.
    async fn cadvisor(&self) -> Response<Body> {
        match self.settings.node_stats(MeasuredPods::All).await {
            Some(stats) => prometheus(measured::cadvisor(&stats)),
            None => text(404, "404 page not found\n"),
        }
    }

    async fn container_logs(
        &self,
        node: &str,
        key: Key,
        container: &str,
        query: &str,
    ) -> Result<Response<Body>, HttpError> {
        let (options, name) = (PodLogOptions::parse(query)?, key.name());
        let missing = || HttpError(404, format!("pod {name:?} does not exist"));
        let view = self.pod_of_node(node, &key).await.ok_or_else(missing)?;
        if spec::container(&view.pod, container).is_null() {
            return Err(HttpError(
                404,
                format!("container {container:?} not found in pod {name:?}"),
            ));
        }
        let life = ContainerInstance::find(&view.pod, container, options.previous)?;
        let follow = options.follow;
        let file = self
            .settings
            .runtime
            .log_file(&view.pod, container, &life.id);
        if let Some(path) = file {
            let opened = LogFile::open(&path, options, self.settings.now()).await;
            let failed = |error: io::Error| HttpError(500, format!("failed to open log: {error}"));
            let reader = LogFileReader {
                server: self.clone(),
                key,
                container: container.into(),
                life,
                file: opened.map_err(failed)?,
                follow,
            };
            return Ok(reader.into_response());
        }
        let printer = LogPrinter::new(options, self.settings.now());
        let reader = LogReader {
            server: self.clone(),
            key,
            container: container.into(),
            life,
            printer,
        };
        Ok(reader.into_response(follow, &view))
    }

    /// Reads one instance of a container, up to its end or to now.
    pub(crate) fn read_instance<T>(
        &self,
        view: &PodView,
        container: &str,
        life: &ContainerInstance,
        read: impl FnOnce(&dyn ContainerRuntime, &ContainerLife, Moment) -> T,
    ) -> T {
        let (settings, pod) = (&self.settings, &*view.pod);
        let since = settings.timeline.find(life.since);
        // The end is relative to the start, whatever the wall clock did meanwhile.
        let until = life
            .until
            .map(|until| whole_second(since + until.saturating_sub(life.since)));
        let host = settings.host(pod["spec"]["nodeName"].str());
        let common = settings.services.inputs(pod);
        let life = ContainerLife {
            pod,
            container: spec::container(pod, container),
            since,
            inputs: view.inputs(&life.id),
            node: settings.node_context(&host, &common),
        };
        read(
            &*settings.runtime,
            &life,
            until.unwrap_or_else(|| settings.now()),
        )
    }

    /// Waits until a container instance has ended.
    pub(crate) async fn wait_for_end(&self, key: &Key, container: &str, life: &ContainerInstance) {
        let is_same = |view: PodView| {
            ContainerInstance::find(&view.pod, container, false).is_ok_and(|found| found == *life)
        };
        while self.agent.pod(key).await.is_some_and(is_same) {
            sleep(FOLLOW).await;
        }
    }
}

/// A reader of container logs.
struct LogReader {
    server: KubeletServer,
    key: Key,
    container: String,
    life: ContainerInstance,
    printer: LogPrinter,
}

impl LogReader {
    fn into_response(mut self, follow: bool, view: &PodView) -> Response<Body> {
        let first = Bytes::from(self.read(view));
        let body = match follow && self.life.until.is_none() {
            false => Full::new(first).boxed(),
            true => {
                let frames =
                    stream::unfold((Some(first), self), |(first, mut reader)| async move {
                        let next = match first {
                            Some(first) => first,
                            None => reader.next().await?,
                        };
                        Some((Ok(Frame::data(next)), (None, reader)))
                    });
                BodyExt::boxed(StreamBody::new(frames))
            }
        };
        response(200, body)
    }

    /// The new lines.
    fn read(&mut self, view: &PodView) -> Vec<u8> {
        let logs = |runtime: &dyn ContainerRuntime, life: &ContainerLife, now: Moment| {
            runtime.logs(life, whole_second(now))
        };
        let lines = self
            .server
            .read_instance(view, &self.container, &self.life, logs);
        self.printer.print(&lines)
    }

    /// Waits for new lines; `None` once the container has ended.
    async fn next(&mut self) -> Option<Bytes> {
        while self.life.until.is_none() && !self.printer.is_full() {
            sleep(FOLLOW).await;
            let view = self.server.agent.pod(&self.key).await?;
            // The last lines must not be missed.
            match ContainerInstance::find(&view.pod, &self.container, false) {
                Ok(life) if life.since == self.life.since => self.life = life,
                _ => return None,
            }
            let new = self.read(&view);
            if !new.is_empty() {
                return Some(new.into());
            }
        }
        None
    }
}

/// A reader of the log file of a real container.
struct LogFileReader {
    server: KubeletServer,
    key: Key,
    container: String,
    life: ContainerInstance,
    file: LogFile,
    follow: bool,
}

impl LogFileReader {
    fn into_response(self) -> Response<Body> {
        let frames = stream::unfold(self, |mut reader| async move {
            let next = reader.next().await?;
            Some((Ok(Frame::data(next)), reader))
        });
        response(200, BodyExt::boxed(StreamBody::new(frames)))
    }

    /// The next lines; `None` at the end, or once a container that is followed has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let is_last = !self.follow || self.life.until.is_some();
            match self.file.read().await {
                Ok(Some(lines)) => return Some(lines),
                Ok(None) if is_last || self.file.is_full() => return None,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, pod = %self.key, "cannot read a log");
                    return None;
                }
            }
            sleep(FOLLOW).await;
            let view = self.server.agent.pod(&self.key).await?;
            // What was written before the end is read once more.
            match ContainerInstance::find(&view.pod, &self.container, false) {
                Ok(life) if life.id == self.life.id => self.life = life,
                _ => self.follow = false,
            }
        }
    }
}

/// Rounds up: statuses have whole seconds, so everything within that second has happened.
fn whole_second(now: Moment) -> Moment {
    now + Duration::from_nanos(u64::from(999_999_999 - now.wall().subsec_nanos()))
}

/// A response in the Prometheus text format.
fn prometheus(body: String) -> Response<Body> {
    let mut response = text(200, body);
    let media_type = header::HeaderValue::from_static(resource_metrics::CONTENT_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// A plain text response.
pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    response(code, Full::new(text.into()).boxed())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
