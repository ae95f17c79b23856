//! exec, attach and port-forward: the runtime gives a URL, at which it speaks SPDY as a kubelet does.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mizzen_cri::messages::{AttachRequest, ExecRequest, PortForwardRequest};
use mizzen_value::{Str, json};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

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
/// How long containerd may take to detach a client whose input has ended.
const DETACH: Duration = Duration::from_secs(5);

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
        let keeps_output = attach.stdin_once && !attach.tty;
        match self.client.version().runtime_name == "containerd" && !keeps_output {
            true => detach_after_input(stdio, |stdio| run_command(&url, stdio)).await,
            false => run_command(&url, stdio).await,
        }
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
        let (ours, pipe) = tokio::io::duplex(PIPE);
        let failure = Arc::new(OnceLock::new());
        let connection = ForwardedConnection {
            pipe,
            failure: failure.clone(),
        };
        tokio::spawn(async move {
            if let Err(error) = forward(upgraded, port, ours, &failure).await {
                tracing::debug!(%error, port, "a forwarded connection ended early");
            }
        });
        Ok(Box::new(connection))
    }
}

/// Runs an attachment to containerd, which ends soon after its input has: containerd detaches the
/// client then, but forgets to where the input ends before its output is attached (its
/// container_io.go, `Attach`).
async fn detach_after_input<F>(
    mut stdio: Stdio,
    run: impl FnOnce(Stdio) -> F,
) -> Result<i64, String>
where
    F: Future<Output = Result<i64, String>>,
{
    let Some(mut input) = stdio.stdin.take() else {
        return run(stdio).await;
    };
    let (typed, stdin) = mpsc::channel(QUEUE);
    stdio.stdin = Some(stdin);
    let detached = async move {
        while let Some(data) = input.recv().await {
            if typed.send(data).await.is_err() {
                break;
            }
        }
        drop(typed);
        sleep(DETACH).await;
    };
    tokio::select! {
        ended = run(stdio) => ended,
        () = detached => Ok(0),
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

/// A connection that the runtime forwards. Where the runtime has failed, its end is an error.
struct ForwardedConnection {
    pipe: DuplexStream,
    failure: Arc<OnceLock<String>>,
}

impl AsyncRead for ForwardedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(context, buffer))?;
        let is_end = buffer.filled().len() == n_before && buffer.remaining() > 0;
        match self.failure.get().filter(|_| is_end) {
            Some(failure) => Poll::Ready(Err(io::Error::other(failure.clone()))),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for ForwardedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// What the runtime says of a failed connection, without what the kubelet adds to it again.
fn forward_failure(text: &str) -> String {
    let cause = text.split_once(", uid : ").map_or(text, |(_, cause)| cause);
    cause.trim_end().to_owned()
}

/// Forwards one connection.
async fn forward(
    io: crate::streaming::spdy_client::UpgradedIo,
    port: u16,
    pipe: DuplexStream,
    failure: &OnceLock<String>,
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
        // The runtime closes both streams together.
        if let Some(text) = reported.recv().await {
            // There is one message.
            let _ = failure.set(forward_failure(&String::from_utf8_lossy(&text)));
        }
        let _ = write.shutdown().await;
    };
    let exchanged = async { exchange(io, streams).await.map_err(io::Error::other) };
    tokio::select! {
        ended = async { tokio::join!(exchanged, writes).0 } => ended,
        never = async { reads.await; std::future::pending().await } => never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_attachment_that_containerd_forgets_ends_after_its_input() {
        let (typed, stdin) = mpsc::channel(1);
        let stdio = Stdio {
            stdin: Some(stdin),
            stdout: None,
            stderr: None,
            tty: false,
            resize: None,
        };
        let (seen, mut received) = mpsc::channel(1);
        let attached = tokio::spawn(detach_after_input(stdio, |mut stdio| async move {
            while let Some(data) = stdio.read().await {
                seen.send(data).await.unwrap();
            }
            std::future::pending().await
        }));
        typed.send("typed".into()).await.unwrap();
        assert_eq!(received.recv().await, Some(Bytes::from("typed")));
        sleep(DETACH * 10).await;
        assert!(!attached.is_finished());
        drop(typed);
        assert_eq!(attached.await.unwrap(), Ok(0));
    }

    #[test]
    fn a_failed_connection_has_the_words_of_the_runtime() {
        let refused = "failed to connect to localhost:9 inside namespace \"a\": connection refused";
        let text = format!("error forwarding port 9 to pod a, uid : {refused} ");
        assert_eq!(forward_failure(&text), refused);
        assert_eq!(forward_failure("EOF"), "EOF");
    }

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
