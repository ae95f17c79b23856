//! What goes wrong on the way to a server, said in words that help, and not too often.
//!
//! Everything that a client sends passes here, so that a loop may try again for ever and need not say why. That nobody is
//! there is said at once, and again after pauses that grow; what somebody may not do is said once.

use parking_lot::{Mutex, MutexGuard};
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

/// How long to be quiet after something was said; twice as long after each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How many different refusals are said.
const MOST_REFUSALS: usize = 500;

type BoxError = Box<dyn Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A server that did not answer, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach {server}: {cause}")]
struct Unreachable {
    server: String,
    cause: String,
}

/// A way to a server, and what there is to say of it.
pub(crate) struct Overheard<S> {
    inner: S,
    complaints: Arc<Complaints>,
}

impl<S> Overheard<S> {
    /// `inner` leads to the server of this address.
    pub(crate) fn new(inner: S, server: &str) -> Overheard<S> {
        let complaints = Complaints {
            server: server.trim_end_matches('/').into(),
            said: Mutex::default(),
        };
        Overheard {
            inner,
            complaints: Arc::new(complaints),
        }
    }
}

impl<S> Service<Request<Body>> for Overheard<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answer, complaints) = (self.inner.call(request), self.complaints.clone());
        Box::pin(async move {
            match answer.await {
                Ok(answer) => complaints.hear(answer).await,
                Err(error) => Err(complaints.fail(error)),
            }
        })
    }
}

/// What was said of a server.
struct Complaints {
    server: String,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    outage: Option<Outage>,
    refusals: HashSet<String>,
}

/// Nobody answers as they should.
struct Outage {
    text: String,
    pause: Duration,
    again: Instant,
}

impl Complaints {
    /// Reads what the server says to those whom it does not let in; the answer is as it was.
    async fn hear(&self, answer: Response<Box<DynBody>>) -> Result<Answer, BoxError> {
        let code = answer.status();
        if code != StatusCode::UNAUTHORIZED {
            self.reach();
        }
        if !matches!(code, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(answer.map(UnsyncBoxBody::new));
        }
        let (head, body) = answer.into_parts();
        let text = body.collect().await?.to_bytes();
        let status = json::parse(&text).unwrap_or_default();
        match (code, status["message"].str()) {
            (StatusCode::UNAUTHORIZED, why) => {
                self.complain(format!("{} does not know us: {why}", self.server))
            }
            (_, why) => self.refuse(why),
        };
        Ok(Response::from_parts(
            head,
            UnsyncBoxBody::new(Full::new(text).map_err(|never| match never {})),
        ))
    }

    /// The error with the address and what is at the bottom of it.
    fn fail(&self, error: BoxError) -> BoxError {
        let unreachable = Unreachable {
            server: self.server.clone(),
            cause: innermost(&*error),
        };
        self.complain(unreachable.to_string());
        match error.is::<kube::Error>() {
            true => error,
            false => unreachable.into(),
        }
    }

    /// Says that nobody answers as they should, if it is time. Whether it was.
    fn complain(&self, text: String) -> bool {
        let (now, mut said) = (Instant::now(), self.said());
        let pause = match &said.outage {
            Some(outage) if outage.text == text && now < outage.again => return false,
            Some(outage) if outage.text == text => (outage.pause * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        tracing::warn!("{text}; trying again");
        said.outage = Some(Outage {
            text,
            pause,
            again: now + pause,
        });
        true
    }

    /// The server answers.
    fn reach(&self) {
        if self.said().outage.take().is_some() {
            tracing::info!("{} answers", self.server);
        }
    }

    /// Says once what somebody may not do; other refusals are the business of whoever asked. Whether it was said.
    fn refuse(&self, message: &str) -> bool {
        let Some(what) = lacking(message) else {
            return false;
        };
        let mut said = self.said();
        let is_new = said.refusals.len() < MOST_REFUSALS && said.refusals.insert(what.into());
        if is_new {
            tracing::warn!("{} refuses: {what}", self.server);
        }
        is_new
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock()
    }
}

/// Who may not do what, without the name of an object: Kubernetes says `pods "web" is forbidden: User "joe" cannot get …`.
fn lacking(message: &str) -> Option<&str> {
    let (_, what) = message.split_once("forbidden: ")?;
    (what.starts_with("User \"") && what.contains(" cannot ")).then_some(what)
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut bottom = error;
    while let Some(cause) = bottom.source() {
        bottom = cause;
    }
    bottom.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints() -> Complaints {
        Complaints {
            server: "https://there".into(),
            said: Mutex::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_nobody_answers_is_said_at_once_and_ever_more_seldom() {
        let complaints = complaints();
        let mut said = Vec::new();
        for second in 0..40 {
            if complaints.complain("refused".into()) {
                said.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(said, [0, 5, 15, 35]);
        assert!(complaints.complain("another cause".into()), "it is news");
        complaints.reach();
        assert!(
            complaints.complain("another cause".into()),
            "it was over in between"
        );
    }

    #[test]
    fn what_somebody_may_not_do_is_said_once_whatever_the_object() {
        let complaints = complaints();
        let cannot = |name: &str, verb: &str| {
            format!(
                "pods {name}is forbidden: User \"joe\" cannot {verb} resource \"pods\" in API group \"\""
            )
        };
        assert!(complaints.refuse(&cannot("", "list")));
        assert!(!complaints.refuse(&cannot("\"web\" ", "list")));
        assert!(complaints.refuse(&cannot("\"web\" ", "get")));
        assert!(!complaints.refuse("pods \"web\" is forbidden: exceeded quota: small"));
    }

    #[test]
    fn what_is_at_the_bottom_is_said_with_the_address() {
        let refused = std::io::Error::from_raw_os_error(111);
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] std::io::Error);
        let error = complaints().fail(Outer(refused).into());
        assert_eq!(
            error.to_string(),
            "cannot reach https://there: Connection refused (os error 111)"
        );
    }
}
