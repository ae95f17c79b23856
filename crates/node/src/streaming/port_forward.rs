//! Port forwarding: pairs of streams, one for data and one for errors, into connections to ports of
//! a pod.

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

use super::query::StreamQuery;
use super::spdy::Headers;
use super::stream::{StreamOutput, UpgradedStream};
use crate::runtime::PodConnection;
use crate::server::HttpError;

/// The protocol over SPDY.
pub(super) const PROTOCOL: &str = "portforward.k8s.io";
/// The size of the pieces in which data is passed on.
const PIECE: usize = 32 * 1024;
/// The most ports of one WebSocket: a channel is a byte, and a port needs two.
const MAX_PORTS: usize = 100;

/// The pod whose ports are forwarded.
pub(super) struct ForwardedPod {
    /// The name of its sandbox.
    pub sandbox: String,
    /// Connects to a port.
    pub connect: Box<dyn Fn(u16) -> Connecting + Send + Sync>,
}

/// A pending connection.
type Connecting = BoxFuture<'static, io::Result<Box<dyn PodConnection>>>;

/// Validates the headers of a stream. Kubernetes: cri-streaming, portforward/httpstream.go.
pub(super) fn accepts(headers: &Headers) -> Result<(), String> {
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

/// The ports in the query of a WebSocket without a tunnel. Kubernetes: cri-streaming,
/// portforward/websocket.go.
pub(super) fn ports(query: &StreamQuery) -> Result<Vec<u16>, HttpError> {
    let refuse = |why: String| HttpError(400, why);
    let mut ports = Vec::new();
    for text in query.all("port") {
        if text.is_empty() {
            return Err(refuse("query parameter \"port\" cannot be empty".into()));
        }
        for port in text.split(',') {
            match port.parse() {
                Ok(0) => return Err(refuse(format!("port {text:?} must be > 0"))),
                Ok(port) => ports.push(port),
                Err(error) => {
                    return Err(refuse(format!(
                        "unable to parse {text:?} as a port: {error}"
                    )));
                }
            }
        }
    }
    match ports.len() {
        0 => Err(refuse("query parameter \"port\" is required".into())),
        1..=MAX_PORTS => Ok(ports),
        n_ports => Err(refuse(format!("{n_ports} ports are more than {MAX_PORTS}"))),
    }
}

/// Forwards connections over SPDY until the client has gone. A connection is a pair of streams with
/// the same request ID.
pub(super) async fn serve_streams(
    mut opened: mpsc::Receiver<UpgradedStream>,
    pod: Arc<ForwardedPod>,
    patience: Duration,
) {
    let mut halves = Halves {
        patience,
        waiting: HashMap::new(),
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            stream = opened.recv() => {
                let Some(stream) = stream else { return };
                if let Some((data, error)) = halves.add(stream).await {
                    let (pod, port) = (pod.clone(), data.headers.get("port").parse().unwrap_or(0));
                    connections.spawn(async move { forward(&pod, port, data, &error.output).await });
                }
            }
            () = halves.expired() => halves.end_late().await,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Streams whose other half has not been opened yet, by request ID.
struct Halves {
    patience: Duration,
    waiting: HashMap<String, (Instant, UpgradedStream)>,
}

impl Halves {
    /// The streams of data and errors, once both are there.
    async fn add(&mut self, stream: UpgradedStream) -> Option<(UpgradedStream, UpgradedStream)> {
        let id = stream.port_forward_id();
        let Some((due, first)) = self.waiting.remove(&id) else {
            self.waiting
                .insert(id, (Instant::now() + self.patience, stream));
            return None;
        };
        match pair(first, stream) {
            Ok(pair) => Some(pair),
            Err((first, kind)) => {
                let what = format!(
                    "error processing stream for request {id}: {kind} stream already assigned"
                );
                complain(&first, &what).await;
                self.waiting.insert(id, (due, first));
                None
            }
        }
    }

    /// Waits until the other half of a stream is too late.
    async fn expired(&self) {
        match self.waiting.values().map(|(due, _)| *due).min() {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Closes the streams whose other half is too late.
    async fn end_late(&mut self) {
        let late = self
            .waiting
            .extract_if(|_, (due, _)| *due <= Instant::now());
        for (id, (_, stream)) in late.collect::<Vec<_>>() {
            complain(
                &stream,
                &format!("(request={id}) timed out waiting for streams"),
            )
            .await;
            stream.output.reset().await;
        }
    }
}

/// The streams of data and errors, or the first stream and the type of both.
fn pair(
    first: UpgradedStream,
    second: UpgradedStream,
) -> Result<(UpgradedStream, UpgradedStream), (UpgradedStream, &'static str)> {
    match (
        first.headers.get("streamtype"),
        second.headers.get("streamtype"),
    ) {
        ("data", "error") => Ok((first, second)),
        ("error", "data") => Ok((second, first)),
        ("data", _) => Err((first, "data")),
        _ => Err((first, "error")),
    }
}

async fn complain(stream: &UpgradedStream, what: &str) {
    if stream.headers.get("streamtype") == "error" {
        let _ = stream.output.send(Bytes::from(what.to_owned())).await;
    }
}

impl UpgradedStream {
    /// The request ID. Kubernetes: old clients send none, and open the error stream right before
    /// the data stream.
    fn port_forward_id(&self) -> String {
        match (
            self.headers.get("requestid"),
            self.headers.get("streamtype"),
        ) {
            ("", "data") => self.id.wrapping_sub(2).to_string(),
            ("", _) => self.id.to_string(),
            (id, _) => id.to_owned(),
        }
    }
}

/// Forwards ports over a WebSocket: two channels for each, data and errors, which begin with the
/// port number.
pub(super) async fn serve_channels(
    channels: Vec<UpgradedStream>,
    ports: Vec<u16>,
    pod: Arc<ForwardedPod>,
) {
    let mut connections = JoinSet::new();
    let mut channels = channels.into_iter();
    for port in ports {
        let (Some(data), Some(error)) = (channels.next(), channels.next()) else {
            return;
        };
        let pod = pod.clone();
        connections.spawn(async move {
            for output in [&data.output, &error.output] {
                let _ = output
                    .send(Bytes::copy_from_slice(&port.to_le_bytes()))
                    .await;
            }
            forward(&pod, port, data, &error.output).await;
        });
    }
    while connections.join_next().await.is_some() {}
}

/// Copies data between a stream and a port until the port's side ends.
async fn forward(pod: &ForwardedPod, port: u16, data: UpgradedStream, error: &StreamOutput) {
    let sandbox = &pod.sandbox;
    let forwarded = match (pod.connect)(port).await {
        Ok(connection) => copy(connection, data.input, &data.output)
            .await
            .map_err(|why| why.to_string()),
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
    connection: Box<dyn PodConnection>,
    mut input: mpsc::Receiver<Bytes>,
    output: &StreamOutput,
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
            if n == 0
                || output
                    .send(Bytes::copy_from_slice(&piece[..n]))
                    .await
                    .is_err()
            {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::streaming::spdy::SpdyFrame;

    fn stream(
        id: u32,
        headers: &[(&str, &str)],
        frames: &mpsc::Sender<SpdyFrame>,
    ) -> (mpsc::Sender<Bytes>, UpgradedStream) {
        let (send, input) = mpsc::channel(4);
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let output = StreamOutput::spdy(id, frames.clone(), place);
        (
            send,
            UpgradedStream {
                id,
                headers: Headers(headers),
                input,
                output,
            },
        )
    }

    /// A pod whose port 80 echoes.
    fn pod() -> Arc<ForwardedPod> {
        Arc::new(ForwardedPod {
            sandbox: "abc".into(),
            connect: Box::new(|port| {
                Box::pin(async move {
                    if port != 80 {
                        return Err(io::Error::other("connect: connection refused"));
                    }
                    let (near, far) = tokio::io::duplex(1024);
                    tokio::spawn(async move {
                        let (mut read, mut write) = tokio::io::split(far);
                        tokio::io::copy(&mut read, &mut write).await
                    });
                    Ok(Box::new(near) as Box<dyn PodConnection>)
                })
            }),
        })
    }

    fn text(frame: Option<SpdyFrame>) -> (u32, String) {
        match frame {
            Some(SpdyFrame::Data { id, data, .. }) => {
                (id, String::from_utf8_lossy(&data).into_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_of_streams_is_a_connection() {
        let (frames, mut sent) = mpsc::channel(16);
        let (open, opened) = mpsc::channel(4);
        tokio::spawn(serve_streams(opened, pod(), Duration::from_secs(30)));
        // A client with request IDs, and an old one without.
        for (data_id, error_id, id) in [(3, 1, "0"), (7, 5, "")] {
            let headers = |kind| [("streamtype", kind), ("port", "80"), ("requestid", id)];
            let (_error, error) = stream(error_id, &headers("error"), &frames);
            let (typed, data) = stream(data_id, &headers("data"), &frames);
            open.send(error).await.unwrap();
            open.send(data).await.unwrap();
            typed.send("hello".into()).await.unwrap();
            assert_eq!(text(sent.recv().await), (data_id, "hello".into()));
            drop(typed);
            for id in [data_id, error_id] {
                assert_eq!(
                    sent.recv().await,
                    Some(SpdyFrame::Data {
                        id,
                        data: Bytes::new(),
                        fin: true
                    })
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_is_reported_in_the_error_stream() {
        let (frames, mut sent) = mpsc::channel(16);
        let (open, opened) = mpsc::channel(4);
        tokio::spawn(serve_streams(opened, pod(), Duration::from_secs(30)));
        let headers = |kind| [("streamtype", kind), ("port", "81"), ("requestid", "0")];
        let (_data, data) = stream(1, &headers("data"), &frames);
        let (_error, error) = stream(3, &headers("error"), &frames);
        open.send(data).await.unwrap();
        open.send(error).await.unwrap();
        let said = "error forwarding port 81 to pod abc, uid : failed to connect to localhost:81 inside namespace \"abc\", IPv4: \
                    dial tcp4 127.0.0.1:81: connect: connection refused IPv6 dial tcp6 [::1]:81: connect: connection refused";
        assert_eq!(text(sent.recv().await), (3, said.into()));
        for id in [1, 3] {
            assert_eq!(sent.recv().await, Some(SpdyFrame::Reset { id, status: 5 }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_its_other_half_times_out() {
        let (frames, mut sent) = mpsc::channel(16);
        let (open, opened) = mpsc::channel(4);
        tokio::spawn(serve_streams(opened, pod(), Duration::from_secs(30)));
        let headers = [("streamtype", "error"), ("port", "80"), ("requestid", "7")];
        let (_first, first) = stream(1, &headers, &frames);
        let (_second, second) = stream(3, &headers, &frames);
        open.send(first).await.unwrap();
        open.send(second).await.unwrap();
        let twice = "error processing stream for request 7: error stream already assigned";
        assert_eq!(text(sent.recv().await), (1, twice.into()));
        let began = Instant::now();
        assert_eq!(
            text(sent.recv().await),
            (1, "(request=7) timed out waiting for streams".into())
        );
        assert_eq!(
            sent.recv().await,
            Some(SpdyFrame::Reset { id: 1, status: 5 })
        );
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[test]
    fn streams_without_port_or_type_are_rejected() {
        let check = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            accepts(&Headers(pairs.collect())).err().unwrap_or_default()
        };
        assert_eq!(check(&[("streamtype", "data"), ("port", "80")]), "");
        assert_eq!(
            check(&[("streamtype", "data")]),
            "\"port\" header is required"
        );
        assert_eq!(
            check(&[("streamtype", "data"), ("port", "0")]),
            "port \"0\" must be > 0"
        );
        assert_eq!(
            check(&[("port", "80")]),
            "\"streamType\" header is required"
        );
        assert_eq!(
            check(&[("port", "80"), ("streamtype", "x")]),
            "invalid stream type \"x\""
        );
        assert!(check(&[("port", "x")]).starts_with("unable to parse \"x\" as a port: "));
    }
}
