//! Pods that wait for permission (upstream: waitingPodsMap).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Key;
use mizzen_value::Str;
use mizzen_value::time::duration_text;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::HashMap;
use crate::model::PodInfo;
use crate::plugin::Name;

/// The longest time that a pod waits for permission (upstream: maxTimeout).
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15 * 60);

/// The pods that [`Permit`](super::Permit) plugins delay. Cheap to clone.
///
/// ```
/// use std::time::Duration;
///
/// use mizzen_scheduler::framework::{CycleState, Permission, Permit, Plugin, Pod, Registry};
///
/// /// Pods wait until a person approves.
/// struct Approval;
///
/// impl Permit for Approval {
///     fn permit(&self, _: &CycleState, _: Pod, _node: &str) -> Permission {
///         Permission::Wait(Duration::from_secs(300))
///     }
/// }
///
/// let registry = Registry::new().with("Approval", |_| Ok(Plugin::new(Approval).permit().build()))?;
/// let waiting_pods = registry.waiting_pods();
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Approval}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// // Later, elsewhere in the program:
/// for waiting in waiting_pods.list() {
///     waiting.allow("Approval");
/// }
/// # assert!(waiting_pods.get("no such UID").is_none());
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # assert!(pod.spec.unwrap().node_name.is_some());
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct WaitingPods(Arc<Mutex<HashMap<Str, WaitingPod>>>);

/// A pod that waits for permission. Cheap to clone.
///
/// ```
/// use mizzen_scheduler::framework::WaitingPod;
/// # use std::time::Duration;
/// # use mizzen_scheduler::framework::{CycleState, Permission, Permit, Plugin, Pod, Registry};
/// #
/// # /// Pods wait until a person approves.
/// # struct Approval;
/// #
/// # impl Permit for Approval {
/// #     fn permit(&self, _: &CycleState, _: Pod, _node: &str) -> Permission {
/// #         Permission::Wait(Duration::from_secs(300))
/// #     }
/// # }
/// #
/// # let registry = Registry::new().with("Approval", |_| Ok(Plugin::new(Approval).permit().build()))?;
/// # let waiting_pods = registry.waiting_pods();
///
/// /// Pods of strangers are rejected.
/// fn decide(waiting: &WaitingPod) {
///     println!("{} waits for {:?} on {}", waiting.key(), waiting.pending_plugins(), waiting.node());
///     match waiting.pod().label("owner") {
///         Some(_) => waiting.allow("Approval"),
///         None => waiting.reject("Approval", "nobody owns it"),
///     }
/// }
/// # const PROFILE: &[u8] = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {multiPoint: {enabled: [{name: Approval}]}}}]";
/// # let configuration = std::sync::Arc::new(mizzen_scheduler::Configuration::parse_with(PROFILE, &registry)?);
/// # let builder = mizzen_testing::Cluster::builder().nodes(3).tune_scheduler(move |options| options.configuration = configuration.clone());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
/// # let cluster = builder.start().await;
/// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}").await;
/// # cluster.settle().await;
/// # let waiting = waiting_pods.list().pop().unwrap();
/// # assert_eq!(waiting.pending_plugins(), ["Approval"]);
/// # decide(&waiting);
/// # cluster.settle().await;
/// # let pod: k8s_openapi::api::core::v1::Pod = cluster.get("web").await;
/// # let conditions = pod.status.unwrap().conditions.unwrap();
/// # assert!(conditions[0].message.as_deref().unwrap().contains("nobody owns it"), "{conditions:?}");
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WaitingPod {
    pod: Arc<PodInfo>,
    node: Str,
    decision: watch::Sender<Decision>,
}

#[derive(Clone)]
enum Decision {
    /// The plugins that have not allowed the pod yet, with their deadlines.
    Pending(BTreeMap<Name, (Instant, Duration)>),
    Rejected(PermitFailure),
}

/// Which plugin rejected a waiting pod, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermitFailure {
    pub plugin: Name,
    pub message: String,
}

impl WaitingPods {
    /// All waiting pods.
    pub fn list(&self) -> Vec<WaitingPod> {
        self.0.lock().values().cloned().collect()
    }

    /// The waiting pod with a UID.
    pub fn get(&self, uid: &str) -> Option<WaitingPod> {
        self.0.lock().get(uid).cloned()
    }

    /// Rejects a waiting pod that was deleted.
    pub(crate) fn cancel(&self, uid: &str) {
        if let Some(waiting_pod) = self.get(uid)
            && let Some(plugin) = waiting_pod.pending_plugins().first()
        {
            waiting_pod.reject(plugin, "removed");
        }
    }

    /// Adds a pod that waits for `plugins`, each at most for its time.
    pub(crate) fn add(
        &self,
        pod: &Arc<PodInfo>,
        node: &Str,
        plugins: &[(Name, Duration)],
    ) -> PermitWait {
        let now = Instant::now();
        let pending = plugins
            .iter()
            .map(|(plugin, wait)| (*plugin, (now + *wait, *wait)));
        let waiting_pod = WaitingPod {
            pod: pod.clone(),
            node: node.clone(),
            decision: watch::Sender::new(Decision::Pending(pending.collect())),
        };
        self.0.lock().insert(pod.uid.clone(), waiting_pod.clone());
        PermitWait {
            waiting_pod,
            waiting_pods: self.clone(),
        }
    }
}

impl WaitingPod {
    /// Its namespace and name.
    pub fn key(&self) -> Key {
        self.pod.key()
    }

    /// The pod.
    pub fn pod(&self) -> super::Pod<'_> {
        super::Pod(&self.pod)
    }

    /// The node that was selected.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The names of the plugins that have not allowed it yet.
    pub fn pending_plugins(&self) -> Vec<&'static str> {
        match &*self.decision.borrow() {
            Decision::Pending(pending) => pending.keys().map(|name| name.as_str()).collect(),
            Decision::Rejected(_) => Vec::new(),
        }
    }

    /// The plugin allows the pod. When all plugins have, it is bound.
    pub fn allow(&self, plugin: &str) {
        self.decision.send_modify(|decision| {
            if let Decision::Pending(pending) = decision {
                pending.retain(|name, _| name.as_str() != plugin);
            }
        });
    }

    /// The plugin rejects the pod. It is unschedulable until an event helps.
    pub fn reject(&self, plugin: &str, message: impl Into<String>) {
        let message = message.into();
        self.decision.send_modify(|decision| {
            if let Decision::Pending(pending) = decision
                && let Some(plugin) = pending.keys().copied().find(|name| name.as_str() == plugin)
            {
                *decision = Decision::Rejected(PermitFailure { plugin, message });
            }
        });
    }
}

/// The wait of one binding cycle. Dropping it removes the pod from the waiting ones.
pub(crate) struct PermitWait {
    waiting_pod: WaitingPod,
    waiting_pods: WaitingPods,
}

impl PermitWait {
    /// Waits until all plugins have allowed the pod, or one has rejected it (upstream:
    /// WaitOnPermit).
    pub(crate) async fn wait(self) -> Result<(), PermitFailure> {
        let mut changes = self.waiting_pod.decision.subscribe();
        loop {
            let first = match &*changes.borrow_and_update() {
                Decision::Rejected(failure) => return Err(failure.clone()),
                Decision::Pending(pending) => pending
                    .iter()
                    .map(|(name, (deadline, wait))| (*deadline, *wait, *name))
                    .min(),
            };
            let Some((deadline, wait, plugin)) = first else {
                return Ok(());
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(deadline) => {
                    let wait = duration_text(wait.as_nanos().min(i64::MAX as u128) as i64);
                    let message = format!("rejected due to timeout after waiting {wait} at plugin {plugin}");
                    return Err(PermitFailure { plugin, message });
                }
            }
        }
    }
}

impl Drop for PermitWait {
    fn drop(&mut self) {
        self.waiting_pods.0.lock().remove(&self.waiting_pod.pod.uid);
    }
}
