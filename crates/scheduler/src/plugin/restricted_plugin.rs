//! A plugin that a profile enables at some of its extension points only: PreFilter without Filter,
//! or without Reserve and PreBind.

use std::sync::Arc;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::reserve::PreBindStep;

/// A plugin with the extension points that are enabled.
pub(crate) struct RestrictedPlugin {
    pub inner: Box<dyn FilterPlugin>,
    pub enabled: EnabledPhases,
}

/// The extension points that are enabled besides PreFilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnabledPhases {
    pub checks: bool,
    /// Reserve and PreBind.
    pub reserves: bool,
}

impl FilterPlugin for RestrictedPlugin {
    fn name(&self) -> Name {
        self.inner.name()
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let part = |inner: Box<dyn NodeFilter>| {
            Box::new(RestrictedFilter {
                inner,
                enabled: self.enabled,
            })
        };
        match self.inner.pre_filter(pod, cluster) {
            PreFilterResult::Filter(check) => PreFilterResult::Filter(part(check)),
            PreFilterResult::FilterOnly(names, check) => {
                PreFilterResult::FilterOnly(names, part(check))
            }
            other => other,
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &ClusterState) -> bool {
        self.inner.queueing_hint(pod, event, cluster)
    }
}

struct RestrictedFilter {
    inner: Box<dyn NodeFilter>,
    enabled: EnabledPhases,
}

impl NodeFilter for RestrictedFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        self.enabled
            .checks
            .then(|| self.inner.filter(node, cluster))
            .flatten()
    }

    fn simulate_pod(&mut self, pod: &PodInfo, node: &NodeInfo, by: i64, cluster: &ClusterState) {
        self.inner.simulate_pod(pod, node, by, cluster);
    }

    fn reserve(&self, node: &NodeInfo, cluster: &ClusterState) -> Result<Vec<PreBindStep>, String> {
        if self.enabled.reserves {
            self.inner.reserve(node, cluster)
        } else {
            Ok(Vec::new())
        }
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(RestrictedFilter {
            inner: self.inner.copy(),
            enabled: self.enabled,
        })
    }
}
