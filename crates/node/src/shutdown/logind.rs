//! systemd-logind over D-Bus: the inhibitor lock that delays a shutdown, and the signals that
//! announce one.
//!
//! Kubernetes: pkg/kubelet/nodeshutdown/systemd.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::sleep;
use zbus::proxy::{OwnerChangedStream, SignalStream};
use zbus::{Connection, Proxy};

use crate::dbus::{self, SYSTEMD, proxy};

/// The name, object and interface of logind.
const LOGIND: [&str; 3] = [
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
];
/// What the lock says of itself, as `systemd-inhibit --list` shows it.
const LOCK: [&str; 4] = [
    "shutdown",
    "mizzen",
    "Pods need time to end before the node shuts down",
    "delay",
];
/// The file with the delay that this node needs. It sorts after that of a kubelet.
const DROP_IN: &str = "99-mizzen.conf";
/// Kubernetes: the first pause after logind was told to reload, doubled each time, and their number.
const RELOAD_PAUSE: Duration = Duration::from_millis(100);
const N_RELOAD_PAUSES: u32 = 5;

/// The file descriptor of an inhibitor lock; dropping it releases the lock.
pub(super) type InhibitorLock = OwnedFd;

/// A logind that announces shutdowns.
pub(super) struct Logind {
    manager: Proxy<'static>,
    /// Its signals `PrepareForShutdown`.
    signals: SignalStream<'static>,
    /// The processes that are logind, one after the other.
    owners: OwnerChangedStream<'static>,
}

/// Where logind is.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogindPlace<'a> {
    /// The address of the bus; `None` for the system bus.
    pub bus_address: Option<&'a str>,
    /// The directory of configuration drop-ins.
    pub conf_dir: &'a Path,
    /// The node that needs it.
    pub node: &'a str,
}

/// Why shutdowns cannot be delayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InhibitError {
    #[error("cannot connect to the system bus: {0}")]
    Connect(#[source] zbus::Error),
    #[error("cannot read InhibitDelayMaxUSec of logind: {0}")]
    ReadDelay(#[source] zbus::Error),
    #[error("cannot write {path}: {error}")]
    WriteDropIn {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot make logind reload its configuration: {0}")]
    Reload(#[source] zbus::Error),
    #[error(
        "logind delays a shutdown by at most {allowed:?} and {needed:?} are needed, though {path} has InhibitDelayMaxSec"
    )]
    Delay {
        allowed: Duration,
        needed: Duration,
        path: PathBuf,
    },
    #[error("cannot subscribe to PrepareForShutdown of logind: {0}")]
    Subscribe(#[source] zbus::Error),
    #[error("logind does not grant an inhibitor lock: {0}")]
    Inhibit(#[source] zbus::Error),
}

/// Why shutdowns are no longer announced.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogindLost {
    #[error("the connection to the system bus is closed")]
    Closed,
    #[error("logind has stopped or restarted")]
    Restarted,
    #[error("PrepareForShutdown has no boolean: {0}")]
    Signal(#[source] zbus::Error),
}

impl Logind {
    /// Connects to a logind that delays a shutdown by `delay`.
    pub(super) async fn connect(
        place: LogindPlace<'_>,
        delay: Duration,
    ) -> Result<Logind, InhibitError> {
        let connection = dbus::connect(place.bus_address).await;
        let connection = connection.map_err(InhibitError::Connect)?;
        let manager = proxy(&connection, LOGIND)
            .await
            .map_err(InhibitError::Connect)?;
        ensure_delay(&manager, place, delay).await?;
        let signals = manager.receive_signal("PrepareForShutdown").await;
        let owners = manager.receive_owner_changed().await;
        Ok(Logind {
            signals: signals.map_err(InhibitError::Subscribe)?,
            owners: owners.map_err(InhibitError::Subscribe)?,
            manager,
        })
    }

    /// Takes the lock. It is granted only while no shutdown is being prepared.
    pub(super) async fn inhibit(&self) -> Result<InhibitorLock, InhibitError> {
        let [what, who, why, mode] = LOCK;
        let lock = self.manager.call("Inhibit", &(what, who, why, mode)).await;
        lock.map(|lock: zbus::OwnedFd| lock.into())
            .map_err(InhibitError::Inhibit)
    }

    /// The next announcement: true if the machine shuts down, false if it does so no longer.
    ///
    /// Invariant: cancel safe.
    pub(super) async fn next(&mut self) -> Result<bool, LogindLost> {
        tokio::select! {
            biased;
            signal = self.signals.next() => {
                let signal = signal.ok_or(LogindLost::Closed)?;
                signal.body().deserialize().map_err(LogindLost::Signal)
            }
            owner = self.owners.next() => {
                Err(owner.map_or(LogindLost::Closed, |_| LogindLost::Restarted))
            }
        }
    }
}

/// Lets logind delay a shutdown by `delay`, by a file of its configuration if it does not yet.
async fn ensure_delay(
    manager: &Proxy<'_>,
    place: LogindPlace<'_>,
    delay: Duration,
) -> Result<(), InhibitError> {
    if allowed_delay(manager).await? >= delay {
        return Ok(());
    }
    let path = place.conf_dir.join(DROP_IN);
    write_drop_in(place.conf_dir, place.node, delay).map_err(|error| {
        let path = path.clone();
        InhibitError::WriteDropIn { path, error }
    })?;
    reload(manager.connection())
        .await
        .map_err(InhibitError::Reload)?;
    // Logind reloads a moment later.
    let mut pause = RELOAD_PAUSE;
    for _ in 0..N_RELOAD_PAUSES {
        if allowed_delay(manager).await? >= delay {
            tracing::info!(path = %path.display(), delay = ?delay, "logind delays a shutdown for longer now");
            return Ok(());
        }
        sleep(pause).await;
        pause *= 2;
    }
    match allowed_delay(manager).await? {
        allowed if allowed >= delay => Ok(()),
        allowed => Err(InhibitError::Delay {
            allowed,
            needed: delay,
            path,
        }),
    }
}

fn write_drop_in(conf_dir: &Path, node: &str, delay: Duration) -> io::Result<()> {
    let text = format!(
        "{}# Pods get this long to end before the machine shuts down.\n\
         [Login]\nInhibitDelayMaxSec={}\n",
        author(node),
        delay.as_secs()
    );
    fs::create_dir_all(conf_dir)?;
    fs::write(conf_dir.join(DROP_IN), text)
}

/// The first line of the file that a node has written.
fn author(node: &str) -> String {
    format!("# Written by mizzen for the node {node}.\n")
}

/// Removes the file that a node has written, and its directory unless there are others. logind
/// notices it when it reads its configuration again.
pub(crate) fn remove_drop_in(conf_dir: &Path, node: &str) -> io::Result<()> {
    let path = conf_dir.join(DROP_IN);
    let text = fs::read_to_string(&path).unwrap_or_default();
    if text.starts_with(&author(node)) {
        fs::remove_file(path)?;
        let _ = fs::remove_dir(conf_dir);
    }
    Ok(())
}

/// The longest delay of a shutdown.
async fn allowed_delay(manager: &Proxy<'_>) -> Result<Duration, InhibitError> {
    let micros = manager.get_property("InhibitDelayMaxUSec").await;
    micros
        .map(Duration::from_micros)
        .map_err(InhibitError::ReadDelay)
}

/// Sends SIGHUP to logind.
async fn reload(connection: &Connection) -> zbus::Result<()> {
    const SIGHUP: i32 = 1;
    let systemd = proxy(connection, SYSTEMD).await?;
    systemd
        .call("KillUnit", &("systemd-logind.service", "all", SIGHUP))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_removes_only_its_own_drop_in() {
        let dir = tempfile::tempdir().unwrap();
        let conf_dir = dir.path().join("logind.conf.d");
        remove_drop_in(&conf_dir, "a").unwrap();
        write_drop_in(&conf_dir, "a", Duration::from_secs(24)).unwrap();
        remove_drop_in(&conf_dir, "b").unwrap();
        let text = fs::read_to_string(conf_dir.join(DROP_IN)).unwrap();
        assert!(
            text.contains("\n[Login]\nInhibitDelayMaxSec=24\n"),
            "{text}"
        );
        remove_drop_in(&conf_dir, "a").unwrap();
        assert!(!conf_dir.exists());
    }
}
