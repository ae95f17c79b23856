//! Scheduler extenders: HTTP servers that filter and score nodes, choose victims, and bind pods.

mod client;
mod tls;

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::clock::Clock;
use mizzen_value::{Str, Value, value};

use crate::model::PodInfo;
pub(crate) use client::ExtenderClient;

/// An extender from the configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExtenderOptions {
    pub url: String,
    pub filter: String,
    pub prioritize: String,
    pub preempt: String,
    pub bind: String,
    pub weight: i64,
    pub timeout: Duration,
    /// `nodeCacheCapable`: the extender takes names instead of whole nodes.
    pub node_cache_capable: bool,
    /// Resources that it manages. Pods without them skip the extender; empty for all pods.
    pub managed: Vec<Str>,
    /// Managed resources that the scheduler does not count itself.
    pub ignored_by_scheduler: Vec<Str>,
    /// Whether its failures are ignored.
    pub ignorable: bool,
    /// `enableHTTPS`; see `tls`.
    pub enable_https: bool,
    pub tls: Value,
}

/// A configured extender.
#[derive(Clone)]
pub(crate) struct Extender {
    pub options: ExtenderOptions,
    client: ExtenderClient,
}

/// The response to the filter verb.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ExtenderFilterResult {
    /// The nodes that fit, by name.
    pub nodes: Vec<Str>,
    /// The other nodes: name, reason, and whether preemption could help.
    pub failed: Vec<(Str, String, bool)>,
}

/// Victims by node: pod UIDs and the number of PDB violations.
pub(crate) type Victims = Vec<(Str, Vec<Str>, i64)>;

impl Extender {
    pub(crate) fn new(options: ExtenderOptions, clock: &Clock) -> Result<Extender, String> {
        Ok(Extender {
            client: ExtenderClient::new(&options, clock)?,
            options,
        })
    }

    /// Whether it manages a resource of the pod.
    pub(crate) fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.options.managed;
        let Ok(object) = pod.entry.object() else {
            return false;
        };
        let spec = &object["spec"];
        let mut containers = spec["containers"]
            .list()
            .iter()
            .chain(spec["initContainers"].list());
        let manages = |list: &Value| {
            list.entries()
                .any(|(name, _)| managed.iter().any(|one| one == name))
        };
        managed.is_empty()
            || containers.any(|one| {
                manages(&one["resources"]["requests"]) || manages(&one["resources"]["limits"])
            })
    }

    /// Filters nodes.
    pub(crate) async fn filter(
        &self,
        pod: &Object,
        nodes: &[Object],
    ) -> Result<ExtenderFilterResult, String> {
        let names = || {
            nodes
                .iter()
                .map(|node| node.name().into())
                .collect::<Vec<Str>>()
        };
        if self.options.filter.is_empty() {
            return Ok(ExtenderFilterResult {
                nodes: names(),
                failed: Vec::new(),
            });
        }
        let response = self
            .client
            .post(&self.options.filter, &self.arguments(pod, nodes))
            .await?;
        let error = field(&response, "error").str();
        if !error.is_empty() {
            return Err(error.into());
        }
        self.filter_result(&response, &names())
    }

    fn filter_result(
        &self,
        response: &Value,
        names: &[Str],
    ) -> Result<ExtenderFilterResult, String> {
        let listed = field(response, "nodenames")
            .list()
            .iter()
            .map(|name| Str::from(name.str()));
        let items = field(field(response, "nodes"), "items").list().iter();
        let items = items.map(|node| Str::from(node["metadata"]["name"].str()));
        let nodes_left: Vec<Str> = if self.options.node_cache_capable {
            listed.collect()
        } else {
            items.collect()
        };
        if let Some(stranger) = nodes_left.iter().find(|name| !names.contains(name)) {
            let url = &self.options.url;
            return Err(format!(
                "extender \"{url}\" claims a filtered node \"{stranger}\" which is not found in the input node list"
            ));
        }
        let (forever, now) = (
            field(response, "failedandunresolvablenodes"),
            field(response, "failednodes"),
        );
        let text = |(name, why): (&str, &Value), resolvable| {
            (Str::from(name), why.str().to_string(), resolvable)
        };
        let refused = forever.entries().map(|one| text(one, false));
        let now = now
            .entries()
            .filter(|(name, _)| forever.get(name).is_none())
            .map(|one| text(one, true));
        Ok(ExtenderFilterResult {
            nodes: nodes_left,
            failed: refused.chain(now).collect(),
        })
    }

    /// Scores nodes from 0 to 10, times the extender's weight.
    pub(crate) async fn prioritize(
        &self,
        pod: &Object,
        nodes: &[Object],
    ) -> Result<Vec<(Str, i64)>, String> {
        if self.options.prioritize.is_empty() {
            return Ok(Vec::new());
        }
        let response = self
            .client
            .post(&self.options.prioritize, &self.arguments(pod, nodes))
            .await?;
        let score = |one: &Value| {
            (
                field(one, "host").str().into(),
                field(one, "score").int() * self.options.weight,
            )
        };
        Ok(response.list().iter().map(score).collect())
    }

    /// The victims that it accepts.
    pub(crate) async fn preempt(
        &self,
        pod: &Object,
        victims: &[(Str, Vec<Object>, i64)],
    ) -> Result<Victims, String> {
        let mut by_node = Value::object();
        for (node, pods, violations) in victims {
            let pods: Vec<Value> = match self.options.node_cache_capable {
                true => pods
                    .iter()
                    .map(|pod| value!({"UID": (pod.uid())}))
                    .collect(),
                false => pods.iter().map(|pod| pod.0.clone()).collect(),
            };
            let violations = *violations;
            by_node.set(node, value!({"Pods": pods, "NumPDBViolations": violations}));
        }
        let key = if self.options.node_cache_capable {
            "NodeNameToMetaVictims"
        } else {
            "NodeNameToVictims"
        };
        let mut arguments = value!({"Pod": (pod.0.clone())});
        arguments.set(key, by_node);
        let response = self.client.post(&self.options.preempt, &arguments).await?;
        let uids = |victims: &Value| -> Vec<Str> {
            field(victims, "pods")
                .list()
                .iter()
                .map(|pod| field(pod, "uid").str().into())
                .collect()
        };
        let nodes = field(&response, "nodenametometavictims").entries();
        Ok(nodes
            .map(|(node, it)| (node.into(), uids(it), field(it, "numpdbviolations").int()))
            .collect())
    }

    /// Binds a pod to a node.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &Str) -> Result<(), String> {
        let PodInfo {
            namespace,
            name,
            uid,
            ..
        } = pod;
        let arguments =
            value!({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node});
        let response = self.client.post(&self.options.bind, &arguments).await?;
        match field(&response, "error").str() {
            "" => Ok(()),
            error => Err(error.into()),
        }
    }

    fn arguments(&self, pod: &Object, nodes: &[Object]) -> Value {
        let pod = pod.0.clone();
        if self.options.node_cache_capable {
            let names: Vec<Value> = nodes.iter().map(|node| node.name().into()).collect();
            return value!({"Pod": pod, "Nodes": null, "NodeNames": names});
        }
        let nodes: Vec<Value> = nodes.iter().map(|node| node.0.clone()).collect();
        value!({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": null})
    }
}

/// A member of a response. As in Go, names are compared without regard to case.
fn field<'a>(response: &'a Value, name: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    response
        .entries()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map_or(&NULL, |(_, value)| value)
}
