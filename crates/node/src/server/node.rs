//! `/pods`, `/runningpods/`, `/metrics`, `/stats/summary` and `/configz` of a kubelet.
//!
//! Figures that a simulation does not have are left out.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::{HeaderValue, Response, header};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, json, value};

use super::measured;
use super::serve::{Body, KubeletServer, text};
use crate::agent::PodView;
use crate::stats::MeasuredPods;
use crate::streaming::is_stream;

impl KubeletServer {
    /// The node of a request: the one in the URI that the API server's proxy forwards, or that the
    /// path names, or with the local address of the connection. Nodes may share that; then it is
    /// the node of the pod in the path.
    ///
    /// Invariant: the request is authorized for this node, and answered of this node alone.
    pub(super) async fn node(
        &self,
        forwarded_uri: Option<&HeaderValue>,
        local: Option<IpAddr>,
        path: &str,
    ) -> Str {
        let settings = &self.settings;
        let named = forwarded_uri.and_then(forwarded_node);
        let named = named.or_else(|| path.strip_prefix("/metrics/nodes/")?.split('/').next());
        let is_named = |name: &Str| named == Some(name.as_str());
        if let Some(name) = settings.names().find(is_named) {
            return name;
        }
        if settings.share_an_address()
            && let Some(key) = pod_key(path)
            && let Some(view) = self.agent.pod(&key).await
        {
            return view.pod["spec"]["nodeName"].str().into();
        }
        let local = local.map(|address| address.to_canonical().to_string());
        let is_here = |name: &Str| Some(&*settings.host(name).address) == local.as_deref();
        let here = settings.names().find(is_here);
        here.unwrap_or_else(|| settings.name(0))
    }

    /// A pod of a node.
    pub(crate) async fn pod_of_node(&self, node: &str, key: &Key) -> Option<PodView> {
        let view = self.agent.pod(key).await?;
        (view.pod["spec"]["nodeName"].str() == node).then_some(view)
    }

    /// `/pods`: the pods with the agent's status.
    pub(super) async fn pods(&self, node: Str) -> Response<Body> {
        let items: Vec<Value> = self
            .agent
            .pods_of_node(node)
            .await
            .into_iter()
            .map(|Object(mut pod)| {
                pod.remove("kind");
                pod.remove("apiVersion");
                pod
            })
            .collect();
        pod_list(items)
    }

    /// `/runningpods/`: the pods of which containers run, with what their runtime knows of them.
    pub(super) async fn running_pods(&self, node: Str) -> Response<Body> {
        let pods = self.agent.pods_of_node(node).await;
        pod_list(pods.iter().filter_map(running_pod).collect())
    }

    /// `/configz`.
    pub(super) fn configz(&self) -> Response<Body> {
        document(&value!({ "kubeletconfig": (self.settings.configuration.clone()) }))
    }

    /// `/stats/summary`: what is measured; on a simulated node the running pods and containers, and
    /// their start times.
    pub(super) async fn summary(&self, node: Str) -> Response<Body> {
        if let Some(stats) = self.settings.node_stats(MeasuredPods::All).await {
            return document(&measured::summary(&stats, &node));
        }
        let mut pods = Vec::new();
        for pod in self.agent.pods_of_node(node.clone()).await {
            let running: Vec<Value> = statuses(&pod)
                .filter(|status| !status["state"]["running"].is_null())
                .map(|status| {
                    value!({
                        "name": (status["name"].clone()),
                        "startTime": (status["state"]["running"]["startedAt"].clone())
                    })
                })
                .collect();
            if running.is_empty() {
                continue;
            }
            pods.push(value!({
                "podRef": { "name": (pod.name()), "namespace": (pod.namespace()), "uid": (pod.uid()) },
                "startTime": (pod["status"]["startTime"].clone()),
                "containers": (running)
            }));
        }
        document(
            &value!({ "node": { "nodeName": (node.as_str()), "startTime": null }, "pods": (pods) }),
        )
    }

    /// `/metrics`.
    pub(super) async fn metrics(&self, node: Str) -> Response<Body> {
        let pods = self.agent.pods_of_node(node.clone()).await;
        let count = |pod: &Object, state: &str| {
            statuses(pod)
                .filter(|status| !status["state"][state].is_null())
                .count()
        };
        let n_running: usize = pods.iter().map(|pod| count(pod, "running")).sum();
        let n_exited: usize = pods.iter().map(|pod| count(pod, "terminated")).sum();
        let n_pods = pods.iter().filter(|pod| count(pod, "running") > 0).count();
        let mut metrics = String::new();
        let mut family = |name: &str, help: &str, values: &[(&str, usize)]| {
            let _ = writeln!(metrics, "# HELP {name} [ALPHA] {help}\n# TYPE {name} gauge");
            for (labels, value) in values {
                let _ = writeln!(metrics, "{name}{labels} {value}");
            }
        };
        let named = format!("{{node=\"{node}\"}}");
        family("kubelet_node_name", "The name of the node", &[(&named, 1)]);
        family(
            "kubelet_running_containers",
            "Number of containers, by their state",
            &[
                ("{container_state=\"exited\"}", n_exited),
                ("{container_state=\"running\"}", n_running),
            ],
        );
        family(
            "kubelet_running_pods",
            "Number of pods of which a container runs",
            &[("", n_pods)],
        );
        typed(metrics, "text/plain; version=0.0.4; charset=utf-8")
    }
}

/// The node in a URI of the API server: `/api/v1/nodes/[SCHEME:]NAME[:PORT]/…`.
fn forwarded_node(uri: &HeaderValue) -> Option<&str> {
    let id = uri.to_str().ok()?.strip_prefix("/api/v1/nodes/")?;
    match id.split('/').next()?.split(':').collect::<Vec<_>>()[..] {
        [_, name, _] | [name, ..] => Some(name),
        [] => None,
    }
}

/// The pod of a path that is about one.
fn pod_key(path: &str) -> Option<Key> {
    let is_about_pod = is_stream(path) || path.starts_with("/containerLogs/");
    let mut parts = path.split('/').skip(2);
    is_about_pod.then_some(Key::new(parts.next()?, parts.next()?))
}

/// A pod and its containers that run; `None` if none runs.
fn running_pod(pod: &Object) -> Option<Value> {
    let running = statuses(pod).filter(|status| !status["state"]["running"].is_null());
    let containers: Vec<Value> = running
        .map(|status| {
            value!({
                "name": (status["name"].clone()), "image": (status["image"].clone()), "resources": {}
            })
        })
        .collect();
    (!containers.is_empty()).then(|| {
        value!({
            "metadata": { "name": (pod.name()), "namespace": (pod.namespace()), "uid": (pod.uid()) },
            "spec": { "containers": (containers) },
            "status": {}
        })
    })
}

fn pod_list(items: Vec<Value>) -> Response<Body> {
    document(&value!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": (items) }))
}

fn statuses(pod: &Object) -> impl Iterator<Item = &Value> {
    [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ]
    .into_iter()
    .flat_map(|list| pod["status"][list].list())
}

fn document(value: &Value) -> Response<Body> {
    typed(json::to_string(value) + "\n", "application/json")
}

fn typed(body: String, media_type: &'static str) -> Response<Body> {
    let mut response = text(200, body);
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
