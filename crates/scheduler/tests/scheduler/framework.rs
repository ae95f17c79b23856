//! Plugins out of tree, at every extension point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mizzen_scheduler::Configuration;
use mizzen_scheduler::framework::{
    BoxError, ClusterEvent, CycleState, EventResource, Filter, Node, NodeScore, Nodes, Permission,
    Permit, Plugin, Pod, PostFilter, PreBind, PreFilter, PreFilterResult, Registry, RegistryError,
    Rejection, Reserve, Score, WaitingPods,
};
use mizzen_sdk::resource::PODS;
use mizzen_testing::Cluster;
use parking_lot::Mutex;

use crate::fixtures::{
    create_node, create_pod, delete_now, place, pod_of, refusal, settle, start_with,
};

/// A cluster whose scheduler has the plugins of a registry at all their extension points.
async fn cluster_with(registry: Registry) -> Cluster {
    let configuration = Configuration::with_plugins(&registry).unwrap();
    start_with(configuration).await
}

/// Filters and scores by labels; PreFilter narrows the nodes down.
struct Tiers;

/// What PreFilter keeps for the later extension points.
struct WantedTier(String);

impl PreFilter for Tiers {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: Pod,
        nodes: Nodes,
    ) -> Result<PreFilterResult, Rejection> {
        let Some(tier) = pod.label("tier") else {
            return Ok(PreFilterResult::Skip);
        };
        state.write(WantedTier(tier.to_string()));
        match tier {
            "none" => Err(Rejection::unresolvable("no node is in tier none")),
            "first" => {
                let first = nodes.iter().map(|node| node.name().to_string()).min();
                Ok(PreFilterResult::Nodes(first.into_iter().collect()))
            }
            _ => Ok(PreFilterResult::AllNodes),
        }
    }
}

impl Filter for Tiers {
    fn filter(&self, state: &CycleState, _: Pod, node: Node) -> Result<(), Rejection> {
        let WantedTier(tier) = state.read().expect("Filter is skipped without a tier");
        match node.label("tier") {
            _ if tier == "first" => Ok(()),
            Some(has) if has == tier => Ok(()),
            _ => Err(Rejection::unresolvable("node(s) were in another tier")),
        }
    }

    fn queueing_hint(&self, _: Pod, event: ClusterEvent) -> bool {
        event.resource() == EventResource::Node
    }
}

impl Score for Tiers {
    fn score(&self, state: &CycleState, _: Pod, node: Node) -> i64 {
        let weight = if state.read::<WantedTier>().is_some() {
            1
        } else {
            0
        };
        node.label("rank")
            .and_then(|rank| rank.parse().ok())
            .unwrap_or(0)
            * weight
    }

    fn normalize(&self, _: &CycleState, _: Pod, scores: &mut [NodeScore]) {
        let max = scores
            .iter()
            .map(|node| node.score)
            .max()
            .unwrap_or(0)
            .max(1);
        scores
            .iter_mut()
            .for_each(|node| node.score = node.score * 100 / max);
    }
}

fn tiers() -> Registry {
    let create = |_: &_| Ok(Plugin::new(Tiers).pre_filter().filter().score().build());
    Registry::new().with("Tiers", create).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_plugin_filters_and_scores_nodes() {
    let cluster = cluster_with(tiers()).await;
    for (name, labels) in [
        ("a", "{tier: gold, rank: '1'}"),
        ("b", "{tier: gold, rank: '9000'}"),
        ("c", "{tier: tin, rank: '9999'}"),
    ] {
        create_node(
            &cluster,
            name,
            &format!("{{metadata: {{labels: {labels}}}}}"),
        )
        .await;
    }
    create_pod(&cluster, "p", "{metadata: {labels: {tier: gold}}}").await;
    assert_eq!(place(&cluster, "p").await, "b");
    create_pod(&cluster, "q", "{metadata: {labels: {tier: first}}}").await;
    assert_eq!(place(&cluster, "q").await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_is_retried_after_an_event_that_its_plugin_accepts() {
    let cluster = cluster_with(tiers()).await;
    create_node(&cluster, "a", "{metadata: {labels: {tier: tin}}}").await;
    create_pod(&cluster, "p", "{metadata: {labels: {tier: gold}}}").await;
    create_pod(&cluster, "q", "{metadata: {labels: {tier: none}}}").await;
    let (reason, message) = refusal(&cluster, "p").await;
    assert_eq!(reason, "Unschedulable");
    assert!(
        message.starts_with("0/1 nodes are available: 1 node(s) were in another tier."),
        "{message}"
    );
    let (_, message) = refusal(&cluster, "q").await;
    assert!(
        message.starts_with("0/1 nodes are available: no node is in tier none."),
        "{message}"
    );
    create_node(&cluster, "b", "{metadata: {labels: {tier: gold}}}").await;
    assert_eq!(place(&cluster, "p").await, "b");
}

/// Nominates a fixed node when no node fits.
struct Nominate;

impl PostFilter for Nominate {
    fn post_filter(&self, _: &CycleState, pod: Pod, nodes: Nodes) -> Result<String, Rejection> {
        match nodes.get("later") {
            Some(node) if pod.priority() == 0 => Ok(node.name().to_string()),
            _ => Err(Rejection::unschedulable("there is no later")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_filter_plugin_nominates_a_node_or_adds_its_message() {
    let create = |_: &_| Ok(Plugin::new(Nominate).post_filter().build());
    let registry = Registry::new().with("Nominate", create).unwrap();
    let cluster = cluster_with(registry).await;
    create_node(&cluster, "small", "{status: {allocatable: {cpu: 1m}}}").await;
    pod_of(&cluster, "p", "2", 0).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert!(message.ends_with("there is no later"), "{message}");
    create_node(&cluster, "later", "{status: {allocatable: {cpu: 2m}}}").await;
    settle(&cluster).await;
    cluster.advance(Duration::from_secs(20)).await;
    let pod = cluster.object(&PODS, "default/p").await;
    assert_eq!(pod["status"]["nominatedNodeName"].str(), "later");
}

/// Counts what is reserved; PreBind fails as often as `failures` says.
#[derive(Default)]
struct Seats {
    reserved: AtomicUsize,
    given_back: AtomicUsize,
    failures: AtomicUsize,
}

/// The plugin keeps its counters where the test sees them.
struct SeatPlugin(Arc<Seats>);

impl Reserve for SeatPlugin {
    fn reserve(&self, _: &CycleState, _: Pod, _: &str) -> Result<(), Rejection> {
        self.0.reserved.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn unreserve(&self, _: &CycleState, _: Pod, _: &str) {
        self.0.given_back.fetch_add(1, Ordering::Relaxed);
    }
}

impl PreBind for SeatPlugin {
    async fn pre_bind(&self, _: &CycleState, pod: Pod<'_>, node: &str) -> Result<(), BoxError> {
        let left = self.0.failures.load(Ordering::Relaxed);
        if left > 0 {
            self.0.failures.store(left - 1, Ordering::Relaxed);
            return Err(format!("no seat for {} on {node}", pod.name()).into());
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pre_bind_gives_back_what_was_reserved_and_the_pod_is_retried() {
    let seats = Arc::new(Seats {
        failures: AtomicUsize::new(1),
        ..Seats::default()
    });
    let kept = seats.clone();
    let create = move |_: &_| {
        Ok(Plugin::new(SeatPlugin(kept.clone()))
            .reserve()
            .pre_bind()
            .build())
    };
    let cluster = cluster_with(Registry::new().with("Seats", create).unwrap()).await;
    create_node(&cluster, "a", "{}").await;
    create_pod(&cluster, "p", "{}").await;
    let (reason, message) = refusal(&cluster, "p").await;
    assert_eq!(reason, "SchedulerError");
    assert_eq!(
        message,
        "running PreBind plugin \"Seats\": no seat for p on a"
    );
    cluster.advance(Duration::from_secs(20)).await;
    assert_eq!(place(&cluster, "p").await, "a");
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!((count(&seats.reserved), count(&seats.given_back)), (2, 1));
}

/// Binds the pods of a gang together.
struct Gang {
    waiting_pods: WaitingPods,
    size: usize,
    rejected: Arc<Mutex<Vec<String>>>,
}

impl Permit for Gang {
    fn permit(&self, _: &CycleState, pod: Pod, _: &str) -> Permission {
        let Some(gang) = pod.label("gang") else {
            return Permission::Allow;
        };
        if gang == "banned" {
            return Permission::Reject(Rejection::unschedulable("the gang is banned"));
        }
        let waiting = self.waiting_pods.list();
        let members: Vec<_> = waiting
            .iter()
            .filter(|other| other.pod().label("gang") == Some(gang))
            .collect();
        if members.len() + 1 < self.size {
            return Permission::Wait(Duration::from_secs(30));
        }
        members.iter().for_each(|member| member.allow("Gang"));
        Permission::Allow
    }
}

impl Reserve for Gang {
    fn reserve(&self, _: &CycleState, _: Pod, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn unreserve(&self, _: &CycleState, pod: Pod, _: &str) {
        self.rejected.lock().push(pod.name().to_string());
    }
}

/// A cluster with one node whose scheduler binds gangs of two, and the pods that were not bound.
async fn gang_cluster() -> (Cluster, Arc<Mutex<Vec<String>>>) {
    let (registry, rejected) = (Registry::new(), Arc::<Mutex<Vec<String>>>::default());
    let (waiting_pods, kept) = (registry.waiting_pods(), rejected.clone());
    let create = move |args: &mizzen_value::Value| {
        let plugin = Gang {
            waiting_pods: waiting_pods.clone(),
            size: args["size"].as_int().unwrap_or(2) as usize,
            rejected: kept.clone(),
        };
        Ok(Plugin::new(plugin).reserve().permit().build())
    };
    let cluster = cluster_with(registry.with("Gang", create).unwrap()).await;
    create_node(&cluster, "a", "{}").await;
    (cluster, rejected)
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_permission_until_its_gang_is_complete() {
    let (cluster, rejected) = gang_cluster().await;
    create_pod(&cluster, "one", "{metadata: {labels: {gang: g}}}").await;
    create_pod(&cluster, "single", "{}").await;
    assert_eq!(place(&cluster, "one").await, "");
    assert_eq!(place(&cluster, "single").await, "a");
    create_pod(&cluster, "two", "{metadata: {labels: {gang: g}}}").await;
    assert_eq!(place(&cluster, "one").await, "a");
    assert_eq!(place(&cluster, "two").await, "a");
    assert!(rejected.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_too_long_for_permission_is_rejected() {
    let (cluster, rejected) = gang_cluster().await;
    create_pod(&cluster, "one", "{metadata: {labels: {gang: g}}}").await;
    settle(&cluster).await;
    cluster.advance(Duration::from_secs(31)).await;
    let (reason, message) = refusal(&cluster, "one").await;
    assert_eq!(reason, "Unschedulable");
    assert_eq!(
        message,
        "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Gang."
    );
    assert_eq!(*rejected.lock(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_permit_rejects_is_unschedulable() {
    let (cluster, rejected) = gang_cluster().await;
    create_pod(&cluster, "one", "{metadata: {labels: {gang: banned}}}").await;
    let (reason, message) = refusal(&cluster, "one").await;
    assert_eq!(reason, "Unschedulable");
    assert_eq!(message, "0/1 nodes are available: 1 the gang is banned.");
    assert_eq!(*rejected.lock(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_pod_that_is_deleted_gives_back_what_was_reserved() {
    let (cluster, rejected) = gang_cluster().await;
    create_pod(&cluster, "one", "{metadata: {labels: {gang: g}}}").await;
    settle(&cluster).await;
    delete_now(&cluster, &PODS, "default/one").await;
    settle(&cluster).await;
    assert_eq!(*rejected.lock(), ["one"]);
}

#[test]
fn a_configuration_enables_plugins_by_name_with_their_arguments() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let registry = Registry::new()
        .with("Sized", move |args| {
            let size = args["size"].as_int().ok_or("size is required")?;
            kept.lock().push(size);
            Ok(Plugin::new(Tiers).filter().build())
        })
        .unwrap();
    let parse = |profile: &str| {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{profile}]"
        );
        let parsed = Configuration::parse_with(text.as_bytes(), &registry);
        parsed.map(drop).map_err(|error| error.to_string())
    };
    let enabled = "plugins: {multiPoint: {enabled: [{name: Sized}]}}";
    let args = "pluginConfig: [{name: Sized, args: {size: 3}}]";
    assert_eq!(parse(&format!("{{{enabled}, {args}}}")), Ok(()));
    assert_eq!(*seen.lock(), [3]);
    assert_eq!(
        parse(&format!("{{{enabled}}}")),
        Err("initializing plugin \"Sized\": size is required".into())
    );
    assert_eq!(
        parse(&format!(
            "{{plugins: {{score: {{enabled: [{{name: Sized}}]}}}}, {args}}}"
        )),
        Err("plugin \"Sized\" does not extend ScorePlugin plugin".into())
    );
    assert_eq!(
        parse("{plugins: {filter: {enabled: [{name: Missing}]}}}"),
        Err("FilterPlugin \"Missing\" does not exist".into())
    );
}

#[test]
fn the_names_of_plugins_are_unique() {
    let create = |_: &_| Ok(Plugin::new(Tiers).filter().build());
    for name in ["NodeName", "Mine"] {
        let registry = Registry::new().with("Mine", create).unwrap();
        let error = registry.with(name, create).err();
        assert_eq!(error, Some(RegistryError::Exists(name.into())));
    }
}
