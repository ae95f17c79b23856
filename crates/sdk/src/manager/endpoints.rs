//! `/metrics`, `/healthz` and `/readyz` over plain HTTP.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mizzen_metrics::{Collector, Families};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::task::Stop;

/// How many connections there may be at once. Further ones are closed.
const MAX_CONNECTIONS: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a health check failed.
///
/// ```
/// use mizzen_sdk::manager::CheckFailed;
///
/// assert_eq!(CheckFailed::new("no connection").to_string(), "no connection");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckFailed(String);

impl CheckFailed {
    /// With a reason.
    pub fn new(reason: impl Into<String>) -> CheckFailed {
        CheckFailed(reason.into())
    }
}

pub(super) struct HealthCheck {
    name: String,
    check: Box<dyn Fn() -> Result<(), CheckFailed> + Send + Sync>,
}

impl HealthCheck {
    pub(super) fn new(
        name: impl Into<String>,
        check: impl Fn() -> Result<(), CheckFailed> + Send + Sync + 'static,
    ) -> HealthCheck {
        HealthCheck {
            name: name.into(),
            check: Box::new(check),
        }
    }
}

/// What the endpoints show.
pub(super) struct EndpointState {
    pub(super) live: Vec<HealthCheck>,
    pub(super) ready: Vec<HealthCheck>,
    pub(super) collectors: Vec<Arc<dyn Collector>>,
    /// Whether webhooks are served and caches have synced.
    pub(super) is_ready: AtomicBool,
}

impl EndpointState {
    /// Serves until `stop` is requested.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, stop: Stop) {
        let mut connections = JoinSet::new();
        let mut stopped = pin!(stop.requested());
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stopped => return,
            };
            while connections.try_join_next().is_some() {}
            if connections.len() >= MAX_CONNECTIONS {
                continue;
            }
            let state = self.clone();
            connections.spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let response = state.respond(request.uri().path());
                    async move { Ok::<_, Infallible>(response) }
                });
                // A client that goes away needs no response.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        let (code, text) = match path {
            "/metrics" => {
                let collectors: Vec<&dyn Collector> = self
                    .collectors
                    .iter()
                    .map(|collector| &**collector as _)
                    .collect();
                (StatusCode::OK, Families::of(&collectors).to_string())
            }
            "/healthz" => report(None, &self.live),
            "/readyz" => report(Some(self.is_ready.load(Ordering::Relaxed)), &self.ready),
            _ => (StatusCode::NOT_FOUND, "not found\n".into()),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = code;
        let text = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        response
    }
}

/// Kubernetes: `ok`, or a line per check with its failure (apiserver/pkg/server/healthz).
fn report(started: Option<bool>, checks: &[HealthCheck]) -> (StatusCode, String) {
    let mut results = vec![("ping", Ok(()))];
    if let Some(started) = started {
        let outcome = started
            .then_some(())
            .ok_or_else(|| CheckFailed::new("not started"));
        results.push(("start", outcome));
    }
    results.extend(checks.iter().map(|check| (&*check.name, (check.check)())));
    if results.iter().all(|(_, outcome)| outcome.is_ok()) {
        return (StatusCode::OK, "ok".into());
    }
    let mut text = String::new();
    for (name, outcome) in results {
        let _ = match outcome {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(error) => writeln!(text, "[-]{name} failed: {error}"),
        };
    }
    (StatusCode::INTERNAL_SERVER_ERROR, text)
}
