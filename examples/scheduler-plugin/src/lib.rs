//! A scheduler with a plugin of its own.
//!
//! The plugin `Tiers` has two extension points. At Filter it rejects nodes whose label `example.com/tier` is not that
//! of the pod; at Score it prefers nodes that already run pods of the same application, whose images and caches are
//! warm. Everything else (resources, taints, affinity, volumes, preemption) is done by the plugins in tree.

use mizzen_scheduler::framework::{
    BoxError, ClusterEvent, CycleState, EventResource, Filter, Node, NodeScore, Plugin, PluginArgs,
    Pod, Registry, RegistryError, Rejection, Score,
};
use mizzen_scheduler::{Configuration, ConfigurationError};

/// The name of the plugin in configuration files.
pub const NAME: &str = "Tiers";

/// Keeps pods on nodes of their tier.
pub struct Tiers {
    /// The label that names the tier, of pods and of nodes.
    label: String,
}

impl Tiers {
    /// The plugin with its arguments: `{label: example.com/tier}`.
    pub fn new(args: &PluginArgs) -> Result<Tiers, BoxError> {
        let label = args["label"].as_str().unwrap_or("example.com/tier");
        if label.is_empty() {
            return Err("label must not be empty".into());
        }
        Ok(Tiers {
            label: label.to_owned(),
        })
    }
}

impl Filter for Tiers {
    fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
        match pod.label(&self.label) {
            Some(tier) if node.label(&self.label) != Some(tier) => Err(Rejection::unresolvable(
                format!("node(s) were not in tier {tier}"),
            )),
            _ => Ok(()),
        }
    }

    /// Only a new or updated node can help: a pod that leaves changes no tier.
    fn queueing_hint(&self, _: Pod, event: ClusterEvent) -> bool {
        event.resource() == EventResource::Node
    }
}

impl Score for Tiers {
    /// The number of pods of the same application.
    fn score(&self, _: &CycleState, pod: Pod, node: Node) -> i64 {
        let Some(app) = pod.label("app") else {
            return 0;
        };
        let same =
            |other: &Pod| other.label("app") == Some(app) && other.namespace() == pod.namespace();
        node.pods().filter(same).count() as i64
    }

    /// The node with the most of them gets 100.
    fn normalize(&self, _: &CycleState, _: Pod, scores: &mut [NodeScore]) {
        let max = scores.iter().map(|node| node.score).max().unwrap_or(0);
        for node in scores {
            node.score = node.score * 100 / max.max(1);
        }
    }
}

/// The plugins of this scheduler besides those in tree.
pub fn registry() -> Result<Registry, RegistryError> {
    Registry::new().with(NAME, |args| {
        Ok(Plugin::new(Tiers::new(args)?).filter().score().build())
    })
}

/// A scheduler configuration that may name the plugin.
pub fn configuration(file: &[u8]) -> Result<Configuration, BoxError> {
    let parsed: Result<_, ConfigurationError> = Configuration::parse_with(file, &registry()?);
    Ok(parsed?)
}
