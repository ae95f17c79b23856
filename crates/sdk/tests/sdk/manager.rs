//! The manager: order of start and stop, leader election, caches, endpoints.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, PostParams};
use mizzen_sdk::controller::{Action, Controller, typed};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::FactoryOptions;
use mizzen_sdk::manager::{CheckFailed, Manager, ReadError, RunError, Stop, Task, TaskError};
use mizzen_sdk::resource::CONFIG_MAPS;
use mizzen_sdk::{Key, Object, election};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::start;

async fn client() -> Client {
    start().await.client()
}

/// A log of what happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    /// A task that logs its start and its end.
    fn task(&self, name: &'static str) -> Task {
        let log = self.clone();
        Task::new(name, async move |stop: Stop| {
            log.add(format!("{name} starts"));
            stop.requested().await;
            sleep(Duration::from_secs(1)).await;
            log.add(format!("{name} ends"));
            Ok(())
        })
    }
}

/// A manager that runs until it is stopped.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start(manager: Manager) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(manager.run(async { drop(stopped.await) }));
        Running {
            stop: Some(stop),
            task,
        }
    }

    async fn stop(mut self) -> Result<(), RunError> {
        drop(self.stop.take());
        self.task.await.unwrap()
    }
}

fn candidate(client: &Client, identity: &str) -> Manager {
    Manager::new(client.clone()).leader_election(
        "default",
        "operator",
        election::Options::new(identity),
    )
}

fn config(namespace: &str, name: &str, app: &str) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.into());
    config.metadata.namespace = Some(namespace.into());
    config.metadata.labels = Some([("app".into(), app.into())].into());
    config
}

#[tokio::test(start_paused = true)]
async fn tasks_start_after_the_caches_and_stop_in_reverse_order() {
    let (client, log) = (client().await, Log::default());
    let mut manager = candidate(&client, "one");
    let informer = manager.cluster().informers().informer::<ConfigMap>();
    let watching = log.clone();
    let replica = Task::new("replica", async move |stop: Stop| {
        watching.add(format!("replica starts, synced: {}", informer.has_synced()));
        stop.requested().await;
        watching.add("replica ends");
        Ok(())
    });
    manager.add_task(log.task("leader"));
    manager.add_task(replica.on_every_replica());
    let running = Running::start(manager);
    sleep(Duration::from_secs(1)).await;
    running.stop().await.unwrap();
    assert_eq!(
        log.take(),
        [
            "replica starts, synced: true",
            "leader starts",
            "leader ends",
            "replica ends"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_the_leaders_tasks_have_ended() {
    let (client, log) = (client().await, Log::default());
    let (mut one, mut two) = (candidate(&client, "one"), candidate(&client, "two"));
    one.add_task(log.task("one"));
    two.add_task(log.task("two"));
    two.add_task(log.task("two everywhere").on_every_replica());
    let one = Running::start(one);
    sleep(Duration::from_secs(1)).await;
    let two = Running::start(two);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["one starts", "two everywhere starts"]);
    one.stop().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["one ends", "two starts"]);
    two.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_candidate_stops_at_once() {
    let client = client().await;
    let one = Running::start(candidate(&client, "one"));
    sleep(Duration::from_secs(1)).await;
    let two = Running::start(candidate(&client, "two"));
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    two.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    one.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_manager_and_drops_the_leaders_tasks() {
    let (client, log) = (client().await, Log::default());
    let mut manager = candidate(&client, "one");
    manager.add_task(log.task("leader"));
    manager.add_task(log.task("everywhere").on_every_replica());
    let running = Running::start(manager);
    sleep(Duration::from_secs(1)).await;
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let mut lease = leases.get("operator").await.unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("another".into());
    leases
        .replace("operator", &PostParams::default(), &lease)
        .await
        .unwrap();
    let outcome = running.task.await.unwrap();
    assert!(matches!(outcome, Err(RunError::LeaseLost)), "{outcome:?}");
    let lines = log.take();
    assert!(!lines.contains(&"leader ends".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "everywhere ends");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_panics_stops_the_manager() {
    let client = client().await;
    let run = async |task: Task| {
        let mut manager = Manager::new(client.clone());
        let log = Log::default();
        manager.add_task(log.task("other"));
        manager.add_task(task);
        let outcome = manager
            .run(std::future::pending())
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(log.take().last().unwrap(), "other ends");
        outcome
    };
    let failing = Task::new("broken", async |_: Stop| Err("no disk".into()));
    assert_eq!(run(failing).await, "task broken failed: no disk");
    let panicking = Task::new("wild", async |_: Stop| -> Result<(), TaskError> {
        panic!("oops")
    });
    assert_eq!(run(panicking).await, "task wild panicked");
}

#[tokio::test(start_paused = true)]
async fn tasks_that_do_not_end_are_dropped_after_the_grace_period() {
    let mut manager = Manager::new(client().await).grace(Duration::from_secs(7));
    manager.add_task(Task::new(
        "stubborn",
        async |_: Stop| -> Result<(), TaskError> { std::future::pending().await },
    ));
    let running = Running::start(manager);
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let error = running.stop().await.unwrap_err();
    assert_eq!(error.to_string(), "tasks did not end within 7s");
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn caches_that_do_not_sync_end_the_manager() {
    let manager = Manager::new(client().await).sync_timeout(Duration::from_secs(20));
    let unserved =
        mizzen_sdk::ResourceType::namespaced("example.com", "v1", "unserved", "Unserved");
    manager.cluster().informers().objects(&unserved);
    let outcome = manager.run(std::future::pending()).await;
    assert!(matches!(outcome, Err(RunError::Sync(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_reads_its_own_writes_from_the_cache() {
    let manager = Manager::new(client().await).read_your_writes(Duration::from_secs(5));
    let (typed, untyped) = (
        manager.cluster().api::<ConfigMap>(),
        manager.cluster().objects(&CONFIG_MAPS),
    );
    let key = Key::new("default", "a");
    for n in 0..20 {
        let label = n.to_string();
        if n == 0 {
            typed.create(&config("default", "a", &label)).await.unwrap();
        } else {
            let mut config = ConfigMap::clone(&*typed.get(&key).await.unwrap().unwrap());
            config.metadata.labels = Some([("app".into(), label.clone())].into());
            typed.update(&config).await.unwrap();
        }
        let read = typed.get(&key).await.unwrap().unwrap();
        assert_eq!(read.metadata.labels.as_ref().unwrap()["app"], label);
    }
    let mut object = Object::clone(&*untyped.get(&key).await.unwrap().unwrap());
    object.entry("data").set("a", "b");
    untyped.update(&object).await.unwrap();
    assert_eq!(
        untyped.list("default").await.unwrap()[0]["data"]["a"].str(),
        "b"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_restricted_to_namespaces_and_labels() {
    let client = client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("shop".into());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    for (namespace, name, app) in [
        ("default", "a", "web"),
        ("shop", "b", "web"),
        ("shop", "c", "other"),
    ] {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        api.create(&PostParams::default(), &config(namespace, name, app))
            .await
            .unwrap();
    }
    let manager = Manager::new(client).cache(FactoryOptions {
        namespaces: vec!["shop".into()],
        labels: Some("app=web".into()),
        ..FactoryOptions::default()
    });
    let configs = manager.cluster().api::<ConfigMap>();
    let names: Vec<_> = configs
        .list("")
        .await
        .unwrap()
        .iter()
        .map(|config| config.metadata.name.clone())
        .collect();
    assert_eq!(names, [Some("b".to_owned())]);
    let error = configs.get(&Key::new("default", "a")).await.unwrap_err();
    assert!(
        matches!(&error, ReadError::NotCached(name) if name == "default"),
        "{error}"
    );
    let error = configs.by_index("unknown", "x").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no index \"unknown\"");
}

#[tokio::test(start_paused = true)]
async fn one_manager_has_the_caches_of_several_clusters() {
    let (local, remote) = (client().await, client().await);
    let mut manager = Manager::new(local);
    let remote = manager.add_cluster("remote", remote, FactoryOptions::default());
    let (here, there) = (
        manager.cluster().api::<ConfigMap>(),
        remote.api::<ConfigMap>(),
    );
    let running = Running::start(manager);
    here.create(&config("default", "a", "web")).await.unwrap();
    there.create(&config("default", "b", "web")).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let names = async |api: &mizzen_sdk::manager::CachedApi<ConfigMap>| -> Vec<String> {
        let configs = api.list("default").await.unwrap();
        configs
            .iter()
            .filter_map(|config| config.metadata.name.clone())
            .collect()
    };
    assert_eq!(
        (names(&here).await, names(&there).await),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_on_the_leader_from_the_shared_cache() {
    let (client, log) = (client().await, Log::default());
    let start = |identity: &'static str| {
        let (mut manager, log) = (candidate(&client, identity), log.clone());
        let context = manager.cluster().context("configs");
        let controller = Controller::for_kind(&context, typed::<ConfigMap>());
        manager.add_controller(controller.reconcile(move |key: Key, _| {
            log.add(format!("{identity} {key}"));
            async { Ok(Action::done()) }
        }));
        Running::start(manager)
    };
    let one = start("one");
    sleep(Duration::from_secs(1)).await;
    let two = start("two");
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    configs
        .create(&PostParams::default(), &config("default", "a", "web"))
        .await
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log.take(), ["one default/a"]);
    one.stop().await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log.take(), ["two default/a"]);
    two.stop().await.unwrap();
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn endpoints_show_health_readiness_and_metrics() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut manager = candidate(&client().await, "one").endpoints_on(listener);
    let (ready, is_ready) = oneshot::channel();
    let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let broken = is_broken.clone();
    manager.add_health_check("disk", move || {
        match broken.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(CheckFailed::new("full")),
            false => Ok(()),
        }
    });
    manager.add_task(Task::new("leader", async move |_: Stop| {
        ready.send(()).unwrap();
        Ok(())
    }));
    let running = Running::start(manager);
    is_ready.await.unwrap();
    assert!(get(address, "/healthz").await.ends_with("\r\n\r\nok"));
    assert!(get(address, "/readyz").await.ends_with("\r\n\r\nok"));
    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.contains("leader_election_master_status{name=\"operator\"} 1"),
        "{metrics}"
    );
    is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
    let failed = get(address, "/healthz").await;
    assert!(
        failed.starts_with("HTTP/1.1 500") && failed.contains("[+]ping ok\n[-]disk failed: full"),
        "{failed}"
    );
    assert!(get(address, "/other").await.starts_with("HTTP/1.1 404"));
    running.stop().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn port_0_switches_the_endpoints_off() {
    let manager = Manager::new(client().await).endpoints(([127, 0, 0, 1], 0).into());
    manager.run(std::future::ready(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_restricted_to_fields() {
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "other")] {
        let config = config("default", name, app);
        api.create(&PostParams::default(), &config).await.unwrap();
    }
    let manager = Manager::new(client).cache(FactoryOptions {
        fields: Some("metadata.name!=a".into()),
        ..FactoryOptions::default()
    });
    let names = async |configs: Vec<Arc<ConfigMap>>| -> Vec<String> {
        let mut names: Vec<String> = configs
            .iter()
            .filter_map(|config| config.metadata.name.clone())
            .collect();
        names.sort();
        names
    };
    let all = manager.cluster().api::<ConfigMap>();
    assert_eq!(names(all.list("default").await.unwrap()).await, ["b", "c"]);
    // A controller's own selectors restrict it further.
    let context = manager.cluster().context("web");
    let web = context.informer(
        typed::<ConfigMap>()
            .labels("app=web")
            .fields("metadata.name!=z"),
    );
    web.start();
    web.wait_for_sync().await;
    assert_eq!(names(web.lister().list().unwrap()).await, ["b"]);
    // Objects come and go as their labels change.
    let mut changed = config("default", "c", "web");
    changed = api
        .replace("c", &PostParams::default(), &changed)
        .await
        .unwrap();
    let version = mizzen_sdk::cache::Version::parse(&changed.metadata.resource_version.unwrap());
    web.wait_for(&Key::new("default", "c"), version).await;
    assert_eq!(names(web.lister().list().unwrap()).await, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_read_what_it_has_deleted() {
    let client = client().await;
    let manager = Manager::new(client.clone()).read_your_writes(Duration::from_secs(5));
    let (typed, untyped) = (
        manager.cluster().api::<ConfigMap>(),
        manager.cluster().objects(&CONFIG_MAPS),
    );
    let (key, options) = (Key::new("default", "a"), DeleteOptions::default());
    for _ in 0..10 {
        typed.create(&config("default", "a", "web")).await.unwrap();
        typed.delete(&key, &options).await.unwrap();
        assert!(typed.get(&key).await.unwrap().is_none());
        untyped
            .create(&Object::parse(br#"{"metadata":{"name":"a","namespace":"default"}}"#).unwrap())
            .await
            .unwrap();
        untyped.delete(&key, &options).await.unwrap();
        assert!(untyped.get(&key).await.unwrap().is_none());
    }
    // A finalizer delays the deletion: the cache has its timestamp, and nothing waits for its end.
    let mut held = config("default", "held", "web");
    held.metadata.finalizers = Some(vec!["example.com/held".into()]);
    typed.create(&held).await.unwrap();
    let (key, began) = (Key::new("default", "held"), Instant::now());
    typed.delete(&key, &options).await.unwrap();
    let read = typed.get(&key).await.unwrap().unwrap();
    assert!(read.metadata.deletion_timestamp.is_some());
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "it did not time out"
    );
}

#[tokio::test]
async fn metrics_have_the_informers_of_every_cluster() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut manager = Manager::new(client().await).endpoints_on(listener);
    let remote = manager.add_cluster("remote", client().await, FactoryOptions::default());
    manager.cluster().informers().informer::<ConfigMap>();
    remote.informers().informer::<ConfigMap>();
    let configs: Api<ConfigMap> = Api::namespaced(remote.client(), "default");
    let config = config("default", "a", "web");
    configs
        .create(&PostParams::default(), &config)
        .await
        .unwrap();
    let (ready, is_ready) = oneshot::channel();
    manager.add_task(Task::new("ready", async move |_: Stop| {
        ready.send(()).unwrap();
        Ok(())
    }));
    let running = Running::start(manager);
    is_ready.await.unwrap();
    let metrics = get(address, "/metrics").await;
    let objects: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("informer_objects{"))
        .collect();
    let labels = r#"name="/api/v1/configmaps",resource="configmaps",version="v1"} "#;
    let local = format!(r#"informer_objects{{group="",{labels}"#);
    let remote = format!(r#"informer_objects{{cluster="remote",group="",{labels}"#);
    let counted = |cluster: &str| objects.iter().find_map(|line| line.strip_prefix(cluster));
    let count = counted(&local).unwrap().parse::<usize>().unwrap();
    assert_eq!(
        counted(&remote),
        Some(&*(count + 1).to_string()),
        "{objects:?}"
    );
    let lists = r#"reflector_lists_total{cluster="remote",name="/api/v1/configmaps"} 1"#;
    assert!(metrics.contains(lists), "{metrics}");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn controllers_of_several_clusters_run_in_one_manager() {
    let (local, remote) = (client().await, client().await);
    let mut manager = Manager::new(local.clone());
    let far = manager.add_cluster("remote", remote.clone(), FactoryOptions::default());
    // One copies ConfigMaps to the other cluster, the other counts what arrives there.
    let copy = far.api::<ConfigMap>();
    let here = manager.cluster().context("copy");
    let source = typed::<ConfigMap>().labels("app=web");
    let copier =
        Controller::for_kind(&here, source).reconcile_objects(move |config: Arc<ConfigMap>, _| {
            let copy = copy.clone();
            async move {
                let mut config = ConfigMap::clone(&config);
                config.metadata.resource_version = None;
                config.metadata.uid = None;
                copy.create(&config).await?;
                Ok(Action::done())
            }
        });
    let log = Log::default();
    let seen = log.clone();
    let there = far.context("count");
    let counter = Controller::for_kind(&there, typed::<ConfigMap>().labels("app=web")).reconcile(
        move |key: Key, _| {
            seen.add(key.to_string());
            async { Ok(Action::done()) }
        },
    );
    manager.add_controller(copier);
    manager.add_controller(counter);
    let running = Running::start(manager);
    let configs: Api<ConfigMap> = Api::namespaced(local, "default");
    for (name, app) in [("a", "web"), ("b", "other"), ("c", "web")] {
        let config = config("default", name, app);
        configs
            .create(&PostParams::default(), &config)
            .await
            .unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    running.stop().await.unwrap();
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["default/a", "default/c"]);
}
