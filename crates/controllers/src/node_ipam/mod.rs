//! The node IPAM controller: allocates podCIDRs to nodes.

mod cidr_set;

use parking_lot::Mutex;

use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{Action, Controller, ControllerContext, Error, Options, Reconcile};
use cidr_set::CidrSet;

pub use cidr_set::{NodeMasks, RangeError};

/// The owner of blocks that overlap with service CIDRs; a node name is never empty.
const SERVICES: &str = "";

struct RangeAllocator {
    context: ControllerContext,
    nodes: Informer<Object>,
    /// Empty until the podCIDRs of all nodes have been read.
    ranges: Mutex<Vec<CidrSet>>,
}

/// Whether a range can be split into podCIDRs.
pub fn check_range(text: &str, masks: NodeMasks) -> Result<(), RangeError> {
    CidrSet::new(text, masks).map(drop)
}

/// Creates the controller. Without a cluster CIDR it does nothing.
pub(crate) fn start(context: &ControllerContext) -> Controller {
    if context.options.pod_ranges.is_empty() {
        return Controller::new(context);
    }
    let context = context
        .named("node-controller")
        .with_event_source("cidrAllocator");
    let nodes = context.informer(&NODES);
    Controller::for_kind(&context, &NODES)
        .queue_name("cidrallocator_node")
        .workers(4)
        .reconcile(RangeAllocator {
            context,
            nodes,
            ranges: Mutex::default(),
        })
}

impl Reconcile for RangeAllocator {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        self.occupy_existing()?;
        let Some(node) = self.nodes.lister().by_key(key)? else {
            self.ranges
                .lock()
                .iter_mut()
                .for_each(|range| range.release(key.name()));
            return Ok(Action::done());
        };
        if !node["spec"]["podCIDRs"].list().is_empty() {
            occupy(&mut self.ranges.lock(), &node);
        } else if !node.is_terminating() {
            self.allocate(&node).await?;
        }
        Ok(Action::done())
    }
}

impl RangeAllocator {
    /// Marks the podCIDRs of all nodes as used before the first allocation.
    fn occupy_existing(&self) -> Result<(), Error> {
        let mut ranges = self.ranges.lock();
        if ranges.is_empty() {
            let Options {
                pod_ranges,
                node_masks,
                service_ranges,
                ..
            } = &*self.context.options;
            let made = pod_ranges
                .iter()
                .map(|text| CidrSet::new(text, *node_masks));
            let made: Result<Vec<CidrSet>, RangeError> = made.collect();
            *ranges = made.map_err(|error| Error::other(error.to_string()))?;
            for range in ranges.iter_mut() {
                service_ranges
                    .iter()
                    .for_each(|taken| range.occupy(SERVICES, &taken.to_string()));
            }
            for node in self.nodes.lister().list()? {
                occupy(&mut ranges, &node);
            }
        }
        Ok(())
    }

    async fn allocate(&self, node: &Object) -> Result<(), Error> {
        let blocks: Option<Vec<Value>> = {
            let mut ranges = self.ranges.lock();
            ranges
                .iter_mut()
                .map(|range| {
                    range
                        .allocate_next(node.name())
                        .map(|block| block.to_string().into())
                })
                .collect()
        };
        let Some(blocks) = blocks else {
            self.release(node);
            self.record_event(node, "CIDRNotAvailable");
            return Err(Error::other("every block of the cluster's range is taken"));
        };
        let patch = value!({"spec": {"podCIDR": (blocks[0].clone()), "podCIDRs": blocks}});
        let api = &self.context.api;
        let outcome = api
            .patch(&NODES, &node.key(), "", PatchType::Strategic, &patch)
            .await;
        if let Err(error) = outcome {
            // Without a response, the server may have stored the podCIDR.
            if matches!(error, kube::Error::Api(_)) {
                self.release(node);
            }
            self.record_event(node, "CIDRAssignmentFailed");
            return Err(error.into());
        }
        Ok(())
    }

    fn release(&self, node: &Object) {
        self.ranges
            .lock()
            .iter_mut()
            .for_each(|range| range.release(node.name()));
    }

    fn record_event(&self, node: &Object, why: &str) {
        let message = format!("Node {} status is now: {why}", node.name());
        self.context
            .record_event(&NODES, node, Note::normal(why, "", message));
    }
}

/// Marks the podCIDRs of a node as used.
fn occupy(ranges: &mut [CidrSet], node: &Object) {
    for (range, block) in ranges.iter_mut().zip(node["spec"]["podCIDRs"].list()) {
        range.occupy(node.name(), block.str());
    }
}
