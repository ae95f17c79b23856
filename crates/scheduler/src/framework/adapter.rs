//! Plugins out of tree at the places of those in tree.

use std::sync::Arc;
use std::time::Duration;

use mizzen_value::Str;

use super::extension_points::RejectionKind;
use super::{
    ClusterEvent, CycleState, MAX_WAIT, Node, NodeScore, Nodes, Permission, PermitFailure, Plugin,
    Pod, PreFilterResult, Rejection,
};
use crate::bind::BindFailure;
use crate::cache::{NodeInfo, Slot};
use crate::cluster_event;
use crate::cluster_state::ClusterState;
use crate::cycle;
use crate::model::PodInfo;
use crate::plugin::{self, FilterPlugin, MAX_NODE_SCORE, Name, NodeFilter};
use crate::profile::Profile;

/// A plugin that a profile enables.
#[derive(Clone)]
pub(crate) struct CustomPlugin {
    pub name: Name,
    pub plugin: Plugin,
}

impl CustomPlugin {
    /// The scores of nodes, normalized.
    pub(crate) fn score_nodes(
        &self,
        pod: &PodInfo,
        state: &cycle::CycleState,
        (cluster, nodes): (&ClusterState, &[Slot]),
    ) -> Vec<i64> {
        let (Some(plugin), state) = (&self.plugin.score, state.custom_state(self.name)) else {
            return vec![0; nodes.len()];
        };
        let nodes = nodes.iter().map(|slot| Node(cluster.cache.node(*slot)));
        let mut scores: Vec<NodeScore> = nodes
            .map(|node| NodeScore {
                node: node.name(),
                score: plugin.score(&state, Pod(pod), node),
            })
            .collect();
        plugin.normalize(&state, Pod(pod), &mut scores);
        let scores = scores.into_iter().map(|node| node.score);
        scores.map(|score| score.clamp(0, MAX_NODE_SCORE)).collect()
    }

    /// Runs PostFilter: the node to nominate, or the plugin's message.
    pub(crate) fn post_filter(
        &self,
        pod: &PodInfo,
        state: &cycle::CycleState,
        cluster: &ClusterState,
    ) -> Result<Str, Rejection> {
        let Some(plugin) = &self.plugin.post_filter else {
            return Err(Rejection::unschedulable(""));
        };
        let state = state.custom_state(self.name);
        let node = plugin.post_filter(&state, Pod(pod), Nodes(cluster))?;
        Ok(node.into())
    }

    fn reject(&self, point: &str, Rejection { reason, kind }: Rejection) -> BindFailure {
        match kind {
            RejectionKind::Error => BindFailure::Error(format!(
                "running {point} plugin \"{}\": {reason}",
                self.name
            )),
            _ => BindFailure::Rejected(PermitFailure {
                plugin: self.name,
                message: reason.into(),
            }),
        }
    }
}

/// A plugin at PreFilter, Filter, or both.
pub(crate) struct CustomFilter {
    pub custom: CustomPlugin,
    pub pre_filters: bool,
    pub filters: bool,
}

impl FilterPlugin for CustomFilter {
    fn name(&self) -> Name {
        self.custom.name
    }

    fn pre_filter(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
    ) -> plugin::PreFilterResult {
        let mut filter = CustomNodeFilter {
            custom: self.custom.clone(),
            pod: pod.clone(),
            state: CycleState::default(),
            filters: self.filters,
        };
        let pre_filter = self.custom.plugin.pre_filter.as_ref();
        let Some(pre_filter) = pre_filter.filter(|_| self.pre_filters) else {
            return plugin::PreFilterResult::Filter(Box::new(filter));
        };
        match pre_filter.pre_filter(&mut filter.state, Pod(pod), Nodes(cluster)) {
            Ok(PreFilterResult::AllNodes) => plugin::PreFilterResult::Filter(Box::new(filter)),
            Ok(PreFilterResult::Nodes(names)) => {
                let names = names.into_iter().map(Str::from).collect();
                plugin::PreFilterResult::FilterOnly(names, Box::new(filter))
            }
            Ok(PreFilterResult::Skip) => {
                // The state is kept for the later extension points.
                filter.filters = false;
                plugin::PreFilterResult::Filter(Box::new(filter))
            }
            Err(Rejection {
                reason,
                kind: RejectionKind::Error,
            }) => plugin::PreFilterResult::Error(reason.into()),
            Err(rejection) => {
                plugin::PreFilterResult::Reject(in_tree_rejection(self.custom.name, rejection))
            }
        }
    }

    fn queueing_hint(
        &self,
        pod: &PodInfo,
        event: &cluster_event::ClusterEvent,
        _: &ClusterState,
    ) -> bool {
        let filter = self.custom.plugin.filter.as_ref();
        !event.is_unregistered_update()
            && filter.is_none_or(|filter| filter.queueing_hint(Pod(pod), ClusterEvent(event)))
    }
}

#[derive(Clone)]
struct CustomNodeFilter {
    custom: CustomPlugin,
    pod: Arc<PodInfo>,
    state: CycleState,
    filters: bool,
}

impl NodeFilter for CustomNodeFilter {
    fn filter(&self, node: &NodeInfo, _: &ClusterState) -> Option<plugin::Rejection> {
        let filter = self.custom.plugin.filter.as_ref();
        let filter = filter.filter(|_| self.filters)?;
        let rejection = filter
            .filter(&self.state, Pod(&self.pod), Node(node))
            .err()?;
        Some(in_tree_rejection(self.custom.name, rejection))
    }

    fn simulate_pod(&mut self, pod: &PodInfo, node: &NodeInfo, by: i64, _: &ClusterState) {
        let Some(plugin) = &self.custom.plugin.pre_filter else {
            return;
        };
        let (subject, pod, node) = (Pod(&self.pod), Pod(pod), Node(node));
        match by > 0 {
            true => plugin.add_pod(&mut self.state, subject, pod, node),
            false => plugin.remove_pod(&mut self.state, subject, pod, node),
        }
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }

    fn custom_state(&self) -> Option<(Name, &CycleState)> {
        Some((self.custom.name, &self.state))
    }
}

fn in_tree_rejection(name: Name, Rejection { reason, kind }: Rejection) -> plugin::Rejection {
    match kind {
        RejectionKind::Unschedulable => plugin::Rejection::unschedulable(name, reason),
        RejectionKind::Unresolvable => plugin::Rejection::unresolvable(name, reason),
        RejectionKind::Error => plugin::Rejection::error(name, reason),
    }
}

/// What plugins out of tree do for a pod between Reserve and Bind.
pub(crate) struct ReservedPlugins {
    pod: Arc<PodInfo>,
    node: Str,
    reserved: Vec<(CustomPlugin, CycleState)>,
    pre_binds: Vec<(CustomPlugin, CycleState)>,
    /// The Permit plugins that delay the pod.
    pub waits: Vec<(Name, Duration)>,
}

impl ReservedPlugins {
    /// Runs Reserve, then Permit. After a failure nothing is reserved.
    pub(crate) fn reserve(
        profile: &Profile,
        pod: &Arc<PodInfo>,
        node: &Str,
        state: &cycle::CycleState,
    ) -> Result<ReservedPlugins, BindFailure> {
        let with_state = |plugins: &[CustomPlugin]| {
            let states = plugins.iter().map(|one| state.custom_state(one.name));
            plugins.iter().cloned().zip(states).collect()
        };
        let mut plugins = ReservedPlugins {
            pod: pod.clone(),
            node: node.clone(),
            reserved: with_state(&profile.reserves),
            pre_binds: with_state(&profile.pre_binds),
            waits: Vec::new(),
        };
        match plugins
            .run_reserve()
            .and_then(|()| plugins.run_permit(&profile.permits, state))
        {
            Ok(waits) => {
                plugins.waits = waits;
                Ok(plugins)
            }
            Err(failure) => {
                plugins.unreserve();
                Err(failure)
            }
        }
    }

    fn run_reserve(&self) -> Result<(), BindFailure> {
        for (custom, state) in &self.reserved {
            if let Some(plugin) = &custom.plugin.reserve {
                let reserved = plugin.reserve(state, Pod(&self.pod), &self.node);
                reserved.map_err(|rejection| custom.reject("Reserve", rejection))?;
            }
        }
        Ok(())
    }

    fn run_permit(
        &self,
        permits: &[CustomPlugin],
        state: &cycle::CycleState,
    ) -> Result<Vec<(Name, Duration)>, BindFailure> {
        let mut waits = Vec::new();
        for custom in permits {
            let Some(plugin) = &custom.plugin.permit else {
                continue;
            };
            let state = state.custom_state(custom.name);
            match plugin.permit(&state, Pod(&self.pod), &self.node) {
                Permission::Allow => {}
                Permission::Wait(wait) => waits.push((custom.name, wait.min(MAX_WAIT))),
                Permission::Reject(rejection) => return Err(custom.reject("Permit", rejection)),
            }
        }
        Ok(waits)
    }

    /// Runs PreBind.
    pub(crate) async fn pre_bind(&self) -> Result<(), String> {
        for (custom, state) in &self.pre_binds {
            if let Some(plugin) = &custom.plugin.pre_bind {
                let ran = plugin.pre_bind(state, Pod(&self.pod), &self.node).await;
                ran.map_err(|error| {
                    format!("running PreBind plugin \"{}\": {error}", custom.name)
                })?;
            }
        }
        Ok(())
    }

    /// Gives back what was reserved, in reverse order.
    pub(crate) fn unreserve(&self) {
        for (custom, state) in self.reserved.iter().rev() {
            if let Some(plugin) = &custom.plugin.reserve {
                plugin.unreserve(state, Pod(&self.pod), &self.node);
            }
        }
    }
}
