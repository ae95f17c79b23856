//! Resource usage of nodes and pods, read from the runtime when a node is scraped and counted from
//! then on.
//!
//! CPU time is a counter. A meter has the value at the last scrape and adds the usage since then,
//! so the counter never falls: not when an annotation changes, nor the node's when a pod ends.
//!
//! Invariant: without scrapes there are no meters.

use std::sync::Arc;
use std::time::Duration;

use mizzen_value::Str;

use super::{Agent, PodWorker};
use crate::moment::Moment;
use crate::pod::inputs::{NO_INPUTS, NodeContext};
use crate::pod::spec;
use crate::runtime::{ContainerLife, ContainerPhase, ContainerRuntime, ContainerUsage};

/// The usage of a node itself: system, kubelet and container runtime.
const NODE_OVERHEAD_MILLICORES: u32 = 50;
const NODE_OVERHEAD_BYTES: u64 = 256 * 1024 * 1024;
/// A started container has used CPU. Kubernetes: metrics-server takes a counter of zero for a
/// missing one (pkg/scraper/client/resource/decode.go).
const LEAST_CPU_TIME: Duration = Duration::from_micros(1);

/// The usage of a node and its pods.
#[derive(Debug, PartialEq)]
pub(crate) struct NodeUsage {
    /// The wall-clock time of the sample, in whole milliseconds.
    pub at: Duration,
    pub cpu_time: Duration,
    pub memory_bytes: u64,
    /// What is swapped, if that is measured.
    pub swap_bytes: Option<u64>,
    pub pods: Vec<PodUsageSample>,
}

/// The usage of a pod.
#[derive(Debug, PartialEq)]
pub(crate) struct PodUsageSample {
    pub namespace: Str,
    pub name: Str,
    pub cpu_time: Duration,
    pub memory_bytes: u64,
    pub swap_bytes: Option<u64>,
    /// The containers that run.
    pub containers: Vec<RunningContainer>,
}

/// The usage of a container since its start.
#[derive(Debug, PartialEq)]
pub(crate) struct RunningContainer {
    pub name: Str,
    /// Its start, by the wall clock.
    pub started: Duration,
    pub cpu_time: Duration,
    pub memory_bytes: u64,
    pub swap_bytes: Option<u64>,
    pub swap_limit: Option<u64>,
}

/// The CPU time of a node at its last scrape.
pub(super) struct NodeMeter {
    cpu_time: Duration,
    at: Moment,
}

/// The CPU time of a pod at its last scrape.
#[derive(Default)]
pub(super) struct PodMeter {
    cpu_time: Duration,
    containers: Vec<ContainerMeter>,
}

struct ContainerMeter {
    name: Str,
    /// The start of the instance that is metered.
    since: Moment,
    cpu_time: Duration,
    at: Moment,
}

impl Agent {
    /// The usage of a node and its pods; `None` if the node is not here.
    pub(super) fn usage(&mut self, node: &str) -> Option<NodeUsage> {
        if !self.nodes_here.has(node) {
            return None;
        }
        let now = whole_millisecond(self.settings.now());
        let host = self.settings.host(node);
        let meter = self
            .node_meters
            .entry(node.into())
            .or_insert_with(|| NodeMeter {
                cpu_time: Duration::ZERO,
                at: self.started,
            });
        meter.cpu_time += now.saturating_since(meter.at) * NODE_OVERHEAD_MILLICORES / 1000;
        meter.at = now;
        let mut memory_bytes = NODE_OVERHEAD_BYTES;
        let mut pods = Vec::new();
        for (key, worker) in self
            .worker
            .iter_mut()
            .filter(|(_, worker)| worker.node == node)
        {
            let stored = match self.static_pods.pods.get(key) {
                Some(pod) => Some(Arc::new(pod.object.clone())),
                None => self.pods.store().get(key).and_then(|it| it.object().ok()),
            };
            let Some(pod) = stored else {
                continue;
            };
            if *worker.uid != *pod.uid() {
                continue;
            }
            let before = worker
                .meter
                .as_ref()
                .map_or(Duration::ZERO, |meter| meter.cpu_time);
            let common = self.settings.services.inputs(&pod);
            let context = self.settings.node_context(&host, &common);
            let containers = worker.measure(&pod, &*self.settings.runtime, context, now);
            let Some(of_pod) = &worker.meter else {
                continue;
            };
            meter.cpu_time += of_pod.cpu_time - before;
            let usage = PodUsageSample {
                namespace: key.namespace().into(),
                name: key.name().into(),
                cpu_time: of_pod.cpu_time,
                memory_bytes: containers.iter().map(|one| one.memory_bytes).sum(),
                swap_bytes: None,
                containers,
            };
            memory_bytes += usage.memory_bytes;
            if !usage.containers.is_empty() {
                pods.push(usage);
            }
        }
        pods.sort_by(|one, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        Some(NodeUsage {
            at: now.wall(),
            cpu_time: meter.cpu_time,
            memory_bytes,
            swap_bytes: None,
            pods,
        })
    }
}

impl PodWorker {
    /// Reads the usage of the running containers up to `now`.
    fn measure(
        &mut self,
        pod: &mizzen_sdk::Object,
        runtime: &dyn ContainerRuntime,
        node: NodeContext,
        now: Moment,
    ) -> Vec<RunningContainer> {
        let mut containers = Vec::new();
        for container in &self.pod.containers {
            let Some(ContainerPhase::Running { since }) = container.state else {
                continue;
            };
            let since = whole_millisecond(since);
            let life = ContainerLife {
                pod,
                container: spec::container(pod, &container.name),
                since,
                inputs: container.inputs.as_deref().unwrap_or(&NO_INPUTS),
                node,
            };
            let meter = self.meter.get_or_insert_default();
            let known = meter
                .containers
                .iter()
                .position(|known| known.name == container.name && known.since == since);
            let idx = known.unwrap_or_else(|| {
                meter
                    .containers
                    .retain(|known| known.name != container.name);
                meter.containers.push(ContainerMeter {
                    name: container.name.clone(),
                    since,
                    cpu_time: Duration::ZERO,
                    at: since,
                });
                meter.containers.len() - 1
            });
            let metered = &mut meter.containers[idx];
            let Some(ContainerUsage {
                cpu_time,
                memory_bytes,
            }) = runtime.usage(&life, metered.at, now.max(metered.at))
            else {
                continue;
            };
            metered.cpu_time += cpu_time;
            metered.at = now.max(metered.at);
            meter.cpu_time += cpu_time;
            containers.push(RunningContainer {
                name: container.name.clone(),
                started: since.wall(),
                cpu_time: metered.cpu_time.max(LEAST_CPU_TIME),
                memory_bytes,
                swap_bytes: None,
                swap_limit: None,
            });
        }
        containers
    }
}

/// A moment in whole milliseconds of the wall clock. Samples have millisecond timestamps, so usage
/// is counted up to exactly that moment. Both clocks are a whole number of milliseconds apart,
/// because they are not read in the same nanosecond.
fn whole_millisecond(moment: Moment) -> Moment {
    let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    let apart = nanos(moment.monotonic()) - nanos(moment.wall());
    let apart = (apart + 500_000).div_euclid(1_000_000);
    let wall = moment.wall().as_millis();
    let monotonic = i128::try_from(wall).unwrap_or(i128::MAX) + apart;
    Moment::new(
        Duration::from_millis(u64::try_from(monotonic).unwrap_or_default()),
        Duration::from_millis(u64::try_from(wall).unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_the_distance_of_both_clocks() {
        let at = |monotonic: u64, wall: u64| {
            let moment = Moment::new(Duration::from_nanos(monotonic), Duration::from_nanos(wall));
            let whole = whole_millisecond(moment);
            (whole.monotonic().as_nanos(), whole.wall().as_nanos())
        };
        // Both clocks read within some nanoseconds.
        assert_eq!(at(5_000_400, 5_000_900), (5_000_000, 5_000_000));
        assert_eq!(at(5_999_900, 6_000_100), (6_000_000, 6_000_000));
        // The wall clock was set an hour and some microseconds ahead.
        let hour = 3_600_000_000_000;
        let ahead = |nanos: u64| at(nanos, nanos + hour + 2_000);
        assert_eq!(ahead(5_000_400), (5_000_000, 5_000_000 + u128::from(hour)));
        assert_eq!(ahead(7_300_000), (7_000_000, 7_000_000 + u128::from(hour)));
    }
}
