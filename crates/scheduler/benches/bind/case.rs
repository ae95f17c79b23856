//! Benchmark cases: pods and the cluster they are scheduled on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Server, User};
use mizzen_controlplane::{Options as ServerOptions, Plugins};
use mizzen_registry::{Registry, Store};
use mizzen_sdk::cache::Entry;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NAMESPACES, NODES, PODS};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::{Object, ResourceType};
use mizzen_value::{Value, value};

/// The number of concurrent requests while objects are created.
const AT_ONCE: usize = 64;

/// A template of pods.
pub(crate) struct Case {
    pub name: &'static str,
    /// Additional fields of the pod spec.
    spec: fn() -> Value,
}

/// All benchmark cases.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "standard",
        spec: Value::object,
    },
    Case {
        name: "node selector",
        spec: || value!({"nodeSelector": {"disk": "ssd"}}),
    },
    Case {
        name: "anti-affinity by host",
        spec: anti_affinity,
    },
    Case {
        name: "spread over zones",
        spec: spread,
    },
    Case {
        name: "preferred affinity",
        spec: preferred,
    },
];

fn anti_affinity() -> Value {
    // The term matches none of the pods, so that more pods than nodes fit.
    let term = value!({"labelSelector": {"matchLabels": {"color": "red"}}, "topologyKey": "kubernetes.io/hostname"});
    value!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn spread() -> Value {
    value!({"topologySpreadConstraints": [{
        "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}
    }]})
}

fn preferred() -> Value {
    let term = value!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
    value!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": term}
    ]}}})
}

/// An API server with nodes and pods.
pub(crate) struct Cluster {
    server: Server,
    bound: Arc<AtomicUsize>,
}

impl Cluster {
    pub(crate) async fn start(case: &Case, n_nodes: usize, n_pods: usize) -> Cluster {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let server = mizzen_controlplane::server(
            registry,
            ServerOptions {
                plugins: Plugins::alone(),
                ..Default::default()
            },
        );
        server.start().await;
        let api = DynamicClient::new(client(&server));
        api.create(&NAMESPACES, &value!({"metadata": {"name": "bench"}}))
            .await
            .expect("a namespace");
        many(n_nodes, |number| create(api.clone(), NODES, node(number))).await;
        many(n_pods, |number| {
            create(api.clone(), PODS, pod(case, number))
        })
        .await;
        let bound = follow(&server).await;
        Cluster { server, bound }
    }

    pub(crate) fn client(&self) -> Client {
        client(&self.server)
    }

    /// The number of bound pods, as a client sees it.
    pub(crate) fn n_bound(&self) -> usize {
        self.bound.load(Ordering::Relaxed)
    }
}

/// Counts bound pods without decoding them whole.
async fn follow(server: &Server) -> Arc<AtomicUsize> {
    let pods = Informer::new(ListWatch::<Object>::at(client(server), PODS.path("")));
    let bound: Arc<AtomicUsize> = Arc::default();
    let count = bound.clone();
    pods.add_handler(move |event: Event<Object>| {
        let has_node = |entry: &Entry<Object>| {
            std::str::from_utf8(entry.text()).is_ok_and(|text| text.contains("\"nodeName\":"))
        };
        if let Event::Updated { old, new } = event
            && has_node(&new)
            && !has_node(&old)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    pods.start();
    pods.wait_for_sync().await;
    // The task runs until the process ends.
    std::mem::forget(pods);
    bound
}

fn client(server: &Server) -> Client {
    Client::new(server.in_process(User::master("admin"), "bench"), "default")
}

async fn many<F: Future<Output = ()> + Send + 'static>(n: usize, make: impl Fn(usize) -> F) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..n {
        if tasks.len() >= AT_ONCE {
            tasks.join_next().await;
        }
        tasks.spawn(make(number));
    }
    while tasks.join_next().await.is_some() {}
}

async fn create(api: DynamicClient, of: ResourceType, object: Value) {
    api.create(&of, &object)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
}

fn node(number: usize) -> Value {
    let (name, zone) = (format!("node-{number}"), format!("zone-{}", number % 10));
    let host = name.clone();
    value!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": host, "topology.kubernetes.io/zone": zone, "disk": "ssd"
        }},
        "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"}}
    })
}

fn pod(case: &Case, number: usize) -> Value {
    let name = format!("pod-{number}");
    let mut spec = (case.spec)();
    let container = value!({
        "name": "c", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}
    });
    spec.set("containers", vec![container]);
    // Removes the not-ready taint that the server adds to new nodes.
    spec.set("tolerations", vec![value!({"operator": "Exists"})]);
    value!({"metadata": {"name": name, "namespace": "bench", "labels": {"app": "web", "color": "blue"}}, "spec": spec})
}

/// The duration of the scheduling cycle per pod, from the metrics.
pub(crate) fn micros_in_loop(text: &str) -> f64 {
    let value = |suffix: &str| {
        let name = format!("scheduler_scheduling_algorithm_duration_seconds_{suffix} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok())
            .unwrap_or_default()
    };
    value("sum") / value("count").max(1.0) * 1e6
}
