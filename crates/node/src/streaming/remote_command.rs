//! exec and attach: which stream is which, and how the end is reported.

use std::time::Duration;

use bytes::Bytes;
use mizzen_object::{Value, json, value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::query::Query;
use super::stream::{Output, Stream};
use crate::logs::Refusal;
use crate::runtime::Stdio;

/// The protocols over SPDY, the newest first.
pub const PROTOCOLS: [&str; 4] =
    ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The channels over WebSocket: stdin, stdout, stderr, errors, the size of the terminal.
pub const N_CHANNELS: u8 = 5;

/// The pieces of output that may wait for the connection.
const QUEUE: usize = 16;

/// The streams that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl Options {
    /// Kubernetes: with a terminal there is no stderr of its own.
    pub fn parse(query: &Query) -> Result<Options, Refusal> {
        let tty = query.is_set("tty");
        let (stdin, stdout) = (query.is_set("input"), query.is_set("output"));
        let stderr = query.is_set("error") && !tty;
        if !stdin && !stdout && !stderr {
            return Err(Refusal(400, "you must specify at least 1 of stdin, stdout, stderr".into()));
        }
        Ok(Options { stdin, stdout, stderr, tty })
    }

    /// The streams that are to be opened over SPDY; one is for errors.
    fn n_streams(self, protocol: &str) -> usize {
        let can_resize = matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let wanted = [true, self.stdin, self.stdout, self.stderr, self.tty && can_resize];
        wanted.iter().filter(|wanted| **wanted).count()
    }
}

/// The streams of a client.
pub struct Streams {
    stdin: Option<mpsc::Receiver<Bytes>>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    error: Option<Output>,
    /// Whether the end is reported as a Status; otherwise an error is a text, and success is nothing.
    reports_status: bool,
    tty: bool,
    /// Held so that what the client sends about its terminal is read.
    _resize: Option<mpsc::Receiver<Bytes>>,
}

impl Streams {
    /// Waits for the streams that belong to the options; none if they do not come in time.
    pub async fn accept(
        mut opened: mpsc::Receiver<Stream>,
        options: Options,
        protocol: &str,
        patience: Duration,
    ) -> Option<Streams> {
        let mut streams = Streams::none(options, protocol.starts_with("v4."));
        let all = async {
            for _ in 0..options.n_streams(protocol) {
                let Stream { headers, input, output, .. } = opened.recv().await?;
                match headers.get("streamtype") {
                    "error" => streams.error = Some(output),
                    "stdin" => streams.stdin = Some(input),
                    "stdout" => streams.stdout = Some(output),
                    "stderr" => streams.stderr = Some(output),
                    "resize" => streams._resize = Some(input),
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
    pub async fn of_channels(channels: Vec<Stream>, options: Options, reports_status: bool) -> Streams {
        let mut streams = Streams::none(options, reports_status);
        for Stream { id, input, output, .. } in channels {
            match id {
                0 if options.stdin => streams.stdin = Some(input),
                1 if options.stdout => streams.stdout = Some(output),
                2 if options.stderr => streams.stderr = Some(output),
                3 => streams.error = Some(output),
                4 => streams._resize = Some(input),
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

    fn none(options: Options, reports_status: bool) -> Streams {
        let (stdin, stdout, stderr, error) = (None, None, None, None);
        Streams { stdin, stdout, stderr, error, reports_status, tty: options.tty, _resize: None }
    }

    /// Lets `process` run with these streams and reports how it ended.
    pub async fn run<F>(mut self, process: impl FnOnce(Stdio) -> F)
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
        };
        // The process drops its ends when it is done, and what it wrote last is sent before its end is reported.
        let (ended, (), ()) =
            tokio::join!(process(stdio), copy(out, self.stdout.as_ref()), copy(err, self.stderr.as_ref()));
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

async fn copy(mut from: mpsc::Receiver<Bytes>, to: Option<&Output>) {
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
