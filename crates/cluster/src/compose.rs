//! The composition of a process: store, registry, API server, certificates, network, components. Serves until stopped.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::listen::{SecureServing, listen};
use mizzen_apiserver::{
    ClientIdentity, HealthCheck, Http, NonResourceHandlers, PeerProxyOptions, Server, Zpages,
};
use mizzen_authentication::{Authorities, TokenSigner as _, TrustedAuthorities};
use mizzen_bootstrap::kubeconfig::kubeconfig;
use mizzen_bootstrap::loopback_client::cluster_uid;
use mizzen_bootstrap::objects::{
    KubernetesService, ServerLocation, allow_migration, api_server_id, authentication, bootstrap,
    bootstrap_metrics, leave, reconcile_owned,
};
use mizzen_bootstrap::pki::{
    self, Authority, PkiError, Protocol, Signed, make_private, write_private,
};
use mizzen_bootstrap::token_key::TokenKey;
use mizzen_bootstrap::token_tracking;
use mizzen_controlplane::{Admission, Options, PluginError, Plugins, check_runtime_config};
use mizzen_encryption::{Encryption, check_owner};
use mizzen_etcd::EtcdMetrics;
use mizzen_metrics::set_api_server_id;
use mizzen_metrics_server as metrics_server;
use mizzen_registry::Registry;
use mizzen_scheduler::Configuration;
use mizzen_store::{Encryptor, Health, OpenError, Revision, Store};
use mizzen_value::address::Cidr;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::clusters::ChangeKubeconfigError;
use crate::command::{ConfiguredAuthorizer, FeatureMetrics, ServerArgs, flags};
use crate::component_server::ProcessMetrics;
use crate::control_loops::{self, ControlLoops, Dependencies};
use crate::election::LeaderCandidate;
use crate::filled::within;
use crate::leader_elected_component::LeaderElectedComponent;
use crate::log;
use crate::real_node::{self, RealNode};
use crate::shared_keys::{Fingerprints, ForeignKeys, KeyRecord, ServerKeys};
use crate::simulated_nodes::SimulatedNodes;
use crate::storage_log;
use crate::storage_size::StorageSize;
use crate::terminal::{Palette, Progress, Tone};

/// How many connections wait to be accepted at most.
const BACKLOG: u32 = 1024;
/// The grace period for requests in flight when the server stops.
const GRACE: Duration = Duration::from_secs(60);
/// How long the server waits for its boot sequence before it serves.
const BOOT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often expired objects (events) are deleted.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(10);
/// The stack of a thread, for deeply nested objects; memory is committed only when it is used.
const STACK: usize = 16 * 1024 * 1024;

/// Why the server does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// The port is in use.
    #[error(
        "port {port} is in use by another process; stop it, or choose another with --port (0 picks a free one)"
    )]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The secure port of a component is in use.
    #[error(
        "port {port} is in use by another process; stop it, or choose another with --secure-port (0 serves nothing)"
    )]
    SecurePortInUse {
        /// The port.
        port: u16,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// The data directory cannot be opened.
    #[error("{0}")]
    Store(#[from] OpenError),
    /// The admission plug-ins are invalid.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// An argument, or the file that it names, is invalid.
    #[error("{file}: {why}")]
    Configuration {
        /// The argument or the file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The etcd cluster is not given as it must be.
    #[error("--etcd-servers: {0}")]
    Etcd(#[from] mizzen_etcd::client::ConfigError),
    /// The etcd is that of servers with other keys.
    #[error(transparent)]
    ForeignKeys(#[from] ForeignKeys),
    /// The kubeconfig of the user cannot be changed.
    #[error(transparent)]
    Context(#[from] ChangeKubeconfigError),
    /// The certificates cannot be read or signed.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A bootstrap object could not be created, or a component not started.
    #[error("{0}")]
    Bootstrap(String),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
    /// A sync failed while the server ran.
    #[error(
        "stopped because the log could not be synced ({0}); check the disk and start again: acknowledged writes are kept"
    )]
    Unsynced(Arc<io::Error>),
}

/// The components of the process.
#[derive(Clone)]
pub(crate) enum Topology {
    /// Only the API server.
    ApiServer,
    /// The API server, the controllers, the scheduler and nodes.
    ControlPlane(ControlPlane),
}

/// The options of a whole control plane.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    /// The simulated nodes.
    pub nodes: SimulatedNodes,
    /// The node with real containers, if there is one.
    pub real_node: Option<Box<RealNode>>,
    /// The pod CIDRs, from which nodes get theirs.
    pub pod_ranges: Vec<String>,
    /// The addresses of simulated load balancers.
    pub load_balancer_ranges: Vec<Cidr>,
    /// The controllers.
    pub controllers: EnabledControllers,
    /// The configuration of the scheduler; none if it does not run.
    pub scheduler: Option<Arc<Configuration>>,
    /// Whether `metrics.k8s.io` is served.
    pub serves_metrics: bool,
}

/// The controllers that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EnabledControllers {
    /// All of them.
    All,
    /// These, by name.
    Named(Vec<String>),
}

impl EnabledControllers {
    /// Whether a controller runs.
    fn contains(&self, name: &str) -> bool {
        match self {
            EnabledControllers::All => true,
            EnabledControllers::Named(names) => names.iter().any(|one| one == name),
        }
    }
}

impl Topology {
    /// The default admission plug-ins.
    fn plugins(&self) -> Plugins {
        match self {
            Topology::ControlPlane(control_plane)
                if control_plane
                    .controllers
                    .contains("serviceaccount-controller") =>
            {
                Plugins::default()
            }
            // No controller creates service accounts, so pods do not need one.
            _ => Plugins::alone(),
        }
    }

    /// A first kubectl command for the ready message.
    fn example_command(&self) -> &'static str {
        match self {
            Topology::ApiServer => "get namespaces",
            Topology::ControlPlane(_) => "create deployment web --image=nginx --replicas=3",
        }
    }
}

/// A runtime whose threads have room for deeply nested objects.
fn large_stack_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
}

/// Runs a command on a thread that has room for deeply nested objects.
pub(crate) fn block_on_large_stack<F: Future<Output: Send>>(
    command: impl FnOnce() -> F + Send,
) -> io::Result<F::Output> {
    let runtime = large_stack_runtime()?;
    let outcome = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || runtime.block_on(command()))?;
        let outcome = thread.join();
        Ok(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Serves until a signal stops the process.
pub(crate) fn serve(args: &ServerArgs, topology: Topology) -> Result<(), ComposeError> {
    args.component.init_log();
    // Kubernetes: Go raises the limit of open files to the hard limit, too.
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let runtime = large_stack_runtime()?;
    let outcome = runtime.block_on(run(args, topology));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// The address at which this machine reaches a server that listens on `bound`.
fn own_address(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, bound.port())
}

/// Starts everything in order, serves, and stops everything in reverse order.
async fn run(args: &ServerArgs, topology: Topology) -> Result<(), ComposeError> {
    let started = Instant::now();
    let progress = Progress::start("starting the server".into());
    set_api_server_id(&api_server_id());
    let args = &args.with_storage_location().await?;
    let parsed = ParsedArgs::parse(args, &topology)?;
    if !args.allow_privileged {
        mizzen_controlplane::disallow_privileged();
    }
    let socket = bind(args.bind_address, args.port())?;
    let address = socket.local_addr()?;
    let state = PersistentState::open(args).await?;
    let mut trust = args.trust.trust(&state.authority, &state.front_proxy)?;
    trust.trusted.headers = args.authentication.proxy_headers()?;
    args.publish_keys(&state, &trust.trusted).await?;
    let location = parsed.location(args, address)?;
    let options = parsed.server_options(args, &state, address)?;
    let server = state
        .start_server(
            options,
            &location,
            &trust.trusted,
            args.storage.storage_initialization_timeout,
        )
        .await?;
    // The registry has weak references.
    let process = Arc::new(ProcessMetrics {
        has_start_time: false,
    });
    let features = Arc::new(FeatureMetrics);
    let files = args.directory().filter(|_| !args.storage.uses_etcd());
    let storage_size = files.map(StorageSize).map(Arc::new);
    storage_size
        .iter()
        .for_each(|size| server.metrics().register(size));
    server.metrics().register(&process);
    server.metrics().register(&features);

    let authorities = Authorities::new(&state.registry, &trust.trusted);
    let names = parsed.server_addresses(address.ip());
    let own = state.authority.sign_server(&names)?;
    let certificates = args
        .serving
        .tls
        .certificates(&parsed.protocol, &own, "apiserver")?;
    // As upstream, clients that can connect find the certificate in --cert-dir.
    let listener = socket
        .listen(BACKLOG)
        .map_err(|e| cannot_listen(address, e))?;
    let tls = pki::server_config(authorities.clone(), parsed.protocol, certificates.clone())?;
    let (signal, delay) = (stop_signal()?, args.serving.shutdown_delay_duration);
    let stdin = OptionFuture::from(args.stop_with_stdin.then(stdin_closed).transpose()?);
    let reconciler = tokio::spawn(reconcile_owned(server.clone(), location.clone()));
    let (stopping, store) = (server.clone(), state.store.clone());
    let stop = async move {
        tokio::select! {
            () = signal => {}
            Some(()) = stdin => {}
            // As etcd does: what is on disk is only known to a process that reads it again.
            () = storage_log::failed(&store) => return stopping.leave(),
        }
        // Not ready for a while, so that load balancers notice.
        stopping.leave();
        reconciler.abort();
        // It was cancelled.
        let _ = reconciler.await;
        leave(&stopping, &location).await;
        tokio::time::sleep(delay).await;
    };
    let file = args.kubeconfig();
    let local_address = match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
        _ => address,
    };
    for file in args.own_kubeconfig().iter().chain([&file]) {
        state.write_kubeconfig(local_address, file, certificates.is_own())?;
    }
    tokio::spawn(authentication::reconcile(
        server.clone(),
        trust.follow(&authorities),
    ));
    tokio::spawn(certificates.reload_on_change());
    state.spawn_background_tasks(args, &server, parsed.authorizer.file);
    let example = topology.example_command();
    let components = match topology {
        Topology::ApiServer => None,
        Topology::ControlPlane(mut options) => {
            if let Some(node) = &mut options.real_node {
                node.cri.api_server = Some(own_address(address).to_string());
            }
            Some(options.start_components(&server, &state).await?)
        }
    };

    // A boot sequence that takes longer continues; /readyz reports it.
    let _ = tokio::time::timeout(BOOT_TIMEOUT, server.booted()).await;
    let took = started.elapsed().as_millis();
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    let mut hint = format!("try: kubectl --kubeconfig {}", file.display());
    if let Some(cluster) = &args.cluster {
        cluster.publish(local_address, &file).await?;
        if let Some(context_file) = &cluster.context_file {
            let context = cluster.directory.context_name();
            let path = context_file.path().display();
            hint = format!("context {context} is set in {path}; try: kubectl");
        }
    }
    drop(progress);
    let ready = Palette::stdout().paint(Tone::Good, "Mizzen is ready");
    log::write_output(format_args!(
        "{ready} at https://{address} after {took} ms; {hint} {example}"
    ));
    let serving = SecureServing {
        listener,
        tls,
        identify: authorities.identify(),
        grace: GRACE,
    };
    listen(server.clone(), serving, stop).await;
    if let Some((nodes, loops)) = components {
        let nodes = join_all(nodes.into_iter().map(LeaderElectedComponent::stop));
        tokio::join!(loops.stop(), nodes);
    }
    server.close().await;
    let health = state.store.health();
    state.store.close().await;
    match health {
        Health::Failed(error) => Err(ComposeError::Unsynced(error)),
        _ => Ok(()),
    }
}

/// Arguments that need validation.
struct ParsedArgs {
    protocol: Protocol,
    http: Http,
    plugins: Plugins,
    admission: Admission,
    authorizer: ConfiguredAuthorizer,
    service_ranges: Vec<Cidr>,
    peer_proxy: Option<PeerProxyOptions>,
}

impl ParsedArgs {
    fn parse(args: &ServerArgs, topology: &Topology) -> Result<ParsedArgs, ComposeError> {
        let (plugins, admission) = (
            args.admission.plugins(topology.plugins())?,
            args.admission.configuration()?,
        );
        plugins.check(&admission)?;
        let has_controllers = matches!(topology, Topology::ControlPlane(_));
        check_runtime_config(&args.runtime_config(), args.legacy_apis, has_controllers).map_err(
            |why| ComposeError::Configuration {
                file: "--runtime-config".into(),
                why,
            },
        )?;
        Ok(ParsedArgs {
            protocol: args.serving.tls.protocol()?,
            http: args.serving.http()?,
            plugins,
            admission,
            authorizer: args.authorization.authorization()?,
            service_ranges: args.services.ranges()?,
            peer_proxy: args
                .peers
                .proxy(&api_server_id(), args.storage.uses_etcd())?,
        })
    }

    /// The options of the API server.
    fn server_options(
        &self,
        args: &ServerArgs,
        state: &PersistentState,
        address: SocketAddr,
    ) -> Result<Options, ComposeError> {
        let service_accounts = args.service_accounts.service_accounts()?;
        let server = mizzen_apiserver::Options {
            advertise: address.to_string(),
            peer_proxy: self.peer_proxy.clone(),
            request_timeout: args.serving.request_timeout(),
            min_request_timeout: args.serving.min_request_timeout(),
            http: self.http.clone(),
            signer: Some(state.token_key.clone()),
            front_proxy: Some(match args.clients.front_proxy()? {
                Some(identity) => identity,
                None => client_identity(state.front_proxy.front_proxy_client()?),
            }),
            authentication: args.authentication.authentication(
                &state.registry,
                &service_accounts,
                args.authorization.allows_everything(),
            )?,
            service_accounts,
            authorization: self.authorizer.authorization.clone(),
            health: state.health_checks(args),
            boot_sequence: mizzen_apiserver::kube_apiserver_boot_sequence(
                self.peer_proxy.is_some(),
            ),
            audit: args.audit.setup()?,
            concurrency: args.fairness.concurrency()?,
            external_hostname: args.serving.external_hostname.clone(),
            log_directory: args.serving.log_directory(),
            resets_metrics: args.debug.handler().is_enabled,
            non_resource_handlers: NonResourceHandlers::default().with(args.debug.handler()),
            zpages: Some(Zpages {
                component: "apiserver",
                flags: flags(),
            }),
            ..Default::default()
        };
        Ok(Options {
            legacy_apis: args.legacy_apis,
            runtime_config: args.runtime_config(),
            event_ttl: args.storage.event_ttl,
            kubelet_address_types: args.clients.kubelet_address_types(),
            kubelet_client: Some(match args.clients.kubelet_client()? {
                Some(identity) => identity,
                None => client_identity(state.authority.kubelet_client()?),
            }),
            plugins: self.plugins.clone(),
            admission: self.admission.clone(),
            service_ranges: self.service_ranges.clone(),
            service_node_ports: args.services.node_ports(),
            kubelet_authority: args.clients.kubelet_authority()?,
            ..server.into()
        })
    }

    /// The addresses of a server that listens on `address`, and of services.
    fn location(
        &self,
        args: &ServerArgs,
        address: SocketAddr,
    ) -> Result<ServerLocation, ComposeError> {
        let advertise_address = args.serving.advertise_address(address.ip());
        if advertise_address.is_none() && args.serving.reconciles_endpoints() {
            tracing::warn!(
                "only a loopback address could be advertised, so default/kubernetes has no Endpoints"
            );
        }
        let service_ip = self.service_ranges[0].nth(1);
        let service = KubernetesService {
            service_ip,
            advertise_address,
            port: address.port(),
            node_port: args.services.kubernetes_node_port()?,
        };
        Ok(ServerLocation {
            service_ranges: self.service_ranges.clone(),
            service,
            peer_address: match args.peers.advertised() {
                Some(address) => Some(address),
                None => {
                    let ip = args.serving.public_address(address.ip());
                    ip.map(|ip| SocketAddr::new(ip, address.port()))
                }
            },
        })
    }

    /// The addresses in the serving certificate: loopback, the Service, and the one that the server listens on.
    fn server_addresses(&self, bound: IpAddr) -> Vec<IpAddr> {
        let mut addresses = vec![
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::LOCALHOST.into(),
            self.service_ranges[0].nth(1),
        ];
        if !bound.is_unspecified() && !addresses.contains(&bound) {
            addresses.push(bound);
        }
        addresses
    }
}

/// The state in the data directory, or in memory.
struct PersistentState {
    encryption: Option<Arc<Encryption>>,
    store: Store,
    /// Of the requests to etcd, if objects are there.
    etcd_metrics: Arc<EtcdMetrics>,
    registry: Registry,
    authority: Arc<Authority>,
    front_proxy: Authority,
    token_key: Arc<TokenKey>,
}

impl PersistentState {
    async fn open(args: &ServerArgs) -> Result<PersistentState, ComposeError> {
        let directory = args.directory();
        let directory = directory.as_deref();
        let encryption = args.encryption.encryption().await?;
        let etcd_metrics = Arc::new(EtcdMetrics::default());
        let store = match args.storage.uses_etcd() {
            true => {
                let codec = args.storage.etcd.codec(encryption.as_ref());
                args.storage.etcd_store(codec, etcd_metrics.clone())?
            }
            false => PersistentState::open_store(directory, args, encryption.clone()).await?,
        };
        let registry = Registry::new(store.clone(), Arc::new(WallClock), Arc::new(SystemRandom));
        let has_data = match (args.storage.uses_etcd(), directory) {
            (true, Some(directory)) => {
                args.check_keys(directory, &store).await?;
                false
            }
            _ => store.revision() > Revision::FIRST,
        };
        // Servers that share the directory make its keys once.
        let lock = directory.map(pki::lock_directory).transpose()?;
        let authority = match directory {
            Some(directory) if has_data => Authority::open_existing(directory)?,
            Some(directory) => Authority::open(directory)?,
            None => Authority::in_memory()?,
        };
        let front_proxy = Authority::front_proxy(directory)?;
        let token_key = Arc::new(args.service_accounts.signer(directory, has_data)?);
        drop(lock);
        Ok(PersistentState {
            encryption,
            store,
            etcd_metrics,
            registry,
            authority: Arc::new(authority),
            front_proxy,
            token_key,
        })
    }

    /// Starts the API server, and creates the bootstrap objects.
    async fn start_server(
        &self,
        options: Options,
        location: &ServerLocation,
        trusted: &TrustedAuthorities,
        timeout: Duration,
    ) -> Result<Server, ComposeError> {
        let server = mizzen_controlplane::server(self.registry.clone(), options);
        filled(&self.store, timeout).await?;
        server.metrics().register(&self.etcd_metrics);
        if let Some(encryption) = &self.encryption {
            server.metrics().register(encryption);
        }
        server.start().await;
        let bootstrapped = bootstrap(&server, location, trusted).await;
        bootstrapped.map_err(ComposeError::Bootstrap)?;
        server.aggregate().await.map_err(ComposeError::Bootstrap)?;
        server.follow_peers();
        Ok(server)
    }

    /// Opens the store on a blocking thread: it reads all records, and KMS plug-ins may have to decrypt seeds.
    async fn open_store(
        directory: Option<&Path>,
        args: &ServerArgs,
        encryption: Option<Arc<Encryption>>,
    ) -> Result<Store, ComposeError> {
        let Some(directory) = directory.map(Path::to_path_buf) else {
            return Ok(Store::in_memory(Default::default()));
        };
        let encryptor = encryption.map(|encryption| encryption as Arc<dyn Encryptor>);
        let options = mizzen_store::Options {
            encryptor,
            unsafe_no_fsync: args.storage.unsafe_no_fsync,
            ..Default::default()
        };
        let path = directory.clone();
        if path.exists() {
            check_owner(&path).map_err(|source| PkiError::File {
                path: path.clone(),
                source,
            })?;
        }
        let opened = tokio::task::spawn_blocking(move || Store::open(directory, options)).await;
        let store = opened.map_err(io::Error::other)??;
        make_private(&path)?;
        Ok(store)
    }

    /// Writes the kubeconfig of the administrator. If the default serving certificate is not signed by the own authority, it names
    /// the loopback certificate, which is.
    fn write_kubeconfig(
        &self,
        address: SocketAddr,
        file: &Path,
        is_own: bool,
    ) -> Result<(), ComposeError> {
        let admin = self.authority.sign_admin()?;
        let server_name = if is_own { "" } else { pki::LOOPBACK };
        let text = kubeconfig(
            &format!("https://{address}"),
            server_name,
            &self.authority,
            "admin",
            &admin,
        );
        Ok(write_private(file, &text)?)
    }

    /// Health checks besides those of the API server.
    fn health_checks(&self, args: &ServerArgs) -> Vec<Arc<dyn HealthCheck>> {
        let mut checks = args.encryption.health(self.encryption.as_ref());
        checks.push(Arc::new(pki::LoopbackCertificate::signed_now(
            &self.registry,
        )));
        checks
    }

    /// Spawns periodic tasks and tasks that reload files. They run until the process ends.
    fn spawn_background_tasks(
        &self,
        args: &ServerArgs,
        server: &Server,
        authorization: Option<(PathBuf, Vec<u8>)>,
    ) {
        let registry = self.registry.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EXPIRE_INTERVAL);
            loop {
                ticks.tick().await;
                registry.expire().await;
            }
        });
        tokio::spawn(storage_log::report(self.store.clone()));
        let interval = args.storage.etcd_compaction_interval;
        let registry = self.registry.clone();
        tokio::spawn(async move { registry.compact_periodically(interval).await });
        tokio::spawn(allow_migration(server.clone()));
        tokio::spawn(token_tracking::reconcile(server.clone()));
        if let Some(encryption) = self
            .encryption
            .clone()
            .filter(|_| args.encryption.is_reloaded())
        {
            tokio::spawn(encryption.reload_on_change());
        }
        if let Some((file, text)) = authorization {
            let server = server.clone();
            tokio::spawn(async move { server.follow_authorization(&file, text).await });
        }
    }
}

impl ServerArgs {
    /// Rejects a data directory whose certificates and keys are not those of the servers that use the etcd.
    async fn check_keys(&self, directory: &Path, store: &Store) -> Result<(), ComposeError> {
        store.keyspace("configmaps");
        let limit = self.storage.storage_initialization_timeout;
        filled(store, limit).await?;
        let (keys, record) = (self.server_keys(directory), self.key_record()?);
        let published = authentication::published(store);
        let checked = keys.check_before(&published, &record);
        Ok(answered(store, limit, checked).await??)
    }

    /// Tells the other servers of the etcd which certificates and keys this one has, unless theirs are others.
    async fn publish_keys(
        &self,
        state: &PersistentState,
        trusted: &TrustedAuthorities,
    ) -> Result<(), ComposeError> {
        let (true, Some(directory)) = (self.storage.uses_etcd(), self.directory()) else {
            return Ok(());
        };
        let named = self.service_accounts.keys()?.into_iter();
        let named = named.map(|key| key.id.to_string());
        let own = Fingerprints::new(trusted, named.chain([state.token_key.key_id().to_owned()]));
        let (keys, record) = (self.server_keys(&directory), self.key_record()?);
        let published = authentication::published(&state.store);
        let limit = self.storage.storage_initialization_timeout;
        let done = keys.publish(&published, &own, &record);
        Ok(answered(&state.store, limit, done).await??)
    }

    fn server_keys<'a>(&self, directory: &'a Path) -> ServerKeys<'a> {
        ServerKeys {
            directory,
            names_authorities: self.trust.names_client_authorities(),
            names_front_proxies: self.trust.names_front_proxy_authorities(),
            names_token_keys: self.service_accounts.names_keys(),
        }
    }

    fn key_record(&self) -> Result<KeyRecord, ComposeError> {
        let etcd = &self.storage.etcd;
        Ok(KeyRecord::new(etcd.client()?, &etcd.own_prefix()))
    }
}

/// Waits until the store has been read.
async fn filled(store: &Store, limit: Duration) -> Result<(), ComposeError> {
    answered(store, limit, store.filled()).await
}

/// The output of a future that waits for the etcd of the store, at most `limit`.
async fn answered<T>(
    store: &Store,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ComposeError> {
    let answered = within(store, limit, future).await;
    answered.map_err(|why| {
        ComposeError::Bootstrap(format!(
            "{why}; check --etcd-servers, or raise --storage-initialization-timeout"
        ))
    })
}

impl ControlPlane {
    /// Starts the components besides the API server, and waits until each runs or waits for its lease.
    async fn start_components(
        self,
        server: &Server,
        state: &PersistentState,
    ) -> Result<(Vec<LeaderElectedComponent>, ControlLoops), ComposeError> {
        if self.serves_metrics {
            bootstrap_metrics(server)
                .await
                .map_err(ComposeError::Bootstrap)?;
            let served = metrics_server::serve(server);
            served.map_err(|error| ComposeError::Bootstrap(error.to_string()))?;
        }
        let uid = cluster_uid(server).await.map_err(ComposeError::Bootstrap)?;
        // Alone on its data, a process continues as the one before it. Others on a shared store may run at the same time.
        let candidate = match state.store.is_shared() {
            true => LeaderCandidate::for_process(),
            false => LeaderCandidate::for_cluster(&uid),
        };
        let candidate = candidate.with_metrics(server.metrics());
        let informers = Arc::new(control_loops::informers(server));
        let ControlPlane {
            nodes,
            real_node,
            pod_ranges,
            load_balancer_ranges,
            controllers,
            scheduler,
            ..
        } = self;
        let nodes = nodes
            .start(server, &candidate, &state.authority, &informers)
            .await;
        let mut nodes = Vec::from_iter(nodes.map_err(ComposeError::Bootstrap)?);
        if let Some(options) = real_node {
            let authority = &state.authority;
            let started = real_node::start(*options, server, &candidate, authority, &informers);
            nodes.push(started.await.map_err(ComposeError::Bootstrap)?);
        }
        let dependencies = Dependencies {
            authority: state.authority.clone(),
            signer: state.token_key.clone(),
            pod_ranges,
            load_balancer_ranges,
            controllers,
            scheduler,
        };
        let loops = ControlLoops::start(server, &candidate, dependencies, informers);
        let ready = loops.wait_until_ready().await;
        ready.map_err(|why| ComposeError::Bootstrap(format!("the scheduler cannot run: {why}")))?;
        Ok((nodes, loops))
    }
}

/// The client certificate of the server for other servers.
fn client_identity(Signed { certificate, key }: Signed) -> ClientIdentity {
    ClientIdentity { certificate, key }
}

/// Takes the port. The server listens later, when files that its clients need are written.
fn bind(address: IpAddr, port: u16) -> Result<TcpSocket, ComposeError> {
    let address = SocketAddr::new(address, port);
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // A port is free as soon as its server has ended.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bound().map_err(|source| cannot_listen(address, source))
}

fn cannot_listen(address: SocketAddr, source: io::Error) -> ComposeError {
    let port = address.port();
    match source.kind() {
        io::ErrorKind::AddrInUse => ComposeError::PortInUse { port },
        _ => ComposeError::Listen { address, source },
    }
}

/// Resolves when standard input is closed. The kernel closes a pipe when the process at its other end ends, however it
/// ends; a signal on the death of the parent exists on Linux only, and follows the thread that started the child.
fn stdin_closed() -> io::Result<impl Future<Output = ()>> {
    let (closed, on_close) = oneshot::channel();
    // Not a task: the runtime would wait for the blocking read when it stops.
    std::thread::Builder::new().spawn(move || {
        // Standard input that cannot be read is closed, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = closed.send(());
    })?;
    Ok(async move {
        let _ = on_close.await;
        log::print_error!("standard input is closed: stopping after requests in flight");
    })
}

/// Resolves on Ctrl-C or SIGTERM. A second one ends the process at once.
pub(crate) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        log::print_error!("stopping after requests in flight (press Ctrl-C again to stop at once)");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(130);
        });
    })
}
