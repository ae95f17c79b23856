//! The webhook server: paths, limits, reviews in and out.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use mizzen_object::Status;
use mizzen_value::{json, time};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::admission::{ADMISSION_VERSION, AdmissionReview, PendingResponse};
use super::conversion::{self, CONVERSION_VERSION, ConversionHandler, ConversionReview};
use super::denied::Denied;
use super::hook::Webhook;
use crate::object::Object;

/// The limits of a webhook server.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::webhook::{Limits, Server};
///
/// let limits = Limits { timeout: Duration::from_secs(5), ..Limits::default() };
/// let server = Server::builder("shop").limits(limits).build()?;
/// # drop(server);
/// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest AdmissionReview. It has an object and its old version, of at most 3 MiB each.
    pub admission_body: usize,
    /// The largest ConversionReview. It may have all objects of a list.
    pub conversion_body: usize,
    /// How many reviews are handled at once. Further ones wait.
    pub concurrency: usize,
    /// How many connections there may be at once. Further ones are closed.
    pub connections: usize,
    /// How long a review may take, with reading it and waiting for its turn. The API server states
    /// its own timeout in each request, of at most 30 s; the smaller one applies.
    pub timeout: Duration,
    /// How long a TLS handshake, and the head of a request, may take.
    pub handshake_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            admission_body: 7 << 20,
            conversion_body: 64 << 20,
            concurrency: 256,
            connections: 1024,
            timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// The handlers of a webhook server, before it is built.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::webhook::{AdmissionRequest, Builder, Denied, Rule, Server, Webhook};
///
/// async fn check(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
///     request.object()?.data.as_ref().map(drop).ok_or_else(|| Denied::new("no data"))
/// }
///
/// let builder: Builder = Server::builder("shop")
///     .webhook(Webhook::validating("configs.shop.example.com", Rule::kind::<ConfigMap>(), check));
/// let server = builder.build()?;
/// # drop(server);
/// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
/// ```
#[derive(Default)]
pub struct Builder {
    name: String,
    webhooks: Vec<Webhook>,
    conversions: Vec<(String, ConversionHandler)>,
    limits: Limits,
}

/// Why a webhook server cannot be built.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::webhook::{Rule, Server, Webhook};
///
/// let webhook = Webhook::defaulting("a.shop.example.com", Rule::kind::<ConfigMap>(), |_: &mut ConfigMap| {});
/// let error = Server::builder("shop").webhook(webhook.clone()).webhook(webhook).build().err();
/// assert!(error.is_some_and(|error| error.to_string().starts_with("two webhooks")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Two handlers have the same path.
    #[error("two webhooks are served at {0}")]
    DuplicatePath(String),
    /// Two webhooks have the same name.
    #[error("two webhooks have the name {0:?}")]
    DuplicateName(String),
    /// A path does not begin with a slash.
    #[error("the path {0:?} of a webhook does not begin with a slash")]
    InvalidPath(String),
    /// A limit is zero.
    #[error("the limits allow no request")]
    NoCapacity,
}

impl Builder {
    /// Adds an admission webhook.
    pub fn webhook(mut self, webhook: Webhook) -> Builder {
        self.webhooks.push(webhook);
        self
    }

    /// Converts objects of a CustomResourceDefinition between its versions: the handler gets an
    /// object and the `apiVersion` that it should have.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::webhook::{Denied, Server};
    ///
    /// async fn convert(mut foo: Object, version: String) -> Result<Object, Denied> {
    ///     foo.set("apiVersion", version);
    ///     Ok(foo)
    /// }
    /// let server = Server::builder("shop").conversion("foos.shop.example.com", convert).build()?;
    /// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
    /// ```
    pub fn conversion<F, R>(mut self, definition: &str, handler: F) -> Builder
    where
        F: Fn(Object, String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Object, Denied>> + Send + 'static,
    {
        let handler: ConversionHandler =
            Arc::new(move |object, version| handler(object, version).boxed());
        self.conversions.push((definition.into(), handler));
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// The server.
    pub fn build(self) -> Result<Server, BuildError> {
        let Builder {
            name,
            webhooks,
            conversions,
            limits,
        } = self;
        if limits.concurrency == 0 || limits.connections == 0 {
            return Err(BuildError::NoCapacity);
        }
        let mut routes = HashMap::new();
        let mut add = |path: String, route| match path.starts_with('/') {
            false => Err(BuildError::InvalidPath(path)),
            true if routes.contains_key(&path) => Err(BuildError::DuplicatePath(path)),
            true => {
                routes.insert(path, route);
                Ok(())
            }
        };
        for (idx, webhook) in webhooks.iter().enumerate() {
            let is_same = |other: &Webhook| {
                other.is_mutating == webhook.is_mutating && other.name() == webhook.name()
            };
            if webhooks[..idx].iter().any(is_same) {
                return Err(BuildError::DuplicateName(webhook.name().into()));
            }
            add(
                webhook.path.clone(),
                Route::Admission(Box::new(webhook.clone())),
            )?;
        }
        let mut definitions = Vec::new();
        for (definition, handler) in conversions {
            add(conversion_path(&definition), Route::Conversion(handler))?;
            definitions.push(definition);
        }
        Ok(Server(Arc::new(ServerInner {
            name,
            webhooks,
            definitions,
            routes,
            turns: Semaphore::new(limits.concurrency),
            limits,
        })))
    }
}

/// The path of a CustomResourceDefinition's conversion.
pub(super) fn conversion_path(definition: &str) -> String {
    format!("/convert/{definition}")
}

/// A webhook server. Cheap to clone.
///
/// It answers the reviews of the API server ([`handle`](Server::handle)), serves them over TLS
/// ([`serve`](Server::serve)) and registers itself ([`apply`](Server::apply)).
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use bytes::Bytes;
/// use http::Request;
/// use http_body_util::Full;
/// use mizzen_sdk::webhook::{AdmissionRequest, Denied, Rule, Server, Webhook};
///
/// async fn validate(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
///     Err(Denied::new(format!("no ConfigMap {}", request.name)))
/// }
/// let server = Server::builder("shop")
///     .webhook(Webhook::validating("configs.shop.example.com", Rule::kind::<ConfigMap>(), validate))
///     .build()?;
///
/// let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","name":"web",
///     "kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},
///     "operation":"CREATE","userInfo":{},"object":{"metadata":{"name":"web"}}}}"#;
/// let request = Request::post("/validate/configs.shop.example.com").body(Full::<Bytes>::from(review))?;
/// let response = server.handle(request).await;
/// assert!(String::from_utf8_lossy(response.body()).contains(r#""message":"no ConfigMap web""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Server(pub(super) Arc<ServerInner>);

pub(super) struct ServerInner {
    /// The name of its webhook configurations.
    pub(super) name: String,
    pub(super) webhooks: Vec<Webhook>,
    /// The CustomResourceDefinitions whose objects it converts.
    pub(super) definitions: Vec<String>,
    pub(super) limits: Limits,
    routes: HashMap<String, Route>,
    turns: Semaphore,
}

enum Route {
    Admission(Box<Webhook>),
    Conversion(ConversionHandler),
}

impl Server {
    /// A server without handlers. Its webhook configurations get this name.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            ..Builder::default()
        }
    }

    /// Answers a request of the API server. What is not a review gets an HTTP error with a Status;
    /// a denial is a review with code 200, as the API server expects it.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Bytes>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send,
    {
        let query = request.uri().query().unwrap_or_default();
        let stated = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("timeout="));
        let stated = stated.and_then(|text| time::duration_nanos(text).ok());
        let stated = stated
            .filter(|nanos| *nanos > 0)
            .map(|nanos| Duration::from_nanos(nanos.unsigned_abs()));
        let limit = self.0.limits.timeout.min(stated.unwrap_or(Duration::MAX));
        let path = request.uri().path().to_owned();
        let answered = match timeout(limit, self.review(request)).await {
            Ok(answered) => answered,
            Err(_) => {
                tracing::warn!(path, ?limit, "a webhook handler took too long");
                Err(Status::failure(
                    504,
                    "Timeout",
                    format!("no response within {limit:?}"),
                ))
            }
        };
        let (code, body) = match answered {
            Ok(body) => (StatusCode::OK, Bytes::from(body)),
            Err(status) => (
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                Bytes::from(json::to_string(&status.to_value())),
            ),
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    async fn review<B>(&self, request: Request<B>) -> Result<Vec<u8>, Status>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send,
    {
        let path = request.uri().path();
        let Some(route) = self.0.routes.get(path) else {
            let message = format!("no webhook is served at {path}");
            return Err(Status::failure(404, "NotFound", message));
        };
        if request.method() != Method::POST {
            return Err(Status::method_not_allowed("reviews are sent with POST"));
        }
        if let Some(kind) = request.headers().get(header::CONTENT_TYPE) {
            let kind = kind.to_str().unwrap_or_default();
            if kind.split(';').next().map(str::trim) != Some("application/json") {
                let message = format!("reviews are application/json, not {kind:?}");
                return Err(Status::failure(415, "UnsupportedMediaType", message));
            }
        }
        let _turn = self.0.turns.acquire().await;
        let limit = match route {
            Route::Admission(_) => self.0.limits.admission_body,
            Route::Conversion(_) => self.0.limits.conversion_body,
        };
        let body = match Limited::new(request.into_body(), limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let message = format!("the review is larger than {limit} bytes");
                return Err(Status::failure(413, "RequestEntityTooLarge", message));
            }
            Err(error) => {
                return Err(Status::bad_request(format!(
                    "the body cannot be read: {error}"
                )));
            }
        };
        match route {
            Route::Admission(webhook) => admit(webhook, &body).await,
            Route::Conversion(handler) => convert(handler, &body).await,
        }
    }
}

async fn admit(webhook: &Webhook, body: &[u8]) -> Result<Vec<u8>, Status> {
    let review: AdmissionReview = serde_json::from_slice(body).map_err(not_a_review)?;
    let request = expect_request(
        &review.api_version,
        &review.kind,
        review.request,
        ADMISSION_VERSION,
        "AdmissionReview",
    )?;
    let pending = PendingResponse::new(&request);
    // The call itself may panic, not only its future.
    let decision = AssertUnwindSafe(async { (webhook.handler)(request).await });
    let outcome = decision.catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|panic| Err(Denied::panicked(webhook.name(), panic)));
    pending.finish(outcome).map_err(Status::internal)
}

async fn convert(handler: &ConversionHandler, body: &[u8]) -> Result<Vec<u8>, Status> {
    let review: ConversionReview = serde_json::from_slice(body).map_err(not_a_review)?;
    let request = expect_request(
        &review.api_version,
        &review.kind,
        review.request,
        CONVERSION_VERSION,
        "ConversionReview",
    )?;
    let uid = request.uid();
    let converted = AssertUnwindSafe(request.convert(handler.clone()))
        .catch_unwind()
        .await;
    let outcome = converted.unwrap_or_else(|panic| Err(Denied::panicked("conversion", panic)));
    conversion::finish(uid, outcome).map_err(Status::internal)
}

fn expect_request<R>(
    version: &str,
    kind: &str,
    request: Option<R>,
    expected_version: &str,
    expected_kind: &str,
) -> Result<R, Status> {
    if (version, kind) != (expected_version, expected_kind) {
        let message =
            format!("expected {expected_kind} of {expected_version}, not {kind:?} of {version:?}");
        return Err(Status::bad_request(message));
    }
    request.ok_or_else(|| Status::bad_request(format!("the {kind} has no request")))
}

fn not_a_review(error: serde_json::Error) -> Status {
    Status::bad_request(format!("the body is no review: {error}"))
}
