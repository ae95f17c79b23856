//! An API server and nodes in one process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::Client;
use mizzen_apiserver::clock::{CountingRandom, SettableClock};
use mizzen_apiserver::{Server, User};
use mizzen_controlplane::{Options as ServerOptions, Plugins};
use mizzen_node::{Options, run};
use mizzen_registry::{Registry, Store};
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
use mizzen_sdk::resource::{EVENTS, PODS};
use mizzen_sdk::{Key, Object, ResourceType, clock};
use mizzen_value::{Value, json, yaml};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The start time of every test.
const BEGIN: i64 = 1_700_000_000;

/// An API server, nodes and a client with all permissions.
pub(crate) struct Cluster {
    pub server: Server,
    pub api: DynamicClient,
    pub clock: SettableClock,
    agent: Option<JoinHandle<()>>,
}

impl Cluster {
    /// A cluster with registered nodes.
    pub(crate) async fn with(n_nodes: usize) -> Cluster {
        let mut cluster = Cluster::new().await;
        cluster.start(n_nodes, |_| {});
        cluster.pass_millis(500).await;
        cluster
    }

    /// A cluster without nodes.
    pub(crate) async fn new() -> Cluster {
        Cluster::set_up(|_| {}).await
    }

    /// A cluster without nodes whose server options are changed by `choose`.
    pub(crate) async fn set_up(choose: impl FnOnce(&mut ServerOptions)) -> Cluster {
        let clock = SettableClock::starting_at(BEGIN);
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(
            store,
            Arc::new(clock.clone()),
            Arc::new(CountingRandom::default()),
        );
        let mut options = ServerOptions {
            plugins: Plugins::alone(),
            ..Default::default()
        };
        choose(&mut options);
        let server = mizzen_controlplane::server(registry, options);
        server.start().await;
        let cluster = Cluster {
            api: DynamicClient::new(client(&server)),
            server,
            clock,
            agent: None,
        };
        for name in ["default", "kube-node-lease", "kube-system"] {
            let text = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
            cluster.create("/api/v1/namespaces", &text).await;
        }
        cluster
    }

    /// Starts an agent in place of the previous one.
    pub(crate) fn start(&mut self, n_nodes: usize, choose: impl FnOnce(&mut Options)) {
        self.stop();
        let mut options = Options::simulated(client(&self.server), n_nodes);
        options.clock = clock::following(self.clock.clone());
        choose(&mut options);
        self.agent = Some(tokio::spawn(run(options)));
    }

    /// Stops the agent.
    pub(crate) fn stop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
        }
    }

    /// The status code and body of a GET.
    pub(crate) async fn text(&self, path: &str) -> (u16, String) {
        let (uri, user) = (path.parse().unwrap(), Some(User::master("admin")));
        let answer = self
            .server
            .call(
                user,
                http::Method::GET,
                uri,
                Default::default(),
                Bytes::new(),
            )
            .await;
        let code = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&text).into_owned())
    }

    /// The seconds since the start of the test, as a timestamp.
    pub(crate) fn second(text: &Value) -> i64 {
        mizzen_value::time::to_unix(text.str()).map_or(-1, |seconds| seconds - BEGIN)
    }

    /// Creates an object from YAML.
    pub(crate) async fn create(&self, path: &str, text: &str) -> Object {
        self.api
            .raw("POST".parse().unwrap(), path, Some(&read(text)))
            .await
            .unwrap()
    }

    /// Creates a pod on a node from its spec and annotations as YAML.
    pub(crate) async fn run_pod(&self, name: &str, annotations: &str, spec: &str) -> Object {
        let text = format!(
            "{{metadata: {{name: {name}, annotations: {{{annotations}}}}}, spec: {{nodeName: node-0, {spec}}}}}"
        );
        self.create("/api/v1/namespaces/default/pods", &text).await
    }

    /// Gets a pod. Panics if it does not exist.
    pub(crate) async fn pod(&self, name: &str) -> Object {
        self.get(&PODS, &Key::new("default", name)).await
    }

    /// Gets an object. Panics if it does not exist.
    pub(crate) async fn get(&self, of: &ResourceType, key: &Key) -> Object {
        self.api.get(of, key).await.unwrap()
    }

    /// Gets an object.
    pub(crate) async fn find(&self, of: &ResourceType, key: &Key) -> Option<Object> {
        self.api.find(of, key).await.unwrap()
    }

    /// Lists all objects of a kind.
    pub(crate) async fn list(&self, of: &ResourceType) -> Vec<Object> {
        self.api.list(of, "", &Default::default()).await.unwrap()
    }

    /// Deletes a pod, optionally with a grace period.
    pub(crate) async fn delete_pod(&self, name: &str, grace_seconds: Option<i64>) {
        let options = DeleteOptions {
            grace_seconds,
            ..DeleteOptions::default()
        };
        self.api
            .delete(&PODS, &Key::new("default", name), &options)
            .await
            .unwrap();
    }

    /// The events of a pod in order: type, reason, field path, message and count.
    pub(crate) async fn told(&self, pod: &str) -> Vec<String> {
        let mut events = self.list(&EVENTS).await;
        events.retain(|event| event["involvedObject"]["name"].str() == pod);
        events.sort_by_key(|event| event.name().to_string());
        let show = |event: &Object| {
            let part = event["involvedObject"]["fieldPath"].str();
            format!(
                "{} {} {part} {} x{}",
                event["type"].str(),
                event["reason"].str(),
                event["message"].str(),
                event["count"].int()
            )
        };
        events.iter().map(show).collect()
    }

    /// Advances the clock.
    pub(crate) async fn pass(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    /// Advances the clock by less than a second.
    pub(crate) async fn pass_millis(&self, millis: u64) {
        sleep(Duration::from_millis(millis)).await;
    }
}

fn client(server: &Server) -> Client {
    Client::new(
        server.in_process(User::master("admin"), "kubelet"),
        "default",
    )
}

/// Decodes an object from YAML or JSON.
pub(crate) fn read(text: &str) -> Object {
    let document = yaml::read(text.as_bytes()).unwrap();
    Object(json::parse(json::to_string(&document.value).as_bytes()).unwrap())
}

/// The phase of a pod, whether it is ready, and the state of each container.
pub(crate) fn show(pod: &Object) -> String {
    let status = &pod["status"];
    let ready = status["conditions"]
        .list()
        .iter()
        .find(|condition| condition["type"].str() == "Ready");
    let ready = ready.map_or("?", |condition| condition["status"].str());
    let lists = [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ];
    let containers = lists
        .iter()
        .flat_map(|list| status[*list].list())
        .map(show_container);
    let containers: Vec<String> = containers.collect();
    format!(
        "{} ready={ready} {}",
        status["phase"].str(),
        containers.join(" ")
    )
}

fn show_container(status: &Value) -> String {
    let state = match status["state"].entries().next() {
        Some(("waiting", waiting)) => waiting["reason"].str().to_string(),
        Some(("running", _)) if status["ready"].bool() => "running".into(),
        Some(("running", _)) if status["started"].bool() => "unready".into(),
        Some(("running", _)) => "starting".into(),
        Some(("terminated", end)) => format!("{}({})", end["reason"].str(), end["exitCode"].int()),
        _ => "?".into(),
    };
    let restarts = match status["restartCount"].int() {
        0 => String::new(),
        n => format!("+{n}"),
    };
    format!("{}={state}{restarts}", status["name"].str())
}
