//! How the parts fit: store, registry, API server, certificates, network. Then serve until told to stop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use mizzen_apiserver::authenticate::{Authorities, Trusted};
use mizzen_apiserver::listen::listen;
use mizzen_apiserver::metrics::set_api_server_id;
use mizzen_apiserver::seams::{SystemRandom, WallClock};
use mizzen_apiserver::{
    Admission, HealthCheck, Http, Identity, Options, PluginError, Plugins, Server, Zpages,
    check_runtime_config,
};
use mizzen_encryption::{Encryption, check_owner};
use mizzen_metrics_server as metrics_server;
use mizzen_registry::Registry;
use mizzen_scheduler::Configuration;
use mizzen_store::{OpenError, Revision, Sealer, Store};
use mizzen_value::address::Block;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::bootstrap::{
    KubernetesService, Location, allow_migration, authentication, bootstrap, bootstrap_metrics,
    reconcile_owned,
};
use crate::command::{Authorized, FeatureMetrics, ServerArgs, flags};
use crate::component_server::ProcessMetrics;
use crate::election::Candidate;
use crate::itself::cluster_uid;
use crate::kubeconfig::kubeconfig;
use crate::log;
use crate::loops::{self, Loops, Means};
use crate::nodes::Nodes;
use crate::pki::{self, Authority, PkiError, Protocol, Signed, make_private, write_private};
use crate::seat::Seat;
use crate::storage_log;
use crate::token_key::TokenKey;
use crate::token_tracking;

/// How long requests under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(60);
/// How long the server waits for its boot sequence before it serves.
const BOOT_PATIENCE: Duration = Duration::from_secs(5);
/// How often objects that have lived as long as they may are removed.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);
/// Room for deeply nested objects; it is only used when needed.
const STACK: usize = 16 * 1024 * 1024;

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// The port is taken.
    #[error(
        "port {port} is in use by another process; stop it, or choose another with --port (0 picks a free one)"
    )]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The port of a component is taken.
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
    /// The data cannot be opened.
    #[error("{0}")]
    Store(#[from] OpenError),
    /// Admission is not set up.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// A file that an argument names makes no sense.
    #[error("{file}: {why}")]
    Configuration {
        /// Where it is written.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// There are no certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// What must be there could not be made.
    #[error("{0}")]
    Bootstrap(String),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// What runs.
#[derive(Clone)]
pub(crate) enum Parts {
    /// The API server alone: nobody makes service accounts, so nobody asks for them.
    Server,
    /// The whole control plane.
    Whole(Whole),
}

/// What there is to say of a whole control plane.
#[derive(Clone)]
pub(crate) struct Whole {
    /// The nodes that run beside it.
    pub nodes: Nodes,
    /// The addresses of pods, of which nodes get blocks.
    pub pod_ranges: Vec<String>,
    /// The addresses of simulated load balancers.
    pub load_balancer_ranges: Vec<Block>,
    /// How pods are placed.
    pub scheduler: Arc<Configuration>,
    /// Whether `metrics.k8s.io` is served.
    pub serves_metrics: bool,
}

impl Parts {
    /// The admission plug-ins that are on unless the arguments say otherwise.
    fn plugins(&self) -> Plugins {
        match self {
            Parts::Server => Plugins::alone(),
            Parts::Whole(_) => Plugins::default(),
        }
    }

    /// What kubectl may be told first.
    fn first_words(&self) -> &'static str {
        match self {
            Parts::Server => "get namespaces",
            Parts::Whole(_) => "create deployment web --image=nginx --replicas=3",
        }
    }
}

/// Serves until a signal says to stop.
pub(crate) fn serve(args: &ServerArgs, parts: Parts) -> Result<(), ComposeError> {
    args.component.init_log();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()?;
    let outcome = runtime.block_on(run(args, parts));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// As many files and connections may be open as the system allows this process. Kubernetes: Go does the same.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot have as many connections open as the system would allow");
    }
}

async fn run(args: &ServerArgs, parts: Parts) -> Result<(), ComposeError> {
    let started = Instant::now();
    set_api_server_id(&api_server_id());
    let chosen = Chosen::read(args, &parts)?;
    if !args.allow_privileged {
        mizzen_apiserver::disallow_privileged();
    }
    let listener = bind(args.bind_address, args.port()).await?;
    let address = listener.local_addr()?;
    let kept = Kept::open(args).await?;
    let mut trust = args.trust.trust(&kept.authority, &kept.front_proxy)?;
    trust.trusted.headers = args.authentication.proxy_headers()?;
    let server = Server::new(
        kept.registry.clone(),
        options(args, &chosen, &kept, address)?,
    );
    let process = Arc::new(ProcessMetrics {
        has_start_time: false,
    });
    let features = Arc::new(FeatureMetrics);
    server.metrics().register(&process);
    server.metrics().register(&features);
    kept.encryption
        .iter()
        .for_each(|encryption| server.metrics().register(encryption));
    let location = location(args, &chosen, address)?;
    furnish(&server, &location, &trust.trusted).await?;

    let authorities = Authorities::new(&kept.registry, &trust.trusted);
    let own = kept
        .authority
        .sign_server(&addresses(address.ip(), chosen.service_ranges[0].nth(1)))?;
    let certificates = args
        .serving
        .tls
        .certificates(&chosen.protocol, &own, "apiserver")?;
    let tls = pki::server_config(authorities.clone(), chosen.protocol, certificates.clone())?;
    let stop = unready_first(
        server.clone(),
        stop_signal()?,
        args.serving.shutdown_delay_duration,
    );
    let file = args.kubeconfig();
    for file in args.own_kubeconfig().iter().chain([&file]) {
        write_kubeconfig(&kept.authority, address, file, certificates.is_own())?;
    }
    tokio::spawn(authentication::keep(
        server.clone(),
        trust.follow(&authorities),
    ));
    tokio::spawn(certificates.follow());
    tokio::spawn(reconcile_owned(server.clone(), location));
    keep_up(args, &server, &kept, chosen.authorized.file);
    let first_words = parts.first_words();
    let beside = match parts {
        Parts::Server => None,
        Parts::Whole(whole) => Some(beside(&server, whole, &kept).await?),
    };
    // What is not done by then is in /readyz, and goes on.
    let _ = tokio::time::timeout(BOOT_PATIENCE, server.booted()).await;
    announce(address, &file, started, first_words);
    listen(
        server.clone(),
        listener,
        tls,
        authorities.identify(),
        stop,
        GRACE,
    )
    .await;
    if let Some((nodes, loops)) = beside {
        tokio::join!(loops.leave(), OptionFuture::from(nodes.map(Seat::leave)));
    }
    server.close().await;
    kept.store.close().await;
    Ok(())
}

/// What arguments say that may be wrong, whatever else there is.
struct Chosen {
    protocol: Protocol,
    http: Http,
    plugins: Plugins,
    admission: Admission,
    authorized: Authorized,
    service_ranges: Vec<Block>,
}

impl Chosen {
    fn read(args: &ServerArgs, parts: &Parts) -> Result<Chosen, ComposeError> {
        let (plugins, admission) = (
            args.admission.plugins(parts.plugins())?,
            args.admission.configuration()?,
        );
        plugins.check(&admission)?;
        let has_controllers = matches!(parts, Parts::Whole(_));
        check_runtime_config(&args.runtime_config(), args.legacy_apis, has_controllers).map_err(
            |why| ComposeError::Configuration {
                file: "--runtime-config".into(),
                why,
            },
        )?;
        Ok(Chosen {
            protocol: args.serving.tls.protocol()?,
            http: args.serving.http()?,
            plugins,
            admission,
            authorized: args.authorization.authorization()?,
            service_ranges: args.services.ranges()?,
        })
    }
}

/// What is there again when the server is started again, if it has a directory.
struct Kept {
    encryption: Option<Arc<Encryption>>,
    store: Store,
    registry: Registry,
    authority: Arc<Authority>,
    front_proxy: Authority,
    token_key: Arc<TokenKey>,
}

impl Kept {
    async fn open(args: &ServerArgs) -> Result<Kept, ComposeError> {
        let directory = args.directory();
        let directory = directory.as_deref();
        let encryption = args.encryption.encryption().await?;
        let store = open(directory, encryption.clone()).await?;
        let registry = Registry::new(store.clone(), Arc::new(WallClock), Arc::new(SystemRandom));
        let has_data = store.revision() > Revision::FIRST;
        let authority = match directory {
            Some(directory) if has_data => Authority::open_existing(directory)?,
            Some(directory) => Authority::open(directory)?,
            None => Authority::in_memory()?,
        };
        let front_proxy = Authority::front_proxy(directory)?;
        let token_key = Arc::new(args.service_accounts.signer(directory, has_data)?);
        Ok(Kept {
            encryption,
            store,
            registry,
            authority: Arc::new(authority),
            front_proxy,
            token_key,
        })
    }
}

fn options(
    args: &ServerArgs,
    chosen: &Chosen,
    kept: &Kept,
    address: SocketAddr,
) -> Result<Options, ComposeError> {
    let service_accounts = args.service_accounts.service_accounts()?;
    Ok(Options {
        advertise: address.to_string(),
        legacy_apis: args.legacy_apis,
        runtime_config: args.runtime_config(),
        event_ttl: args.storage.event_ttl,
        kubelet_address_types: args.clients.kubelet_address_types(),
        request_timeout: args.serving.request_timeout(),
        min_request_timeout: args.serving.min_request_timeout(),
        http: chosen.http.clone(),
        signer: Some(kept.token_key.clone()),
        front_proxy: Some(match args.clients.front_proxy()? {
            Some(identity) => identity,
            None => shown(kept.front_proxy.front_proxy_client()?),
        }),
        kubelet_client: Some(match args.clients.kubelet_client()? {
            Some(identity) => identity,
            None => shown(kept.authority.kubelet_client()?),
        }),
        authentication: args.authentication.authentication(
            &kept.registry,
            &service_accounts,
            args.authorization.allows_everything(),
        )?,
        service_accounts,
        authorization: chosen.authorized.authorization.clone(),
        plugins: chosen.plugins.clone(),
        admission: chosen.admission.clone(),
        health: health(args, kept),
        boot_sequence: mizzen_apiserver::kube_apiserver_boot_sequence(),
        audit: args.audit.setup()?,
        concurrency: args.fairness.concurrency()?,
        service_ranges: chosen.service_ranges.clone(),
        service_node_ports: args.services.node_ports(),
        kubelet_authority: args.clients.kubelet_authority()?,
        external_hostname: args.serving.external_hostname.clone(),
        log_directory: args.serving.log_directory(),
        resets_metrics: args.debug.handler().is_enabled,
        non_resource_handlers: vec![Arc::new(args.debug.handler())],
        zpages: Some(Zpages {
            component: "apiserver",
            flags: flags(),
        }),
        ..Options::default()
    })
}

/// What must be well beside the server itself.
fn health(args: &ServerArgs, kept: &Kept) -> Vec<Arc<dyn HealthCheck>> {
    let mut checks = args.encryption.health(kept.encryption.as_ref());
    checks.push(Arc::new(pki::LoopbackCertificate::signed_now(
        &kept.registry,
    )));
    checks
}

/// Where the server and its services are, when it listens on `address`.
fn location(
    args: &ServerArgs,
    chosen: &Chosen,
    address: SocketAddr,
) -> Result<Location, ComposeError> {
    let advertise_address = args.serving.advertise_address(address.ip())?;
    if advertise_address.is_none() && args.serving.reconciles_endpoints() {
        tracing::warn!(
            "this host has loopback addresses only, so default/kubernetes has no Endpoints"
        );
    }
    let service_ip = chosen.service_ranges[0].nth(1);
    let service = KubernetesService {
        service_ip,
        advertise_address,
        port: address.port(),
        node_port: args.services.kubernetes_node_port()?,
    };
    Ok(Location {
        service_ranges: chosen.service_ranges.clone(),
        service,
    })
}

/// The name of this API server. Kubernetes: `apiserver-` and a hash of the host's name (pkg/controlplane/instance.go).
fn api_server_id() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let digest = ring::digest::digest(&ring::digest::SHA256, host.as_encoded_bytes());
    format!("apiserver-{}", base32(&digest.as_ref()[..16]))
}

/// Base 32 in small letters, without padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let letter = |at: usize| LETTERS[(0..5).fold(0, |sum, n| sum << 1 | bit(at + n)) as usize];
    (0..8 * bytes.len())
        .step_by(5)
        .map(|at| char::from(letter(at)))
        .collect()
}

/// Starts the server, and makes what every cluster has.
async fn furnish(
    server: &Server,
    location: &Location,
    trusted: &Trusted,
) -> Result<(), ComposeError> {
    server.start().await;
    let made = bootstrap(server, location, trusted).await;
    made.map_err(ComposeError::Bootstrap)?;
    server.aggregate().await.map_err(ComposeError::Bootstrap)
}

/// What is done now and then, and when files change, as long as the server runs.
fn keep_up(
    args: &ServerArgs,
    server: &Server,
    kept: &Kept,
    authorization: Option<(PathBuf, Vec<u8>)>,
) {
    tokio::spawn(expire(kept.registry.clone()));
    tokio::spawn(storage_log::report(kept.store.clone()));
    let (registry, interval) = (kept.registry.clone(), args.storage.etcd_compaction_interval);
    tokio::spawn(async move { registry.compact_periodically(interval).await });
    tokio::spawn(allow_migration(server.clone()));
    tokio::spawn(token_tracking::keep(server.clone()));
    if let Some(encryption) = kept
        .encryption
        .clone()
        .filter(|_| args.encryption.is_followed())
    {
        tokio::spawn(encryption.reload_on_change());
    }
    if let Some((file, known)) = authorization {
        let server = server.clone();
        tokio::spawn(async move { server.follow_authorization(&file, known).await });
    }
}

/// Starts all that runs beside the server, and waits until it knows what there is or that somebody else works.
async fn beside(
    server: &Server,
    whole: Whole,
    kept: &Kept,
) -> Result<(Option<Seat>, Loops), ComposeError> {
    if whole.serves_metrics {
        bootstrap_metrics(server)
            .await
            .map_err(ComposeError::Bootstrap)?;
        let served = metrics_server::serve(server);
        served.map_err(|error| ComposeError::Bootstrap(error.to_string()))?;
    }
    let uid = cluster_uid(server).await.map_err(ComposeError::Bootstrap)?;
    let candidate = Candidate::of_cluster(&uid).measured(server.metrics());
    let informers = Arc::new(loops::informers(server));
    let Whole {
        nodes,
        pod_ranges,
        load_balancer_ranges,
        scheduler,
        ..
    } = whole;
    let nodes = nodes
        .start(server, &candidate, &kept.authority, &informers)
        .await;
    let nodes = nodes.map_err(ComposeError::Bootstrap)?;
    let (authority, signer) = (kept.authority.clone(), kept.token_key.clone());
    let means = Means {
        authority,
        signer,
        pod_ranges,
        load_balancer_ranges,
        scheduler,
    };
    let loops = Loops::start(server, &candidate, means, informers);
    let settled = loops.settled().await;
    settled.map_err(|why| ComposeError::Bootstrap(format!("the scheduler cannot work: {why}")))?;
    Ok((nodes, loops))
}

/// What the server shows when it asks others.
fn shown(Signed { certificate, key }: Signed) -> Identity {
    Identity { certificate, key }
}

async fn bind(address: IpAddr, port: u16) -> Result<TcpListener, ComposeError> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ComposeError::PortInUse { port },
            _ => ComposeError::Listen { address, source },
        })
}

/// Reading what is there blocks, not least while others open what is sealed.
async fn open(
    directory: Option<&Path>,
    encryption: Option<Arc<Encryption>>,
) -> Result<Store, ComposeError> {
    let Some(directory) = directory.map(Path::to_path_buf) else {
        return Ok(Store::in_memory(Default::default()));
    };
    let sealer = encryption.map(|encryption| encryption as Arc<dyn Sealer>);
    let options = mizzen_store::Options {
        sealer,
        ..Default::default()
    };
    let kept = directory.clone();
    if kept.exists() {
        check_owner(&kept).map_err(|source| PkiError::File {
            path: kept.clone(),
            source,
        })?;
    }
    let opened = tokio::task::spawn_blocking(move || Store::open(directory, options)).await;
    let store = opened.map_err(io::Error::other)??;
    make_private(&kept)?;
    Ok(store)
}

/// The addresses under which the server may be reached: where it listens, this machine, and its service.
fn addresses(bound: IpAddr, service: IpAddr) -> Vec<IpAddr> {
    let mut addresses = vec![
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
        service,
    ];
    if !bound.is_unspecified() && !addresses.contains(&bound) {
        addresses.push(bound);
    }
    addresses
}

/// Makes the admin's kubeconfig. When the server shows a certificate that our authority has not signed, it says under
/// which name one is to be had that it has.
fn write_kubeconfig(
    authority: &Authority,
    address: SocketAddr,
    file: &Path,
    is_own: bool,
) -> Result<(), ComposeError> {
    let host = match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
        _ => address,
    };
    let admin = authority.sign_admin()?;
    let server_name = if is_own { "" } else { pki::LOOPBACK };
    let text = kubeconfig(
        &format!("https://{host}"),
        server_name,
        authority,
        "admin",
        &admin,
    );
    Ok(write_private(file, &text)?)
}

fn announce(address: SocketAddr, file: &Path, started: Instant, first_words: &str) {
    let took = started.elapsed().as_millis();
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.into());
    log::announce(format_args!(
        "Mizzen is ready at https://{address} after {took} ms; try: kubectl --kubeconfig {} {first_words}",
        file.display()
    ));
}

/// What `stop` does, after the server has said for a while that it is not ready.
async fn unready_first(server: Server, stop: impl Future<Output = ()>, delay: Duration) {
    stop.await;
    server.leave();
    tokio::time::sleep(delay).await;
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
        log::say!("stopping: letting requests finish (press Ctrl-C again to stop at once)");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(130);
        });
    })
}

async fn expire(registry: Registry) {
    let mut ticks = tokio::time::interval(EXPIRE_EVERY);
    loop {
        ticks.tick().await;
        registry.expire().await;
    }
}
