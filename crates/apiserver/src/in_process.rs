//! An in-process client of the server: function calls instead of a network.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tower_service::Service;

use crate::{Body, Server, User};

/// A client of a server, for one user. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    server: Server,
    user: User,
    agent: HeaderValue,
}

impl Server {
    /// An in-process client for `user`. Requests without a `User-Agent` get `agent`.
    pub fn in_process(&self, user: User, agent: &'static str) -> InProcess {
        InProcess {
            server: self.clone(),
            user,
            agent: HeaderValue::from_static(agent),
        }
    }
}

impl<B> Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let InProcess {
            server,
            user,
            agent,
        } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            parts.headers.entry(USER_AGENT).or_insert(agent);
            // A body that fails counts as empty.
            let body = body
                .collect()
                .await
                .map(|body| body.to_bytes())
                .unwrap_or_default();
            Ok(server
                .call(Some(user), parts.method, parts.uri, parts.headers, body)
                .await)
        })
    }
}
