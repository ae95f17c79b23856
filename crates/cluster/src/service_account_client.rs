//! `--use-service-account-credentials`: each controller authenticates as a service account of its own.
//!
//! Kubernetes: controller-manager/pkg/clientbuilder/client_builder_dynamic.go. A token is requested with the credentials of
//! the kubeconfig when a controller first needs one, and again when a fifth of its life is left or the server rejects it.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::AuthInfo;
use kube::{Client, Config};
use mizzen_sdk::clock::wall_clock;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::kubeconfig;
use mizzen_sdk::resource::SERVICE_ACCOUNTS;
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::{time, value};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::buffer::Buffer;
use tower::layer::layer_fn;
use tower::{Service, ServiceExt as _};

use crate::connect::ConnectError;
use crate::connection_log::LogFailures;

/// The namespace of the service accounts of controllers.
const NAMESPACE: &str = "kube-system";
/// The requested life of a token.
const EXPIRATION_SECONDS: i64 = 3600;
/// The minimum assumed life of a token, because clocks may differ.
const MIN_LIFE: Duration = Duration::from_secs(600);
/// The queue of requests of one client.
const QUEUE: usize = 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Builds clients of service accounts.
pub(crate) struct ServiceAccountClients {
    /// Has the credentials of the kubeconfig, and requests tokens.
    root: Client,
    /// The server without credentials.
    anonymous: Config,
}

impl ServiceAccountClients {
    /// Clients of the server that `file` names; `root` is one with its credentials.
    pub(crate) async fn new(
        file: &Path,
        agent: &'static str,
        root: Client,
    ) -> Result<ServiceAccountClients, ConnectError> {
        let mut anonymous = kubeconfig::load(file, None, agent).await?;
        anonymous.auth_info = AuthInfo::default();
        Ok(ServiceAccountClients { root, anonymous })
    }

    /// A client of the service account of this name.
    pub(crate) fn client(&self, name: &str) -> Result<Client, kube::Error> {
        let tokens = Arc::new(TokenSource::new(&self.root, name));
        let layer = layer_fn(move |inner| AddToken::new(inner, tokens.clone()));
        let server = self.anonymous.cluster_url.to_string();
        let log_failures = layer_fn(move |inner| LogFailures::new(inner, &server));
        let builder = ClientBuilder::try_from(self.anonymous.clone())?;
        Ok(builder.with_layer(&layer).with_layer(&log_failures).build())
    }
}

/// The token of one service account.
struct TokenSource {
    api: DynamicClient,
    key: Key,
    current: Mutex<Option<CachedToken>>,
}

#[derive(Clone)]
struct CachedToken {
    header: HeaderValue,
    refresh: Instant,
}

impl TokenSource {
    fn new(root: &Client, name: &str) -> TokenSource {
        let (api, key) = (DynamicClient::new(root.clone()), Key::new(NAMESPACE, name));
        TokenSource {
            api,
            key,
            current: Mutex::default(),
        }
    }

    /// The cached token, or a new one.
    async fn token(&self) -> Result<HeaderValue, BoxError> {
        let mut current = self.current.lock().await;
        if let Some(token) = current
            .as_ref()
            .filter(|token| Instant::now() < token.refresh)
        {
            return Ok(token.header.clone());
        }
        let token = self.request().await?;
        let header = token.header.clone();
        *current = Some(token);
        Ok(header)
    }

    /// Drops a token that the server rejected, unless there is a newer one.
    async fn reset(&self, rejected: &HeaderValue) {
        let mut current = self.current.lock().await;
        if current
            .as_ref()
            .is_some_and(|token| token.header == *rejected)
        {
            *current = None;
        }
    }

    /// Requests a token.
    async fn request(&self) -> Result<CachedToken, BoxError> {
        self.ensure_service_account().await?;
        let (namespace, name) = (self.key.namespace(), self.key.name());
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = value!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": EXPIRATION_SECONDS},
        });
        let response = self
            .api
            .raw(http::Method::POST, &path, Some(&request))
            .await?;
        let expires =
            time::to_unix(response["status"]["expirationTimestamp"].str()).unwrap_or_default();
        let life = u64::try_from(expires - wall_clock()().as_second()).unwrap_or_default();
        let life = Duration::from_secs(life).max(MIN_LIFE);
        let mut header =
            HeaderValue::try_from(format!("Bearer {}", response["status"]["token"].str()))?;
        header.set_sensitive(true);
        Ok(CachedToken {
            header,
            refresh: Instant::now() + life.mul_f64(0.8),
        })
    }

    async fn ensure_service_account(&self) -> Result<(), BoxError> {
        match self.api.get(&SERVICE_ACCOUNTS, &self.key).await {
            Err(error) if is_not_found(&error) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
        let account = Object(
            value!({"metadata": {"namespace": (self.key.namespace()), "name": (self.key.name())}}),
        );
        match self.api.create(&SERVICE_ACCOUNTS, &account).await {
            Err(error) if !is_already_exists(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

type ResponseFuture = BoxFuture<'static, Result<Response<Box<DynBody>>, BoxError>>;

/// A layer that adds the token to each request.
struct AddToken {
    inner: Buffer<Request<Body>, ResponseFuture>,
    tokens: Arc<TokenSource>,
}

impl AddToken {
    fn new<S>(inner: S, tokens: Arc<TokenSource>) -> AddToken
    where
        S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let inner = inner.map_future(|future| Box::pin(future) as BoxFuture<'static, _>);
        AddToken {
            inner: Buffer::new(inner, QUEUE),
            tokens,
        }
    }
}

impl Service<Request<Body>> for AddToken {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (mut inner, tokens) = (self.inner.clone(), self.tokens.clone());
        Box::pin(async move {
            let token = tokens.token().await?;
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            let response = inner.ready().await?.call(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                tokens.reset(&token).await;
            }
            Ok(response)
        })
    }
}
