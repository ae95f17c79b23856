//! The handle by which other tasks query the agent. Requests go over a channel: the agent alone
//! owns the state of its pods, so its responses are never stale.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use tokio::sync::{mpsc, oneshot};

use super::read::{ReadContext, TokenCache, read_objects};
use super::usage::NodeUsage;
use crate::eviction::Eviction;
use crate::moment::Moment;
use crate::pod::PodAddresses;
use crate::pod::inputs::{InputSources, Inputs, NO_INPUTS, NO_VARIABLES, mounted_objects};
use crate::pod::spec;
use crate::runtime::{ContainerLife, plain};
use crate::settings::NodeSettings;
use crate::shell::ContainerEnvironment;
use crate::shutdown::PodShutdown;
use crate::status;

/// The capacity of the channel. Further requests wait in their own tasks, which their clients can
/// cancel.
const MAX_REQUESTS: usize = 64;

/// A request to the agent, and the channel for its response.
pub(crate) enum AgentRequest {
    /// A pod with the agent's status.
    Pod {
        key: Key,
        reply: oneshot::Sender<Option<PodView>>,
    },
    /// All pods of a node.
    PodsOfNode {
        node: Str,
        reply: oneshot::Sender<Vec<Object>>,
    },
    /// The resource usage of a node and its pods.
    Usage {
        node: Str,
        reply: oneshot::Sender<Option<NodeUsage>>,
    },
    /// Ends a pod; the reply is false if there is nothing to end.
    Evict {
        eviction: Eviction,
        reply: oneshot::Sender<bool>,
    },
    /// Ends a pod, because the node shuts down; the reply is false if there is nothing to end.
    ShutDown {
        pod: PodShutdown,
        reply: oneshot::Sender<bool>,
    },
    /// Input for the container of an ID; `None` closes its stdin.
    Stdin {
        key: Key,
        id: String,
        data: Option<Bytes>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// The static pods of the node.
    StaticPods(Vec<Object>),
    /// The informer has all pods: what the runtime has beside them is removed.
    RemoveOrphans,
}

/// A pod as the agent sees it.
pub(crate) struct PodView {
    /// The object, with the agent's status; the API may still have an older one.
    pub pod: Object,
    /// The inputs of container instances, by container ID.
    pub(super) inputs: Vec<(String, Arc<Inputs>)>,
}

impl PodView {
    /// The inputs of the container of an ID, beside its specification.
    pub(crate) fn inputs(&self, id: &str) -> &Inputs {
        let found = self.inputs.iter().find(|(known, _)| known == id);
        found.map_or(&NO_INPUTS, |(_, inputs)| inputs)
    }
}

/// A handle to the agent.
#[derive(Clone)]
pub(crate) struct AgentHandle {
    settings: Arc<NodeSettings>,
    requests: mpsc::Sender<AgentRequest>,
}

impl AgentHandle {
    /// A handle, and the receiver that [`Agent::run`](super::Agent::run) serves.
    pub(crate) fn new(settings: Arc<NodeSettings>) -> (AgentHandle, mpsc::Receiver<AgentRequest>) {
        let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
        (AgentHandle { settings, requests }, receiver)
    }

    /// A pod of these nodes.
    pub(crate) async fn pod(&self, key: &Key) -> Option<PodView> {
        let (reply, response) = oneshot::channel();
        let key = key.clone();
        self.requests
            .send(AgentRequest::Pod { key, reply })
            .await
            .ok()?;
        response.await.ok()?
    }

    /// Replaces the static pods. The send fails if the agent has gone.
    pub(crate) async fn set_static_pods(&self, pods: Vec<Object>) {
        let _ = self.requests.send(AgentRequest::StaticPods(pods)).await;
    }

    /// Removes what the runtime has of pods that exist no more.
    pub(crate) async fn remove_orphans(&self) {
        let _ = self.requests.send(AgentRequest::RemoveOrphans).await;
    }

    /// The pods of one of these nodes, by name.
    pub(crate) async fn pods_of_node(&self, node: Str) -> Vec<Object> {
        let (reply, response) = oneshot::channel();
        let request = AgentRequest::PodsOfNode { node, reply };
        match self.requests.send(request).await {
            Ok(()) => response.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// The pods of one of these nodes that have not ended, by name.
    pub(crate) async fn active_pods(&self, node: Str) -> Vec<Object> {
        let mut pods = self.pods_of_node(node).await;
        pods.retain(|pod| !is_terminal(pod));
        pods
    }

    /// Ends a pod, because the node shuts down; false if there is nothing to end.
    pub(crate) async fn shut_down(&self, pod: PodShutdown) -> bool {
        let (reply, response) = oneshot::channel();
        let request = AgentRequest::ShutDown { pod, reply };
        self.requests.send(request).await.is_ok() && response.await.unwrap_or_default()
    }

    /// Ends a pod that is evicted; false if there is nothing to end.
    pub(crate) async fn evict(&self, eviction: Eviction) -> bool {
        let (reply, response) = oneshot::channel();
        let request = AgentRequest::Evict { eviction, reply };
        self.requests.send(request).await.is_ok() && response.await.unwrap_or_default()
    }

    /// The resource usage of a node and its pods; `None` if the node is not here.
    pub(crate) async fn usage(&self, node: &str) -> Option<NodeUsage> {
        let (reply, response) = oneshot::channel();
        let node = node.into();
        self.requests
            .send(AgentRequest::Usage { node, reply })
            .await
            .ok()?;
        response.await.ok()?
    }

    /// Writes to the stdin of a container; `None` closes it. Input for a container that does not
    /// run is dropped.
    pub(crate) async fn stdin(
        &self,
        key: &Key,
        id: &str,
        data: Option<Bytes>,
    ) -> Result<(), String> {
        let (reply, response) = oneshot::channel();
        let request = AgentRequest::Stdin {
            key: key.clone(),
            id: id.to_owned(),
            data,
            reply,
        };
        match self.requests.send(request).await {
            Ok(()) => response.await.unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    /// The environment of a command that starts now in a running container: the variables of the
    /// container's start, and the files of its volumes, whose ConfigMaps and Secrets are read now.
    /// `None` if the container does not run.
    pub(crate) async fn environment(
        &self,
        key: &Key,
        container: &str,
    ) -> Option<ContainerEnvironment> {
        let view = self.pod(key).await?;
        let (pod, container) = (&*view.pod, spec::container(&view.pod, container));
        let status = status::container_status(pod, container["name"].str());
        if status["state"]["running"].is_null() {
            return None;
        }
        let host = self.settings.host(pod["spec"]["nodeName"].str());
        let common = self.settings.services.inputs(pod);
        let node = self.settings.node_context(&host, &common);
        let api = self.settings.api_of(pod["spec"]["nodeName"].str());
        let found = read_objects(
            api,
            key.clone(),
            view.pod.uid().into(),
            mounted_objects(pod, container),
            ReadContext {
                tokens: TokenCache::default(),
                now: self.settings.now(),
                // Only claims depend on it.
                node: Arc::new(Object(Value::Null)),
            },
        )
        .await
        .found;
        let started_with = view.inputs(status["containerID"].str());
        let sources = InputSources {
            pod,
            pod_ips: &PodAddresses::of_status(&pod["status"]),
            node,
            services: &started_with.services,
            found: &found,
            from_files: &NO_VARIABLES,
        };
        let inputs = Inputs {
            variables: started_with.variables.clone(),
            files: vec![(Moment::default(), sources.files(container))],
            services: started_with.services.clone(),
            stdin: Vec::new(),
        };
        let since = self.settings.now();
        Some(plain::environment(&ContainerLife {
            pod,
            container,
            since,
            inputs: &inputs,
            node,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::Client;
    use mizzen_apiserver::User;
    use mizzen_apiserver::clock::{CountingRandom, WallClock};
    use mizzen_controlplane::{Options as ServerOptions, Plugins};
    use mizzen_registry::{Registry, Store};
    use mizzen_sdk::dynamic::{DynamicClient, PatchType};
    use mizzen_sdk::resource::{CONFIG_MAPS, PODS};
    use mizzen_value::{Value, value};
    use tokio::time::sleep;

    use super::*;
    use crate::Options;
    use crate::agent::Agent;

    /// A client of a new server.
    async fn client() -> Client {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(
            store,
            Arc::new(WallClock),
            Arc::new(CountingRandom::default()),
        );
        let options = ServerOptions {
            plugins: Plugins::alone(),
            ..Default::default()
        };
        let server = mizzen_controlplane::server(registry, options);
        server.start().await;
        Client::new(
            server.in_process(User::master("admin"), "kubelet"),
            "default",
        )
    }

    /// Runs `test` with a client and a running agent.
    async fn with_agent(test: impl AsyncFnOnce(DynamicClient, AgentHandle)) {
        let client = client().await;
        let settings = Arc::new(crate::settings(
            Options::simulated(client.clone(), 1),
            None,
            None,
        ));
        let (pods, nodes) = (settings.pod_informer(), settings.node_informer());
        let queue = crate::enqueue(&pods, "pods");
        let (handle, requests) = AgentHandle::new(settings.clone());
        let agent = Agent::new(settings, pods.clone(), nodes.clone());
        tokio::select! {
            () = agent.run(queue, requests) => panic!("the agent ended"),
            () = pods.run() => panic!("the watch ended"),
            () = nodes.run() => panic!("the watch ended"),
            () = test(DynamicClient::new(client), handle) => {}
        }
    }

    #[tokio::test]
    async fn requests_beyond_the_limit_wait_in_their_tasks_and_are_answered() {
        let options = Options::simulated(client().await, 1);
        let (handle, mut requests) =
            AgentHandle::new(Arc::new(crate::settings(options, None, None)));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..3 * MAX_REQUESTS {
            let handle = handle.clone();
            callers.spawn(async move { handle.pod(&Key::new("default", "web")).await.is_none() });
        }
        // Give every caller a chance to send.
        for _ in 0..10 * MAX_REQUESTS {
            tokio::task::yield_now().await;
        }
        assert_eq!(requests.len(), MAX_REQUESTS);
        for _ in 0..3 * MAX_REQUESTS {
            let Some(AgentRequest::Pod { reply, .. }) = requests.recv().await else {
                panic!("a request for a view");
            };
            assert!(reply.send(None).is_ok());
        }
        assert_eq!(callers.join_all().await, vec![true; 3 * MAX_REQUESTS]);
    }

    #[tokio::test]
    async fn a_command_sees_variables_of_the_start_and_files_of_now() {
        with_agent(async |api, handle| {
            let create = async |path: &str, object: Value| {
                api.raw("POST".parse().unwrap(), path, Some(&Object(object))).await.unwrap();
            };
            let key = Key::new("default", "web");
            create("/api/v1/namespaces", value!({ "metadata": { "name": "default" } })).await;
            let config = value!({ "metadata": { "name": "x" }, "data": { "k": "one" } });
            create("/api/v1/namespaces/default/configmaps", config).await;
            let container = value!({
                "name": "c",
                "image": "nginx",
                "env": [{ "name": "K", "valueFrom": { "configMapKeyRef": { "name": "x", "key": "k" } } }],
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
            });
            let volume = value!({ "name": "v", "configMap": { "name": "x" } });
            let pod = value!({
                "metadata": { "name": "web" },
                "spec": { "nodeName": "node-0", "containers": [container], "volumes": [volume] },
            });
            assert!(handle.pod(&key).await.is_none());
            create("/api/v1/namespaces/default/pods", pod).await;
            for _ in 0..500 {
                let pod = api.get(&PODS, &key).await.unwrap();
                if pod["status"]["phase"].str() == "Running" {
                    break;
                }
                assert!(handle.environment(&key, "none").await.is_none());
                sleep(Duration::from_millis(10)).await;
            }
            let change = value!({ "data": { "k": "two" } });
            api.patch(&CONFIG_MAPS, &Key::new("default", "x"), "", PatchType::Merge, &change).await.unwrap();
            let environment = handle.environment(&key, "c").await.expect("the container runs");
            assert_eq!(environment.variables["K"], "one");
            assert_eq!(environment.variables["HOSTNAME"], "web");
            let [(_, files)] = environment.files.as_slice() else { panic!("one version") };
            assert_eq!(files["/v/k"].as_deref(), Some("two"));
            assert_eq!(environment.mounts, ["/v"]);
        })
        .await;
    }
}
