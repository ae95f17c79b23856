//! exec and attach: the roles of streams, and the exit status.

use std::time::Duration;

use bytes::Bytes;
use mizzen_value::{Value, json, value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::query::StreamQuery;
use super::stream::{StreamOutput, UpgradedStream};
use crate::runtime::Stdio;
use crate::server::HttpError;

/// The protocols over SPDY, the newest first.
pub(super) const PROTOCOLS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
/// The channels over WebSocket: stdin, stdout, stderr, errors, terminal size.
pub(super) const N_CHANNELS: u8 = 5;

/// The capacity of the output queues.
const QUEUE: usize = 16;

/// The streams that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamOptions {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl StreamOptions {
    /// Kubernetes: with a terminal there is no separate stderr.
    pub(super) fn parse(query: &StreamQuery) -> Result<StreamOptions, HttpError> {
        let tty = query.is_set("tty");
        let (stdin, stdout) = (query.is_set("input"), query.is_set("output"));
        let stderr = query.is_set("error") && !tty;
        if !stdin && !stdout && !stderr {
            return Err(HttpError(
                400,
                "you must specify at least 1 of stdin, stdout, stderr".into(),
            ));
        }
        Ok(StreamOptions {
            stdin,
            stdout,
            stderr,
            tty,
        })
    }

    /// The number of SPDY streams, including the one for errors.
    fn n_streams(self, protocol: &str) -> usize {
        let can_resize = matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let wanted = [
            true,
            self.stdin,
            self.stdout,
            self.stderr,
            self.tty && can_resize,
        ];
        wanted.iter().filter(|wanted| **wanted).count()
    }
}

/// The streams of a client.
pub(super) struct ClientStreams {
    stdin: Option<mpsc::Receiver<Bytes>>,
    stdout: Option<StreamOutput>,
    stderr: Option<StreamOutput>,
    error: Option<StreamOutput>,
    /// Whether the result is a Status; otherwise an error is plain text, and success is empty.
    reports_status: bool,
    tty: bool,
    /// The sizes of the client's terminal.
    resize: Option<mpsc::Receiver<Bytes>>,
}

impl ClientStreams {
    /// Waits for the streams of the options; `None` if they do not arrive in time.
    pub(super) async fn accept(
        mut opened: mpsc::Receiver<UpgradedStream>,
        options: StreamOptions,
        protocol: &str,
        patience: Duration,
    ) -> Option<ClientStreams> {
        let mut streams = ClientStreams::none(options, protocol.starts_with("v4."));
        let all = async {
            for _ in 0..options.n_streams(protocol) {
                let UpgradedStream {
                    headers,
                    input,
                    output,
                    ..
                } = opened.recv().await?;
                match headers.get("streamtype") {
                    "error" => streams.error = Some(output),
                    "stdin" => streams.stdin = Some(input),
                    "stdout" => streams.stdout = Some(output),
                    "stderr" => streams.stderr = Some(output),
                    "resize" => streams.resize = Some(input),
                    other => tracing::debug!(stream = other, "unexpected stream type"),
                }
            }
            Some(())
        };
        match timeout(patience, all).await {
            Ok(done) => done.map(|()| streams),
            Err(_) => {
                tracing::debug!("timed out waiting for client to create streams");
                None
            }
        }
    }

    /// The channels of a WebSocket.
    pub(super) async fn of_channels(
        channels: Vec<UpgradedStream>,
        options: StreamOptions,
        reports_status: bool,
    ) -> ClientStreams {
        let mut streams = ClientStreams::none(options, reports_status);
        for UpgradedStream {
            id, input, output, ..
        } in channels
        {
            match id {
                0 if options.stdin => streams.stdin = Some(input),
                1 if options.stdout => streams.stdout = Some(output),
                2 if options.stderr => streams.stderr = Some(output),
                3 => streams.error = Some(output),
                4 => streams.resize = Some(input),
                _ => {}
            }
        }
        // Kubernetes: an empty message tells the client that the connection is open.
        let outputs = [&streams.stdout, &streams.stderr, &streams.error];
        if let Some(output) = outputs.into_iter().flatten().next() {
            let _ = output.open().await;
        }
        streams
    }

    fn none(options: StreamOptions, reports_status: bool) -> ClientStreams {
        let (stdin, stdout, stderr, error) = (None, None, None, None);
        ClientStreams {
            stdin,
            stdout,
            stderr,
            error,
            reports_status,
            tty: options.tty,
            resize: None,
        }
    }

    /// Runs `process` with these streams and reports its exit status.
    pub(super) async fn run<F>(mut self, process: impl FnOnce(Stdio) -> F)
    where
        F: Future<Output = Result<i64, String>>,
    {
        let (stdout, out) = mpsc::channel(QUEUE);
        let (stderr, err) = mpsc::channel(QUEUE);
        let stdio = Stdio {
            stdin: self.stdin.take(),
            stdout: Some(stdout).filter(|_| self.stdout.is_some()),
            stderr: Some(stderr).filter(|_| self.stderr.is_some()),
            tty: self.tty,
            resize: self.resize.take(),
        };
        // The process drops its ends when it exits, so its last output is sent before the result.
        let (ended, (), ()) = tokio::join!(
            process(stdio),
            copy(out, self.stdout.as_ref()),
            copy(err, self.stderr.as_ref())
        );
        self.report(&ended).await;
    }

    async fn report(self, ended: &Result<i64, String>) {
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            output.finish().await;
        }
        let Some(error) = self.error else { return };
        let status = status(ended);
        let text = match self.reports_status {
            true => json::to_string(&status),
            false => status["message"].str().to_owned(),
        };
        let _ = error.send(text.into()).await;
        error.finish().await;
    }
}

async fn copy(mut from: mpsc::Receiver<Bytes>, to: Option<&StreamOutput>) {
    while let Some(data) = from.recv().await {
        if let Some(output) = to
            && output.send(data).await.is_err()
        {
            return;
        }
    }
}

/// Kubernetes: the part of a Status that the kubelet writes (cri-streaming, remotecommand/exec.go).
fn status(ended: &Result<i64, String>) -> Value {
    match ended {
        Ok(0) => value!({ "status": "Success" }),
        Ok(code) => value!({
            "status": "Failure",
            "message": (format!("command terminated with non-zero exit code: exit status {code}")),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": (code.to_string()) }] }
        }),
        Err(why) => value!({
            "status": "Failure",
            "message": (format!("Internal error occurred: {why}")),
            "reason": "InternalError",
            "code": 500
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::*;
    use crate::streaming::spdy::{Headers, SpdyFrame};

    const OPTIONS: StreamOptions = StreamOptions {
        stdin: false,
        stdout: true,
        stderr: false,
        tty: false,
    };

    fn stream(id: u32, kind: &str, frames: &mpsc::Sender<SpdyFrame>) -> UpgradedStream {
        let (_, input) = mpsc::channel(4);
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let headers = Headers(vec![("streamtype".into(), kind.into())]);
        UpgradedStream {
            id,
            headers,
            input,
            output: StreamOutput::spdy(id, frames.clone(), place),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_are_not_opened_in_time_end_the_session() {
        let (open, opened) = mpsc::channel(4);
        let (frames, _sent) = mpsc::channel(16);
        open.send(stream(1, "error", &frames)).await.unwrap();
        let began = Instant::now();
        let streams =
            ClientStreams::accept(opened, OPTIONS, PROTOCOLS[0], Duration::from_secs(30)).await;
        assert!(streams.is_none());
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    /// The output and the errors that a client reads of a process which writes `out`.
    async fn read(protocol: &str, ended: Result<i64, String>) -> (String, String) {
        let (open, opened) = mpsc::channel(4);
        let (frames, mut sent) = mpsc::channel(16);
        open.send(stream(1, "error", &frames)).await.unwrap();
        open.send(stream(3, "stdout", &frames)).await.unwrap();
        drop(frames);
        let streams = ClientStreams::accept(opened, OPTIONS, protocol, Duration::from_secs(30))
            .await
            .unwrap();
        streams
            .run(|stdio| async move {
                assert!(stdio.stderr.is_none() && stdio.stdin.is_none());
                stdio.stdout.unwrap().send("out".into()).await.unwrap();
                ended
            })
            .await;
        let mut texts = [String::new(), String::new()];
        while let Some(frame) = sent.recv().await {
            let SpdyFrame::Data { id, data, .. } = frame else {
                panic!("{frame:?}")
            };
            texts[usize::from(id == 1)].push_str(&String::from_utf8_lossy(&data));
        }
        let [output, errors] = texts;
        (output, errors)
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_a_status_or_a_text_as_the_protocol_has_it() {
        let success = r#"{"status":"Success"}"#;
        assert_eq!(
            read("v4.channel.k8s.io", Ok(0)).await,
            ("out".into(), success.into())
        );
        assert_eq!(
            read("v3.channel.k8s.io", Ok(0)).await,
            ("out".into(), String::new())
        );
        let failed = "command terminated with non-zero exit code: exit status 2";
        assert_eq!(
            read("channel.k8s.io", Ok(2)).await,
            ("out".into(), failed.into())
        );
        let (_, status) = read("v4.channel.k8s.io", Err("no such program".into())).await;
        let internal = r#"{"status":"Failure","message":"Internal error occurred: no such program","reason":"InternalError","code":500}"#;
        assert_eq!(status, internal);
    }
}
