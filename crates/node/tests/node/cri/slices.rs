//! The cgroup driver systemd: a runtime and a systemd that are made up, on a private D-Bus.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mizzen_node::cri::{CriOptions, CriRuntime, Housekeeping};
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::PODS;
use mizzen_value::{Value, value};
use parking_lot::Mutex;
use zbus::{Connection, DBusError, OwnedObjectPath, OwnedVariant, interface};

use super::events::{MadeUpRuntime, Node};
use crate::fixtures::{create, delete_pod, events_of, get_pod};
use crate::logind::Bus;

const PATH: &str = "/org/freedesktop/systemd1";
/// What containerd 1 shows, which does not know RuntimeConfig.
const CONFIG: &str = r#"{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}"#;
const NO_LIMIT: u64 = u64::MAX;

/// The numbers of a unit's properties.
type Properties = BTreeMap<String, u64>;

#[derive(Default)]
struct Units {
    units: BTreeMap<String, Properties>,
    /// Whether properties cannot be set.
    refuses: bool,
    /// Whether units do not start.
    fails: bool,
}

/// A systemd that knows slices.
struct Systemd(Arc<Mutex<Units>>);

#[derive(Debug, DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum UnitError {
    #[zbus(error)]
    Bus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
    Refused(String),
}

fn numbers(properties: &[(String, OwnedVariant)]) -> impl Iterator<Item = (String, u64)> {
    let number = |(name, variant): &(String, OwnedVariant)| {
        let number = u64::try_from(variant).ok()?;
        Some((name.clone(), number))
    };
    properties.iter().filter_map(number)
}

/// Ends a job before its method is answered.
async fn end_job(
    connection: &Connection,
    unit: &str,
    result: &str,
) -> Result<OwnedObjectPath, UnitError> {
    let job = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/1").unwrap();
    let interface = "org.freedesktop.systemd1.Manager";
    let body = (1_u32, job.clone(), unit, result);
    connection
        .emit_signal(None::<&str>, PATH, interface, "JobRemoved", &body)
        .await?;
    Ok(job)
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Vec<(String, OwnedVariant)>,
        _auxiliary: Vec<(String, Vec<(String, OwnedVariant)>)>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<OwnedObjectPath, UnitError> {
        assert_eq!(mode, "replace");
        let fails = {
            let mut state = self.0.lock();
            if state.units.contains_key(&name) {
                return Err(UnitError::UnitExists(name));
            }
            if !state.fails {
                let known = numbers(&properties).collect();
                state.units.insert(name.clone(), known);
            }
            state.fails
        };
        let result = if fails { "failed" } else { "done" };
        end_job(connection, &name, result).await
    }

    fn set_unit_properties(
        &self,
        name: String,
        _runtime: bool,
        properties: Vec<(String, OwnedVariant)>,
    ) -> Result<(), UnitError> {
        let mut state = self.0.lock();
        if state.refuses {
            return Err(UnitError::Refused("not today".into()));
        }
        let unit = state.units.get_mut(&name);
        let unit = unit.ok_or_else(|| UnitError::NoSuchUnit(name.clone()))?;
        unit.extend(numbers(&properties));
        Ok(())
    }

    async fn stop_unit(
        &self,
        name: String,
        _mode: String,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<OwnedObjectPath, UnitError> {
        let known = self.0.lock().units.remove(&name);
        known.ok_or_else(|| UnitError::NoSuchUnit(name.clone()))?;
        end_job(connection, &name, "done").await
    }

    #[zbus(property)]
    fn version(&self) -> String {
        "252".into()
    }
}

/// The names of the properties for the weight and the memory on this machine.
fn names() -> [&'static str; 2] {
    match Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        true => ["CPUWeight", "MemoryMax"],
        false => ["CPUShares", "MemoryLimit"],
    }
}

async fn resize(node: &Node, limits: Value) {
    let container = value!({ "name": "c", "resources": { "limits": limits } });
    let patch = value!({ "spec": { "containers": [container] } });
    let (client, key) = (node.cluster.dynamic_client(), Key::new("default", "web"));
    client
        .patch(&PODS, &key, "resize", PatchType::Strategic, &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_gets_the_limits_of_pods() {
    let dir = tempfile::tempdir().unwrap();
    let Some(bus) = Bus::start(dir.path()).await else {
        return;
    };
    let units = Arc::new(Mutex::new(Units::default()));
    let _systemd = zbus::connection::Builder::address(bus.address().as_str())
        .serve_at(PATH, Systemd(units.clone()))
        .name("org.freedesktop.systemd1")
        .build()
        .await
        .unwrap();
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().config = CONFIG.into();
    let node = Node::start_on_bus("slices", runtime, Some(bus.address())).await;
    let [weight, memory] = names();
    let number = |unit: &str, name: &str| {
        let state = units.lock();
        let unit = state.units.get(unit);
        unit.and_then(|unit| unit.get(name).copied())
    };
    node.until("all pods are limited", async |_| {
        number("kubepods.slice", memory).is_some_and(|memory| memory != NO_LIMIT)
    })
    .await;
    let pod = "{metadata: {name: web}, spec: {nodeName: slices, terminationGracePeriodSeconds: 0, \
               containers: [{name: c, image: a, imagePullPolicy: IfNotPresent, \
               resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}}]}}";
    create(&node.cluster, &PODS, pod).await;
    node.until_pod("ready=True c=running").await;
    let pod = get_pod(&node.cluster, "web").await;
    let uid = pod.uid().replace('-', "_");
    let slice = format!("kubepods-burstable-pod{uid}.slice");
    let limits = || {
        let names = ["CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", memory];
        names.map(|name| number(&slice, name).unwrap())
    };
    assert_eq!(limits(), [500_000, 100_000, 64 << 20]);
    let burstable = number("kubepods-burstable.slice", weight);
    assert_eq!(burstable, number(&slice, weight));
    assert_ne!(burstable, number("kubepods-besteffort.slice", weight));
    let parent = {
        let state = node.runtime.0.lock();
        let linux = state.sandbox_configs[0].linux.clone();
        linux.unwrap().cgroup_parent
    };
    let path = format!("/kubepods.slice/kubepods-burstable.slice/{slice}");
    assert_eq!(parent, path);

    // What systemd does not set is not said to be set.
    units.lock().refuses = true;
    let wanted = value!({ "cpu": "600m", "memory": "96Mi" });
    resize(&node, wanted).await;
    let has_event = async |wanted: &[&str]| {
        let events = events_of(&node.cluster, "web").await;
        let is_wanted = |event: &String| wanted.iter().all(|part| event.contains(part));
        events.iter().any(is_wanted)
    };
    let refused = [
        "Warning ResizeError",
        "systemd does not set the limits of",
        "not today",
    ];
    node.until("the resize is refused", async |_| has_event(&refused).await)
        .await;
    assert!(!has_event(&["ResizeCompleted"]).await);
    assert_eq!(limits(), [500_000, 100_000, 64 << 20]);
    units.lock().refuses = false;
    node.until("the resize is done", async |_| {
        has_event(&["ResizeCompleted"]).await
    })
    .await;
    assert_eq!(limits(), [600_000, 100_000, 96 << 20]);

    delete_pod(&node.cluster, "web", None).await;
    node.until("the slice is removed", async |_| {
        number(&slice, memory).is_none()
    })
    .await;

    // A slice that does not start has no limits.
    units.lock().fails = true;
    let pod = "{metadata: {name: late}, spec: {nodeName: slices, \
               containers: [{name: c, image: a, imagePullPolicy: IfNotPresent}]}}";
    create(&node.cluster, &PODS, pod).await;
    node.until("an Event says it", async |node| {
        let events = events_of(&node.cluster, "late").await;
        events.iter().any(|event| {
            event.contains("Warning FailedCreatePodContainer")
                && event.contains("systemd did not start kubepods-besteffort-pod")
                && event.contains("its job has ended with \"failed\"")
        })
    })
    .await;
    assert_eq!(node.runtime.n_calls("RunPodSandbox"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_starts_while_systemd_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().config = CONFIG.into();
    let bus = format!("unix:path={}", dir.path().join("none.sock").display());
    let node = Node::start_on_bus("no-systemd", runtime, Some(bus.clone())).await;
    let pod = "{metadata: {name: web}, spec: {nodeName: no-systemd, \
               containers: [{name: c, image: a, imagePullPolicy: IfNotPresent}]}}";
    create(&node.cluster, &PODS, pod).await;
    node.until("an Event says it", async |node| {
        let events = events_of(&node.cluster, "web").await;
        events.iter().any(|event| {
            event.contains("Warning FailedCreatePodContainer")
                && event.contains("systemd cannot be reached over the system bus")
        })
    })
    .await;
    assert_eq!(node.runtime.n_calls("RunPodSandbox"), 0);

    let options = CriOptions {
        endpoint: node.endpoint(),
        node: "no-systemd".into(),
        root: dir.path().join("node"),
        logs: dir.path().join("logs"),
        network: dir.path().join("cni"),
        resolver: None,
        api_server: None,
        unsafe_sysctls: Vec::new(),
        system_bus: Some(bus),
        housekeeping: Housekeeping::default(),
    };
    let error = CriRuntime::check(&options, true).await.unwrap_err();
    let wanted = "the cgroup driver systemd (SystemdCgroup = true), but systemd cannot be reached";
    assert!(error.to_string().contains(wanted), "{error}");
}
