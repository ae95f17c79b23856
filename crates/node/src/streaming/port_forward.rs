//! Port forwarding: pairs of streams, one for data and one for errors, into connections to ports of a pod.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::query::Query;
use super::spdy::Headers;
use super::stream::{Output, Stream};
use crate::logs::Refusal;
use crate::runtime::Connection;

/// The protocol over SPDY.
pub const PROTOCOL: &str = "portforward.k8s.io";
/// The size of the pieces in which data is handed on.
const PIECE: usize = 32 * 1024;
/// The ports that one WebSocket may forward: a channel is a byte, and a port needs two.
const MAX_PORTS: usize = 100;

/// The pod whose ports are forwarded.
pub struct Pod {
    /// What its sandbox is called.
    pub sandbox: String,
    /// Connects to a port.
    pub connect: Box<dyn Fn(u16) -> Connecting + Send + Sync>,
}

/// A connection that is being made.
type Connecting = BoxFuture<'static, io::Result<Box<dyn Connection>>>;

/// Whether a stream can be one of a pair. Kubernetes: cri-streaming, portforward/httpstream.go.
pub fn accepts(headers: &Headers) -> Result<(), String> {
    let port = headers.get("port");
    match (port.parse::<u16>(), headers.get("streamtype")) {
        _ if port.is_empty() => Err("\"port\" header is required".into()),
        (Err(error), _) => Err(format!("unable to parse {port:?} as a port: {error}")),
        (Ok(0), _) => Err(format!("port {port:?} must be > 0")),
        (_, "") => Err("\"streamType\" header is required".into()),
        (_, "error" | "data") => Ok(()),
        (_, other) => Err(format!("invalid stream type {other:?}")),
    }
}

/// The ports that a WebSocket without a tunnel names in its query. Kubernetes: cri-streaming, portforward/websocket.go.
pub fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let refuse = |why: String| Refusal(400, why);
    let mut ports = Vec::new();
    for text in query.all("port") {
        if text.is_empty() {
            return Err(refuse("query parameter \"port\" cannot be empty".into()));
        }
        for port in text.split(',') {
            match port.parse() {
                Ok(0) => return Err(refuse(format!("port {text:?} must be > 0"))),
                Ok(port) => ports.push(port),
                Err(error) => return Err(refuse(format!("unable to parse {text:?} as a port: {error}"))),
            }
        }
    }
    match ports.len() {
        0 => Err(refuse("query parameter \"port\" is required".into())),
        1..=MAX_PORTS => Ok(ports),
        n_ports => Err(refuse(format!("{n_ports} ports are more than {MAX_PORTS}"))),
    }
}

/// Forwards connections over SPDY until the client has gone. A connection is a pair of streams with the same request ID.
pub async fn serve_streams(mut opened: mpsc::Receiver<Stream>, pod: Arc<Pod>, patience: Duration) {
    let mut halves: HashMap<String, (Instant, Stream)> = HashMap::new();
    let mut connections = JoinSet::new();
    loop {
        let due = halves.values().map(|(due, _)| *due).min();
        tokio::select! {
            stream = opened.recv() => match stream {
                None => return,
                Some(stream) => {
                    let id = request_id(&stream);
                    match halves.remove(&id) {
                        None => drop(halves.insert(id, (Instant::now() + patience, stream))),
                        Some((due, other)) => match pair(other, stream) {
                            Ok((data, error)) => {
                                let (pod, port) = (pod.clone(), data.headers.get("port").parse().unwrap_or(0));
                                let forwarding = async move { forward(&pod, port, data, &error.output).await };
                                drop(connections.spawn(forwarding));
                            }
                            Err((first, kind)) => {
                                complain(&first, &format!("error processing stream for request {id}: {kind} stream already assigned")).await;
                                halves.insert(id, (due, first));
                            }
                        },
                    }
                }
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let late = halves.extract_if(|_, (due, _)| *due <= Instant::now());
                for (id, (_, stream)) in late.collect::<Vec<_>>() {
                    complain(&stream, &format!("(request={id}) timed out waiting for streams")).await;
                    stream.output.reset().await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// The streams of data and errors, or the stream that was first and what both are.
fn pair(first: Stream, second: Stream) -> Result<(Stream, Stream), (Stream, &'static str)> {
    match (first.headers.get("streamtype"), second.headers.get("streamtype")) {
        ("data", "error") => Ok((first, second)),
        ("error", "data") => Ok((second, first)),
        ("data", _) => Err((first, "data")),
        _ => Err((first, "error")),
    }
}

async fn complain(stream: &Stream, what: &str) {
    if stream.headers.get("streamtype") == "error" {
        let _ = stream.output.send(Bytes::from(what.to_owned())).await;
    }
}

/// Kubernetes: old clients name no request, and open the stream of errors right before that of data.
fn request_id(stream: &Stream) -> String {
    match (stream.headers.get("requestid"), stream.headers.get("streamtype")) {
        ("", "data") => stream.id.wrapping_sub(2).to_string(),
        ("", _) => stream.id.to_string(),
        (id, _) => id.to_owned(),
    }
}

/// Forwards ports over a WebSocket: two channels for each, of data and of errors, which begin with the number of the port.
pub async fn serve_channels(channels: Vec<Stream>, ports: Vec<u16>, pod: Arc<Pod>) {
    let mut connections = JoinSet::new();
    let mut channels = channels.into_iter();
    for port in ports {
        let (Some(data), Some(error)) = (channels.next(), channels.next()) else { return };
        let pod = pod.clone();
        connections.spawn(async move {
            for output in [&data.output, &error.output] {
                let _ = output.send(Bytes::copy_from_slice(&port.to_le_bytes())).await;
            }
            forward(&pod, port, data, &error.output).await;
        });
    }
    while connections.join_next().await.is_some() {}
}

/// Copies data between a stream and a port until the port's side ends.
async fn forward(pod: &Pod, port: u16, data: Stream, error: &Output) {
    let sandbox = &pod.sandbox;
    let forwarded = match (pod.connect)(port).await {
        Ok(connection) => copy(connection, data.input, &data.output).await.map_err(|why| why.to_string()),
        // In the words of containerd.
        Err(why) => Err(format!(
            "failed to connect to localhost:{port} inside namespace {sandbox:?}, IPv4: dial tcp4 127.0.0.1:{port}: {why} IPv6 \
             dial tcp6 [::1]:{port}: {why}"
        )),
    };
    match forwarded {
        Ok(()) => {
            data.output.finish().await;
            error.finish().await;
        }
        Err(why) => {
            let said = format!("error forwarding port {port} to pod {sandbox}, uid : {why}");
            let _ = error.send(said.into()).await;
            data.output.reset().await;
            error.reset().await;
        }
    }
}

async fn copy(
    connection: Box<dyn Connection>,
    mut input: mpsc::Receiver<Bytes>,
    output: &Output,
) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(connection);
    let inward = async {
        while let Some(data) = input.recv().await {
            write.write_all(&data).await?;
        }
        write.shutdown().await
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let n = read.read(&mut piece).await?;
            if n == 0 || output.send(Bytes::copy_from_slice(&piece[..n])).await.is_err() {
                return Ok(());
            }
        }
    };
    let inward = async {
        let _: io::Result<()> = inward.await;
        std::future::pending().await
    };
    tokio::select! {
        ended = outward => ended,
        ended = inward => ended,
    }
}
