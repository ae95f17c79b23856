//! PreFilter and Filter: which nodes fit a pod.

use std::sync::Arc;

use mizzen_value::Str;
use tokio::time::Instant;

use super::diagnosis::Diagnosis;
use crate::cache::{NodeInfo, Slot};
use crate::cluster_state::ClusterState;
use crate::configuration::ExtensionPoint;
use crate::framework;
use crate::framework_metrics::{FrameworkMetrics, StatusCode};
use crate::model::PodInfo;
use crate::plugin::{Name, NodeFilter, PluginNames, PreFilterResult, Reasons, Rejection};
use crate::profile::Profile;
use crate::queue::Nominator;
use crate::reserve::PreBindStep;

/// Clusters with fewer nodes are searched whole (upstream: minFeasibleNodesToFind).
const MIN_FEASIBLE_NODES: usize = 100;
/// The least percentage of nodes to find (upstream: minFeasibleNodesPercentageToFind).
const MIN_FEASIBLE_PERCENTAGE: usize = 5;

/// What the plugins keep about a pod during one scheduling cycle (upstream: CycleState).
pub(crate) struct CycleState {
    pub filters: Vec<(Name, Box<dyn NodeFilter>)>,
    /// The only nodes to try, if PreFilter narrowed them down.
    pub only_nodes: Option<Vec<Slot>>,
    /// The plugins whose PreFilter ran.
    pub pre_filtered: PluginNames,
    metrics: Arc<FrameworkMetrics>,
    /// Whether plugins are timed in this cycle.
    is_sampled: bool,
}

impl CycleState {
    pub(crate) fn copy(&self) -> CycleState {
        let filters = self.filters.iter();
        CycleState {
            filters: filters.map(|(name, one)| (*name, one.copy())).collect(),
            only_nodes: self.only_nodes.clone(),
            pre_filtered: self.pre_filtered,
            metrics: self.metrics.clone(),
            is_sampled: self.is_sampled,
        }
    }

    /// What a plugin out of tree keeps about the pod; empty if it has neither PreFilter nor Filter.
    pub(crate) fn custom_state(&self, name: Name) -> framework::CycleState {
        let states = self.filters.iter();
        let states = states.filter_map(|(_, filter)| filter.custom_state());
        let mut states = states.filter(|(plugin, _)| *plugin == name);
        states
            .next()
            .map(|(_, state)| state.clone())
            .unwrap_or_default()
    }

    /// Adds a pod to a simulated node, or removes it (upstream: PreFilterExtensions AddPod,
    /// RemovePod).
    pub(crate) fn simulate_pod(
        &mut self,
        pod: &PodInfo,
        node: &NodeInfo,
        by: i64,
        cluster: &ClusterState,
    ) {
        self.filters
            .iter_mut()
            .for_each(|(_, filter)| filter.simulate_pod(pod, node, by, cluster));
    }

    /// Runs a plugin, and in a sampled cycle observes how long it took.
    pub(super) fn run_plugin<T>(
        &self,
        name: Name,
        point: ExtensionPoint,
        run: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> StatusCode,
    ) -> T {
        if !self.is_sampled || !point.measures(name) {
            return run();
        }
        let started = Instant::now();
        let result = run();
        let code = code(&result);
        self.metrics
            .observe_plugin(name, point, code, started.elapsed());
        result
    }

    /// Runs all filters on a node. `None` if the pod fits.
    pub(crate) fn run_filters(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        let code = |rejection: &Option<Rejection>| {
            let rejection = rejection.as_ref();
            rejection.map_or(StatusCode::Success, Rejection::code)
        };
        self.filters.iter().find_map(|(name, filter)| {
            self.metrics.count(*name, ExtensionPoint::Filter, 1);
            let run = || filter.filter(node, cluster);
            self.run_plugin(*name, ExtensionPoint::Filter, run, code)
        })
    }

    /// The steps to run before the pod is bound to a node.
    pub(crate) fn reserve(
        &self,
        node: &NodeInfo,
        cluster: &ClusterState,
    ) -> Result<Vec<PreBindStep>, String> {
        let started = Instant::now();
        let steps = self.filters.iter().map(|(name, filter)| {
            let run = || filter.reserve(node, cluster);
            self.run_plugin(*name, ExtensionPoint::Reserve, run, StatusCode::of_result)
        });
        let steps = steps.collect::<Result<Vec<_>, _>>();
        let code = StatusCode::of_result(&steps);
        self.metrics
            .observe_point(ExtensionPoint::Reserve, code, started.elapsed());
        Ok(steps?.into_iter().flatten().collect())
    }
}

/// Runs PreFilter of each plugin. A rejection of every node is in the diagnosis; `Err` is an
/// internal error.
pub(crate) fn run_pre_filters(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    cluster: &mut ClusterState,
    diagnosis: &mut Diagnosis,
) -> Result<CycleState, String> {
    let started = Instant::now();
    let state = pre_filter_with_plugins(profile, pod, cluster, diagnosis);
    let code = match (&state, &diagnosis.untried) {
        (Err(_), _) => StatusCode::Error,
        (Ok(state), Some(rejection)) if state.only_nodes.is_none() => rejection.code(),
        _ => StatusCode::Success,
    };
    profile
        .metrics
        .observe_point(ExtensionPoint::PreFilter, code, started.elapsed());
    state
}

fn pre_filter_with_plugins(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    cluster: &mut ClusterState,
    diagnosis: &mut Diagnosis,
) -> Result<CycleState, String> {
    let mut state = CycleState {
        metrics: profile.metrics.clone(),
        is_sampled: profile.metrics.samples_next_cycle(),
        filters: Vec::new(),
        only_nodes: None,
        pre_filtered: PluginNames::default(),
    };
    let (mut named, mut rejection) = (PreFilteredNodes::default(), None);
    for filter in &profile.filters {
        let name = filter.name();
        state.pre_filtered.insert(name);
        let point = ExtensionPoint::PreFilter;
        let run = || filter.pre_filter(pod, cluster);
        let result = state.run_plugin(name, point, run, PreFilterResult::code);
        // Kubernetes: a plugin that skips itself is not counted (instrumented_plugins.go).
        if point.measures(name) && result.code() != StatusCode::Skip {
            profile.metrics.count(name, point, 1);
        }
        match result {
            PreFilterResult::Skip => {}
            PreFilterResult::Filter(check) => state.filters.push((name, check)),
            PreFilterResult::FilterOnly(names, check) => {
                state.filters.push((name, check));
                if let Some(rejection) = named.intersect(name, names) {
                    return Ok(reject_all_nodes(diagnosis, state, named.by, rejection));
                }
            }
            // Preemption cannot help, so the remaining plugins are skipped.
            PreFilterResult::Reject(now) if !now.resolvable => {
                return Ok(reject_all_nodes(
                    diagnosis,
                    state,
                    PluginNames::default(),
                    now,
                ));
            }
            PreFilterResult::Reject(now) => rejection = Some(now),
            PreFilterResult::Error(error) => {
                return Err(format!("running PreFilter plugin \"{name}\": {error}"));
            }
        }
    }
    if let Some(rejection) = rejection {
        return Ok(reject_all_nodes(diagnosis, state, named.by, rejection));
    }
    diagnosis.unschedulable_plugins = named.by;
    if let Some(names) = named.names {
        let reason = format!("node(s) didn't satisfy plugin(s) {}", named.by.go_text());
        diagnosis.untried = Some(Rejection::unresolvable(Name::NodeAffinity, reason));
        let slots = names
            .iter()
            .filter_map(|name| cluster.cache.node_by_name(name))
            .map(|node| node.slot);
        state.only_nodes = Some(slots.collect());
    }
    Ok(state)
}

/// Records the rejection of every node.
fn reject_all_nodes(
    diagnosis: &mut Diagnosis,
    state: CycleState,
    unschedulable_plugins: PluginNames,
    rejection: Rejection,
) -> CycleState {
    diagnosis.unschedulable_plugins = unschedulable_plugins;
    diagnosis.unschedulable_plugins.insert(rejection.plugin);
    diagnosis.pre_filter_message = rejection.reasons.text();
    diagnosis.untried = Some(rejection);
    state
}

/// The only nodes to try, and the plugins that returned them.
#[derive(Default)]
struct PreFilteredNodes {
    names: Option<Vec<Str>>,
    by: PluginNames,
}

impl PreFilteredNodes {
    /// Intersects with the nodes of one more plugin. Returns a rejection if none is left.
    fn intersect(&mut self, by: Name, names: Vec<Str>) -> Option<Rejection> {
        self.by.insert(by);
        let both: Vec<Str> = match self.names.take() {
            Some(known) => known
                .into_iter()
                .filter(|name| names.contains(name))
                .collect(),
            None => names,
        };
        let is_empty = both.is_empty();
        self.names = Some(both);
        let alone = self.by == [by].into_iter().collect();
        let reason = match alone {
            true => format!("node(s) didn't satisfy plugin {by}"),
            false => format!(
                "node(s) didn't satisfy plugin(s) {} simultaneously",
                self.by.go_text()
            ),
        };
        is_empty.then(|| Rejection::unresolvable(by, reason))
    }
}

/// The number of nodes to find (upstream: numFeasibleNodesToFind).
pub(crate) fn num_feasible_nodes_to_find(share: Option<usize>, n_nodes: usize) -> usize {
    if n_nodes < MIN_FEASIBLE_NODES {
        return n_nodes;
    }
    let share = match share {
        Some(share) if share > 0 => share,
        _ => 50usize
            .saturating_sub(n_nodes / 125)
            .max(MIN_FEASIBLE_PERCENTAGE),
    };
    (n_nodes * share / 100).max(MIN_FEASIBLE_NODES)
}

/// The filters of one pod, and what they decide by.
pub(crate) struct FilterRun<'a> {
    pub state: &'a CycleState,
    pub pod: &'a PodInfo,
    pub cluster: &'a ClusterState,
    pub nominated: &'a Nominator,
}

impl FilterRun<'_> {
    /// Filters nodes from `start` on, until enough fit. `Err` is an internal error of a plugin.
    pub(crate) fn find_nodes_that_pass_filters(
        &self,
        start: usize,
        enough: usize,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Slot>, String> {
        let cache = &self.cluster.cache;
        let nodes = self
            .state
            .only_nodes
            .as_deref()
            .unwrap_or(cache.node_order());
        let mut feasible = Vec::with_capacity(enough.min(nodes.len()));
        let (before, after) = nodes.split_at(start.checked_rem(nodes.len()).unwrap_or_default());
        for slot in after.iter().chain(before) {
            if feasible.len() >= enough {
                break;
            }
            match self.run_filters_with_nominated_pods(cache.node(*slot)) {
                None => feasible.push(*slot),
                Some(Rejection {
                    plugin,
                    reasons: Reasons::Error(error),
                    ..
                }) => {
                    return Err(format!("running \"{plugin}\" filter plugin: {error}"));
                }
                Some(rejection) => diagnosis.reject(*slot, rejection),
            }
        }
        Ok(feasible)
    }

    /// Runs all filters on a node, first with the nominated pods of equal or higher priority, then
    /// without them.
    pub(crate) fn run_filters_with_nominated_pods(&self, node: &NodeInfo) -> Option<Rejection> {
        let (pod, nominated) = (self.pod, self.nominated.pods_for_node(node.name()));
        if !nominated.is_empty() {
            let (mut imagined, mut node) = (self.state.copy(), node.clone());
            let first = nominated
                .iter()
                .filter(|other| other.priority >= pod.priority && other.uid != pod.uid);
            for other in first {
                node.add_pod(other.clone());
                imagined.simulate_pod(other, &node, 1, self.cluster);
            }
            let rejection = imagined.run_filters(&node, self.cluster);
            if rejection.is_some() {
                return rejection;
            }
        }
        self.state.run_filters(node, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_to_find_falls_with_the_number_of_nodes() {
        let check = |n_nodes, share, enough| {
            assert_eq!(
                num_feasible_nodes_to_find(share, n_nodes),
                enough,
                "{n_nodes}"
            )
        };
        check(99, None, 99);
        check(100, None, 100);
        check(1000, None, 420);
        check(5000, None, 500);
        check(6000, None, 300);
        check(20_000, None, 1000);
        check(5000, Some(40), 2000);
        check(150, Some(10), 100);
    }
}
