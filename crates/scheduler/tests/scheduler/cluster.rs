//! An API server and a scheduler in one process.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use mizzen_apiserver::clock::{CountingRandom, VirtualClock};
use mizzen_apiserver::{Server, User};
use mizzen_controlplane::{Options as ServerOptions, Plugins};
use mizzen_registry::{Registry, Store};
use mizzen_scheduler::{Configuration, Handle, Options, StartError, start};
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, ListOptions, PatchType};
use mizzen_sdk::resource::{EVENTS, NODES, PODS, PRIORITY_CLASSES};
use mizzen_sdk::{Key, Object, ResourceType, clock};
use mizzen_value::{Value, json, yaml};
use tokio::time::sleep;

/// The start time of every test.
const BEGIN: i64 = 1_700_000_000;

/// An API server, a scheduler and a client with all permissions.
pub(crate) struct Cluster {
    pub api: DynamicClient,
    pub scheduler: Handle,
}

impl Cluster {
    /// A cluster with the default plugins.
    pub(crate) async fn start() -> Cluster {
        Cluster::with(|_| {}).await
    }

    /// A cluster with a configuration. `text` follows its apiVersion and kind.
    pub(crate) async fn configured(text: &str) -> Cluster {
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let configuration = Configuration::parse(format!("{head}{text}").as_bytes()).unwrap();
        Cluster::with(|options| options.configuration = Arc::new(configuration)).await
    }

    /// A cluster whose scheduler options are changed by `choose`.
    pub(crate) async fn with(choose: impl FnOnce(&mut Options)) -> Cluster {
        Cluster::try_with(&[], choose).await.unwrap()
    }

    /// A cluster with nodes that exist before the scheduler starts. Fails if the scheduler does not start.
    pub(crate) async fn try_with(
        nodes: &[&str],
        choose: impl FnOnce(&mut Options),
    ) -> Result<Cluster, StartError> {
        let clock = VirtualClock::starting_at(BEGIN);
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(clock), Arc::new(CountingRandom::default()));
        let server = mizzen_controlplane::server(
            registry,
            ServerOptions {
                plugins: Plugins::alone(),
                ..Default::default()
            },
        );
        server.start().await;
        let api = DynamicClient::new(client(&server));
        for namespace in ["default", "other"] {
            create(
                &api,
                &format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"),
            )
            .await;
        }
        for name in nodes {
            create_node(&api, name, "{}").await;
        }
        let mut options = Options::new(client(&server));
        options.clock = clock::following(clock);
        options.rng = Arc::new(|| 0.0);
        options.host = "h".into();
        choose(&mut options);
        let scheduler = start(options)?;
        scheduler.synced().await;
        Ok(Cluster { api, scheduler })
    }

    /// Creates an object from YAML.
    pub(crate) async fn create(&self, text: &str) -> Object {
        create(&self.api, text).await
    }

    /// Creates a node with 4 CPUs, 8 GiB and 110 pods, merged with `more`.
    pub(crate) async fn node(&self, name: &str, more: &str) -> Object {
        create_node(&self.api, name, more).await
    }

    /// Creates a pod in `default`, merged with `more`.
    pub(crate) async fn pod(&self, name: &str, more: &str) -> Object {
        let mut pod = read(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}},
               spec: {{containers: [{{name: c, image: i}}]}}}}"
        ));
        merge(&mut pod.0, &read(more).0);
        self.api.create(&PODS, &pod).await.unwrap()
    }

    /// Creates a pod with a CPU request and a priority.
    pub(crate) async fn pod_of(&self, name: &str, cpu: &str, priority: i32) -> Object {
        let class = format!("p{priority}");
        if priority != 0 && self.find(&PRIORITY_CLASSES, &class).await.is_none() {
            self.priority(&class, priority, "PreemptLowerPriority")
                .await;
        }
        let class = if priority == 0 {
            String::new()
        } else {
            format!("priorityClassName: {class}, ")
        };
        let container = format!("{{name: c, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}}}");
        self.pod(
            name,
            &format!("{{spec: {{{class}containers: [{container}]}}}}"),
        )
        .await
    }

    /// Creates a priority class.
    pub(crate) async fn priority(&self, name: &str, value: i32, policy: &str) {
        let class = format!(
            "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}, preemptionPolicy: {policy}}}"
        );
        self.create(&class).await;
    }

    /// Gets an object. Panics if it does not exist.
    pub(crate) async fn get(&self, of: &ResourceType, key: &str) -> Object {
        self.api.get(of, &key.parse().unwrap()).await.unwrap()
    }

    /// Gets an object.
    pub(crate) async fn find(&self, of: &ResourceType, key: &str) -> Option<Object> {
        self.api.find(of, &key.parse().unwrap()).await.unwrap()
    }

    /// Patches an object or a subresource.
    pub(crate) async fn patch(
        &self,
        of: &ResourceType,
        key: &str,
        subresource: &str,
        change: &str,
    ) {
        let key: Key = key.parse().unwrap();
        self.api
            .patch(of, &key, subresource, PatchType::Merge, &read(change))
            .await
            .unwrap();
    }

    /// Deletes an object without a grace period.
    pub(crate) async fn delete(&self, of: &ResourceType, key: &str) {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        self.api
            .delete(of, &key.parse().unwrap(), &options)
            .await
            .unwrap();
    }

    /// The node of a pod in `default`.
    pub(crate) async fn place(&self, pod: &str) -> String {
        self.settle().await;
        self.get(&PODS, &format!("default/{pod}")).await["spec"]["nodeName"]
            .str()
            .to_string()
    }

    /// The reason and message of the PodScheduled condition of a pod in `default`.
    pub(crate) async fn refusal(&self, pod: &str) -> (String, String) {
        self.settle().await;
        let pod = self.get(&PODS, &format!("default/{pod}")).await;
        let condition = pod["status"]["conditions"]
            .list()
            .iter()
            .find(|c| c["type"].str() == "PodScheduled");
        let condition = condition.cloned().unwrap_or_default();
        (
            condition["reason"].str().to_string(),
            condition["message"].str().to_string(),
        )
    }

    /// The messages of all events with a reason for a pod in `default`.
    pub(crate) async fn events(&self, pod: &str, reason: &str) -> Vec<Object> {
        self.settle().await;
        let fields = format!("involvedObject.name={pod},reason={reason}");
        self.api
            .list(
                &EVENTS,
                "default",
                &ListOptions {
                    fields,
                    ..Default::default()
                },
            )
            .await
            .unwrap()
    }

    /// Runs all tasks that are due. Advances the clock by less than a second.
    pub(crate) async fn settle(&self) {
        self.pass(Duration::from_millis(300)).await;
    }

    /// Advances the clock.
    pub(crate) async fn pass(&self, time: Duration) {
        sleep(time).await;
    }
}

fn client(server: &Server) -> Client {
    Client::new(
        server.in_process(User::master("admin"), "kube-scheduler"),
        "default",
    )
}

async fn create(api: &DynamicClient, text: &str) -> Object {
    let object = read(text);
    api.raw(Method::POST, &collection(&object), Some(&object))
        .await
        .unwrap()
}

async fn create_node(api: &DynamicClient, name: &str, more: &str) -> Object {
    let mut node = read(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}},
               status: {{allocatable: {{cpu: '4', memory: 8Gi, pods: '110'}}}}}}"
        ));
    merge(&mut node.0, &read(more).0);
    let taints = node["spec"]["taints"].clone();
    let mut made = api.create(&NODES, &node).await.unwrap();
    // Removes the not-ready taint that the server adds to new nodes.
    made.entry("spec").set("taints", taints);
    api.update(&NODES, &made).await.unwrap()
}

/// Decodes an object from YAML or JSON.
pub(crate) fn read(text: &str) -> Object {
    let document = yaml::read(text.as_bytes()).unwrap();
    Object(json::parse(json::to_string(&document.value).as_bytes()).unwrap())
}

/// Merges `more` into `value`.
fn merge(value: &mut Value, more: &Value) {
    for (key, more) in more.entries() {
        match more {
            Value::Map(_) => merge(value.entry(key), more),
            more => value.set(key, more.clone()),
        }
    }
}

/// The path of an object's collection, with the regular plural of its kind.
fn collection(object: &Object) -> String {
    let (version, kind) = (
        object["apiVersion"].str(),
        object["kind"].str().to_lowercase(),
    );
    let root = if version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let plural = if kind.ends_with('s') {
        kind + "es"
    } else {
        kind + "s"
    };
    let namespace = match object.namespace() {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{root}/{version}{namespace}/{plural}")
}
