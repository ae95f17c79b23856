//! The endpoints: `/exec`, `/attach` and `/portForward` as a kubelet has them, and `/tunnel` for
//! the API server's proxies.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::task::JoinSet;

use super::attach::Attached;
use super::limits::{Activity, StreamLimits};
use super::port_forward::{self, ForwardedPod};
use super::query::StreamQuery;
use super::remote_command::{self, ClientStreams, StreamOptions};
use super::websocket::{self, ChannelEncoding};
use super::{spdy, tunnel};
use crate::pod::spec;
use crate::runtime::{Attach, ContainerEnvironment, Exec, Stdio};
use crate::server::{Body, ContainerInstance, HttpError, KubeletServer, text};

/// The most concurrent sessions.
const MAX_SESSIONS: usize = 1_000;
/// The exit code of a killed command.
const KILLED: i64 = 137;
/// The protocol headers. Kubernetes: k8s.io/streaming, httpstream.go.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_VERSIONS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");
/// The WebSocket subprotocol that carries SPDY.
const SPDY_TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// The WebSocket subprotocols of exec and attach: their encoding, and whether the result is a
/// Status.
const COMMAND_PROTOCOLS: [(&str, ChannelEncoding, bool); 6] = [
    (
        "v5.channel.k8s.io",
        ChannelEncoding::Binary { closes: true },
        true,
    ),
    (
        "v4.channel.k8s.io",
        ChannelEncoding::Binary { closes: false },
        true,
    ),
    ("v4.base64.channel.k8s.io", ChannelEncoding::Base64, true),
    (
        "channel.k8s.io",
        ChannelEncoding::Binary { closes: false },
        false,
    ),
    ("base64.channel.k8s.io", ChannelEncoding::Base64, false),
    ("", ChannelEncoding::Binary { closes: false }, false),
];
/// The same for port-forward, besides the tunnel.
const FORWARD_PROTOCOLS: [(&str, ChannelEncoding); 3] = [
    (
        "v4.channel.k8s.io",
        ChannelEncoding::Binary { closes: false },
    ),
    ("v4.base64.channel.k8s.io", ChannelEncoding::Base64),
    ("", ChannelEncoding::Binary { closes: false }),
];

/// An upgraded connection.
type Io = TokioIo<Upgraded>;
/// Runs with the streams of exec or attach; returns the exit code.
type Process = Box<dyn FnOnce(Stdio) -> BoxFuture<'static, Result<i64, String>> + Send>;
/// A response; `Err` if no stream is served.
type StreamResponse = Result<Response<Body>, Box<Response<Body>>>;

/// Upgraded connections, which end when this is dropped.
#[derive(Default)]
pub(crate) struct Sessions(Arc<Mutex<JoinSet<()>>>);

/// Starts sessions. It is a weak reference, so a session may hold it.
#[derive(Clone)]
pub(crate) struct SessionStarter(Weak<Mutex<JoinSet<()>>>);

impl Sessions {
    pub(crate) fn starter(&self) -> SessionStarter {
        SessionStarter(Arc::downgrade(&self.0))
    }
}

impl SessionStarter {
    fn start(&self, session: impl Future<Output = ()> + Send + 'static) -> Result<(), HttpError> {
        let sessions = self
            .0
            .upgrade()
            .ok_or_else(|| HttpError(503, "the node is shutting down".into()))?;
        let mut sessions = sessions.lock();
        while sessions.try_join_next().is_some() {}
        if sessions.len() >= MAX_SESSIONS {
            return Err(HttpError(
                429,
                "maximum number of in-flight requests exceeded".into(),
            ));
        }
        sessions.spawn(session);
        Ok(())
    }
}

/// Whether a path is that of a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("exec" | "attach" | "portForward" | "tunnel"))
}

/// A request for a stream, and its pod.
struct StreamRequest {
    server: KubeletServer,
    query: StreamQuery,
    headers: HeaderMap,
    upgrade: OnUpgrade,
    key: Key,
    pod: Object,
}

impl KubeletServer {
    /// Serves a request to a node for a stream: 101 and a session, or an error.
    pub(crate) async fn stream(
        &self,
        node: &str,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return text(405, "405: Method Not Allowed");
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let path = request.uri().path();
        let call = async |namespace: &str, name: &str| {
            let key = Key::new(namespace, name);
            let missing = || refuse(HttpError(404, "pod does not exist".into()));
            let view = self.pod_of_node(node, &key).await;
            let pod = view.ok_or_else(missing)?.pod;
            let query = StreamQuery::parse(request.uri().query().unwrap_or_default());
            Ok(StreamRequest {
                server: self.clone(),
                query,
                headers: request.headers().clone(),
                upgrade,
                key,
                pod,
            })
        };
        // Kubernetes: the UID of a pod may follow its name.
        let response = match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
            [kind @ ("exec" | "attach"), namespace, pod, container]
            | [kind @ ("exec" | "attach"), namespace, pod, _, container] => {
                match call(namespace, pod).await {
                    Ok(call) => call.remote_command(kind, container).await,
                    Err(refused) => Err(refused),
                }
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                call(namespace, pod)
                    .await
                    .and_then(StreamRequest::port_forward)
            }
            ["tunnel", namespace, pod] => match call(namespace, pod).await {
                Ok(call) => call.tunnel().await,
                Err(refused) => Err(refused),
            },
            _ => return text(404, "404 page not found\n"),
        };
        response.unwrap_or_else(|refused| *refused)
    }
}

fn refuse(HttpError(code, why): HttpError) -> Box<Response<Body>> {
    Box::new(text(code, why))
}

/// The transport of a client.
enum StreamTransport {
    /// SPDY, with the negotiated protocol.
    Spdy(&'static str),
    /// WebSocket, with the index of the negotiated subprotocol.
    WebSocket(usize),
}

impl StreamRequest {
    async fn remote_command(self, kind: &str, container: &str) -> StreamResponse {
        let options = StreamOptions::parse(&self.query).map_err(refuse)?;
        let process = self.process(kind, container).await.map_err(refuse)?;
        let names = COMMAND_PROTOCOLS.map(|(name, ..)| name);
        let (response, transport) = self.negotiate(&remote_command::PROTOCOLS, &names)?;
        let limits = self.limits();
        self.start(move |io| async move {
            match transport {
                StreamTransport::Spdy(protocol) => {
                    let work = async |opened| {
                        let streams =
                            ClientStreams::accept(opened, options, protocol, limits.creation).await;
                        if let Some(streams) = streams {
                            streams.run(process).await;
                        }
                    };
                    log(spdy::serve(io, limits, |_| Ok(()), work).await);
                }
                StreamTransport::WebSocket(chosen) => {
                    let (_, encoding, reports_status) = COMMAND_PROTOCOLS[chosen];
                    let work = async |channels| {
                        let streams =
                            ClientStreams::of_channels(channels, options, reports_status).await;
                        streams.run(process).await;
                    };
                    log(
                        websocket::serve(io, limits, encoding, remote_command::N_CHANNELS, work)
                            .await,
                    );
                }
            }
        })
        .map(|()| response)
    }

    fn limits(&self) -> StreamLimits {
        StreamLimits {
            idle: self.server.settings.streaming_idle_timeout,
            ..StreamLimits::default()
        }
    }

    /// The process of an exec or attach.
    async fn process(&self, kind: &str, container: &str) -> Result<Process, HttpError> {
        match kind {
            "exec" => self.exec(container).await,
            _ => self.attach(container),
        }
    }

    /// The current instance of a running container.
    fn life(&self, container: &str) -> Option<ContainerInstance> {
        ContainerInstance::find(&self.pod, container, false)
            .ok()
            .filter(|life| life.until.is_none())
    }

    async fn exec(&self, container: &str) -> Result<Process, HttpError> {
        let missing = || HttpError(500, format!("container not found ({container:?})"));
        let life = self.life(container).ok_or_else(missing)?;
        let settings = self.server.settings.clone();
        let environment = match settings.runtime.runs_processes() {
            true => ContainerEnvironment::default(),
            false => {
                let environment = self.server.agent.environment(&self.key, container);
                environment.await.ok_or_else(missing)?
            }
        };
        let exec = Exec {
            pod: Value::clone(&self.pod),
            container: container.into(),
            id: life.id.clone(),
            environment,
            command: self.query.all("command").map(String::from).collect(),
            now: {
                let settings = settings.clone();
                Arc::new(move || settings.now())
            },
        };
        let (server, key, container) =
            (self.server.clone(), self.key.clone(), container.to_owned());
        Ok(Box::new(move |stdio| {
            let ended = settings.runtime.exec(exec, stdio);
            let failed = |why| format!("error executing command in container: {why}");
            Box::pin(async move {
                tokio::select! {
                    ended = ended => ended.map_err(failed),
                    // A command is killed with its container.
                    () = server.wait_for_end(&key, &container, &life) => Ok(KILLED),
                }
            })
        }))
    }

    fn attach(&self, container: &str) -> Result<Process, HttpError> {
        let missing = || {
            let pod = format!("{}_{}", self.key.name(), self.key.namespace());
            HttpError(500, format!("container {container} not found in pod {pod}"))
        };
        let life = self.life(container).ok_or_else(missing)?;
        if self.server.settings.runtime.runs_processes() {
            let (runtime, spec) = (
                self.server.settings.runtime.clone(),
                spec::container(&self.pod, container),
            );
            let attach = Attach {
                id: life.id,
                tty: spec["tty"].bool(),
                stdin_once: spec["stdinOnce"].bool(),
            };
            return Ok(Box::new(move |stdio| runtime.attach(attach, stdio)));
        }
        let attached = Attached::new(self.server.clone(), self.key.clone(), container, life);
        Ok(Box::new(move |stdio| Box::pin(attached.run(stdio))))
    }

    fn port_forward(self) -> StreamResponse {
        if self.pod["status"]["phase"].str() != "Running" {
            let pod = format!("{}_{}", self.key.name(), self.key.namespace());
            return Err(refuse(HttpError(500, format!("pod not found ({pod:?})"))));
        }
        let names = [&[SPDY_TUNNEL][..], &FORWARD_PROTOCOLS.map(|(name, _)| name)].concat();
        let (response, transport) = self.negotiate(&[port_forward::PROTOCOL], &names)?;
        let ports = match transport {
            StreamTransport::WebSocket(1..) => port_forward::ports(&self.query).map_err(refuse)?,
            _ => Vec::new(),
        };
        let (pod, limits) = (Arc::new(self.forwarded()), self.limits());
        self.start(move |io| async move {
            let serve = async |opened| {
                port_forward::serve_streams(opened, pod.clone(), limits.creation).await
            };
            match transport {
                StreamTransport::Spdy(_) => {
                    log(spdy::serve(io, limits, port_forward::accepts, serve).await)
                }
                StreamTransport::WebSocket(0) => {
                    let work =
                        async |io| log(spdy::serve(io, limits, port_forward::accepts, serve).await);
                    log(websocket::tunnel(io, limits, work).await);
                }
                StreamTransport::WebSocket(chosen) => {
                    let (_, encoding) = FORWARD_PROTOCOLS[chosen - 1];
                    let n_channels =
                        u8::try_from(2 * ports.len()).expect("the number of ports is limited");
                    let work = async |channels| {
                        port_forward::serve_channels(channels, ports.clone(), pod.clone()).await;
                    };
                    log(websocket::serve(io, limits, encoding, n_channels, work).await);
                }
            }
        })
        .map(|()| response)
    }

    fn forwarded(&self) -> ForwardedPod {
        let (settings, pod) = (self.server.settings.clone(), Value::clone(&self.pod));
        let sandbox = self.pod["metadata"]["uid"].str().replace('-', "");
        ForwardedPod {
            sandbox,
            connect: Box::new(move |port| settings.runtime.connect(&pod, port)),
        }
    }

    /// A byte stream to a port, by which the API server reaches a pod. Not an upstream endpoint:
    /// there the API server dials the pod.
    async fn tunnel(self) -> StreamResponse {
        let ports = port_forward::ports(&self.query).map_err(refuse)?;
        let is_asked = self.headers.get(UPGRADE).is_some_and(|kind| kind == "tcp");
        if !is_asked {
            return Err(refuse(HttpError(400, "Upgrade request required".into())));
        }
        let connected = (self.forwarded().connect)(ports[0]).await;
        let connection = connected.map_err(|error| refuse(HttpError(502, error.to_string())))?;
        let idle = self.limits().idle;
        self.start(move |io| async move {
            log(tunnel::tunnel(io, connection, &Activity::new(idle)).await);
        })
        .map(|()| switching("tcp"))
    }

    /// Negotiates transport and protocol.
    fn negotiate(
        &self,
        spdy: &[&'static str],
        websocket: &[&'static str],
    ) -> Result<(Response<Body>, StreamTransport), Box<Response<Body>>> {
        let upgrade = self.header(&UPGRADE).to_ascii_lowercase();
        if !self
            .header(&CONNECTION)
            .to_ascii_lowercase()
            .contains("upgrade")
        {
            return Err(refuse(HttpError(400, "Upgrade request required".into())));
        }
        if upgrade == "websocket" {
            return self.negotiate_websocket(websocket);
        }
        let offered = self.offered(&PROTOCOL_VERSION);
        if offered.is_empty() {
            let why = format!(
                "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {} headers\n",
                self.headers.len()
            );
            return Err(refuse(HttpError(400, why)));
        }
        let Some(chosen) = offered
            .iter()
            .find_map(|offer| spdy.iter().find(|known| *known == offer))
        else {
            let why = format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]\n",
                offered.join(" "),
                spdy.join(" ")
            );
            let mut refused = refuse(HttpError(403, why));
            for known in spdy {
                refused
                    .headers_mut()
                    .append(ACCEPTED_VERSIONS, HeaderValue::from_static(known));
            }
            return Err(refused);
        };
        if !upgrade.contains("spdy/3.1") {
            let why = "unable to upgrade: missing upgrade headers in request\n";
            return Err(refuse(HttpError(400, why.into())));
        }
        let mut response = switching("SPDY/3.1");
        response
            .headers_mut()
            .insert(PROTOCOL_VERSION, HeaderValue::from_static(chosen));
        Ok((response, StreamTransport::Spdy(chosen)))
    }

    fn negotiate_websocket(
        &self,
        known: &[&'static str],
    ) -> Result<(Response<Body>, StreamTransport), Box<Response<Body>>> {
        let key = self.header(&SEC_WEBSOCKET_KEY);
        if key.is_empty() || self.header(&SEC_WEBSOCKET_VERSION) != "13" {
            let mut refused = refuse(HttpError(
                400,
                "websocket: version 13 and a key are required\n".into(),
            ));
            refused
                .headers_mut()
                .insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            return Err(refused);
        }
        let mut offered = self.offered(&SEC_WEBSOCKET_PROTOCOL);
        if offered.is_empty() {
            offered.push(String::new());
        }
        let chosen = offered
            .iter()
            .find_map(|offer| known.iter().position(|known| known == offer));
        let Some(chosen) = chosen else {
            let why = format!(
                "requested protocol(s) are not supported: [{}]; supports [{}]\n",
                offered.join(" "),
                known.join(" ")
            );
            return Err(refuse(HttpError(403, why)));
        };
        let mut response = switching("websocket");
        let proof = HeaderValue::from_str(&mizzen_transport::websocket::accept_key(key))
            .expect("base64 can stand in a header");
        response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, proof);
        if !known[chosen].is_empty() {
            let protocol = HeaderValue::from_static(known[chosen]);
            response
                .headers_mut()
                .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        Ok((response, StreamTransport::WebSocket(chosen)))
    }

    fn header(&self, name: &HeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The protocols in all headers of a name, each a list.
    fn offered(&self, name: &HeaderName) -> Vec<String> {
        let values = self
            .headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let names = values.flat_map(|value| value.split(',')).map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(String::from)
            .collect()
    }

    /// Starts a session on the upgraded connection.
    fn start<F>(
        self,
        session: impl FnOnce(Io) -> F + Send + 'static,
    ) -> Result<(), Box<Response<Body>>>
    where
        F: Future<Output = ()> + Send,
    {
        let upgrade = self.upgrade;
        let session = async move {
            if let Ok(upgraded) = upgrade.await {
                session(TokioIo::new(upgraded)).await;
            }
        };
        self.server.sessions.start(session).map_err(refuse)
    }
}

fn switching(protocol: &'static str) -> Response<Body> {
    let mut response = text(101, "");
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
        .headers_mut()
        .insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

fn log<E: std::fmt::Display>(ended: Result<(), E>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "upgraded connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_number_of_sessions_is_limited() {
        let sessions = Sessions::default();
        let starter = sessions.starter();
        let (end, ended) = oneshot::channel::<()>();
        let first = starter.start(async move { drop(ended.await) });
        assert!(first.is_ok());
        for _ in 1..MAX_SESSIONS {
            assert!(starter.start(pending()).is_ok());
        }
        let code = |started: Result<(), HttpError>| started.err().map(|HttpError(code, _)| code);
        assert_eq!(code(starter.start(pending())), Some(429));
        // One that has ended makes room for another.
        drop(end);
        while starter.start(pending()).is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(starter.start(pending())), Some(429));
        drop(sessions);
        assert_eq!(code(starter.start(pending())), Some(503));
    }
}
