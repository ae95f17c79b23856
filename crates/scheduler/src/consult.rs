//! What do extenders say?

use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use crate::HashMap;
use crate::cache::Slot;
use crate::cycle::Diagnosis;
use crate::extender::Extender;
use crate::model::Pod;
use crate::plugin::{BEST, Name, Refusal};
use crate::preempt::Candidate;
use crate::scheduler::Scheduler;

/// The best that an extender can say of a node.
const EXTENDERS_BEST: i64 = 10;

impl Scheduler {
    /// The extenders whose business a pod is.
    fn interested(&self, pod: &Pod) -> Vec<Extender> {
        self.extenders
            .iter()
            .filter(|extender| extender.is_interested(pod))
            .cloned()
            .collect()
    }

    /// The nodes as an extender wants them.
    fn objects(&self, extender: &Extender, nodes: &[Slot]) -> Vec<Object> {
        let named = |name: &Str| {
            let mut object = Object::default();
            object.entry("metadata").set("name", name);
            object
        };
        let object = |slot: &Slot| {
            let name = self.world.cache.node(*slot).name();
            let known = if extender.options.knows_nodes {
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

    /// Which of the nodes are left after all extenders were asked, one after the other.
    pub(crate) async fn consult_nodes(
        &self,
        pod: &Pod,
        mut nodes: Vec<Slot>,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Slot>, String> {
        let n_before = nodes.len();
        let Ok(object) = pod.entry.object() else {
            return Ok(nodes);
        };
        for extender in self.interested(pod) {
            if nodes.is_empty() {
                break;
            }
            let verdict = match extender
                .filter(&object, &self.objects(&extender, &nodes))
                .await
            {
                Ok(verdict) => verdict,
                Err(error) if extender.options.ignorable => {
                    tracing::info!(
                        extender = extender.options.url,
                        error,
                        "an extender is left out"
                    );
                    continue;
                }
                Err(error) => return Err(error),
            };
            let slots: HashMap<&Str, Slot> = nodes
                .iter()
                .map(|slot| (self.world.cache.node(*slot).name(), *slot))
                .collect();
            for (name, why, resolvable) in verdict.refused {
                let Some(slot) = slots.get(&name) else {
                    continue;
                };
                diagnosis.refuse(
                    *slot,
                    Refusal {
                        resolvable,
                        ..Refusal::for_now(Name::Extender, why)
                    },
                );
            }
            nodes = verdict
                .left
                .iter()
                .filter_map(|name| slots.get(name))
                .copied()
                .collect();
        }
        if nodes.len() != n_before {
            diagnosis.rejectors.insert(Name::Extender);
        }
        Ok(nodes)
    }

    /// Adds what extenders say of nodes to what plugins say. Those that fail have nothing to say.
    pub(crate) async fn consult_scores(&self, pod: &Pod, nodes: &[Slot], scores: &mut [i64]) {
        let Ok(object) = pod.entry.object() else {
            return;
        };
        for extender in self.interested(pod) {
            let said = extender
                .prioritize(&object, &self.objects(&extender, nodes))
                .await;
            let said: HashMap<Str, i64> = said.unwrap_or_default().into_iter().collect();
            for (slot, score) in nodes.iter().zip(scores.iter_mut()) {
                let own = said
                    .get(self.world.cache.node(*slot).name())
                    .copied()
                    .unwrap_or_default();
                *score += own * (BEST / EXTENDERS_BEST);
            }
        }
    }

    /// The candidates to which all extenders agree.
    pub(crate) async fn consult_victims(
        &self,
        pod: &Pod,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, String> {
        let Ok(object) = pod.entry.object() else {
            return Ok(candidates);
        };
        let preempting = self
            .interested(pod)
            .into_iter()
            .filter(|extender| !extender.options.preempt.is_empty());
        for extender in preempting {
            let asked: Vec<(Str, Vec<Object>, i64)> = candidates.iter().map(asked).collect();
            let agreed = match extender.preempt(&object, &asked).await {
                Ok(agreed) => agreed,
                Err(_) if extender.options.ignorable => continue,
                Err(error) => return Err(error),
            };
            let mut left = Vec::new();
            for (node, uids, violations) in agreed {
                let victims = self.victims(&extender, &node, &uids)?;
                if victims.is_empty() && !extender.options.ignorable {
                    return Err(format!(
                        "expected at least one victim pod on node \"{node}\""
                    ));
                }
                if !victims.is_empty() {
                    left.push(Candidate {
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

    fn victims(
        &self,
        extender: &Extender,
        node: &Str,
        uids: &[Str],
    ) -> Result<Vec<Arc<Pod>>, String> {
        let there = self
            .world
            .cache
            .find(node)
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

fn asked(candidate: &Candidate) -> (Str, Vec<Object>, i64) {
    let pods = candidate
        .victims
        .iter()
        .filter_map(|pod| pod.entry.object().ok());
    let pods = pods.map(|pod| Object::clone(&pod)).collect();
    (candidate.node.clone(), pods, candidate.n_violations as i64)
}
