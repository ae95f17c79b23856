//! The endpoints of a kubelet, over HTTPS, for all nodes of the process; `/containerLogs/{namespace}/{pod}/{container}` is here.

use std::convert::Infallible;
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
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::choose::{Life, Printer, Refusal, Wanted};
use super::trust::{Peer, Serving};
use crate::agent::{Handle, PodView};
use crate::moment::Moment;
use crate::pod::spec;
use crate::resource_metrics;
use crate::runtime::{ContainerLife, ContainerRuntime};
use crate::settings::Settings;
use crate::streaming::{SessionStarter, Sessions, is_stream};

/// How many connections there may be.
const MOST_CONNECTIONS: usize = 1000;
/// How long shaking hands, and sending a request, may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often somebody who follows is told what is new.
pub(crate) const FOLLOW: Duration = Duration::from_millis(100);
/// How long to wait after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// The body of an answer.
pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// What is needed to tell of a pod.
#[derive(Clone)]
pub(crate) struct Teller {
    pub settings: Arc<Settings>,
    pub agent: Handle,
    /// Where connections go that are upgraded.
    pub sessions: SessionStarter,
}

/// Tells what containers wrote until the future is dropped.
pub(crate) async fn serve(serving: Serving, settings: Arc<Settings>, agent: Handle) {
    let (acceptor, room) = (
        TlsAcceptor::from(serving.tls),
        Arc::new(Semaphore::new(MOST_CONNECTIONS)),
    );
    let sessions = Sessions::default();
    let teller = Teller {
        settings,
        agent,
        sessions: sessions.starter(),
    };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        match serving.listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, teller) = (acceptor.clone(), teller.clone());
                connections.spawn(async move {
                    converse(stream, acceptor, teller).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, teller: Teller) {
    // As Go's server has it: without, a response waits 40 ms for the client's kernel to acknowledge what TLS sent before.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let peer = Peer::of(stream.get_ref().1.peer_certificates());
    let local = stream.get_ref().0.local_addr();
    let local = local.ok().map(|address| address.ip());
    let (teller, peer) = (&teller, &peer);
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(teller.answer(peer, local, request).await)
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

impl Teller {
    async fn answer(
        &self,
        peer: &Peer,
        local: Option<IpAddr>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        if *method == Method::GET && path == "/healthz" {
            return text(200, "ok");
        }
        let node = self.node(request.headers().get("x-forwarded-uri"), local);
        let authorized = match peer {
            Peer::Trusted => Ok(()),
            Peer::Anonymous => Err(Refusal(401, "Unauthorized".into())),
            Peer::User { name, groups } => {
                self.authorize((name, groups), &node, method, path).await
            }
        };
        if let Err(Refusal(code, why)) = authorized {
            return text(code, why);
        }
        if is_stream(path) {
            return self.stream(request).await;
        }
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match (method, segments.as_slice()) {
            (&Method::GET, ["containerLogs", namespace, pod, container]) => {
                let query = request.uri().query().unwrap_or_default();
                let told = self.tell(namespace, pod, container, query).await;
                told.unwrap_or_else(|Refusal(code, what)| text(code, what))
            }
            (&Method::GET, ["pods"] | ["pods", ""]) => self.pods(node).await,
            (&Method::GET, ["metrics"]) => self.metrics(node).await,
            (&Method::GET, ["metrics", "resource"]) => self.resource_metrics(&node).await,
            (&Method::GET, ["metrics", "nodes", node, "metrics", "resource"]) => {
                self.resource_metrics(node).await
            }
            (&Method::GET, ["stats", "summary"]) => self.summary(node).await,
            (_, ["pods"] | ["stats", "summary"] | ["containerLogs", _, _, _]) => {
                text(405, "405: Method Not Allowed")
            }
            _ => text(404, "404 page not found\n"),
        }
    }

    async fn resource_metrics(&self, node: &str) -> Response<Body> {
        let Some(usage) = self.agent.usage(node).await else {
            return text(404, "404 page not found\n");
        };
        let mut response = text(200, resource_metrics::write(&usage));
        let media_type = header::HeaderValue::from_static(resource_metrics::CONTENT_TYPE);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
        response
    }

    async fn tell(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        query: &str,
    ) -> Result<Response<Body>, Refusal> {
        let wanted = Wanted::parse(query)?;
        let key = Key::new(namespace, name);
        let missing = || Refusal(404, format!("pod {name:?} does not exist"));
        let view = self.agent.pod(&key).await.ok_or_else(missing)?;
        if spec::container(&view.pod, container).is_null() {
            return Err(Refusal(
                404,
                format!("container {container:?} not found in pod {name:?}"),
            ));
        }
        let life = Life::find(&view.pod, container, wanted.previous)?;
        let follow = wanted.follow;
        let printer = Printer::new(wanted, self.settings.now());
        let reader = Reader {
            teller: self.clone(),
            key,
            container: container.into(),
            life,
            printer,
        };
        Ok(reader.into_answer(follow, &view))
    }

    /// Reads what is known of a life of a container, up to its end or to now.
    pub(crate) fn read_life<T>(
        &self,
        view: &PodView,
        container: &str,
        life: &Life,
        read: impl FnOnce(&dyn ContainerRuntime, &ContainerLife, Moment) -> T,
    ) -> T {
        let (settings, pod) = (&self.settings, &*view.pod);
        let since = settings.timeline.find(life.since);
        // An ended container wrote what it wrote within its life, whatever the wall clock did meanwhile.
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

    /// Waits until a container is no longer in a life.
    pub(crate) async fn end_of(&self, key: &Key, container: &str, life: &Life) {
        let is_same = |view: PodView| {
            Life::find(&view.pod, container, false).is_ok_and(|found| found == *life)
        };
        while self.agent.pod(key).await.is_some_and(is_same) {
            sleep(FOLLOW).await;
        }
    }
}

/// Somebody who reads what a container writes.
struct Reader {
    teller: Teller,
    key: Key,
    container: String,
    life: Life,
    printer: Printer,
}

impl Reader {
    fn into_answer(mut self, follow: bool, view: &PodView) -> Response<Body> {
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
        answer(200, body)
    }

    /// What is new.
    fn read(&mut self, view: &PodView) -> Vec<u8> {
        let logs = |runtime: &dyn ContainerRuntime, life: &ContainerLife, now: Moment| {
            runtime.logs(life, whole_second(now))
        };
        let lines = self
            .teller
            .read_life(view, &self.container, &self.life, logs);
        self.printer.print(&lines)
    }

    /// Waits for something new; none once the container has ended.
    async fn next(&mut self) -> Option<Bytes> {
        while self.life.until.is_none() && !self.printer.is_full() {
            sleep(FOLLOW).await;
            let view = self.teller.agent.pod(&self.key).await?;
            // What it wrote last must not be missed.
            match Life::find(&view.pod, &self.container, false) {
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

/// Statuses have whole seconds: what happened within the last one has happened.
fn whole_second(now: Moment) -> Moment {
    now + Duration::from_nanos(u64::from(999_999_999 - now.wall().subsec_nanos()))
}

/// An answer of plain text.
pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    answer(code, Full::new(text.into()).boxed())
}

fn answer(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
