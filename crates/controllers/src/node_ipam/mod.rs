//! Which addresses have the pods of a node? Each node gets a block of the cluster's range.

mod ranges;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::NODES;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{After, Context, Error, Options, Reconcile, Work};
use ranges::Range;

pub use ranges::{NodeMasks, RangeError};

/// Holds the blocks that overlap with the addresses of services; no node is called so.
const SERVICES: &str = "";

struct Blocks {
    context: Context,
    nodes: Informer<Object>,
    /// Empty until all nodes have been asked what they have.
    ranges: Mutex<Vec<Range>>,
}

/// Whether a range can be cut into blocks for nodes.
pub fn check_range(text: &str, masks: NodeMasks) -> Result<(), RangeError> {
    Range::new(text, masks).map(drop)
}

/// Sets up the loop. Without a range it does nothing.
pub(crate) fn start(context: &Context) -> Work {
    if context.options.pod_ranges.is_empty() {
        return Work::default();
    }
    let context = context
        .named("node-controller")
        .recording_as("cidrAllocator");
    let queue = context.queue("cidrallocator_node");
    let nodes = context.follow(&NODES);
    let todo = queue.clone();
    nodes.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(
        queue,
        4,
        Arc::new(Blocks {
            context,
            nodes,
            ranges: Mutex::default(),
        }),
    )
}

impl Reconcile for Blocks {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        self.begin()?;
        let Some(node) = self.nodes.lister().by_key(key)? else {
            self.ranges()
                .iter_mut()
                .for_each(|range| range.release(key.name()));
            return Ok(After::Done);
        };
        if !node["spec"]["podCIDRs"].list().is_empty() {
            hold(&mut self.ranges(), &node);
        } else if !node.is_going() {
            self.give(&node).await?;
        }
        Ok(After::Done)
    }
}

impl Blocks {
    fn ranges(&self) -> MutexGuard<'_, Vec<Range>> {
        self.ranges.lock()
    }

    /// Learns what all nodes have, before any gets something.
    fn begin(&self) -> Result<(), Error> {
        let mut ranges = self.ranges();
        if ranges.is_empty() {
            let Options {
                pod_ranges,
                node_masks,
                service_ranges,
                ..
            } = &*self.context.options;
            let made = pod_ranges.iter().map(|text| Range::new(text, *node_masks));
            let made: Result<Vec<Range>, RangeError> = made.collect();
            *ranges = made.map_err(|error| Error::Other(error.to_string()))?;
            for range in ranges.iter_mut() {
                service_ranges
                    .iter()
                    .for_each(|taken| range.hold(SERVICES, &taken.to_string()));
            }
            for node in self.nodes.lister().list()? {
                hold(&mut ranges, &node);
            }
        }
        Ok(())
    }

    async fn give(&self, node: &Object) -> Result<(), Error> {
        let blocks: Option<Vec<Value>> = {
            let mut ranges = self.ranges();
            ranges
                .iter_mut()
                .map(|range| {
                    range
                        .take(node.name())
                        .map(|block| block.to_string().into())
                })
                .collect()
        };
        let Some(blocks) = blocks else {
            self.take_back(node);
            self.tell(node, "CIDRNotAvailable");
            return Err(Error::Other(
                "every block of the cluster's range is taken".into(),
            ));
        };
        let patch = value!({"spec": {"podCIDR": (blocks[0].clone()), "podCIDRs": blocks}});
        let outcome = self
            .context
            .api
            .patch(&NODES, &node.key(), "", Patch::Strategic, &patch)
            .await;
        if let Err(error) = outcome {
            // Without an answer the node may have what it was given.
            if matches!(error, kube::Error::Api(_)) {
                self.take_back(node);
            }
            self.tell(node, "CIDRAssignmentFailed");
            return Err(error.into());
        }
        Ok(())
    }

    fn take_back(&self, node: &Object) {
        self.ranges()
            .iter_mut()
            .for_each(|range| range.release(node.name()));
    }

    fn tell(&self, node: &Object, why: &str) {
        let message = format!("Node {} status is now: {why}", node.name());
        self.context
            .record(&NODES, node, Note::normal(why, "", message));
    }
}

/// Learns what a node has.
fn hold(ranges: &mut [Range], node: &Object) {
    for (range, block) in ranges.iter_mut().zip(node["spec"]["podCIDRs"].list()) {
        range.hold(node.name(), block.str());
    }
}
