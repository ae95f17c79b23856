//! Eviction on a node with figures that the test sets, on paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mizzen_node::Moment;
use mizzen_node::eviction::parse_thresholds;
use mizzen_node::runtime::{
    Chunk, ContainerConfig, ContainerHandle, ContainerLife, ContainerRuntime, ContainerUsage, Exec,
    LogLine, PodConnection, Simulated, Stdio, Unacceptable,
};
use mizzen_node::stats::{
    CgroupStats, ContainerStats, DiskUsage, FsStats, MeasuredPods, MemoryStats, NodeStats,
    PidStats, PodStats, StatsProvider, VolumeStats,
};
use mizzen_sdk::Object;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_testing::Cluster;
use mizzen_value::Value;
use parking_lot::Mutex;

use crate::fixtures::{delete_pod, events_of, get_pod, pass, run_pod, show};

const MEBI: u64 = 1 << 20;

/// Figures that a test sets, the pods that were measured last, and the memory that is left once all
/// pods were measured to choose one.
#[derive(Clone, Default)]
struct SetStats(
    Arc<Mutex<NodeStats>>,
    Arc<Mutex<Option<MeasuredPods>>>,
    Arc<Mutex<Option<u64>>>,
);

impl StatsProvider for SetStats {
    fn stats(&self, pods: MeasuredPods) -> BoxFuture<'static, NodeStats> {
        let mut stats = self.0.lock().clone();
        stats.pods.retain(|pod| pods.contains(&pod.uid));
        if pods == MeasuredPods::All
            && let Some(mebi) = self.2.lock().take()
        {
            self.leave(mebi);
        }
        *self.1.lock() = Some(pods);
        Box::pin(std::future::ready(stats))
    }
}

impl SetStats {
    /// Sets the memory that is left of 1000 Mi.
    fn leave(&self, mebi: u64) {
        let mut stats = self.0.lock();
        stats.memory_capacity = 1000 * MEBI;
        stats.machine.memory.working_set = (1000 - mebi) * MEBI;
    }

    /// Sets the memory that is left of 1000 Mi until a pod is evicted, and then.
    fn leave_until_eviction(&self, mebi: u64, then: u64) {
        self.leave(mebi);
        *self.2.lock() = Some(then);
    }

    /// Sets what is left of a disk of 1000 Mi.
    fn leave_disk(&self, mebi: u64) {
        self.0.lock().fs = Some(FsStats {
            capacity: 1000 * MEBI,
            available: mebi * MEBI,
            ..FsStats::default()
        });
    }

    /// Sets what a pod uses of memory.
    fn uses(&self, pod: &Object, mebi: u64) {
        let cgroup = CgroupStats {
            memory: MemoryStats {
                working_set: mebi * MEBI,
                ..MemoryStats::default()
            },
            ..CgroupStats::default()
        };
        let container = ContainerStats {
            name: "c".into(),
            cgroup,
            ..ContainerStats::default()
        };
        self.0.lock().pods.push(PodStats {
            uid: pod.uid().into(),
            cgroup,
            containers: vec![container],
            ..PodStats::default()
        });
    }
}

async fn measured_node() -> (Cluster, SetStats) {
    let stats = SetStats::default();
    stats.leave(500);
    let provider = stats.clone();
    let builder = Cluster::builder().server_only().nodes(1);
    let cluster = builder
        .tune_nodes(move |options| options.stats = Some(Arc::new(provider.clone())))
        .without_bootstrap()
        .start()
        .await;
    pass(&cluster, 1).await;
    (cluster, stats)
}

async fn condition(cluster: &Cluster, name: &str) -> String {
    let node = cluster.object(&NODES, "node-0").await;
    let mut conditions = node["status"]["conditions"].list().iter();
    let found = conditions.find(|condition| condition["type"].str() == name);
    let found = found.unwrap();
    format!("{} {}", found["status"].str(), found["reason"].str())
}

fn requesting(memory: &str) -> String {
    format!("containers: [{{name: c, image: c, resources: {{requests: {{memory: {memory}}}}}}}]")
}

#[tokio::test(start_paused = true)]
async fn memory_pressure_evicts_the_pod_that_exceeds_its_request_most() {
    let (cluster, stats) = measured_node().await;
    let fits = run_pod(&cluster, "fits", "", &requesting("300Mi")).await;
    let over = run_pod(&cluster, "over", "", &requesting("100Mi")).await;
    let node = cluster.object(&NODES, "node-0").await;
    assert_eq!(node["status"]["capacity"]["memory"].str(), "32Gi");
    assert_eq!(node["status"]["allocatable"]["memory"].str(), "32668Mi");
    stats.uses(&fits, 290);
    stats.uses(&over, 110);
    pass(&cluster, 30).await;
    let healthy = "False KubeletHasSufficientMemory";
    assert_eq!(condition(&cluster, "MemoryPressure").await, healthy);
    assert!(show(&get_pod(&cluster, "over").await).starts_with("Running ready=True"));

    stats.leave_until_eviction(50, 500);
    pass(&cluster, 30).await;
    let pod = get_pod(&cluster, "over").await;
    let status = &pod["status"];
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                   Container c was using 110Mi, request is 100Mi, has larger consumption of memory. ";
    assert_eq!(
        (
            status["phase"].str(),
            status["reason"].str(),
            status["message"].str()
        ),
        ("Failed", "Evicted", message)
    );
    let mut conditions = status["conditions"].list().iter();
    let target = conditions
        .find(|it| it["type"].str() == "DisruptionTarget")
        .unwrap();
    assert_eq!(
        (target["status"].str(), target["reason"].str()),
        ("True", "TerminationByKubelet")
    );
    let events = events_of(&cluster, "over").await;
    let expected = format!("Warning Evicted  {message} x1");
    assert!(events.contains(&expected), "{events:?}");
    assert!(events_of(&cluster, "node-0").await[0].contains("Attempting to reclaim memory"));
    assert!(show(&get_pod(&cluster, "fits").await).starts_with("Running ready=True"));

    // The condition stays for five minutes, and pods of the class BestEffort are rejected.
    let pressed = "True KubeletHasInsufficientMemory";
    assert_eq!(condition(&cluster, "MemoryPressure").await, pressed);
    run_pod(&cluster, "late", "", "containers: [{name: c, image: c}]").await;
    pass(&cluster, 1).await;
    let late = get_pod(&cluster, "late").await;
    assert_eq!(
        (
            late["status"]["reason"].str(),
            late["status"]["message"].str()
        ),
        (
            "Evicted",
            "Pod was rejected: The node had condition: [MemoryPressure]. "
        )
    );
    pass(&cluster, 330).await;
    assert_eq!(condition(&cluster, "MemoryPressure").await, healthy);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_is_evicted_within_its_grace_period() {
    let (cluster, stats) = measured_node().await;
    let fits = run_pod(&cluster, "fits", "", &requesting("300Mi")).await;
    let spec = format!(
        "terminationGracePeriodSeconds: 36000, {}",
        requesting("100Mi")
    );
    let endless = "mizzen.dev/simulate: \"stop never\"";
    let over = run_pod(&cluster, "over", endless, &spec).await;
    stats.uses(&fits, 290);
    stats.uses(&over, 400);
    pass(&cluster, 1).await;
    delete_pod(&cluster, "over", None).await;
    pass(&cluster, 60).await;
    assert!(show(&get_pod(&cluster, "over").await).starts_with("Running ready=True"));

    stats.leave_until_eviction(50, 500);
    pass(&cluster, 20).await;
    assert!(cluster.find_object(&PODS, "default/over").await.is_none());
    let events = events_of(&cluster, "over").await;
    assert!(
        events.iter().any(|it| it.starts_with("Warning Evicted")),
        "{events:?}"
    );
    assert!(show(&get_pod(&cluster, "fits").await).starts_with("Running ready=True"));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_measured_again_as_soon_as_an_evicted_pod_has_ended() {
    let (cluster, stats) = measured_node().await;
    for name in ["first", "second", "third"] {
        let pod = run_pod(&cluster, name, "", &requesting("1Mi")).await;
        stats.uses(&pod, 100);
    }
    pass(&cluster, 2).await;
    // At the next measurement after 10 seconds, and then after each eviction.
    stats.leave(50);
    pass(&cluster, 14).await;
    for name in ["first", "second", "third"] {
        let pod = get_pod(&cluster, name).await;
        assert_eq!(pod["status"]["reason"].str(), "Evicted", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn process_ids_that_run_short_are_a_condition_of_the_node() {
    let stats = SetStats::default();
    stats.leave(500);
    let set = |running: u64| {
        stats.0.lock().pids = Some(PidStats { max: 1000, running });
    };
    set(100);
    let provider = stats.clone();
    let tune = move |options: &mut mizzen_node::Options| {
        options.stats = Some(Arc::new(provider.clone()));
        options.eviction.thresholds = parse_thresholds("pid.available<10%", "", "", "").unwrap();
    };
    let builder = Cluster::builder().server_only().nodes(1).tune_nodes(tune);
    let cluster = builder.without_bootstrap().start().await;
    pass(&cluster, 1).await;
    run_pod(&cluster, "web", "", &requesting("1Mi")).await;
    pass(&cluster, 15).await;
    let healthy = "False KubeletHasSufficientPID";
    assert_eq!(condition(&cluster, "PIDPressure").await, healthy);

    set(950);
    pass(&cluster, 15).await;
    let pressed = "True KubeletHasInsufficientPID";
    assert_eq!(condition(&cluster, "PIDPressure").await, pressed);
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(
        pod["status"]["message"].str(),
        "The node was low on resource: pids. Threshold quantity: 100, available: 50. "
    );
    set(100);
    pass(&cluster, 330).await;
    assert_eq!(condition(&cluster, "PIDPressure").await, healthy);
}

#[tokio::test(start_paused = true)]
async fn a_volume_above_its_limit_evicts_its_pod() {
    let (cluster, stats) = measured_node().await;
    let spec =
        "containers: [{name: c, image: c}], volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]";
    let pod = run_pod(&cluster, "full", "", spec).await;
    let volume = VolumeStats {
        name: "v".into(),
        is_local: true,
        used: DiskUsage {
            bytes: 2 * MEBI,
            inodes: 2,
        },
        ..VolumeStats::default()
    };
    pass(&cluster, 1).await;
    stats.0.lock().pods.push(PodStats {
        uid: pod.uid().into(),
        volumes: vec![volume],
        ..PodStats::default()
    });
    cluster.advance(Duration::from_secs(20)).await;
    let status = &get_pod(&cluster, "full").await["status"];
    assert_eq!(
        (
            status["phase"].str(),
            status["reason"].str(),
            status["message"].str()
        ),
        (
            "Failed",
            "Evicted",
            "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "
        )
    );
    let mut conditions = status["conditions"].list().iter();
    assert!(!conditions.any(|it| it["type"].str() == "DisruptionTarget"));
}

/// A simulated runtime with garbage, whose removal leaves more of the disk.
struct Garbage {
    stats: SetStats,
    /// What is left of 1000 Mi when all was removed.
    left: u64,
}

impl ContainerRuntime for Garbage {
    fn reclaim_disk(&self) -> BoxFuture<'static, ()> {
        self.stats.leave_disk(self.left);
        Box::pin(std::future::ready(()))
    }

    fn version(&self) -> String {
        Simulated.version()
    }

    fn accepts(&self, pod: &Value) -> Result<(), Unacceptable> {
        Simulated.accepts(pod)
    }

    fn start(&self, config: &ContainerConfig, now: Moment) -> Box<dyn ContainerHandle> {
        Simulated.start(config, now)
    }

    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<LogLine> {
        Simulated.logs(life, now)
    }

    fn output(&self, life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk> {
        Simulated.output(life, from, now)
    }

    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage> {
        Simulated.usage(life, from, to)
    }

    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        Simulated.exec(exec, stdio)
    }

    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, std::io::Result<Box<dyn PodConnection>>> {
        Simulated.connect(pod, port)
    }
}

/// Whether a pod is evicted from a disk of 1000 Mi with 50 Mi left, of which `left` are left after garbage was removed.
async fn is_evicted(left: u64, has_image_fs: bool) -> bool {
    let stats = SetStats::default();
    stats.leave(500);
    stats.leave_disk(500);
    stats.0.lock().has_image_fs = has_image_fs;
    let provider = stats.clone();
    let tune = move |options: &mut mizzen_node::Options| {
        options.stats = Some(Arc::new(provider.clone()));
        let stats = provider.clone();
        options.runtime = Arc::new(Garbage { stats, left });
    };
    let builder = Cluster::builder().server_only().nodes(1).tune_nodes(tune);
    let cluster = builder.without_bootstrap().start().await;
    pass(&cluster, 1).await;
    run_pod(&cluster, "web", "", &requesting("1Mi")).await;
    pass(&cluster, 15).await;
    stats.leave_disk(50);
    pass(&cluster, 15).await;
    assert_eq!(
        condition(&cluster, "DiskPressure").await,
        "True KubeletHasDiskPressure"
    );
    get_pod(&cluster, "web").await["status"]["reason"].str() == "Evicted"
}

#[tokio::test(start_paused = true)]
async fn garbage_is_removed_from_a_full_disk_before_pods_are_evicted() {
    assert!(!is_evicted(500, false).await);
    // It was not enough.
    assert!(is_evicted(60, false).await);
    // The garbage is on another disk.
    assert!(is_evicted(500, true).await);
}

#[tokio::test(start_paused = true)]
async fn pods_without_limits_are_measured_only_when_something_runs_short() {
    let (cluster, stats) = measured_node().await;
    run_pod(&cluster, "free", "", "containers: [{name: c, image: c}]").await;
    let limits = "{limits: {ephemeral-storage: 1Mi}}";
    let spec = format!("containers: [{{name: c, image: c, resources: {limits}}}]");
    let limited = run_pod(&cluster, "limited", "", &spec).await;
    pass(&cluster, 15).await;
    let measured = stats.1.lock().clone();
    let only = MeasuredPods::Only([limited.uid().into()].into());
    assert_eq!(measured, Some(only));
    stats.leave(50);
    pass(&cluster, 15).await;
    assert_eq!(stats.1.lock().clone(), Some(MeasuredPods::All));
}
