//! What answers when the API server calls a webhook? A handler in the process of the test, a fault, or the network.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use mizzen_apiserver::{InterceptWebhook, SendError};
use mizzen_value::json;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::Cluster;
use crate::faults::{Fault, Faults};
use crate::transport::is_for_test;

/// The component that calls webhooks, in steps and sites.
static APISERVER: LazyLock<Arc<str>> = LazyLock::new(|| "apiserver".into());

/// The users of [`Cluster::client`] and [`Cluster::server`].
const TEST_USERS: [&str; 2] = ["admin", "system:apiserver"];

type WebhookFuture = Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;
type WebhookHandler = Arc<dyn Fn(Request<Full<Bytes>>) -> WebhookFuture + Send + Sync>;

/// The webhooks of the test, by host.
pub(crate) type WebhookHandlers = HashMap<String, WebhookHandler>;

/// The calls of webhooks of a cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct Webhooks {
    handlers: Arc<Mutex<WebhookHandlers>>,
    test_users: Arc<Mutex<HashSet<String>>>,
    faults: Faults,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_set().entries(self.handlers.lock().keys()).finish()
    }
}

impl Webhooks {
    pub(crate) fn new(handlers: WebhookHandlers, faults: Faults) -> Webhooks {
        Webhooks {
            handlers: Arc::new(Mutex::new(handlers)),
            test_users: Arc::new(Mutex::new(TEST_USERS.map(String::from).into())),
            faults,
        }
    }

    pub(crate) fn handlers(&self) -> WebhookHandlers {
        self.handlers.lock().clone()
    }

    /// Random faults do not hit calls on behalf of this user.
    pub(crate) fn add_test_user(&self, name: &str) {
        self.test_users.lock().insert(name.to_owned());
    }

    /// The handler of a host, with its port or without.
    fn handler(&self, uri: &Uri) -> Option<WebhookHandler> {
        let handlers = self.handlers.lock();
        let authority = uri.authority()?.as_str();
        let handler = handlers
            .get(authority)
            .or_else(|| handlers.get(uri.host()?));
        handler.cloned()
    }

    /// Whether a review is about a request of the test. A ConversionReview does not say, but is sent by the task of the
    /// request; an AdmissionReview may be sent by another task.
    fn is_for_test(&self, review: &[u8]) -> bool {
        let review = json::parse(review).unwrap_or_default();
        match review["request"]["userInfo"]["username"].str() {
            "" => is_for_test(),
            user => self.test_users.lock().contains(user),
        }
    }

    fn fault(&self, request: &Request<Bytes>) -> Option<Fault> {
        let uri = request.uri();
        let class = format!("WEBHOOK {}{}", uri.host().unwrap_or_default(), uri.path());
        let site = self.faults.next_site(&APISERVER, &class)?;
        let is_for_test = self.is_for_test(request.body());
        self.faults.on_webhook(&site, is_for_test)
    }
}

impl InterceptWebhook for Webhooks {
    fn intercept(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Response<Bytes>, SendError>>> + Send>> {
        let (fault, handler) = (self.fault(&request), self.handler(request.uri()));
        Box::pin(async move {
            if fault == Some(Fault::DeadWebhook) {
                let host = request.uri().authority().map_or("", |host| host.as_str());
                let refused = format!("dial tcp {host}: connect: connection refused");
                return Some(Err(SendError(refused)));
            }
            if let Some(delay) = fault.and_then(|fault| fault.delay()) {
                sleep(delay).await;
            }
            Some(Ok(handler?(request.map(Full::new)).await))
        })
    }
}

impl Cluster {
    /// Serves the admission and conversion webhooks of a host in the process of the test, without a port: the API server
    /// calls `handler` and not the network. `host` is that of a Service, `name.namespace.svc`, which need not exist, or
    /// that of a `url`, with or without its port. TLS is not spoken, so any `caBundle` will do.
    ///
    /// [`Fault::SlowWebhook`] and [`Fault::DeadWebhook`] hit the calls, in-process or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_sdk::webhook::{AdmissionRequest, Denied, Endpoint, Rule, Server, Webhook};
    /// use mizzen_testing::Cluster;
    ///
    /// async fn forbid(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
    ///     match request.name.as_str() {
    ///         "grey" => Err(Denied::new("grey is not a colour")),
    ///         _ => Ok(()),
    ///     }
    /// }
    ///
    /// let cluster = Cluster::start().await;
    /// let server = Server::builder("colours")
    ///     .webhook(Webhook::validating("colours.example.com", Rule::kind::<ConfigMap>(), forbid))
    ///     .build()?;
    /// let endpoint = Endpoint::Url("https://colours.example.com".into());
    /// server.apply(&cluster.client(), &endpoint, "").await?;
    /// cluster.serve_webhooks("colours.example.com", move |request| {
    ///     let server = server.clone();
    ///     async move { server.handle(request).await }
    /// });
    ///
    /// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: red}}").await;
    /// let denied = cluster.try_apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: grey}}").await.unwrap_err();
    /// assert!(denied.to_string().contains("grey is not a colour"), "{denied}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve_webhooks<F, R>(&self, host: &str, handler: F)
    where
        F: Fn(Request<Full<Bytes>>) -> R + Send + Sync + 'static,
        R: Future<Output = Response<Bytes>> + Send + 'static,
    {
        let handler: WebhookHandler = Arc::new(move |request| Box::pin(handler(request)));
        let mut handlers = self.webhooks().handlers.lock();
        handlers.insert(host.to_owned(), handler);
    }
}
