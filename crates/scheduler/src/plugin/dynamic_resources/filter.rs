//! The Filter of DynamicResources: can the claims of a pod be allocated on a node?

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::{Str, Value};

use super::allocation::allocation;
use super::allocator::{AllocationError, Allocator};
use super::pool::node_pools;
use super::request::ClaimRequests;
use crate::cache::NodeInfo;
use crate::cluster_state::ClusterState;
use crate::devices::AllocatedDevices;
use crate::model::{NodeRule, PodInfo};
use crate::plugin::{Name, NodeFilter, Rejection};
use crate::reserve::PreBindStep;

/// Claims with their allocations.
type Allocated<'a> = Vec<(&'a Arc<Object>, Value)>;

/// The claims of a pod.
#[derive(Clone)]
pub(super) struct ClaimsFilter(Arc<PodClaims>);

struct PodClaims {
    pod: Arc<PodInfo>,
    /// Allocated claims, and the nodes on which they can be used.
    allocated: Vec<(Arc<Object>, Option<NodeRule>)>,
    /// Claims without an allocation.
    pending_claims: Vec<Arc<Object>>,
    /// Their requests, with the claims' names.
    claim_requests: Vec<(Str, ClaimRequests)>,
    taken: AllocatedDevices,
}

impl ClaimsFilter {
    pub(super) fn new(
        pod: &Arc<PodInfo>,
        claims: Vec<Arc<Object>>,
        cluster: &ClusterState,
    ) -> Result<ClaimsFilter, String> {
        let (mut allocated, mut pending_claims, mut claim_requests) =
            (Vec::new(), Vec::new(), Vec::new());
        for claim in claims {
            let allocation = &claim["status"]["allocation"];
            if allocation.is_null() {
                let name = format!("{}/{}", claim.namespace(), claim.name());
                claim_requests.push((
                    name.into(),
                    ClaimRequests::from_claim(&claim, &cluster.devices)?,
                ));
                pending_claims.push(claim);
            } else {
                let rule = NodeRule::new(&Value::Null, &allocation["nodeSelector"]);
                allocated.push((claim, rule));
            }
        }
        let taken = if pending_claims.is_empty() {
            AllocatedDevices::default()
        } else {
            cluster.devices.allocated()
        };
        Ok(ClaimsFilter(Arc::new(PodClaims {
            pod: pod.clone(),
            allocated,
            pending_claims,
            claim_requests,
            taken,
        })))
    }

    /// Whether a claim has prioritized alternatives, so that nodes can differ in score.
    pub(super) fn has_subrequests(&self) -> bool {
        let has = |claim: &Arc<Object>| {
            let requests = claim["spec"]["devices"]["requests"].list();
            requests
                .iter()
                .any(|request| !request["firstAvailable"].is_empty())
        };
        self.0.pending_claims.iter().any(has)
    }

    /// Allocates the claims that have no allocation, on one node.
    pub(super) fn allocate(
        &self,
        node: &NodeInfo,
        cluster: &ClusterState,
    ) -> Result<Allocated<'_>, AllocationError> {
        if self.0.pending_claims.is_empty() {
            return Ok(Vec::new());
        }
        let pools = node_pools(node, &cluster.devices, &self.0.taken);
        let got = Allocator::run(&self.0.claim_requests, &pools, &self.0.taken)?;
        let claims = self
            .0
            .pending_claims
            .iter()
            .zip(&self.0.claim_requests)
            .zip(&got);
        let allocated = claims.map(|((claim, (_, claim_requests)), got)| {
            (
                claim,
                allocation(claim, claim_requests, got, node.name(), &cluster.devices),
            )
        });
        Ok(allocated.collect())
    }
}

impl NodeFilter for ClaimsFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        let refuse =
            |reason: &'static str| Some(Rejection::unresolvable(Name::DynamicResources, reason));
        let fail = |error: String| Some(Rejection::error(Name::DynamicResources, error));
        let untried = |rule: &NodeRule| !rule.allows(node.name(), &node.facts.labels);
        if self
            .0
            .allocated
            .iter()
            .any(|(_, rule)| rule.as_ref().is_some_and(untried))
        {
            return refuse("resourceclaim not available on the node");
        }
        match self.allocate(node, cluster) {
            Ok(_) => None,
            Err(AllocationError::NotEnoughDevices(reason)) => refuse(reason),
            Err(AllocationError::Timeout) => fail(format!(
                "node {}: timed out trying to allocate devices",
                node.name()
            )),
            Err(AllocationError::Error(error)) => fail(error),
        }
    }

    fn reserve(&self, node: &NodeInfo, cluster: &ClusterState) -> Result<Vec<PreBindStep>, String> {
        // The allocation was possible when the node was filtered.
        let allocations = self
            .allocate(node, cluster)
            .map_err(|failure| format!("{failure:?}"))?;
        let step = |claim: &Arc<Object>, allocation: Option<Value>| PreBindStep::Claim {
            claim: claim.key(),
            uid: claim.uid().into(),
            allocation,
            pod: self.0.pod.clone(),
        };
        let had = self.0.allocated.iter().map(|(claim, _)| step(claim, None));
        let new = allocations
            .into_iter()
            .map(|(claim, allocation)| step(claim, Some(allocation)));
        Ok(had.chain(new).collect())
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
