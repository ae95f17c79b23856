//! exec, attach and port-forward: the runtime gives a URL, at which it speaks SPDY as a kubelet does.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mizzen_cri::messages::{AttachRequest, ExecRequest, PortForwardRequest};
use mizzen_value::{Str, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::sandbox::SandboxPhase;
use super::{CriNode, bare_id};
use crate::runtime::{Attach, Exec, PodConnection, Stdio};
use crate::streaming::spdy_client::{ClientStream, connect, exchange};

/// The protocols of the interface's streams.
const COMMAND: &str = "v4.channel.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";
/// The capacity of queues and of the pipe of a connection.
const QUEUE: usize = 16;
const PIPE: usize = 64 * 1024;

impl CriNode {
    /// Runs a command in a container; returns its exit code.
    pub(super) async fn exec(self: Arc<Self>, exec: Exec, stdio: Stdio) -> Result<i64, String> {
        let request = ExecRequest {
            container_id: bare_id(&exec.id).into(),
            cmd: exec.command,
            tty: stdio.tty,
            stdin: stdio.stdin.is_some(),
            stdout: stdio.stdout.is_some(),
            stderr: stdio.stderr.is_some() && !stdio.tty,
        };
        let prepared = self.client.call(request).await;
        let url = prepared.map_err(|error| error.to_string())?.url;
        run_command(&url, stdio).await
    }

    /// Attaches to the process of a container.
    pub(super) async fn attach(
        self: Arc<Self>,
        attach: Attach,
        stdio: Stdio,
    ) -> Result<i64, String> {
        let request = AttachRequest {
            container_id: bare_id(&attach.id).into(),
            tty: attach.tty,
            stdin: stdio.stdin.is_some(),
            stdout: stdio.stdout.is_some(),
            stderr: stdio.stderr.is_some() && !attach.tty,
        };
        let prepared = self.client.call(request).await;
        let url = prepared.map_err(|error| error.to_string())?.url;
        run_command(&url, stdio).await
    }

    /// Connects to a port of a pod.
    pub(super) async fn connect(
        self: Arc<Self>,
        uid: Str,
        port: u16,
    ) -> io::Result<Box<dyn PodConnection>> {
        let sandbox = {
            let pods = self.pods.lock();
            match pods.get(&uid).map(|record| &record.sandbox.phase) {
                Some(SandboxPhase::Ready { id, .. }) => id.clone(),
                _ => return Err(io::Error::other("the pod has no sandbox")),
            }
        };
        let request = PortForwardRequest {
            pod_sandbox_id: sandbox.as_str().into(),
            port: vec![port.into()],
        };
        let prepared = self.client.call(request).await;
        let url = prepared.map_err(io::Error::other)?.url;
        let upgraded = connect(&url, PORT_FORWARD).await?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        tokio::spawn(async move {
            if let Err(error) = forward(upgraded, port, ours).await {
                tracing::debug!(%error, port, "a forwarded connection ended early");
            }
        });
        Ok(Box::new(theirs))
    }
}

/// Copies the streams of a command, and reads its exit code from the error stream.
async fn run_command(url: &str, stdio: Stdio) -> Result<i64, String> {
    let io = connect(url, COMMAND)
        .await
        .map_err(|error| error.to_string())?;
    let (errors, mut reported) = mpsc::channel(QUEUE);
    let mut streams = vec![ClientStream::receives("error", errors)];
    if let Some(stdin) = stdio.stdin {
        streams.push(ClientStream::sends("stdin", stdin));
    }
    if let Some(stdout) = stdio.stdout {
        streams.push(ClientStream::receives("stdout", stdout));
    }
    if let Some(stderr) = stdio.stderr.filter(|_| !stdio.tty) {
        streams.push(ClientStream::receives("stderr", stderr));
    }
    if stdio.tty {
        let sizes = stdio.resize.unwrap_or_else(|| mpsc::channel(1).1);
        streams.push(ClientStream::sends("resize", sizes));
    }
    let report = async {
        let mut text = BytesMut::new();
        while let Some(part) = reported.recv().await {
            text.extend_from_slice(&part);
        }
        text.freeze()
    };
    let (ended, text) = tokio::join!(exchange(io, streams), report);
    match exit_code(&text) {
        Some(code) => code,
        None => Err(match ended {
            Ok(()) => "the runtime closed the connection without a result".into(),
            Err(error) => error.to_string(),
        }),
    }
}

/// The exit code in a Status; `None` if there is no Status.
fn exit_code(text: &Bytes) -> Option<Result<i64, String>> {
    let status = json::parse(text).ok()?;
    if status["status"].str() == "Success" {
        return Some(Ok(0));
    }
    let mut causes = status["details"]["causes"].list().iter();
    let cause = causes.find(|cause| cause["reason"].str() == "ExitCode");
    let code = cause.and_then(|cause| cause["message"].str().parse().ok());
    Some(code.ok_or_else(|| {
        let message = status["message"].str();
        let message = message
            .strip_prefix("Internal error occurred: ")
            .unwrap_or(message);
        let prefix = "error executing command in container: ";
        message.strip_prefix(prefix).unwrap_or(message).to_owned()
    }))
}

/// Forwards one connection.
async fn forward(
    io: crate::streaming::spdy_client::UpgradedIo,
    port: u16,
    pipe: DuplexStream,
) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(pipe);
    let (outgoing, sent) = mpsc::channel(QUEUE);
    let (received, mut incoming) = mpsc::channel::<Bytes>(QUEUE);
    let (errors, mut reported) = mpsc::channel::<Bytes>(QUEUE);
    let headers = [("port", port.to_string()), ("requestid", "0".into())];
    let streams = vec![
        ClientStream::receives("error", errors).with_headers(&headers),
        ClientStream::both("data", sent, received).with_headers(&headers),
    ];
    let reads = async move {
        loop {
            let mut data = BytesMut::with_capacity(PIPE / 2);
            match read.read_buf(&mut data).await {
                Ok(0) | Err(_) => return,
                Ok(_) if outgoing.send(data.freeze()).await.is_err() => return,
                Ok(_) => {}
            }
        }
    };
    let writes = async move {
        while let Some(data) = incoming.recv().await {
            if write.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let report = async move {
        while let Some(text) = reported.recv().await {
            tracing::debug!(error = %String::from_utf8_lossy(&text), port, "port-forward failed");
        }
    };
    let exchanged = async { exchange(io, streams).await.map_err(io::Error::other) };
    tokio::select! {
        ended = async { tokio::join!(exchanged, writes, report).0 } => ended,
        never = async { reads.await; std::future::pending().await } => never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_read_from_the_status() {
        let read = |text: &'static str| exit_code(&Bytes::from_static(text.as_bytes()));
        assert_eq!(read(r#"{"status":"Success"}"#), Some(Ok(0)));
        let failed =
            r#"{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(read(failed), Some(Ok(3)));
        let internal = r#"{"status":"Failure","message":"Internal error occurred: error executing command in container: no sh"}"#;
        assert_eq!(read(internal), Some(Err("no sh".into())));
        assert_eq!(read(""), None);
    }
}
