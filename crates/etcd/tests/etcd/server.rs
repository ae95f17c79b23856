//! Real etcd servers for tests: clusters of any size on loopback, in plain text or with TLS, that can be paused and killed.
//!
//! ```ignore
//! #[tokio::test]
//! async fn a_key_is_read() {
//!     for etcd in server::installed() {
//!         let cluster = etcd.start(Options::default()).await;
//!         let client = cluster.client();
//!         // …
//!     }
//! }
//! ```
//!
//! The program is that of `MIZZEN_ETCD`. Without it a test runs on each of two: `etcd` on the `PATH`, or that of the
//! distribution which `./check` unpacks in the target directory, and `tools/etcd-3.5` there, which is PyPI's. If neither is
//! there, a test says SKIPPED and passes, except in CI (`CI=true`), where it fails.
//!
//! A cluster has its data in a temporary directory and listens on 127.0.0.1 only. Dropping it kills its members.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mizzen_etcd::client::{Client, Config};
use mizzen_value::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long a cluster may take to elect a leader on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Ports are free when they are chosen; another process may be faster.
const MAX_STARTS: usize = 5;

/// A program of etcd.
#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    program: PathBuf,
    /// The flag that makes it faster, if it has that.
    has_unsafe_no_fsync: bool,
}

/// What a cluster is like.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How many members.
    pub(crate) n_members: usize,
    /// Whether clients need TLS and a certificate.
    pub(crate) tls: bool,
    /// More flags for every member.
    pub(crate) flags: Vec<&'static str>,
    /// Whether members write to disk before they answer, so that they can be killed. Else etcd 3.5 keeps some of its log in memory.
    pub(crate) is_durable: bool,
    /// The ports of the members for each other; free ones if there are none.
    pub(crate) peers: Vec<PeerPort>,
}

/// The port of a member for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerPort {
    /// Where it listens.
    pub(crate) listen: u16,
    /// Where others connect; what is between forwards.
    pub(crate) advertise: u16,
}

impl Default for Options {
    /// One member, in plain text.
    fn default() -> Options {
        Options {
            n_members: 1,
            tls: false,
            flags: Vec::new(),
            is_durable: false,
            peers: Vec::new(),
        }
    }
}

/// The programs to test with; none if the test is skipped.
pub(crate) fn installed() -> Vec<Etcd> {
    let programs = match std::env::var_os("MIZZEN_ETCD") {
        Some(program) => vec![PathBuf::from(program)],
        None => {
            let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
            let path = std::env::var_os("PATH").unwrap_or_default();
            let on_path = std::env::split_paths(&path).map(|dir| dir.join("etcd"));
            let mut distribution = on_path.chain([tools.join("etcd-server/usr/bin/etcd")]);
            let distribution = distribution.find(|program| program.is_file());
            let pypi = Some(tools.join("etcd-3.5")).filter(|program| program.is_file());
            distribution.into_iter().chain(pypi).collect()
        }
    };
    if programs.is_empty() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(
            !is_ci,
            "no etcd is installed, so nothing would be tested with it"
        );
        eprintln!("SKIPPED: no etcd is installed");
    }
    programs.into_iter().map(Etcd::at).collect()
}

impl Etcd {
    fn at(program: PathBuf) -> Etcd {
        let help = Command::new(&program).arg("--help").output();
        let help = help.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let text = [help.stdout, help.stderr].concat();
        Etcd {
            has_unsafe_no_fsync: String::from_utf8_lossy(&text).contains("--unsafe-no-fsync"),
            program,
        }
    }

    /// Starts a cluster, and waits until every member has a leader.
    pub(crate) async fn start(&self, options: Options) -> Cluster {
        eprintln!("with {} and {options:?}", self.program.display());
        for _ in 0..MAX_STARTS {
            let mut cluster = Cluster::new(self.clone(), options.clone());
            for index in 0..cluster.members.len() {
                cluster.spawn(index);
            }
            if cluster.wait_until_ready().await {
                return cluster;
            }
        }
        panic!("etcd did not start");
    }
}

/// Members that run.
pub(crate) struct Cluster {
    etcd: Etcd,
    flags: Vec<&'static str>,
    is_durable: bool,
    members: Vec<Member>,
    /// The files of TLS, if clients need it.
    pub(crate) tls: Option<TlsFiles>,
    dir: TempDir,
}

struct Member {
    client_port: u16,
    peer: PeerPort,
    process: Option<Child>,
}

impl Cluster {
    fn new(etcd: Etcd, options: Options) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // All are bound before one is closed, so that no two are the same.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let listeners: Vec<_> = (0..options.n_members).map(|_| (bind(), bind())).collect();
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let own = |peer: &TcpListener| PeerPort {
            listen: port(peer),
            advertise: port(peer),
        };
        let members = listeners
            .iter()
            .enumerate()
            .map(|(index, (client, peer))| Member {
                client_port: port(client),
                peer: options
                    .peers
                    .get(index)
                    .copied()
                    .unwrap_or_else(|| own(peer)),
                process: None,
            });
        Cluster {
            etcd,
            flags: options.flags,
            is_durable: options.is_durable,
            members: members.collect(),
            tls: options.tls.then(|| TlsFiles::create(dir.path())),
            dir,
        }
    }

    fn spawn(&mut self, index: usize) {
        let peers: Vec<_> = (0..self.members.len())
            .map(|index| {
                format!(
                    "m{index}=http://127.0.0.1:{}",
                    self.members[index].peer.advertise
                )
            })
            .collect();
        let client_url = self.endpoint(index);
        let peer = self.members[index].peer;
        let listen_peer_url = format!("http://127.0.0.1:{}", peer.listen);
        let peer_url = format!("http://127.0.0.1:{}", peer.advertise);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(log_name(index)))
            .expect("a log file");
        let mut command = Command::new(&self.etcd.program);
        command
            .args(["--name", &format!("m{index}")])
            .arg("--data-dir")
            .arg(self.dir.path().join(format!("m{index}")))
            .args(["--listen-client-urls", &client_url])
            .args(["--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &listen_peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &peers.join(",")])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        if self.etcd.has_unsafe_no_fsync && !self.is_durable {
            command.arg("--unsafe-no-fsync");
        }
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth");
            command.arg("--trusted-ca-file").arg(&tls.ca);
            command.arg("--cert-file").arg(&tls.server_cert);
            command.arg("--key-file").arg(&tls.server_key);
        }
        let process = command.spawn().expect("etcd starts");
        self.members[index].process = Some(process);
    }

    /// False if a member has ended, as it does if its port is taken.
    async fn wait_until_ready(&mut self) -> bool {
        let client = self.client().with_call_timeout(Duration::from_secs(1));
        let deadline = Instant::now() + START;
        loop {
            let answers = client.status().await;
            let has_leader = |index: usize| {
                let status = answers[index].status.as_ref();
                status.is_ok_and(|status| status.leader != 0)
            };
            let running = |index: &usize| self.members[*index].process.is_some();
            let mut running = (0..self.members.len()).filter(running);
            if running.all(has_leader) {
                return true;
            }
            let late = Instant::now() > deadline;
            for (index, member) in self.members.iter_mut().enumerate() {
                let Some(process) = &mut member.process else {
                    continue;
                };
                let ended = process.try_wait().expect("its state");
                if late || ended.is_some() {
                    let log = self.dir.path().join(log_name(index));
                    let log = fs::read_to_string(log).unwrap_or_default();
                    eprintln!("m{index} {ended:?}: {answers:?}\n{log}");
                    return false;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The URL of a member.
    pub(crate) fn endpoint(&self, index: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[index].client_port)
    }

    /// How many watches a member has, by its metrics.
    pub(crate) fn n_watches(&self, index: usize) -> usize {
        let address = self.endpoint(index).replace("http://", "");
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("a response");
        let name = "etcd_debugging_mvcc_watcher_total ";
        let mut numbers = answer.lines().filter_map(|line| line.strip_prefix(name));
        let number = numbers.next().expect("the metric of watches");
        number.parse().expect("a number")
    }

    /// How all members are called.
    pub(crate) fn config(&self) -> Config {
        let endpoints = (0..self.members.len()).map(|index| self.endpoint(index));
        let mut config = Config::new(endpoints.collect(), Arc::new(WallClock));
        if let Some(tls) = &self.tls {
            config.ca_file = Some(tls.ca.clone());
            config.cert_file = Some(tls.client_cert.clone());
            config.key_file = Some(tls.client_key.clone());
        }
        config
    }

    /// A client of all members.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.config()).expect("a good configuration")
    }

    /// The member that leads.
    pub(crate) async fn leader(&self) -> usize {
        let answers = self.client().status().await;
        let leads = |answer: &mizzen_etcd::client::MemberStatus| {
            let status = answer.status.as_ref().expect("every member answers");
            status.header.as_ref().expect("a header").member_id == status.leader
        };
        answers.iter().position(leads).expect("a leader")
    }

    /// Kills a member (SIGKILL).
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts a member that was killed, and waits until all that run have a leader.
    pub(crate) async fn restart(&mut self, index: usize) {
        self.spawn(index);
        assert!(
            self.wait_until_ready().await,
            "m{index} did not start again"
        );
    }

    /// Stops a member without its connections noticing (SIGSTOP). Its threads run on for a moment after the signal, which
    /// is waited for.
    pub(crate) fn pause(&self, index: usize) {
        let process = self.signal(index, Signal::SIGSTOP);
        let threads = format!("/proc/{process}/task");
        while !has_stopped(Path::new(&threads)) {
            std::thread::yield_now();
        }
    }

    /// Has a paused member go on.
    pub(crate) fn resume(&self, index: usize) {
        self.signal(index, Signal::SIGCONT);
    }

    fn signal(&self, index: usize, signal: Signal) -> Pid {
        let process = self.members[index].process.as_ref().expect("it runs");
        let pid = i32::try_from(process.id()).expect("a process id");
        let pid = Pid::from_raw(pid);
        kill(pid, signal).expect("a signal of ours");
        pid
    }
}

/// Whether all threads have stopped, or have ended.
fn has_stopped(threads: &Path) -> bool {
    let threads = fs::read_dir(threads).expect("the process is there");
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_none_or(|(_, state)| state.starts_with(['T', 'Z']))
    })
}

fn log_name(index: usize) -> String {
    format!("m{index}.log")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

/// Certificates: of the members for 127.0.0.1, and of a client.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    /// The authority of both.
    pub(crate) ca: PathBuf,
    /// The members' certificate.
    pub(crate) server_cert: PathBuf,
    /// Its key.
    pub(crate) server_key: PathBuf,
    /// The client's certificate.
    pub(crate) client_cert: PathBuf,
    /// Its key.
    pub(crate) client_key: PathBuf,
}

impl TlsFiles {
    /// Writes a new authority with its certificates below `dir`.
    pub(crate) fn create(dir: &Path) -> TlsFiles {
        let file = |name: &str| dir.join(name);
        let files = TlsFiles {
            ca: file("ca.pem"),
            server_cert: file("server.pem"),
            server_key: file("server.key"),
            client_cert: file("client.pem"),
            client_key: file("client.key"),
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "etcd-ca");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(&files.ca, authority.pem()).unwrap();
        for (name, cert, key) in [
            ("etcd", &files.server_cert, &files.server_key),
            ("apiserver", &files.client_cert, &files.client_key),
        ] {
            let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            // etcd is a client of itself.
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
            let pair = KeyPair::generate().unwrap();
            let signed = params.signed_by(&pair, &authority).unwrap();
            fs::write(cert, signed.pem()).unwrap();
            fs::write(key, pair.serialize_pem()).unwrap();
        }
        files
    }
}

/// The time of day.
pub(crate) struct WallClock;

impl Clock for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "etcd's certificates are good in real time"
    )]
    fn now(&self) -> (i64, u32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (now.as_secs() as i64, now.subsec_nanos())
    }
}
