//! Who else is asked? Servers that filter and score nodes, choose victims, and bind pods.

mod call;
mod trust;

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::seam::Clock;
use mizzen_value::{Str, Value, value};

use crate::model::Pod;
pub(crate) use call::Caller;

/// An extender as a configuration describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExtenderOptions {
    pub url: String,
    pub filter: String,
    pub prioritize: String,
    pub preempt: String,
    pub bind: String,
    pub weight: i64,
    pub timeout: Duration,
    /// Whether it knows nodes itself, and names are enough.
    pub knows_nodes: bool,
    /// Resources that only it manages; pods without them are not its business.
    pub managed: Vec<Str>,
    /// Of those, what the scheduler does not count itself.
    pub ignored_by_scheduler: Vec<Str>,
    /// Whether it is left out when it fails.
    pub ignorable: bool,
    /// What `enableHTTPS` says: see `trust`.
    pub enable_https: bool,
    pub tls: Value,
}

/// One extender.
#[derive(Clone)]
pub(crate) struct Extender {
    pub options: ExtenderOptions,
    caller: Caller,
}

/// What an extender says of nodes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The nodes that are left, by name.
    pub left: Vec<Str>,
    /// Why the others are not; whether they would be if pods went.
    pub refused: Vec<(Str, String, bool)>,
}

/// Victims by node, and how many of them their budgets do not allow.
pub(crate) type Victims = Vec<(Str, Vec<Str>, i64)>;

impl Extender {
    pub(crate) fn new(options: ExtenderOptions, clock: &Clock) -> Result<Extender, String> {
        Ok(Extender {
            caller: Caller::new(&options, clock)?,
            options,
        })
    }

    /// Whether a pod is its business.
    pub(crate) fn is_interested(&self, pod: &Pod) -> bool {
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

    /// Which of some nodes will do.
    pub(crate) async fn filter(&self, pod: &Object, nodes: &[Object]) -> Result<Verdict, String> {
        let names = || {
            nodes
                .iter()
                .map(|node| node.name().into())
                .collect::<Vec<Str>>()
        };
        if self.options.filter.is_empty() {
            return Ok(Verdict {
                left: names(),
                refused: Vec::new(),
            });
        }
        let answer = self
            .caller
            .post(&self.options.filter, &self.arguments(pod, nodes))
            .await?;
        let error = field(&answer, "error").str();
        if !error.is_empty() {
            return Err(error.into());
        }
        self.verdict(&answer, &names())
    }

    fn verdict(&self, answer: &Value, names: &[Str]) -> Result<Verdict, String> {
        let listed = field(answer, "nodenames")
            .list()
            .iter()
            .map(|name| Str::from(name.str()));
        let items = field(field(answer, "nodes"), "items").list().iter();
        let items = items.map(|node| Str::from(node["metadata"]["name"].str()));
        let left: Vec<Str> = if self.options.knows_nodes {
            listed.collect()
        } else {
            items.collect()
        };
        if let Some(stranger) = left.iter().find(|name| !names.contains(name)) {
            let url = &self.options.url;
            return Err(format!(
                "extender \"{url}\" claims a filtered node \"{stranger}\" which is not found in the input node list"
            ));
        }
        let (forever, now) = (
            field(answer, "failedandunresolvablenodes"),
            field(answer, "failednodes"),
        );
        let text = |(name, why): (&str, &Value), resolvable| {
            (Str::from(name), why.str().to_string(), resolvable)
        };
        let refused = forever.entries().map(|one| text(one, false));
        let now = now
            .entries()
            .filter(|(name, _)| forever.get(name).is_none())
            .map(|one| text(one, true));
        Ok(Verdict {
            left,
            refused: refused.chain(now).collect(),
        })
    }

    /// How good some nodes are, from 0 to 10, weighted.
    pub(crate) async fn prioritize(
        &self,
        pod: &Object,
        nodes: &[Object],
    ) -> Result<Vec<(Str, i64)>, String> {
        if self.options.prioritize.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self
            .caller
            .post(&self.options.prioritize, &self.arguments(pod, nodes))
            .await?;
        let score = |one: &Value| {
            (
                field(one, "host").str().into(),
                field(one, "score").int() * self.options.weight,
            )
        };
        Ok(answer.list().iter().map(score).collect())
    }

    /// Which victims it agrees to.
    pub(crate) async fn preempt(
        &self,
        pod: &Object,
        victims: &[(Str, Vec<Object>, i64)],
    ) -> Result<Victims, String> {
        let mut by_node = Value::object();
        for (node, pods, violations) in victims {
            let pods: Vec<Value> = match self.options.knows_nodes {
                true => pods
                    .iter()
                    .map(|pod| value!({"UID": (pod.uid())}))
                    .collect(),
                false => pods.iter().map(|pod| pod.0.clone()).collect(),
            };
            let violations = *violations;
            by_node.set(node, value!({"Pods": pods, "NumPDBViolations": violations}));
        }
        let key = if self.options.knows_nodes {
            "NodeNameToMetaVictims"
        } else {
            "NodeNameToVictims"
        };
        let mut arguments = value!({"Pod": (pod.0.clone())});
        arguments.set(key, by_node);
        let answer = self.caller.post(&self.options.preempt, &arguments).await?;
        let uids = |victims: &Value| -> Vec<Str> {
            field(victims, "pods")
                .list()
                .iter()
                .map(|pod| field(pod, "uid").str().into())
                .collect()
        };
        let nodes = field(&answer, "nodenametometavictims").entries();
        Ok(nodes
            .map(|(node, it)| (node.into(), uids(it), field(it, "numpdbviolations").int()))
            .collect())
    }

    /// Binds a pod to a node.
    pub(crate) async fn bind(&self, pod: &Pod, node: &Str) -> Result<(), String> {
        let Pod {
            namespace,
            name,
            uid,
            ..
        } = pod;
        let arguments =
            value!({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node});
        let answer = self.caller.post(&self.options.bind, &arguments).await?;
        match field(&answer, "error").str() {
            "" => Ok(()),
            error => Err(error.into()),
        }
    }

    fn arguments(&self, pod: &Object, nodes: &[Object]) -> Value {
        let pod = pod.0.clone();
        if self.options.knows_nodes {
            let names: Vec<Value> = nodes.iter().map(|node| node.name().into()).collect();
            return value!({"Pod": pod, "Nodes": null, "NodeNames": names});
        }
        let nodes: Vec<Value> = nodes.iter().map(|node| node.0.clone()).collect();
        value!({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": null})
    }
}

/// A member of an answer. Go does not mind how names are capitalised, and so those who answer do not.
fn field<'a>(answer: &'a Value, name: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    answer
        .entries()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map_or(&NULL, |(_, value)| value)
}
