//! A whole control plane in one thread, on paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::clock::SettableClock;
use mizzen_apiserver::{Server, User};
use mizzen_controllers as controllers;
use mizzen_controlplane::{Options, Plugins};
use mizzen_node as node;
use mizzen_registry::{Registry, Store};
use mizzen_scheduler as scheduler;
use mizzen_sdk::api::Api;
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Object, clock};
use mizzen_value::clock::Random;
use mizzen_value::{Value, yaml};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::faults::{FaultyService, Log, SeededRandom, Write};
use super::picture;
use super::scenario::{Action, Step};

/// The start time of every simulation.
const BEGIN: i64 = 1_700_000_000;

pub(super) struct World {
    server: Server,
    /// The client of the user, without faults.
    pub api: Api,
    /// The wall clock of the server and of all components.
    pub clock: SettableClock,
    began: Instant,
    random: SeededRandom,
    trouble: Arc<AtomicBool>,
    log: Log,
    loops: Option<Loops>,
}

/// The components besides the server. They stop when this is dropped.
struct Loops {
    _controllers: controllers::Handle,
    _scheduler: scheduler::Handle,
    _nodes: JoinSet<()>,
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

impl World {
    pub(super) async fn new(random: SeededRandom) -> World {
        let clock = SettableClock::starting_at(BEGIN);
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(clock.clone()), Arc::new(random.clone()));
        let server = mizzen_controlplane::server(
            registry,
            Options {
                plugins: Plugins::alone(),
                ..Options::default()
            },
        );
        server.start().await;
        let api = Api::new(Client::new(
            server.in_process(User::master("admin"), "kubectl"),
            "default",
        ));
        let world = World {
            server,
            api,
            clock,
            began: Instant::now(),
            random,
            trouble: Arc::default(),
            log: Log::default(),
            loops: None,
        };
        for name in ["default", "kube-system", "kube-node-lease"] {
            world
                .apply(&format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
                ))
                .await;
        }
        world
    }

    /// Kills the components, and starts new ones with empty caches.
    pub(super) async fn start(&mut self) {
        self.loops = None;
        let clock = clock::following(self.clock.clone());
        let chance = self.chance();
        let way = self.way();
        let mut options = controllers::Options::new(Arc::new(move |name| way.client(name)));
        (options.clock, options.rng) = (clock.clone(), chance.clone());
        let mut placing = scheduler::Options::new(self.client("scheduler"));
        (placing.clock, placing.rng) = (clock, chance);
        self.loops = Some(Loops {
            _controllers: controllers::start(options),
            _scheduler: scheduler::start(placing).unwrap(),
            _nodes: self.nodes("node", 2),
        });
    }

    /// Nodes, which stop renewing their leases when this is dropped.
    pub(super) fn nodes(&self, prefix: &str, n_nodes: usize) -> JoinSet<()> {
        let mut nodes = node::Options::simulated(self.client("kubelet"), n_nodes);
        (nodes.prefix, nodes.clock) = (prefix.into(), clock::following(self.clock.clone()));
        JoinSet::from_iter([node::run(nodes)])
    }

    fn chance(&self) -> clock::Rng {
        let random = self.random.clone();
        Arc::new(move || random.fraction())
    }

    fn client(&self, actor: &str) -> Client {
        self.way().client(actor)
    }

    fn way(&self) -> Way {
        let (server, random, is_on, log) = (
            self.server.clone(),
            self.random.clone(),
            self.trouble.clone(),
            self.log.clone(),
        );
        Way {
            server,
            random,
            is_on,
            log,
            began: self.began,
        }
    }

    /// Drains the recorded writes and their users.
    pub(super) fn writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.log.lock())
    }

    /// Switches faults on or off.
    pub(super) fn trouble(&self, is_on: bool) {
        self.trouble.store(is_on, Ordering::Relaxed);
    }

    pub(super) async fn pass(&self, time: Duration) {
        sleep(time).await;
    }

    /// Lets time pass, in which components may be killed.
    pub(super) async fn suffer(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.pass(Duration::from_secs(1)).await;
            if self.random.percent(10) {
                self.start().await;
            }
        }
    }

    pub(super) async fn perform(&mut self, step: &Step) {
        match &step.action {
            Action::Apply(text) => self.apply(text).await,
            Action::Await { path, n } => self.wait(path, *n).await,
            Action::Evict(path) => self.evict(path).await,
            Action::Delete { path, propagation } => {
                let mut options = Value::object();
                options.set("kind", "DeleteOptions");
                options.set("apiVersion", "v1");
                options.set("propagationPolicy", *propagation);
                self.api
                    .raw(http::Method::DELETE, path, Some(&options))
                    .await
                    .unwrap();
            }
        }
    }

    /// Waits until there are `n` objects at a path, despite faults.
    async fn wait(&mut self, path: &str, n: usize) {
        for _ in 0..600 {
            let found = self.api.raw(http::Method::GET, path, None).await.unwrap();
            if found["items"].list().len() == n {
                return;
            }
            self.wait_a_second().await;
        }
        panic!("there are no {n} objects at {path} after ten minutes");
    }

    async fn wait_a_second(&mut self) {
        match self.trouble.load(Ordering::Relaxed) {
            true => self.suffer(1).await,
            false => self.pass(Duration::from_secs(1)).await,
        }
    }

    /// Evicts pods, as `kubectl drain` does.
    async fn evict(&mut self, path: &str) {
        let pods = self.api.raw(http::Method::GET, path, None).await.unwrap();
        for pod in pods["items"].list() {
            let pod = Object(pod.clone());
            let mut eviction = Value::object();
            eviction.set("apiVersion", "policy/v1");
            eviction.set("kind", "Eviction");
            eviction.entry("metadata").set("name", pod.name());
            let path = format!("{}/eviction", PODS.path_of(&pod.key()));
            let mut n_tries = 0;
            while let Err(error) = self
                .api
                .raw(http::Method::POST, &path, Some(&eviction))
                .await
            {
                if is_not_found(&error) {
                    break;
                }
                n_tries += 1;
                assert!(
                    n_tries < 600,
                    "{path} may not go after ten minutes: {error}"
                );
                self.wait_a_second().await;
            }
        }
    }

    /// Applies objects, as `kubectl apply --server-side` does.
    pub(super) async fn apply(&self, text: &str) {
        for text in text.split("---\n") {
            let object = Object(yaml::read(text.as_bytes()).unwrap().value);
            let path = format!(
                "{}/{}?fieldManager=kubectl&force=true",
                collection(&object),
                object.name()
            );
            self.patch(&path, &object).await;
        }
    }

    async fn patch(&self, path: &str, object: &Object) {
        let body = mizzen_value::json::to_string(object);
        let request =
            http::Request::patch(path).header("content-type", "application/apply-patch+yaml");
        self.api
            .client()
            .request_text(request.body(body.into()).unwrap())
            .await
            .unwrap();
    }

    pub(super) async fn picture(&self) -> String {
        picture::draw(&self.api).await
    }
}

/// The transport of components to the server.
struct Way {
    server: Server,
    random: SeededRandom,
    is_on: Arc<AtomicBool>,
    log: Log,
    began: Instant,
}

impl Way {
    fn client(&self, actor: &str) -> Client {
        let inner = self
            .server
            .in_process(User::master("system:loops"), "loops");
        let (random, is_on, log) = (self.random.clone(), self.is_on.clone(), self.log.clone());
        Client::new(
            FaultyService {
                inner,
                actor: actor.into(),
                log,
                began: self.began,
                random,
                is_on,
            },
            "default",
        )
    }
}

/// The path of objects of this kind.
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
    let plural = if kind == "podmetrics" {
        "pods".into()
    } else {
        format!("{kind}s")
    };
    match object.namespace() {
        "" => format!("{root}/{version}/{plural}"),
        namespace => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
    }
}
