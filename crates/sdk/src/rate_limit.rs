//! The client-side rate limit of client-go, as a layer.
//!
//! A token bucket shared by all clients that the layer wraps. Requests wait for their token in
//! order. Watches are not limited: they are few and long.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! use mizzen_sdk::rate_limit::RateLimitLayer;
//!
//! let client = RateLimitLayer::new(50.0, 100).wrap(client);
//! client.apiserver_version().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: a request that is dropped while it waits takes no token.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Uri};
use kube::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, service_fn};

use crate::queue::TokenBucket;

/// client-go's `rest.DefaultQPS`.
const DEFAULT_QPS: f64 = 5.0;
/// client-go's `rest.DefaultBurst`.
const DEFAULT_BURST: u32 = 10;
/// Longer waits are logged.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Limits the requests of all clients that it wraps. Clones share the tokens.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::rate_limit::RateLimitLayer;
///
/// let limit = RateLimitLayer::new(50.0, 100);
/// let (reader, writer) = (limit.wrap(client.clone()), limit.wrap(client)); // they share the tokens
/// reader.apiserver_version().await?;
/// # drop(writer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer(Option<Arc<RequestBucket>>);

struct RequestBucket {
    tokens: TokenBucket,
    /// Held by the request that waits for the next token.
    turn: Mutex<()>,
}

impl RateLimitLayer {
    /// `qps` requests a second, and up to `burst` at once. As in client-go's `rest.Config`, zero
    /// stands for the defaults (5 and 10), and a negative `qps` for no limit.
    pub fn new(qps: f64, burst: u32) -> RateLimitLayer {
        let qps = if qps == 0.0 { DEFAULT_QPS } else { qps };
        let burst = if burst == 0 { DEFAULT_BURST } else { burst };
        let bucket = || {
            Arc::new(RequestBucket {
                tokens: TokenBucket::new(qps, burst),
                turn: Mutex::default(),
            })
        };
        RateLimitLayer((qps > 0.0).then(bucket))
    }

    /// A client that sends its requests through `client`, at the limited rate.
    pub fn wrap(&self, client: Client) -> Client {
        let (namespace, valid_until) = (
            client.default_namespace().to_string(),
            *client.valid_until(),
        );
        let service = service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(self.layer(service), namespace).with_valid_until(valid_until)
    }
}

impl Default for RateLimitLayer {
    /// client-go's defaults: 5 requests a second, and up to 10 at once.
    fn default() -> RateLimitLayer {
        RateLimitLayer::new(DEFAULT_QPS, DEFAULT_BURST)
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit {
            inner: Arc::new(Mutex::new(inner)),
            bucket: self.0.clone(),
        }
    }
}

impl RequestBucket {
    async fn acquire(&self) {
        let _turn = self.turn.lock().await;
        let wait = self.tokens.wait(Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        self.tokens.take(Instant::now());
    }
}

/// A service whose requests wait for a token.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use http::Request;
/// use mizzen_sdk::rate_limit::{RateLimit, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let echo = service_fn(async |request: Request<String>| Ok::<_, std::convert::Infallible>(request.into_body()));
/// let limited: RateLimit<_> = RateLimitLayer::default().layer(echo);
/// assert_eq!(limited.oneshot(Request::new("hello".to_owned())).await?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimit<S> {
    inner: Arc<Mutex<S>>,
    bucket: Option<Arc<RequestBucket>>,
}

impl<S, B> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>> + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    /// Always ready: each request waits by itself, and then for the inner service.
    fn poll_ready(&mut self, _context: &mut Context) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, bucket) = (self.inner.clone(), self.bucket.clone());
        Box::pin(async move {
            if let Some(bucket) = bucket.filter(|_| !is_watch(request.method(), request.uri())) {
                let start = Instant::now();
                bucket.acquire().await;
                if start.elapsed() > LONG_WAIT {
                    let (method, path) = (request.method(), request.uri().path());
                    tracing::info!(delay = ?start.elapsed(), %method, path, "waited for the client-side rate limit");
                }
            }
            let response = {
                let mut inner = inner.lock().await;
                poll_fn(|context| inner.poll_ready(context)).await?;
                inner.call(request)
            };
            response.await
        })
    }
}

/// Whether a request is a watch.
pub(crate) fn is_watch(method: &Method, uri: &Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    method == Method::GET && parameters.any(|one| ["watch", "watch=true", "watch=1"].contains(&one))
}
