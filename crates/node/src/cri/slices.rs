//! The cgroups of pods as slices of systemd.
//!
//! A slice is a transient unit: systemd makes its cgroup, and keeps the limits that it was given over
//! D-Bus. Its name has those of its parents: `kubepods-burstable-podUID.slice`.
//!
//! Kubernetes: pkg/kubelet/cm, with the systemd driver of opencontainers/cgroups.

use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zbus::{Connection, OwnedObjectPath, Proxy, Variant};

use super::resources::{self, CgroupLimits, QUOTA_PERIOD};
use crate::dbus::{self, SYSTEMD};

/// How long systemd may take to start or stop a slice. Kubernetes: as in opencontainers/cgroups.
const JOB: Duration = Duration::from_secs(30);
/// The parent of slices without one.
const ROOT_SLICE: &str = "-.slice";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// CPU time per second is a multiple of this, in microseconds: systemd knows whole percents.
const QUOTA_STEP: u64 = 10_000;
const NO_LIMIT: u64 = u64::MAX;

/// The version of cgroups, by which properties are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    V1,
    V2,
}

/// A property of a unit.
type Property = (&'static str, Variant<'static>);

/// Why a slice is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum SliceError {
    #[error("systemd cannot be reached over the system bus: {0}")]
    Connect(#[source] zbus::Error),
    #[error("systemd does not {verb} {unit}: {error}")]
    Call {
        verb: &'static str,
        unit: String,
        #[source]
        error: zbus::Error,
    },
    #[error("systemd did not {verb} {unit}: its job has ended with {result:?}")]
    Job {
        verb: &'static str,
        unit: String,
        result: String,
    },
    #[error("systemd did not {verb} {unit} within {JOB:?}")]
    TimedOut { verb: &'static str, unit: String },
}

/// The slices of systemd. The methods that block are not for tasks.
pub(super) struct Slices {
    /// The address of the bus; `None` for that of the system.
    bus_address: Option<String>,
    handle: Handle,
    /// The connection, while it works.
    connection: tokio::sync::Mutex<Option<Connection>>,
}

impl Slices {
    pub(super) fn new(bus_address: Option<String>) -> Slices {
        Slices {
            bus_address,
            handle: Handle::current(),
            connection: tokio::sync::Mutex::default(),
        }
    }

    /// Whether systemd answers.
    pub(super) async fn check(&self) -> Result<(), SliceError> {
        let manager = self.manager().await?;
        let version = manager.get_property::<String>("Version").await;
        version.map(drop).map_err(SliceError::Connect)
    }

    /// Makes the slice of a path with limits, or sets the limits of one that is there.
    pub(super) fn make(
        &self,
        path: &str,
        version: CgroupVersion,
        limits: Option<&CgroupLimits>,
    ) -> io::Result<()> {
        let (unit, parent) = names(path);
        let started = self
            .handle
            .block_on(self.start(unit, parent, version, limits));
        started.map_err(io::Error::other)
    }

    /// Sets the limits of the slice of a path.
    pub(super) fn limit(
        &self,
        path: &str,
        version: CgroupVersion,
        limits: &CgroupLimits,
    ) -> io::Result<()> {
        let (unit, _) = names(path);
        let set = self.handle.block_on(self.set(unit, version, limits));
        set.map_err(io::Error::other)
    }

    /// Stops the slice of a path, if it is there.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        let (unit, _) = names(path);
        let stopped = self.handle.block_on(self.stop(unit));
        stopped.map_err(io::Error::other)
    }

    async fn start(
        &self,
        unit: &str,
        parent: &str,
        version: CgroupVersion,
        limits: Option<&CgroupLimits>,
    ) -> Result<(), SliceError> {
        let mut properties = unit_properties(unit, parent, version);
        properties.extend(
            limits
                .into_iter()
                .flat_map(|it| limit_properties(version, it)),
        );
        let auxiliary: Vec<(&str, Vec<Property>)> = Vec::new();
        let body = (unit, "replace", properties, auxiliary);
        let call = async |manager: &Proxy<'static>| manager.call("StartTransientUnit", &body).await;
        match self.run_job("start", unit, call).await {
            Err(SliceError::Call { error, .. }) if is_error(&error, UNIT_EXISTS) => match limits {
                Some(limits) => self.set(unit, version, limits).await,
                None => Ok(()),
            },
            done => done,
        }
    }

    async fn set(
        &self,
        unit: &str,
        version: CgroupVersion,
        limits: &CgroupLimits,
    ) -> Result<(), SliceError> {
        // Until the machine restarts, as the unit itself.
        let body = (unit, true, limit_properties(version, limits));
        let manager = self.manager().await?;
        let set = manager.call("SetUnitProperties", &body).await;
        match set {
            Ok(()) => Ok(()),
            Err(error) => Err(self.call_error("set the limits of", unit, error).await),
        }
    }

    async fn stop(&self, unit: &str) -> Result<(), SliceError> {
        let body = (unit, "replace");
        let call = async |manager: &Proxy<'static>| manager.call("StopUnit", &body).await;
        match self.run_job("stop", unit, call).await {
            Err(SliceError::Call { error, .. }) if is_error(&error, NO_SUCH_UNIT) => Ok(()),
            done => done,
        }
    }

    /// Calls a method that returns a job, and waits for its end.
    async fn run_job(
        &self,
        verb: &'static str,
        unit: &str,
        call: impl AsyncFnOnce(&Proxy<'static>) -> zbus::Result<OwnedObjectPath>,
    ) -> Result<(), SliceError> {
        let manager = self.manager().await?;
        // The job may have ended before the call is answered.
        let ended = manager.receive_signal("JobRemoved").await;
        let mut ended = ended.map_err(SliceError::Connect)?;
        let job = match call(&manager).await {
            Ok(job) => job,
            Err(error) => return Err(self.call_error(verb, unit, error).await),
        };
        let result = async {
            while let Some(signal) = ended.next().await {
                let removed: zbus::Result<(u32, OwnedObjectPath, String, String)> =
                    signal.body().deserialize();
                if let Ok((_, removed, _, result)) = removed
                    && removed == job
                {
                    return result;
                }
            }
            "a closed connection".to_owned()
        };
        let unit = unit.to_owned();
        match timeout(JOB, result).await {
            Ok(result) if result == "done" => Ok(()),
            Ok(result) => Err(SliceError::Job { verb, unit, result }),
            Err(_) => Err(SliceError::TimedOut { verb, unit }),
        }
    }

    /// The manager of units. A connection that is lost is made again.
    async fn manager(&self) -> Result<Proxy<'static>, SliceError> {
        let mut known = self.connection.lock().await;
        let connection = match (*known).clone() {
            Some(connection) => connection,
            None => {
                let made = dbus::connect(self.bus_address.as_deref()).await;
                let made = made.map_err(SliceError::Connect)?;
                known.insert(made).clone()
            }
        };
        let manager = dbus::proxy(&connection, SYSTEMD).await;
        manager.map_err(SliceError::Connect)
    }

    async fn call_error(&self, verb: &'static str, unit: &str, error: zbus::Error) -> SliceError {
        if !matches!(error, zbus::Error::MethodError(..)) {
            *self.connection.lock().await = None;
        }
        let unit = unit.to_owned();
        SliceError::Call { verb, unit, error }
    }
}

/// The unit of a path, and that of its parent.
fn names(path: &str) -> (&str, &str) {
    let mut names = path.rsplit('/').filter(|name| !name.is_empty());
    let unit = names.next().unwrap_or_default();
    (unit, names.next().unwrap_or(ROOT_SLICE))
}

fn is_error(error: &zbus::Error, wanted: &str) -> bool {
    matches!(error, zbus::Error::MethodError(name, ..) if name.as_str() == wanted)
}

/// What a new slice has.
fn unit_properties(unit: &str, parent: &str, version: CgroupVersion) -> Vec<Property> {
    let io = match version {
        CgroupVersion::V1 => "BlockIOAccounting",
        CgroupVersion::V2 => "IOAccounting",
    };
    let mut properties: Vec<Property> = vec![
        ("Description", format!("mizzen cgroup {unit}").into()),
        ("Wants", vec![parent.to_owned()].into()),
        ("DefaultDependencies", false.into()),
    ];
    let accounting = ["MemoryAccounting", "CPUAccounting", io, "TasksAccounting"];
    properties.extend(accounting.map(|name| (name, Variant::Bool(true))));
    properties
}

fn limit_properties(version: CgroupVersion, limits: &CgroupLimits) -> Vec<Property> {
    let memory = limits.memory.and_then(|memory| u64::try_from(memory).ok());
    let weight = match version {
        CgroupVersion::V1 => (
            "CPUShares",
            u64::try_from(limits.cpu_shares).unwrap_or_default(),
        ),
        CgroupVersion::V2 => ("CPUWeight", resources::weight(limits.cpu_shares)),
    };
    let memory_name = match version {
        CgroupVersion::V1 => "MemoryLimit",
        CgroupVersion::V2 => "MemoryMax",
    };
    let period = u64::try_from(QUOTA_PERIOD).unwrap_or_default();
    let numbers = [
        weight,
        ("CPUQuotaPeriodUSec", period),
        ("CPUQuotaPerSecUSec", quota_per_second(limits.cpu_quota)),
        (memory_name, memory.unwrap_or(NO_LIMIT)),
    ];
    let properties = numbers.map(|(name, number)| (name, Variant::U64(number)));
    properties.into()
}

/// The CPU time in each second, in microseconds, for a quota per period.
fn quota_per_second(quota: Option<i64>) -> u64 {
    let Some(quota) = quota.and_then(|quota| u64::try_from(quota).ok()) else {
        return NO_LIMIT;
    };
    let period = u64::try_from(QUOTA_PERIOD).unwrap_or(1);
    let quota = quota.saturating_mul(1_000_000) / period;
    quota.div_ceil(QUOTA_STEP).saturating_mul(QUOTA_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_last_part_of_a_path_and_its_parent_the_one_before() {
        for (path, unit, parent) in [
            ("/kubepods.slice", "kubepods.slice", "-.slice"),
            (
                "/kubepods.slice/kubepods-poda_b.slice",
                "kubepods-poda_b.slice",
                "kubepods.slice",
            ),
        ] {
            assert_eq!(names(path), (unit, parent));
        }
    }

    #[test]
    fn limits_are_the_properties_of_runc() {
        let check = |version, limits: CgroupLimits, expected: [(&str, u64); 4]| {
            let expected = expected.map(|(name, number)| (name, Variant::U64(number)));
            assert_eq!(limit_properties(version, &limits), expected, "{limits:?}");
        };
        let limited = CgroupLimits {
            cpu_shares: 512,
            cpu_quota: Some(50_000),
            memory: Some(64 << 20),
        };
        check(
            CgroupVersion::V1,
            limited,
            [
                ("CPUShares", 512),
                ("CPUQuotaPeriodUSec", 100_000),
                ("CPUQuotaPerSecUSec", 500_000),
                ("MemoryLimit", 64 << 20),
            ],
        );
        check(
            CgroupVersion::V2,
            CgroupLimits {
                cpu_shares: 512,
                ..CgroupLimits::default()
            },
            [
                ("CPUWeight", resources::weight(512)),
                ("CPUQuotaPeriodUSec", 100_000),
                ("CPUQuotaPerSecUSec", NO_LIMIT),
                ("MemoryMax", NO_LIMIT),
            ],
        );
        // systemd would round 1.5 % down.
        assert_eq!(quota_per_second(Some(1_500)), 20_000);
    }
}
