//! Logs failed requests of a client, with back-off, and counts all of them.
//!
//! All requests of a client pass through this layer, so that components can retry without logging. An outage is logged at
//! once and again with back-off; each missing permission is logged once.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use kube::client::{Body, DynBody};
use mizzen_value::json;
use tokio::time::Instant;
use tower::Service;

use crate::rest_client_metrics::RestClientMetrics;

/// The back-off between log lines of one outage: it doubles from the first to the maximum.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The number of missing permissions that are logged.
const MAX_FORBIDDEN: usize = 500;

type BoxError = Box<dyn Error + Send + Sync>;
type LoggedResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach {server}: {cause}")]
struct Unreachable {
    server: String,
    cause: String,
}

/// A layer of a client that logs failed requests.
pub(crate) struct LogFailures<S> {
    inner: S,
    log: Arc<ConnectionLog>,
}

impl<S> LogFailures<S> {
    /// Logs failures of `inner`, which sends requests to `server`.
    pub(crate) fn new(inner: S, server: &str) -> LogFailures<S> {
        let log = ConnectionLog {
            server: server.trim_end_matches('/').into(),
            logged: Mutex::default(),
        };
        LogFailures {
            inner,
            log: Arc::new(log),
        }
    }
}

impl<S> Service<Request<Body>> for LogFailures<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = LoggedResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<LoggedResponse, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (method, began) = (request.method().clone(), Instant::now());
        let (response, log) = (self.inner.call(request), self.log.clone());
        Box::pin(async move {
            let response = response.await;
            let code = response.as_ref().ok().map(Response::status);
            RestClientMetrics::observe(log.host(), &method, code, began.elapsed());
            match response {
                Ok(response) => log.inspect_response(response).await,
                Err(error) => Err(log.log_failure(error)),
            }
        })
    }
}

/// What was logged of a server.
struct ConnectionLog {
    server: String,
    logged: Mutex<LoggedFailures>,
}

#[derive(Default)]
struct LoggedFailures {
    outage: Option<Outage>,
    forbidden: HashSet<String>,
}

/// All requests fail for the same reason.
struct Outage {
    cause: String,
    backoff: Duration,
    next_line: Instant,
}

impl ConnectionLog {
    /// The address of the server without the scheme.
    fn host(&self) -> &str {
        let address = self.server.split_once("://");
        address.map_or(&self.server, |(_, host)| host)
    }

    /// Logs the message of a 401 or 403. The response is unchanged.
    async fn inspect_response(
        &self,
        response: Response<Box<DynBody>>,
    ) -> Result<LoggedResponse, BoxError> {
        let code = response.status();
        if code != StatusCode::UNAUTHORIZED {
            self.log_recovery();
        }
        if !matches!(code, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response.map(UnsyncBoxBody::new));
        }
        let (head, body) = response.into_parts();
        let text = body.collect().await?.to_bytes();
        let status = json::parse(&text).unwrap_or_default();
        match (code, status["message"].str()) {
            (StatusCode::UNAUTHORIZED, why) => {
                self.log_outage(format!("{} rejects the credentials: {why}", self.server))
            }
            (_, why) => self.log_forbidden(why),
        };
        Ok(Response::from_parts(
            head,
            UnsyncBoxBody::new(Full::new(text).map_err(|never| match never {})),
        ))
    }

    /// Logs a request without a response. Returns the error with the address of the server and the root cause.
    fn log_failure(&self, error: BoxError) -> BoxError {
        let mut root_cause: &(dyn Error + 'static) = &*error;
        while let Some(cause) = root_cause.source() {
            root_cause = cause;
        }
        let unreachable = Unreachable {
            server: self.server.clone(),
            cause: root_cause.to_string(),
        };
        self.log_outage(unreachable.to_string());
        match error.is::<kube::Error>() {
            true => error,
            false => unreachable.into(),
        }
    }

    /// Logs an outage unless it is in back-off. Returns whether it was logged.
    fn log_outage(&self, cause: String) -> bool {
        let (now, mut logged) = (Instant::now(), self.logged.lock());
        let backoff = match &logged.outage {
            Some(outage) if outage.cause == cause && now < outage.next_line => return false,
            Some(outage) if outage.cause == cause => (outage.backoff * 2).min(MAX_BACKOFF),
            _ => FIRST_BACKOFF,
        };
        tracing::warn!("{cause}; trying again");
        logged.outage = Some(Outage {
            cause,
            backoff,
            next_line: now + backoff,
        });
        true
    }

    /// Logs the end of an outage.
    fn log_recovery(&self) {
        if self.logged.lock().outage.take().is_some() {
            tracing::info!(server = self.server, "server is reachable again");
        }
    }

    /// Logs a missing permission once, without the name of the object: `pods "web" is forbidden: User "joe" cannot get …`.
    /// The caller handles other reasons for a 403. Returns whether it was logged.
    fn log_forbidden(&self, message: &str) -> bool {
        let permission = message.split_once("forbidden: ").map(|(_, rest)| rest);
        let Some(permission) =
            permission.filter(|text| text.starts_with("User \"") && text.contains(" cannot "))
        else {
            return false;
        };
        let mut logged = self.logged.lock();
        let is_new =
            logged.forbidden.len() < MAX_FORBIDDEN && logged.forbidden.insert(permission.into());
        if is_new {
            tracing::warn!("{} forbids: {permission}", self.server);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection_log() -> ConnectionLog {
        ConnectionLog {
            server: "https://there".into(),
            logged: Mutex::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_at_once_and_then_with_back_off() {
        let log = connection_log();
        let mut logged = Vec::new();
        for second in 0..40 {
            if log.log_outage("refused".into()) {
                logged.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 5, 15, 35]);
        assert!(log.log_outage("another cause".into()), "it is new");
        log.log_recovery();
        assert!(
            log.log_outage("another cause".into()),
            "it was over in between"
        );
    }

    #[test]
    fn a_missing_permission_is_logged_once_for_all_objects() {
        let log = connection_log();
        let cannot = |name: &str, verb: &str| {
            format!(
                "pods {name}is forbidden: User \"joe\" cannot {verb} resource \"pods\" in API group \"\""
            )
        };
        assert!(log.log_forbidden(&cannot("", "list")));
        assert!(!log.log_forbidden(&cannot("\"web\" ", "list")));
        assert!(log.log_forbidden(&cannot("\"web\" ", "get")));
        assert!(!log.log_forbidden("pods \"web\" is forbidden: exceeded quota: small"));
    }

    #[test]
    fn the_root_cause_is_reported_with_the_address() {
        let refused = std::io::Error::from_raw_os_error(111);
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] std::io::Error);
        let error = connection_log().log_failure(Outer(refused).into());
        assert_eq!(
            error.to_string(),
            "cannot reach https://there: Connection refused (os error 111)"
        );
    }
}
