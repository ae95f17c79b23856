//! A server with controllers, in one process.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::clock::{CountingRandom, VirtualClock};
use mizzen_apiserver::{Server, User};
use mizzen_controllers::{Handle, Options, start};
use mizzen_controlplane::{Options as ServerOptions, Plugins};
use mizzen_registry::{Registry, Store};
use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
use mizzen_sdk::{Key, Object, ResourceType, clock};
use mizzen_value::clock::Clock as _;
use mizzen_value::{Value, json, yaml};
use tokio::time::sleep;

/// The time at which every test starts.
const BEGIN: i64 = 1_700_000_000;

/// A server, the controllers of a test, and a cluster administrator.
pub(crate) struct Cluster {
    pub server: Server,
    pub api: DynamicClient,
    clock: VirtualClock,
    loops: Option<Handle>,
}

impl Cluster {
    /// A server with these controllers and the namespace `default`. Without names there are no
    /// controllers.
    pub(crate) async fn with(loops: &[&str]) -> Cluster {
        Cluster::set_up(loops, |_| {}).await
    }

    /// The same with options set by `choose`.
    pub(crate) async fn set_up(loops: &[&str], choose: impl FnOnce(&mut Options)) -> Cluster {
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
        let mut cluster = Cluster {
            api: DynamicClient::new(client(&server)),
            server,
            clock,
            loops: None,
        };
        cluster
            .create("{apiVersion: v1, kind: Namespace, metadata: {name: default}}")
            .await;
        cluster.start(loops, choose).await;
        cluster
    }

    /// Starts controllers; those that ran before stop.
    pub(crate) async fn start(&mut self, loops: &[&str], choose: impl FnOnce(&mut Options)) {
        self.loops = None;
        if loops.is_empty() {
            return;
        }
        let server = self.server.clone();
        let mut options = Options::new(Arc::new(move |_| client(&server)));
        options.clock = clock::following(self.clock);
        options.rng = Arc::new(|| 0.5);
        options.controllers = loops.iter().map(|name| name.to_string()).collect();
        choose(&mut options);
        let handle = start(options);
        handle.synced().await;
        self.loops = Some(handle);
    }

    /// The wall clock, in seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().0
    }

    /// Creates an object from YAML.
    pub(crate) async fn create(&self, text: &str) -> Object {
        let object = read(text);
        let path = collection(&object);
        self.api
            .raw(http_method("POST"), &path, Some(&object))
            .await
            .unwrap()
    }

    /// Reads an object that must exist.
    pub(crate) async fn get(&self, of: &ResourceType, key: &str) -> Object {
        self.api.get(of, &key.parse().unwrap()).await.unwrap()
    }

    /// Reads an object.
    pub(crate) async fn find(&self, of: &ResourceType, key: &str) -> Option<Object> {
        self.api.find(of, &key.parse().unwrap()).await.unwrap()
    }

    /// All objects of a kind in a namespace, by name.
    pub(crate) async fn list(&self, of: &ResourceType, namespace: &str) -> Vec<Object> {
        self.api
            .list(of, namespace, &Default::default())
            .await
            .unwrap()
    }

    /// Updates an object.
    pub(crate) async fn change(
        &self,
        of: &ResourceType,
        key: &str,
        change: impl FnOnce(&mut Object),
    ) -> Object {
        let mut object = self.get(of, key).await;
        change(&mut object);
        self.api.update(of, &object).await.unwrap()
    }

    /// Updates an object's status.
    pub(crate) async fn change_status(
        &self,
        of: &ResourceType,
        key: &str,
        change: impl FnOnce(&mut Value),
    ) -> Object {
        let mut object = self.get(of, key).await;
        change(object.entry("status"));
        self.api.update_status(of, &object).await.unwrap()
    }

    pub(crate) async fn delete(&self, of: &ResourceType, key: &str) {
        let key: Key = key.parse().unwrap();
        self.api
            .delete(of, &key, &DeleteOptions::default())
            .await
            .unwrap();
    }

    /// Waits until all controllers are idle. Less than a second passes.
    pub(crate) async fn settle(&self) {
        self.pass(Duration::from_millis(900)).await;
    }

    /// Advances the time.
    pub(crate) async fn pass(&self, time: Duration) {
        sleep(time).await;
    }
}

fn client(server: &Server) -> Client {
    Client::new(
        server.in_process(User::master("admin"), "kube-controller-manager"),
        "default",
    )
}

/// An object from YAML or JSON.
pub(crate) fn read(text: &str) -> Object {
    let document = yaml::read(text.as_bytes()).unwrap();
    Object(json::parse(json::to_string(&document.value).as_bytes()).unwrap())
}

/// The collection path of an object: the plural of a kind of several words is its name in lower
/// case.
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
    let plural = match kind.as_str() {
        "endpoints" => kind,
        _ if kind.ends_with(['s', 'h']) => kind + "es",
        _ if kind.ends_with("cy") => kind.trim_end_matches('y').to_string() + "ies",
        _ => kind + "s",
    };
    let namespace = match object.namespace() {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{root}/{version}{namespace}/{plural}")
}

fn http_method(name: &str) -> http::Method {
    name.parse().unwrap()
}
