//! The scheduling cycle's calls to extenders: filter, prioritize, preempt.

use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use crate::HashMap;
use crate::cache::Slot;
use crate::cycle::Diagnosis;
use crate::extender::Extender;
use crate::model::PodInfo;
use crate::plugin::{MAX_NODE_SCORE, Name, Rejection};
use crate::preemption::PreemptionCandidate;
use crate::scheduler::Scheduler;

/// The highest score that an extender gives (upstream: MaxExtenderPriority).
const MAX_EXTENDER_PRIORITY: i64 = 10;

impl Scheduler {
    /// The extenders that manage a resource of the pod.
    fn interested_extenders(&self, pod: &PodInfo) -> Vec<Extender> {
        self.extenders
            .iter()
            .filter(|extender| extender.is_interested(pod))
            .cloned()
            .collect()
    }

    /// The nodes in the form that an extender takes: whole objects, or names alone.
    fn node_objects(&self, extender: &Extender, nodes: &[Slot]) -> Vec<Object> {
        let named = |name: &Str| {
            let mut object = Object::default();
            object.entry("metadata").set("name", name);
            object
        };
        let object = |slot: &Slot| {
            let name = self.cluster.cache.node(*slot).name();
            let known = if extender.options.node_cache_capable {
                None
            } else {
                self.nodes
                    .by_key(&Key::cluster(name.as_str()))
                    .ok()
                    .flatten()
            };
            known.map_or_else(|| named(name), |object| Object::clone(&object))
        };
        nodes.iter().map(object).collect()
    }

    /// Filters nodes through all extenders, one after the other (upstream:
    /// findNodesThatPassExtenders).
    pub(crate) async fn filter_with_extenders(
        &self,
        pod: &PodInfo,
        mut nodes: Vec<Slot>,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Slot>, String> {
        let n_before = nodes.len();
        let Ok(object) = pod.entry.object() else {
            return Ok(nodes);
        };
        for extender in self.interested_extenders(pod) {
            if nodes.is_empty() {
                break;
            }
            let result = match extender
                .filter(&object, &self.node_objects(&extender, &nodes))
                .await
            {
                Ok(result) => result,
                Err(error) if extender.options.ignorable => {
                    tracing::info!(
                        extender = extender.options.url,
                        error,
                        "ignoring an extender that failed"
                    );
                    continue;
                }
                Err(error) => return Err(error),
            };
            let slots: HashMap<&Str, Slot> = nodes
                .iter()
                .map(|slot| (self.cluster.cache.node(*slot).name(), *slot))
                .collect();
            for (name, why, resolvable) in result.failed {
                let Some(slot) = slots.get(&name) else {
                    continue;
                };
                diagnosis.reject(
                    *slot,
                    Rejection {
                        resolvable,
                        ..Rejection::unschedulable(Name::Extender, why)
                    },
                );
            }
            nodes = result
                .nodes
                .iter()
                .filter_map(|name| slots.get(name))
                .copied()
                .collect();
        }
        if nodes.len() != n_before {
            diagnosis.unschedulable_plugins.insert(Name::Extender);
        }
        Ok(nodes)
    }

    /// Adds the scores of extenders to those of plugins. An extender that fails adds nothing.
    pub(crate) async fn score_with_extenders(
        &self,
        pod: &PodInfo,
        nodes: &[Slot],
        scores: &mut [i64],
    ) {
        let Ok(object) = pod.entry.object() else {
            return;
        };
        for extender in self.interested_extenders(pod) {
            let said = extender
                .prioritize(&object, &self.node_objects(&extender, nodes))
                .await;
            let said: HashMap<Str, i64> = said.unwrap_or_default().into_iter().collect();
            for (slot, score) in nodes.iter().zip(scores.iter_mut()) {
                let own = said
                    .get(self.cluster.cache.node(*slot).name())
                    .copied()
                    .unwrap_or_default();
                *score += own * (MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY);
            }
        }
    }

    /// The candidates to which all extenders agree.
    pub(crate) async fn preempt_with_extenders(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<PreemptionCandidate>,
    ) -> Result<Vec<PreemptionCandidate>, String> {
        let Ok(object) = pod.entry.object() else {
            return Ok(candidates);
        };
        let preempting = self
            .interested_extenders(pod)
            .into_iter()
            .filter(|extender| !extender.options.preempt.is_empty());
        for extender in preempting {
            let candidate_objects: Vec<(Str, Vec<Object>, i64)> =
                candidates.iter().map(candidate_objects).collect();
            let agreed = match extender.preempt(&object, &candidate_objects).await {
                Ok(agreed) => agreed,
                Err(_) if extender.options.ignorable => continue,
                Err(error) => return Err(error),
            };
            let mut left = Vec::new();
            for (node, uids, violations) in agreed {
                let victims = self.find_victims(&extender, &node, &uids)?;
                if victims.is_empty() && !extender.options.ignorable {
                    return Err(format!(
                        "expected at least one victim pod on node \"{node}\""
                    ));
                }
                if !victims.is_empty() {
                    left.push(PreemptionCandidate {
                        node,
                        victims,
                        n_violations: violations.max(0) as usize,
                    });
                }
            }
            candidates = left;
        }
        Ok(candidates)
    }

    fn find_victims(
        &self,
        extender: &Extender,
        node: &Str,
        uids: &[Str],
    ) -> Result<Vec<Arc<PodInfo>>, String> {
        let there = self
            .cluster
            .cache
            .node_by_name(node)
            .ok_or_else(|| format!("nodeinfo not found for node name \"{node}\""))?;
        let victim = |uid: &Str| {
            let pod = there.pods.iter().find(|pod| pod.uid == *uid).cloned();
            pod.ok_or_else(|| {
                let url = &extender.options.url;
                format!("extender: {url} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node")
            })
        };
        uids.iter().map(victim).collect()
    }
}

fn candidate_objects(candidate: &PreemptionCandidate) -> (Str, Vec<Object>, i64) {
    let pods = candidate
        .victims
        .iter()
        .filter_map(|pod| pod.entry.object().ok());
    let pods = pods.map(|pod| Object::clone(&pod)).collect();
    (candidate.node.clone(), pods, candidate.n_violations as i64)
}
