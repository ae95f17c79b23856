//! How a cluster is set up.

use std::sync::Arc;

use mizzen_controllers as controllers;
use mizzen_controlplane as controlplane;
use mizzen_node as node;
use mizzen_registry::Store;
use mizzen_scheduler as scheduler;

use crate::Cluster;
use crate::faults::{FaultRates, FaultSource};

/// Changes options before a component starts with them.
type Tune<T> = Arc<dyn Fn(&mut T) + Send + Sync>;

/// One change after another.
fn then<T: 'static>(first: Tune<T>, second: impl Fn(&mut T) + Send + Sync + 'static) -> Tune<T> {
    Arc::new(move |options| {
        first(options);
        second(options);
    })
}

/// Which controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChosenControllers {
    All,
    Named(Vec<String>),
}

/// How a cluster is set up. [`Cluster::builder`] has the defaults: all controllers, the scheduler, one node, seed 0.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mizzen_testing::Cluster;
///
/// // As envtest: the API server alone.
/// let bare = Cluster::builder().server_only().start().await;
/// // Two controllers, no pods that run.
/// let jobs = Cluster::builder().server_only().controllers(["cronjob-controller", "job-controller"]).start().await;
/// # }
/// ```
#[derive(Clone)]
pub struct Builder {
    pub(crate) controllers: ChosenControllers,
    pub(crate) has_scheduler: bool,
    pub(crate) n_nodes: usize,
    pub(crate) is_bootstrapped: bool,
    pub(crate) open_store: Option<Arc<dyn Fn() -> Store + Send + Sync>>,
    pub(crate) seed: u64,
    pub(crate) is_real_time: bool,
    pub(crate) faults: FaultSource,
    pub(crate) tune_server: Tune<controlplane::Options>,
    pub(crate) tune_controllers: Tune<controllers::Options>,
    pub(crate) tune_scheduler: Tune<scheduler::Options>,
    pub(crate) tune_nodes: Tune<node::Options>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            controllers: ChosenControllers::All,
            has_scheduler: true,
            n_nodes: 1,
            is_bootstrapped: true,
            open_store: None,
            seed: 0,
            is_real_time: false,
            faults: FaultSource::planned([]),
            tune_server: Arc::new(|_| {}),
            tune_controllers: Arc::new(|_| {}),
            tune_scheduler: Arc::new(|_| {}),
            tune_nodes: Arc::new(|_| {}),
        }
    }
}

impl Builder {
    /// Runs the API server alone, as envtest does: no controllers, no scheduler, no nodes. What is chosen afterwards runs.
    #[must_use]
    pub fn server_only(self) -> Builder {
        self.controllers([""; 0]).scheduler(false).nodes(0)
    }

    /// Starts without bootstrap objects: the namespaces exist, but no RBAC roles, no flow schemas and no `kubernetes`
    /// Service, and components have all permissions. For tests of single components, it saves most of the time of a start.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::{Namespace, Service};
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().without_bootstrap().start().await;
    /// assert_eq!(cluster.list::<Namespace>().await.len(), 4);
    /// assert!(cluster.find::<Service>("kubernetes").await.is_none());
    /// # }
    /// ```
    #[must_use]
    pub fn without_bootstrap(mut self) -> Builder {
        self.is_bootstrapped = false;
        self
    }

    /// Runs these controllers, by upstream's names (`deployment-controller`), and no other ones.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().controllers(["deployment-controller"]).start().await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is no controller of a name.
    #[must_use]
    pub fn controllers<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Builder {
        let names = names.into_iter().map(|name| name.as_ref().to_owned());
        let names: Vec<String> = names.collect();
        for name in &names {
            let known: Vec<&str> = controllers::names().collect();
            assert!(
                known.contains(&name.as_str()),
                "there is no controller {name:?}; there are {}",
                known.join(", ")
            );
        }
        self.controllers = ChosenControllers::Named(names);
        self
    }

    /// Whether the scheduler runs.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().scheduler(false).start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.settle().await;
    /// assert_eq!(cluster.get::<Pod>("p").await.spec.unwrap().node_name, None);
    /// # }
    /// ```
    #[must_use]
    pub fn scheduler(mut self, runs: bool) -> Builder {
        self.has_scheduler = runs;
        self
    }

    /// The number of simulated nodes: `node-0`, `node-1` and so on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().nodes(2).start().await;
    /// assert!(cluster.find::<Node>("node-1").await.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(mut self, n: usize) -> Builder {
        self.n_nodes = n;
        self
    }

    /// The seed of names, UIDs, jitter and random faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let (one, other) = (Cluster::builder().seed(1).start().await, Cluster::builder().seed(2).start().await);
    /// assert_ne!(one.get::<Node>("node-0").await.metadata.uid, other.get::<Node>("node-0").await.metadata.uid);
    /// # }
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = seed;
        if let FaultSource::Random { seed: own, .. } = &mut self.faults {
            *own = seed;
        }
        self
    }

    /// Keeps objects in the store that `open` returns, such as one on disk or on etcd, instead of in memory. Each start of
    /// a cluster opens one.
    ///
    /// Virtual time passes while all tasks of the runtime are idle, so that a store of which the runtime has to wait for
    /// something, such as an answer of the network, needs [`real_time`](Builder::real_time).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_registry::Store;
    /// use mizzen_testing::Cluster;
    ///
    /// let store = Store::in_memory(Default::default());
    /// let kept = store.clone();
    /// let cluster = Cluster::builder().store(move || kept.clone()).start().await;
    /// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
    /// assert!(store.keyspace("configmaps").snapshot().get("default/settings").is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn store(mut self, open: impl Fn() -> Store + Send + Sync + 'static) -> Builder {
        self.open_store = Some(Arc::new(open));
        self
    }

    /// Random faults, which [`Cluster::set_faults`] switches on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use mizzen_testing::{Cluster, FaultRates};
    ///
    /// let cluster = Cluster::builder().seed(7).faults(FaultRates::default()).start().await;
    /// cluster.set_faults(true);
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.advance(Duration::from_secs(30)).await;
    /// println!("{:?}", cluster.injected());
    /// # }
    /// ```
    #[must_use]
    pub fn faults(mut self, rates: FaultRates) -> Builder {
        let seed = self.seed;
        self.faults = FaultSource::Random { seed, rates };
        self
    }

    /// Runs on real time. Otherwise a cluster in a single-threaded runtime pauses the clock of that runtime, so that
    /// time passes only when all tasks are idle.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().real_time().start().await;
    /// let year = cluster.wall_clock()().strftime("%Y").to_string();
    /// assert_ne!(year, "2023", "virtual time begins in 2023");
    /// # }
    /// ```
    #[must_use]
    pub fn real_time(mut self) -> Builder {
        self.is_real_time = true;
        self
    }

    /// Changes the options of the API server. Several changes apply in their order, here and below.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().tune_server(|options| options.server.request_timeout = 5).start().await;
    /// # }
    /// ```
    #[must_use]
    pub fn tune_server(
        mut self,
        tune: impl Fn(&mut controlplane::Options) + Send + Sync + 'static,
    ) -> Builder {
        self.tune_server = then(self.tune_server, tune);
        self
    }

    /// Changes the options of the controllers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder()
    ///     .tune_controllers(|options| drop(options.n_workers.insert("job-controller".into(), 1)))
    ///     .start()
    ///     .await;
    /// # }
    /// ```
    #[must_use]
    pub fn tune_controllers(
        mut self,
        tune: impl Fn(&mut controllers::Options) + Send + Sync + 'static,
    ) -> Builder {
        self.tune_controllers = then(self.tune_controllers, tune);
        self
    }

    /// Changes the options of the scheduler.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().tune_scheduler(|options| options.host = "my-test".into()).start().await;
    /// # }
    /// ```
    #[must_use]
    pub fn tune_scheduler(
        mut self,
        tune: impl Fn(&mut scheduler::Options) + Send + Sync + 'static,
    ) -> Builder {
        self.tune_scheduler = then(self.tune_scheduler, tune);
        self
    }

    /// Changes the options of the nodes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().tune_nodes(|options| options.prefix = "edge".into()).start().await;
    /// assert!(cluster.find::<Node>("edge-0").await.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn tune_nodes(
        mut self,
        tune: impl Fn(&mut node::Options) + Send + Sync + 'static,
    ) -> Builder {
        self.tune_nodes = then(self.tune_nodes, tune);
        self
    }

    /// Starts the cluster. When this returns its components run, its nodes are ready, and pods are admitted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().nodes(2).start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// # }
    /// ```
    pub async fn start(self) -> Cluster {
        Cluster::start_with(self).await
    }

    /// Whether a controller runs.
    pub(crate) fn has_controller(&self, name: &str) -> bool {
        match &self.controllers {
            ChosenControllers::All => true,
            ChosenControllers::Named(names) => names.iter().any(|one| one == name),
        }
    }
}
