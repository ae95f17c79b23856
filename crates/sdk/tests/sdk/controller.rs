//! Controllers: which events enqueue which keys, retries, panics, metrics and the graceful stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use mizzen_sdk::controller::{
    Action, Context, Controller, Error, LabelSelector, Predicate, Reconcile, RunError, dynamic,
    generation_changed, labels_changed, metadata, typed,
};
use mizzen_sdk::dynamic::{DeleteOptions, ListOptions, PatchType};
use mizzen_sdk::metrics::Families;
use mizzen_sdk::queue::{Exponential, Queue};
use mizzen_sdk::resource::{CONFIG_MAPS, EVENTS, PODS, SECRETS};
use mizzen_sdk::{Key, Object, ResourceType};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::start;

/// Records the reconciled keys, and answers with `answer`.
#[derive(Clone)]
struct Recording {
    keys: Arc<Mutex<Vec<String>>>,
    answer: fn(usize) -> Result<Action, Error>,
}

impl Recording {
    fn new(answer: fn(usize) -> Result<Action, Error>) -> Recording {
        Recording {
            keys: Arc::default(),
            answer,
        }
    }

    fn done() -> Recording {
        Recording::new(|_| Ok(Action::done()))
    }

    /// The keys since the last call, in order.
    async fn settled(&self) -> Vec<String> {
        sleep(Duration::from_millis(1)).await;
        let mut keys = std::mem::take(&mut *self.keys.lock());
        keys.sort();
        keys
    }

    fn count(&self) -> usize {
        self.keys.lock().len()
    }
}

impl Reconcile for Recording {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let n = {
            let mut keys = self.keys.lock();
            keys.push(key.to_string());
            keys.len()
        };
        (self.answer)(n)
    }
}

/// A running controller.
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start(controller: Controller) -> Running {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(controller.run(async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }));
        Running { stop, task }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }
}

async fn context() -> Context {
    Context::new(start().await.client()).named("test")
}

async fn create(context: &Context, kind: &ResourceType, text: &str) -> Object {
    let object = Object::parse(text.as_bytes()).unwrap();
    context.api.create(kind, &object).await.unwrap()
}

fn config(name: &str, more: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"{more}}}}}"#)
}

async fn patch(context: &Context, name: &str, text: &str) {
    let change = Object::parse(text.as_bytes()).unwrap();
    let key = Key::new("default", name);
    context
        .api
        .patch(&CONFIG_MAPS, &key, "", PatchType::Merge, &change)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn typed_dynamic_and_metadata_sources_enqueue_the_same_keys() {
    let context = context().await;
    let seen = [Recording::done(), Recording::done(), Recording::done()];
    let controllers = [
        Controller::for_kind(&context, typed::<ConfigMap>()).reconcile(seen[0].clone()),
        Controller::for_kind(&context, &CONFIG_MAPS).reconcile(seen[1].clone()),
        Controller::for_kind(&context, metadata(&CONFIG_MAPS)).reconcile(seen[2].clone()),
    ];
    create(&context, &CONFIG_MAPS, &config("before", "")).await;
    let running = controllers.map(Running::start);
    sleep(Duration::from_millis(1)).await;
    create(&context, &CONFIG_MAPS, &config("after", "")).await;
    for seen in &seen {
        assert_eq!(seen.settled().await, ["default/after", "default/before"]);
    }
    patch(&context, "after", r#"{"data":{"a":"b"}}"#).await;
    for seen in &seen {
        assert_eq!(seen.settled().await, ["default/after"]);
    }
    let options = DeleteOptions::default();
    let key = Key::new("default", "after");
    let deleted = context.api.delete(&CONFIG_MAPS, &key, &options).await;
    deleted.unwrap();
    for seen in &seen {
        assert_eq!(seen.settled().await, ["default/after"]);
    }
    for running in running {
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_reconciled_as_the_cache_has_them() {
    let context = context().await;
    let names: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = names.clone();
    let controller = Controller::for_kind(&context, typed::<ConfigMap>()).reconcile_objects(
        move |config: Arc<ConfigMap>, context: Context| {
            let text = format!("{} {:?}", context.name(), config.metadata.name);
            seen.lock().push(text);
            async { Ok(Action::done()) }
        },
    );
    create(&context, &CONFIG_MAPS, &config("a", "")).await;
    let running = Running::start(controller);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*names.lock(), [r#"test Some("a")"#]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_owned_and_watched_objects_enqueue_their_owners() {
    let context = context().await;
    let seen = Recording::done();
    let controller = Controller::for_kind(&context, &CONFIG_MAPS)
        .owns(typed::<k8s_openapi::api::core::v1::Secret>())
        .watches(&PODS, |pod: &Object| {
            let config = pod.annotation("config")?;
            Some(Key::new(pod.namespace(), config))
        })
        .workers(2)
        .reconcile(seen.clone());
    let owner = create(&context, &CONFIG_MAPS, &config("owner", "")).await;
    let running = Running::start(controller);
    assert_eq!(seen.settled().await, ["default/owner"]);
    let reference = |uid: &str, kind: &str| {
        format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"{kind}","name":"owner","uid":"{uid}","controller":true}}]"#
        )
    };
    let owned = config("owned", &reference(owner.uid(), "ConfigMap"));
    create(&context, &SECRETS, &owned).await;
    assert_eq!(seen.settled().await, ["default/owner"]);
    let other = config("other", &reference("other-uid", "ConfigMap"));
    create(&context, &SECRETS, &other).await;
    let foreign = config("foreign", &reference(owner.uid(), "Secret"));
    create(&context, &SECRETS, &foreign).await;
    create(&context, &SECRETS, &config("orphan", "")).await;
    assert!(seen.settled().await.is_empty());
    let pod = r#"{"metadata":{"name":"p","namespace":"default","annotations":{"config":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    create(&context, &PODS, pod).await;
    assert_eq!(seen.settled().await, ["default/x"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_enqueues_the_objects_that_select_it() {
    let context = context().await;
    let seen = Recording::done();
    let controller = Controller::for_kind(&context, &CONFIG_MAPS)
        .owns_selected(&SECRETS, |config: &Object| {
            let app = config.label("selects")?;
            LabelSelector::parse(&format!("app={app}")).ok()
        })
        .reconcile(seen.clone());
    let labels = r#","labels":{"selects":"web"}"#;
    create(&context, &CONFIG_MAPS, &config("selects", labels)).await;
    let running = Running::start(controller);
    seen.settled().await;
    for (name, app) in [("a", "web"), ("b", "db")] {
        let labels = format!(r#","labels":{{"app":"{app}"}}"#);
        create(&context, &SECRETS, &config(name, &labels)).await;
    }
    assert_eq!(seen.settled().await, ["default/selects"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn predicates_filter_updates_and_are_combined() {
    let context = context().await;
    let (by_label, by_both, none) = (Recording::done(), Recording::done(), Recording::done());
    let start = |predicate: Predicate<Object>, seen: &Recording| {
        let source = dynamic(&CONFIG_MAPS).filter(predicate);
        Running::start(Controller::for_kind(&context, source).reconcile(seen.clone()))
    };
    let running = [
        start(labels_changed(), &by_label),
        start(labels_changed().and(generation_changed()), &by_both),
        start(Predicate::new(|_| false), &none),
    ];
    create(&context, &CONFIG_MAPS, &config("a", "")).await;
    assert_eq!(by_label.settled().await, ["default/a"]);
    assert_eq!(by_both.settled().await, ["default/a"]);
    patch(&context, "a", r#"{"data":{"k":"v"}}"#).await;
    assert!(by_label.settled().await.is_empty());
    patch(&context, "a", r#"{"metadata":{"labels":{"k":"v"}}}"#).await;
    assert_eq!(by_label.settled().await, ["default/a"]);
    assert!(by_both.settled().await.is_empty() && none.settled().await.is_empty());
    for running in running {
        running.stop().await;
    }
}

/// The text of a controller's metrics after so much time with one key.
async fn metrics_after(answer: fn(usize) -> Result<Action, Error>, time: Duration) -> String {
    let (context, queue) = (context().await, Queue::new("test"));
    queue.add(Key::cluster("a"));
    let controller = Controller::for_keys(&context)
        .queue(queue)
        .reconcile(Recording::new(answer));
    let metrics = controller.metrics();
    let running = Running::start(controller);
    sleep(time).await;
    running.stop().await;
    Families::of(&[&metrics]).to_string()
}

#[track_caller]
fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|known| known == *line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_back_off_and_counted() {
    let answer = |n| match n {
        1 | 2 => Err(Error::other("no")),
        3 => Ok(Action::requeue_after(Duration::from_millis(1))),
        _ => Ok(Action::done()),
    };
    let text = metrics_after(answer, Duration::from_secs(1)).await;
    has_lines(
        &text,
        &[
            r#"controller_runtime_reconcile_total{controller="test",result="error"} 2"#,
            r#"controller_runtime_reconcile_total{controller="test",result="requeue_after"} 1"#,
            r#"controller_runtime_reconcile_total{controller="test",result="success"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="test"} 2"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="test"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="test"} 4"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="test"} 1"#,
            r#"controller_runtime_active_workers{controller="test"} 0"#,
            r#"workqueue_retries_total{name="test"} 3"#,
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn terminal_errors_are_not_retried() {
    let answer = |_| Err(Error::terminal("the spec is wrong"));
    let text = metrics_after(answer, Duration::from_secs(60)).await;
    has_lines(
        &text,
        &[
            r#"controller_runtime_reconcile_errors_total{controller="test"} 1"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="test"} 1"#,
            r#"workqueue_retries_total{name="test"} 0"#,
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_one_reconcile_and_is_retried() {
    let answer = |n| match n {
        1 => panic!("the first time"),
        _ => Ok(Action::done()),
    };
    let text = metrics_after(answer, Duration::from_secs(1)).await;
    has_lines(
        &text,
        &[
            r#"controller_runtime_reconcile_panics_total{controller="test"} 1"#,
            r#"controller_runtime_reconcile_total{controller="test",result="error"} 1"#,
            r#"controller_runtime_reconcile_total{controller="test",result="success"} 1"#,
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_recorded_as_events_if_asked_for() {
    let context = context().await;
    create(&context, &CONFIG_MAPS, &config("a", "")).await;
    let controller = Controller::for_kind(&context, metadata(&CONFIG_MAPS))
        .rate_limiter(Exponential::new(
            Duration::from_secs(60),
            Duration::from_secs(60),
        ))
        .record_failures("SyncFailed")
        .reconcile(Recording::new(|_| Err(Error::other("no quota"))));
    let running = Running::start(controller);
    sleep(Duration::from_secs(1)).await;
    let options = ListOptions::default();
    let events = context.api.list(&EVENTS, "default", &options).await;
    let events = events.unwrap();
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    let about = &event["involvedObject"];
    assert_eq!(
        (about["kind"].str(), about["name"].str()),
        ("ConfigMap", "a")
    );
    assert_eq!(event["reason"].str(), "SyncFailed");
    assert_eq!(event["message"].str(), "no quota");
    assert_eq!(event["type"].str(), "Warning");
    running.stop().await;
}

/// Takes a minute for each key.
struct Slow {
    began: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Reconcile for Slow {
    async fn reconcile(&self, _: &Key, _: &Context) -> Result<Action, Error> {
        self.began.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_running_reconciles_and_starts_none() {
    let (context, queue) = (context().await, Queue::new("test"));
    (0..10).for_each(|n| queue.add(Key::cluster(format!("n{n}"))));
    let (began, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let slow = Slow {
        began: began.clone(),
        ended: ended.clone(),
    };
    let controller = Controller::for_keys(&context)
        .queue(queue)
        .workers(3)
        .reconcile(slow);
    let running = Running::start(controller);
    sleep(Duration::from_secs(1)).await;
    running.stop().await;
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!((count(&began), count(&ended)), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_with_two_workers() {
    struct Exclusive(Mutex<bool>, AtomicUsize, Queue<Key>);

    impl Reconcile for Exclusive {
        async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
            assert!(!std::mem::replace(&mut *self.0.lock(), true));
            if self.1.fetch_add(1, Ordering::Relaxed) < 20 {
                self.2.add(key.clone()); // while it is reconciled
            }
            sleep(Duration::from_millis(10)).await;
            *self.0.lock() = false;
            Ok(Action::done())
        }
    }
    let (context, queue) = (context().await, Queue::new("test"));
    queue.add(Key::cluster("a"));
    let controller = Controller::for_keys(&context)
        .queue(queue.clone())
        .workers(4)
        .reconcile(Exclusive(Mutex::new(false), AtomicUsize::new(0), queue));
    let metrics = controller.metrics();
    let running = Running::start(controller);
    sleep(Duration::from_secs(1)).await;
    running.stop().await;
    let text = Families::of(&[&metrics]).to_string();
    let succeeded = r#"controller_runtime_reconcile_total{controller="test",result="success"} 21"#;
    has_lines(&text, &[succeeded]);
}

#[tokio::test(start_paused = true)]
async fn later_changes_come_before_initial_objects_of_lower_priority() {
    let context = context().await;
    for name in ["a", "b", "c"] {
        create(&context, &CONFIG_MAPS, &config(name, "")).await;
    }
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, gate) = (order.clone(), Arc::new(Notify::new()));
    let passed = gate.clone();
    let controller = Controller::for_kind(&context, &CONFIG_MAPS)
        .initial_priority(-100)
        .reconcile(move |key: Key, _: Context| {
            let (seen, gate) = (seen.clone(), passed.clone());
            async move {
                seen.lock().push(key.name().to_string());
                gate.notified().await;
                Ok(Action::done())
            }
        });
    let running = Running::start(controller);
    sleep(Duration::from_millis(1)).await;
    create(&context, &CONFIG_MAPS, &config("later", "")).await;
    sleep(Duration::from_millis(1)).await;
    for _ in 0..4 {
        gate.notify_one();
        sleep(Duration::from_millis(1)).await;
    }
    running.stop().await;
    let order = order.lock().clone();
    assert_eq!(order.len(), 4, "{order:?}");
    assert_eq!(order[1], "later", "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_ends_the_controller() {
    let context = context().await;
    let unknown = ResourceType::namespaced("example.com", "v1", "ghosts", "Ghost");
    let controller = Controller::for_kind(&context, &unknown).reconcile(Recording::done());
    let outcome = controller
        .with_sync_timeout(Duration::from_secs(5))
        .run(std::future::pending())
        .await;
    let error = outcome.unwrap_err().to_string();
    assert_eq!(
        error,
        "the caches of controller test did not sync within 5s"
    );
}

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("mizzen_sdk::controller")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn reconciles_that_keep_failing_are_logged_at_warn_with_growing_pauses() {
    let (context, queue) = (context().await, Queue::new("test"));
    let (failing, warnings) = (Recording::new(|_| Err(Error::other("no"))), Arc::default());
    let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
    (0..10).for_each(|n| queue.add(Key::new("default", format!("n{n}"))));
    let controller = Controller::for_keys(&context)
        .queue(queue)
        .reconcile(failing.clone());
    let running = Running::start(controller);
    sleep(Duration::from_secs(9)).await;
    assert!(failing.count() > 50, "{}", failing.count());
    assert_eq!(warnings.load(Ordering::Relaxed), 1, "one line for all keys");
    sleep(Duration::from_secs(600)).await;
    let n = warnings.load(Ordering::Relaxed);
    assert!((4..=8).contains(&n), "{n} lines in ten minutes");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_number_of_workers_can_be_overridden() {
    let context = context().await;
    let controller = || Controller::for_keys(&context).workers(2);
    let merged = controller()
        .reconcile(Recording::done())
        .merge(controller().reconcile(Recording::done()))
        .with_task(async {});
    let shown = |controller: &Controller| {
        let text = Families::of(&[&controller.metrics()]).to_string();
        let name = "controller_runtime_max_concurrent_reconciles{controller=\"test\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().to_string()
    };
    assert_eq!(shown(&merged), "4");
    assert_eq!(shown(&merged.with_workers(5)), "10");
}
