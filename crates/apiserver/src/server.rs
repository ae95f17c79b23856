//! The server's parts, and the way of a request through them.

use std::any::Any;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use mizzen_audit::{Audit, AuditOptions};
use mizzen_authentication::{
    Authentication, AuthenticatorOptions, MergePatchFn, PeerClaim, RequestAuthenticator,
    RequestOrigin, ServiceAccountTokens, TokenSigner,
};
use mizzen_authorization::rbac::Rbac;
use mizzen_authorization::{
    Attributes, Authorization, AuthorizationOptions, Authorizer, Decision, ServerAuthorization,
};
use mizzen_flowcontrol::{Concurrency, FlowControl};
use mizzen_object::{Status, User};
use mizzen_outgoing::{ClientIdentity, InterceptWebhook, OutgoingClient, ServiceResolver};
use mizzen_registry::{Registry, Resource};
use mizzen_serving::{MetaSchemas, Unsent, UnsentLimits};
use mizzen_value::{Value, json};
use tokio::sync::watch;

use crate::admission::{AdmissionPolicies, Plugin, Webhooks};
use crate::aggregation::{Aggregation, RequestStreams};
use crate::authorization;
use crate::catalog::Catalog;
use crate::chain::{self, IncomingRequest};
use crate::cors::Cors;
use crate::crd::{self, CrdProgress};
use crate::delegate::MainServer;
use crate::extend::{Extensions, NonResourceHandlers};
use crate::flowcontrol;
use crate::health::{self, BootSequence, ComponentHealth, HealthCheck};
use crate::metrics::ServerMetrics;
use crate::peer_proxy::{PeerProxy, PeerProxyOptions};
use crate::response::Response;
use crate::verbs::WatchFrameCache;
use crate::zpages::Zpages;

/// Makes the authorizer of the mode `Node`; none where the catalog lacks what it needs.
pub type NodeAuthorizerFn = fn(&Catalog) -> Option<Arc<dyn Authorizer>>;

/// How the server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address that clients inside the cluster are told.
    pub advertise: String,
    /// Seconds after which a request that is no watch is given up.
    pub request_timeout: u64,
    /// Seconds that a watch lasts at least when its client does not say; at most twice that.
    pub min_request_timeout: u64,
    /// How HTTP is spoken.
    pub http: Http,
    /// The key that signs service accounts' tokens; without it there are none.
    pub signer: Option<Arc<dyn TokenSigner>>,
    /// The issuers, keys and audiences of service account tokens.
    pub service_accounts: ServiceAccountTokens,
    /// Who decides what users may do, before those of the authorization are asked.
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    /// Who decides what users may do.
    pub authorization: Authorization,
    /// How users show who they are, besides certificates and service accounts' tokens.
    pub authentication: Authentication,
    /// The client certificate of the front proxy, for requests to aggregated API servers.
    pub front_proxy: Option<ClientIdentity>,
    /// The admission plug-ins, in the order in which they run.
    pub admission_plugins: Vec<&'static Plugin>,
    /// Makes the authorizer of the mode `Node`; none where the catalog lacks what it needs.
    pub node_authorizer: Option<NodeAuthorizerFn>,
    /// What must be well outside the server for it to be healthy and ready.
    pub health: Vec<Arc<dyn HealthCheck>>,
    /// The health checks that pass once a step of the start is done, in the order in which they are listed.
    pub boot_sequence: Vec<&'static str>,
    /// Whose figures are shown with those of the server.
    pub metrics: mizzen_metrics::Registry,
    /// What is remembered of requests; nothing if it is none.
    pub audit: Option<AuditOptions>,
    /// How many requests are answered at a time.
    pub concurrency: Concurrency,
    /// The host, and the port unless it is the own one, in URLs that clients outside are given; `advertise` without.
    pub external_hostname: Option<String>,
    /// The directory whose files are served at `/logs`; without it nothing is.
    pub log_directory: Option<PathBuf>,
    /// Whether DELETE resets the metrics, as upstream's `--profiling` has it.
    pub resets_metrics: bool,
    /// Who serves non-resource paths before the server itself does.
    pub non_resource_handlers: NonResourceHandlers,
    /// The health endpoints of a component that serves no API; none for an API server.
    pub component: Option<ComponentHealth>,
    /// What `/statusz` and `/flagz` say; without it they do not exist.
    pub zpages: Option<Zpages>,
    /// Answers calls of admission and conversion webhooks in place of the network.
    pub webhook_interceptor: Option<Arc<dyn InterceptWebhook>>,
    /// How requests are proxied to peers; none if they are not.
    pub peer_proxy: Option<PeerProxyOptions>,
}

impl Options {
    /// Whether an admission plug-in is on.
    pub(crate) fn has_plugin(&self, name: &str) -> bool {
        self.admission_plugins
            .iter()
            .any(|plugin| plugin.name == name)
    }

    /// The address in URLs that clients are given. Kubernetes: server/config.go, `ExternalAddress`.
    pub(crate) fn external_address(&self) -> String {
        let port = || {
            self.advertise
                .rsplit_once(':')
                .map_or("443", |(_, port)| port)
        };
        match &self.external_hostname {
            None => self.advertise.clone(),
            Some(host) if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]:{}", port()),
            Some(host) if host.contains(':') => host.clone(),
            Some(host) => format!("{host}:{}", port()),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            advertise: "127.0.0.1:6443".into(),
            request_timeout: 60,
            min_request_timeout: 30 * 60,
            http: Http::default(),
            signer: None,
            service_accounts: ServiceAccountTokens::default(),
            authorizers: Vec::new(),
            authorization: Authorization::default(),
            authentication: Authentication::default(),
            front_proxy: None,
            admission_plugins: Vec::new(),
            node_authorizer: None,
            health: Vec::new(),
            boot_sequence: health::START.to_vec(),
            metrics: mizzen_metrics::Registry::default(),
            audit: None,
            concurrency: Concurrency::default(),
            external_hostname: None,
            log_directory: None,
            resets_metrics: true,
            non_resource_handlers: NonResourceHandlers::default(),
            component: None,
            zpages: None,
            webhook_interceptor: None,
            peer_proxy: None,
        }
    }
}

/// How HTTP is spoken.
#[derive(Debug, Clone)]
pub struct Http {
    /// How many requests one HTTP/2 connection may have under way.
    pub max_streams: u32,
    /// The part of requests after which an HTTP/2 client is asked to use another connection, so that it may come to
    /// another server.
    pub goaway_chance: f64,
    /// CORS and HSTS headers.
    pub cors: Cors,
    /// How many bytes of responses may wait for their readers.
    pub unsent: UnsentLimits,
}

impl Default for Http {
    fn default() -> Http {
        Http {
            max_streams: 250,
            goaway_chance: 0.0,
            cors: Cors::default(),
            unsent: UnsentLimits::default(),
        }
    }
}

/// An API server without a network: give it requests, it gives answers.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<ServerParts>);

/// The parts of a server.
pub struct ServerParts {
    /// The engine below.
    pub registry: Registry,
    /// The resources that are served.
    pub catalog: Catalog,
    /// Shapes of what requests and answers carry besides objects.
    pub types: MetaSchemas,
    pub(crate) definitions: CrdProgress,
    pub(crate) metrics: ServerMetrics,
    pub(crate) flow_control: FlowControl,
    pub(crate) unsent: Arc<Unsent>,
    pub(crate) authenticator: RequestAuthenticator,
    pub(crate) authorization: ServerAuthorization,
    /// Calls webhooks and aggregated API servers.
    pub client: OutgoingClient,
    /// The watch events that were written last.
    pub(crate) frames: Arc<WatchFrameCache>,
    pub(crate) webhooks: Webhooks,
    pub(crate) policies: AdmissionPolicies,
    pub(crate) aggregation: Aggregation,
    pub(crate) peer_proxy: Option<PeerProxy>,
    pub(crate) audit: Arc<Audit>,
    /// How the server is set up.
    pub options: Options,
    /// What the server's author has added.
    pub(crate) extensions: Extensions,
    /// Turns true when the server is about to stop; watches end then.
    pub(crate) stopping: watch::Sender<bool>,
    /// Whether new clients are to go to another server.
    pub(crate) leaving: AtomicBool,
    pub(crate) boot_sequence: BootSequence,
    /// For what goes on when a request is answered.
    pub(crate) itself: Weak<ServerParts>,
}

impl Server {
    /// Joins the parts.
    pub(crate) fn join(
        registry: Registry,
        catalog: Catalog,
        types: MetaSchemas,
        options: Options,
        extensions: Extensions,
    ) -> Server {
        // What the cluster configures is the main server's, if this one is behind it.
        let main = extensions.main.as_ref();
        let find = |group: &str, version: &str, plural: &str| match main {
            Some(main) => main.resource(group, version, plural),
            None => catalog.get(group, version, plural),
        };
        let client = match main {
            Some(MainServer::InProcess(main)) => main.client.clone(),
            main => {
                let upstream = extensions.upstream();
                let services = ServiceResolver::new(
                    main.map_or(&registry, MainServer::registry),
                    find,
                    upstream.map_or(&options.advertise, |upstream| upstream.address()),
                );
                OutgoingClient::new(&registry, options.front_proxy.clone(), services)
                    .intercepted_by(options.webhook_interceptor.clone())
            }
        };
        catalog.call_with(&client, &registry);
        let registration = |plural: &str| find("admissionregistration.k8s.io", "v1", plural);
        let webhooks = Webhooks::new(registration);
        let policies = AdmissionPolicies::new(registration);
        let aggregation = Aggregation::new(&catalog);
        let peer_proxy = PeerProxy::new(&registry, options.peer_proxy.clone());
        let roles = |plural: &str| catalog.get("rbac.authorization.k8s.io", "v1", plural);
        let access = AuthorizationOptions {
            authorizers: options.authorizers.clone(),
            authorization: options.authorization.clone(),
            rbac: Rbac::find(roles).map(Arc::new),
            node: options.node_authorizer.and_then(|make| make(&catalog)),
        };
        let access = ServerAuthorization::new(&registry, access);
        let audit = Arc::new(Audit::new(options.audit.clone(), &registry));
        let flow_resource =
            |plural: &str| catalog.get("flowcontrol.apiserver.k8s.io", "v1", plural);
        let fairness = FlowControl::new(flow_resource, options.concurrency, registry.now());
        let unsent = Unsent::new(options.http.unsent);
        let metrics = ServerMetrics::new(registry.now(), &options.admission_plugins);
        let stopping = watch::Sender::new(false);
        Server(Arc::new_cyclic(|itself| ServerParts {
            authenticator: RequestAuthenticator::new(
                AuthenticatorOptions {
                    authentication: options.authentication.clone(),
                    service_accounts: options.service_accounts.clone(),
                    signer: options.signer.clone(),
                },
                &registry,
                |plural| catalog.get("", "v1", plural),
                merge_patch_of(itself.clone()),
            ),
            itself: itself.clone(),
            registry,
            catalog,
            types,
            definitions: CrdProgress::default(),
            metrics,
            flow_control: fairness,
            unsent,
            authorization: access,
            client,
            frames: Arc::default(),
            webhooks,
            policies,
            aggregation,
            peer_proxy,
            audit,
            options,
            extensions,
            stopping,
            leaving: AtomicBool::new(false),
            boot_sequence: BootSequence::default(),
        }))
    }

    /// Serves the kinds that are defined in the store, and from now on those that people define.
    pub async fn start(&self) {
        crd::start(&self.0).await;
        self.complete(&health::DEFINITIONS);
        flowcontrol::start(&self.0);
        self.complete(&health::START);
    }

    /// Lets health checks of the boot sequence pass: the steps of these names are done.
    pub fn complete(&self, steps: &[&'static str]) {
        self.0.boot_sequence.complete(steps);
    }

    /// Waits until every step of the boot sequence is done.
    pub async fn booted(&self) {
        self.0
            .boot_sequence
            .wait_for(&self.0.options.boot_sequence)
            .await;
    }

    /// Answers one request of `user`.
    pub async fn call(
        &self,
        user: Option<User>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let caller = RequestOrigin {
            claim: user.map_or(PeerClaim::None, PeerClaim::Authenticated),
            address: None,
        };
        let request = IncomingRequest {
            caller,
            method,
            uri,
            headers,
            body,
            streams: RequestStreams::default(),
        };
        chain::serve(&self.0, request).await
    }

    /// Asks itself, as the server that it is. Returns the code and what the answer says.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let Ok(method) = method.parse() else {
            return (400, Value::Null);
        };
        self.ask_with(method, path, "application/json", body).await
    }

    /// Patches an object, as the server that it is. `media_type` is that of the patch. Returns the code and what the answer
    /// says.
    pub(crate) async fn patch(
        &self,
        path: &str,
        media_type: &'static str,
        patch: &Value,
    ) -> (u16, Value) {
        self.ask_with(Method::PATCH, path, media_type, Some(patch))
            .await
    }

    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        media_type: &'static str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let Ok(uri) = path.parse() else {
            return (400, Value::Null);
        };
        let user = User::master("system:apiserver");
        let mut headers = HeaderMap::new();
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static("kube-apiserver"),
        );
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        let body = body.map(json::to_string).unwrap_or_default().into();
        let answer = self.call(Some(user), method, uri, headers, body).await;
        let code = answer.status().as_u16();
        let text = answer.into_body().into_bytes().unwrap_or_default();
        (code, json::parse(&text).unwrap_or_default())
    }

    /// The decision of the authorizers, and its reason.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.0.authorization.authorizers.authorize(attributes).await
    }

    /// Goes by the AuthorizationConfiguration in `file` whenever it changes and makes sense. `known` is what it said when
    /// the server was made of it. Never ends.
    pub async fn follow_authorization(&self, file: &Path, known: Vec<u8>) {
        authorization::reload_on_change(&self.0, file, known).await;
    }

    /// The engine below.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The components whose metrics `/metrics` shows beside those of the server.
    pub fn metrics(&self) -> &mizzen_metrics::Registry {
        &self.0.options.metrics
    }

    /// What the composer of the server gave it with [`Builder::state`](crate::Builder::state).
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.0.extensions.state()
    }

    /// The parts, for those who extend the server.
    pub fn parts(&self) -> &Arc<ServerParts> {
        &self.0
    }

    /// Makes the server report that it is not ready, and nothing else: those who choose among servers choose another.
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    /// Tells auditors what they have not been told yet. To be called when no requests come any more.
    pub async fn close(&self) {
        self.0.audit.close().await;
    }

    /// Ends all watches and makes the server report that it is not ready.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }
}

/// Applies merge patches as the server itself, in the background.
fn merge_patch_of(server: Weak<ServerParts>) -> MergePatchFn {
    Box::new(move |path, change| {
        let Some(server) = server.upgrade().map(Server) else {
            return;
        };
        tokio::spawn(async move {
            let media_type = "application/merge-patch+json";
            let (code, _) = server.patch(&path, media_type, &change).await;
            if code != 200 {
                tracing::debug!(
                    code,
                    path,
                    "cannot record the use of a service account token"
                );
            }
        });
    })
}

impl ServerParts {
    /// What the composer of the server gave it with [`Builder::state`](crate::Builder::state).
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.extensions.state()
    }

    /// The decision of the authorizers, and its reason.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.authorization.authorizers.authorize(attributes).await
    }

    /// The server of these parts; none when it is about to be dropped.
    pub fn server(&self) -> Option<Server> {
        self.itself.upgrade().map(Server)
    }

    /// The registry of what the cluster configures: the main server's, if this one is behind it.
    pub(crate) fn cluster_registry(&self) -> &Registry {
        let main = self.extensions.main.as_ref();
        main.map_or(&self.registry, MainServer::registry)
    }

    /// The namespaces of the cluster, and their registry.
    pub(crate) fn namespaces(&self) -> Result<(&Registry, Resource), Status> {
        let namespaces = match &self.extensions.main {
            Some(main) => main.resource("", "v1", "namespaces"),
            None => self.catalog.get("", "v1", "namespaces"),
        };
        let namespaces = namespaces.ok_or_else(Status::no_such_resource)?;
        Ok((self.cluster_registry(), namespaces))
    }

    /// Whether the server is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Whether new clients are to go to another server.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.is_stopping()
    }

    /// Whether the client of a request is asked to go elsewhere.
    pub(crate) fn sends_away(&self) -> bool {
        let chance = self.options.http.goaway_chance;
        if chance <= 0.0 {
            return false;
        }
        let mut bytes = [0; 4];
        self.registry.random().fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX) < chance
    }
}
