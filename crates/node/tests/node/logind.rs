//! A private D-Bus with the part of systemd-logind that nodes use, and that of systemd.
//!
//! It needs Debian's `dbus-daemon`. Without it [`Bus::start`] says SKIPPED and returns nothing; in CI that is a failure.

use std::fs;
use std::io::pipe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;
use zbus::{Connection, OwnedFd, interface};

/// The path of logind.
const LOGIND: &str = "/org/freedesktop/login1";
/// The interface of logind.
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// The delay that logind allows without configuration.
const USUAL_DELAY: u64 = 5_000_000;

/// A bus that runs until it is dropped.
pub(crate) struct Bus {
    process: Child,
    dir: PathBuf,
}

impl Bus {
    /// Starts one with its files in a directory.
    pub(crate) async fn start(dir: &Path) -> Option<Bus> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|dir| dir.join("dbus-daemon").is_file()) {
            let missing = "no dbus-daemon is installed";
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "no shutdown of a node can be tested: {missing}"
            );
            println!("SKIPPED: no shutdown of a node is tested: {missing}");
            return None;
        }
        let (config, socket) = (dir.join("bus.conf"), dir.join("bus.sock"));
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow own=\"*\"/><allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
            socket.display()
        );
        fs::write(&config, text).unwrap();
        let process = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .arg("--nofork")
            .stdin(Stdio::null())
            .spawn()
            .expect("dbus-daemon is installed");
        let bus = Bus {
            process,
            dir: dir.into(),
        };
        for _ in 0..600 {
            if bus.try_connect().await.is_ok() {
                return Some(bus);
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("dbus-daemon does not answer");
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.dir.join("bus.sock").display())
    }

    /// The directory of logind's drop-ins.
    pub(crate) fn conf_dir(&self) -> PathBuf {
        self.dir.join("logind.conf.d")
    }

    /// A new connection.
    pub(crate) async fn try_connect(&self) -> zbus::Result<Connection> {
        let builder = zbus::connection::Builder::address(self.address().as_str());
        builder.build().await
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What logind has been asked.
struct LogindState {
    /// The drop-ins.
    conf_dir: PathBuf,
    /// The longest delay of a shutdown, in microseconds.
    delay: u64,
    /// The arguments and the read ends of its locks, oldest first.
    locks: Vec<(String, Receiver)>,
}

/// A logind on a bus.
pub(crate) struct Logind {
    connection: Connection,
    state: Arc<Mutex<LogindState>>,
}

struct Manager(Arc<Mutex<LogindState>>);

#[interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    /// The lock is released when the other end of the pipe is closed.
    fn inhibit(&self, what: &str, _who: &str, _why: &str, mode: &str) -> OwnedFd {
        let (reader, writer) = pipe().unwrap();
        let lock = (
            format!("{what} {mode}"),
            Receiver::from_owned_fd(reader.into()).unwrap(),
        );
        self.0.lock().locks.push(lock);
        std::os::fd::OwnedFd::from(writer).into()
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> u64 {
        self.0.lock().delay
    }
}

struct Systemd(Arc<Mutex<LogindState>>);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    /// SIGHUP makes logind read its drop-ins.
    fn kill_unit(&self, unit: &str, who: &str, signal: i32) {
        assert_eq!((unit, who, signal), ("systemd-logind.service", "all", 1));
        let mut state = self.0.lock();
        for file in fs::read_dir(&state.conf_dir).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let (_, seconds) = text.split_once("[Login]\nInhibitDelayMaxSec=").unwrap();
            state.delay = seconds.trim().parse::<u64>().unwrap() * 1_000_000;
        }
    }
}

impl Logind {
    /// Starts it on a bus.
    pub(crate) async fn start(bus: &Bus) -> Logind {
        let state = Arc::new(Mutex::new(LogindState {
            conf_dir: bus.conf_dir(),
            delay: USUAL_DELAY,
            locks: Vec::new(),
        }));
        let connection = zbus::connection::Builder::address(bus.address().as_str())
            .serve_at(LOGIND, Manager(state.clone()))
            .serve_at("/org/freedesktop/systemd1", Systemd(state.clone()))
            .name("org.freedesktop.systemd1")
            .name("org.freedesktop.login1")
            .build()
            .await
            .unwrap();
        Logind { connection, state }
    }

    /// Announces a shutdown, or its cancellation.
    pub(crate) async fn prepare_for_shutdown(&self, is_starting: bool) {
        prepare_for_shutdown(&self.connection, None, is_starting).await;
    }

    /// The longest delay of a shutdown, in seconds.
    pub(crate) fn delay_seconds(&self) -> u64 {
        self.state.lock().delay / 1_000_000
    }

    /// What all its locks were taken for.
    pub(crate) fn locks(&self) -> Vec<String> {
        let state = self.state.lock();
        state.locks.iter().map(|(what, _)| what.clone()).collect()
    }

    /// Whether the last lock is held.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.state.lock();
        let (_, lock) = state.locks.last().expect("there is a lock");
        // Nothing is ever written: the pipe is empty, or closed.
        lock.try_read(&mut [0]).is_err()
    }
}

/// Sends the signal from a connection, to one receiver or to all.
pub(crate) async fn prepare_for_shutdown(from: &Connection, to: Option<&str>, is_starting: bool) {
    from.emit_signal(to, LOGIND, MANAGER, "PrepareForShutdown", &is_starting)
        .await
        .unwrap();
}
