//! Informers against a real server, over a connection with faults.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use mizzen_sdk::Key;
use mizzen_sdk::cache::Version;
use mizzen_sdk::informer::{
    Event, Factory, FactoryOptions, Handler, HandlerOptions, Informer, Options,
};
use mizzen_sdk::watch::{Initial, ListWatch};
use mizzen_testing::Cluster;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::wire::Wire;
use crate::{send, start};

pub(crate) const PATH: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The events of a handler: `+a` added, `~a=2` updated to 2, `-a` deleted.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn write(&self, event: &Event<ConfigMap>) {
        let name = event.key().name();
        let line = match event {
            Event::Added { .. } => format!("+{name}"),
            Event::Updated { new, .. } => format!("~{name}={}", step(new)),
            Event::Deleted {
                final_state_unknown: false,
                ..
            } => format!("-{name}"),
            Event::Deleted {
                final_state_unknown: true,
                ..
            } => format!("-{name}?"),
        };
        self.0.lock().push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    pub(crate) fn handler(&self) -> impl Handler<ConfigMap> + use<> {
        let diary = self.clone();
        move |event: Event<ConfigMap>| diary.write(&event)
    }
}

pub(crate) fn step(entry: &mizzen_sdk::cache::Entry<ConfigMap>) -> String {
    let object = entry.object().unwrap();
    object
        .data
        .as_ref()
        .and_then(|data| data.get("step").cloned())
        .unwrap_or_default()
}

pub(crate) async fn create(cluster: &Cluster, name: &str) -> Value {
    send(
        cluster,
        "POST",
        PATH,
        json!({"metadata": {"name": name}, "data": {"step": "0"}}),
    )
    .await
}

pub(crate) async fn change(cluster: &Cluster, name: &str, step: usize) -> Value {
    send(
        cluster,
        "PATCH",
        &format!("{PATH}/{name}"),
        json!({"data": {"step": step.to_string()}}),
    )
    .await
}

async fn delete(cluster: &Cluster, name: &str) {
    send(cluster, "DELETE", &format!("{PATH}/{name}"), Value::Null).await;
}

pub(crate) fn informer(client: Client) -> Informer<ConfigMap> {
    Informer::new(ListWatch::namespaced(client, "default"))
}

/// A server with one object, a synced informer and the first events of its handler.
async fn follow() -> (Cluster, Wire, Informer<ConfigMap>, Diary) {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    let (informer, diary) = (informer(wire.client()), Diary::default());
    let registration = informer.add_handler(diary.handler());
    informer.start();
    registration.wait_for_sync().await;
    (cluster, wire, informer, diary)
}

pub(crate) fn version(written: &Value) -> Version {
    Version::parse(written["metadata"]["resourceVersion"].as_str().unwrap())
}

/// Waits until the cache has an object's version.
pub(crate) async fn see(informer: &Informer<ConfigMap>, written: &Value) {
    let key = Key::new("default", written["metadata"]["name"].as_str().unwrap());
    timeout(10 * MINUTE, informer.wait_for(&key, version(written)))
        .await
        .expect("the cache never saw it");
}

pub(crate) fn names(informer: &Informer<ConfigMap>) -> Vec<String> {
    let mut names: Vec<String> = informer
        .store()
        .list()
        .iter()
        .map(|entry| format!("{}={}", entry.key().name(), step(entry)))
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn cache_and_handlers_follow_all_changes() {
    let (cluster, _, informer, diary) = follow().await;
    assert_eq!(diary.take(), ["+a"]);

    change(&cluster, "a", 1).await;
    let written = create(&cluster, "b").await;
    delete(&cluster, "a").await;
    let last = change(&cluster, "b", 2).await;
    see(&informer, &written).await;
    see(&informer, &last).await;
    tokio::task::yield_now().await;
    // The events of one object keep the server's order.
    let (a, b): (Vec<_>, Vec<_>) = diary
        .take()
        .into_iter()
        .partition(|line| line.contains('a'));
    assert_eq!(
        (a, b),
        (
            vec!["~a=1".into(), "-a".into()],
            vec!["+b".into(), "~b=2".into()]
        )
    );
    assert_eq!(names(&informer), ["b=2"]);
}

#[tokio::test(start_paused = true)]
async fn initial_state_is_listed_or_streamed() {
    for initial in [Initial::Pages(2), Initial::Pages(0), Initial::Stream] {
        let cluster = start().await;
        let wire = Wire::to(&cluster);
        for name in ["a", "b", "c", "d", "e"] {
            create(&cluster, name).await;
        }
        let mut source = ListWatch::namespaced(wire.client(), "default");
        source.initial = initial;
        let (informer, diary) = (Informer::new(source), Diary::default());
        let registration = informer.add_handler(diary.handler());
        informer.start();
        timeout(MINUTE, registration.wait_for_sync())
            .await
            .expect("it never synced");
        let mut heard = diary.take();
        heard.sort();
        assert_eq!(heard, ["+a", "+b", "+c", "+d", "+e"], "{initial:?}");
        let written = change(&cluster, "c", 7).await;
        see(&informer, &written).await;
        let n_lists = wire.n_lists.load(Ordering::Relaxed);
        let expected = match initial {
            Initial::Pages(2) => 3,
            Initial::Pages(_) => 1,
            Initial::Stream => 0,
        };
        assert_eq!(n_lists, expected, "{initial:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_list_falls_back_to_list() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    wire.faults(|faults| faults.refused = vec![422]);
    let mut source = ListWatch::namespaced(wire.client(), "default");
    source.initial = Initial::Stream;
    let informer: Informer<ConfigMap> = Informer::new(source);
    informer.start();
    timeout(MINUTE, informer.wait_for_sync())
        .await
        .expect("it never synced");
    assert_eq!(names(&informer), ["a=0"]);
    assert_eq!(wire.n_lists.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn broken_watch_loses_and_repeats_nothing() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    for cut in (0..2_000).step_by(7) {
        change(&cluster, "a", 0).await;
        let (informer, diary) = (informer(wire.client()), Diary::default());
        wire.faults(|faults| faults.cuts = vec![cut]);
        let registration = informer.add_handler(diary.handler());
        informer.start();
        registration.wait_for_sync().await;
        let mut last = Value::Null;
        for step in 1..=5 {
            last = change(&cluster, "a", step).await;
            tokio::task::yield_now().await;
        }
        see(&informer, &last).await;
        tokio::task::yield_now().await;
        assert_eq!(
            diary.take(),
            ["+a", "~a=1", "~a=2", "~a=3", "~a=4", "~a=5"],
            "cut after {cut} bytes"
        );
        informer.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn expired_watch_relists_and_reports_missed_deletions() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    for name in ["a", "b"] {
        create(&cluster, name).await;
    }
    let (informer, diary) = (informer(wire.client()), Diary::default());
    let gone = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410,
    }});
    // The first watch fails before its first event, so that only the second list has the changes.
    wire.faults(|faults| faults.insert = Some((0, gone.to_string())));
    let registration = informer.add_handler(diary.handler());
    let seen = Arc::new(Mutex::new(false));
    informer.start();
    registration.wait_for_sync().await;
    *seen.lock() = true;
    let recreated = {
        delete(&cluster, "a").await;
        delete(&cluster, "b").await;
        create(&cluster, "b").await
    };
    see(&informer, &recreated).await;
    tokio::task::yield_now().await;
    let heard = diary.take();
    assert_eq!(heard[..2], ["+a", "+b"]);
    assert!(
        heard.contains(&"-a".into()) || heard.contains(&"-a?".into()),
        "{heard:?}"
    );
    assert_eq!(
        heard.iter().filter(|line| *line == "+b").count(),
        2,
        "another b is another object: {heard:?}"
    );
    assert_eq!(names(&informer), ["b=0"]);
}

#[tokio::test(start_paused = true)]
async fn informer_survives_a_server_restart() {
    let (cluster, wire, informer, diary) = follow().await;
    for step in 1..5 {
        wire.restart();
        let written = change(&cluster, "a", step).await;
        see(&informer, &written).await;
    }
    tokio::task::yield_now().await;
    assert_eq!(diary.take(), ["+a", "~a=1", "~a=2", "~a=3", "~a=4"]);
    assert_eq!(wire.n_lists.load(Ordering::Relaxed), 1, "it listed again");
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_with_growing_back_off() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    wire.faults(|faults| faults.refused = vec![500, 503, 500]);
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = errors.clone();
    let mut options = Options {
        on_error: Some(Arc::new(move |error| log.lock().push(error.to_string()))),
        ..Options::default()
    };
    options.backoff.rng = Arc::new(|| 0.0);
    let informer: Informer<ConfigMap> =
        Informer::with_options(ListWatch::namespaced(wire.client(), "default"), options);
    let start = tokio::time::Instant::now();
    informer.start();
    informer.wait_for_sync().await;
    let written = create(&cluster, "a").await;
    see(&informer, &written).await;
    assert_eq!(errors.lock().len(), 3);
    assert_eq!(start.elapsed(), Duration::from_millis(800 + 1600 + 3200));
}

#[tokio::test(start_paused = true)]
async fn late_handler_gets_the_current_state_first() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let informer = informer(cluster.client());
    informer.start();
    informer.wait_for_sync().await;
    let written = create(&cluster, "b").await;
    see(&informer, &written).await;
    let diary = Diary::default();
    let registration = informer.add_handler(diary.handler());
    timeout(MINUTE, registration.wait_for_sync())
        .await
        .expect("it never synced");
    let mut heard = diary.take();
    heard.sort();
    assert_eq!(heard, ["+a", "+b"]);
    registration.remove();
    let written = change(&cluster, "a", 1).await;
    see(&informer, &written).await;
    tokio::task::yield_now().await;
    assert!(
        diary.take().is_empty(),
        "it listens on although it was removed"
    );
}

/// A handler that takes a minute per event.
struct Slow(Diary);

impl Handler<ConfigMap> for Slow {
    async fn handle(&mut self, event: Event<ConfigMap>) {
        sleep(MINUTE).await;
        self.0.write(&event);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_handler_delays_no_other_and_catches_up() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let (informer, slow, fast) = (
        informer(cluster.client()),
        Diary::default(),
        Diary::default(),
    );
    let options = HandlerOptions {
        limit: 3,
        ..HandlerOptions::default()
    };
    let registration = informer.add_handler_with(Slow(slow.clone()), options);
    informer.add_handler(fast.handler());
    informer.start();
    informer.wait_for_sync().await;
    create(&cluster, "b").await;
    let mut last = Value::Null;
    for step in 1..=50 {
        last = change(&cluster, "a", step).await;
        change(&cluster, "b", step).await;
    }
    delete(&cluster, "b").await;
    let end = create(&cluster, "c").await;
    see(&informer, &last).await;
    see(&informer, &end).await;
    tokio::task::yield_now().await;
    assert_eq!(fast.take().len(), 1 + 1 + 100 + 1 + 1);
    assert!(
        registration.waiting() <= 3 + 3,
        "{} events wait",
        registration.waiting()
    );
    while registration.waiting() > 0 {
        sleep(MINUTE).await;
    }
    sleep(2 * MINUTE).await;
    let heard = slow.take();
    assert!(heard.len() < 12, "{heard:?}");
    assert_eq!(
        heard.iter().rfind(|line| line.contains('a')).unwrap(),
        "~a=50"
    );
    assert!(heard.contains(&"+c".into()), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn handler_resync_repeats_all_objects() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let (informer, diary) = (informer(cluster.client()), Diary::default());
    let options = HandlerOptions {
        resync: Some(MINUTE),
        ..HandlerOptions::default()
    };
    informer.add_handler_with(diary.handler(), options);
    informer.start();
    informer.wait_for_sync().await;
    sleep(MINUTE * 2 + MINUTE / 2).await;
    assert_eq!(diary.take(), ["+a", "~a=0", "~a=0"]);
}

#[tokio::test(start_paused = true)]
async fn handler_resync_defaults_to_the_factorys() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let options = Options {
        resync: Some(MINUTE),
        ..Options::default()
    };
    let factory = Factory::with(
        cluster.client(),
        FactoryOptions {
            informer: options,
            ..FactoryOptions::default()
        },
    );
    let informer = factory
        .informer_of::<ConfigMap>(&(), |source| source.fields = Some("metadata.name=a".into()));
    let (default, own, never) = (Diary::default(), Diary::default(), Diary::default());
    let resync = |period| HandlerOptions {
        resync: Some(period),
        ..HandlerOptions::default()
    };
    informer.add_handler(default.handler());
    informer.add_handler_with(own.handler(), resync(2 * MINUTE));
    informer.add_handler_with(never.handler(), resync(Duration::ZERO));
    factory.start();
    factory.wait_for_sync().await;
    sleep(MINUTE * 2 + MINUTE / 2).await;
    assert_eq!(default.take(), ["+a", "~a=0", "~a=0"]);
    assert_eq!(
        (own.take(), never.take()),
        (vec!["+a".into(), "~a=0".into()], vec!["+a".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn resync_period_is_at_least_a_second() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let (informer, diary) = (informer(cluster.client()), Diary::default());
    let options = HandlerOptions {
        resync: Some(Duration::from_millis(1)),
        ..HandlerOptions::default()
    };
    informer.add_handler_with(diary.handler(), options);
    informer.start();
    informer.wait_for_sync().await;
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(diary.take(), ["+a", "~a=0", "~a=0"]);
}

#[tokio::test(start_paused = true)]
async fn restarted_informer_keeps_its_cache() {
    let cluster = start().await;
    create(&cluster, "a").await;
    create(&cluster, "b").await;
    let (informer, diary) = (informer(cluster.client()), Diary::default());
    let registration = informer.add_handler(diary.handler());
    informer.start();
    registration.wait_for_sync().await;
    informer.stop();
    delete(&cluster, "a").await;
    let written = change(&cluster, "b", 1).await;
    diary.take();
    informer.start();
    see(&informer, &written).await;
    tokio::task::yield_now().await;
    let mut heard = diary.take();
    heard.sort();
    assert_eq!(heard, ["-a?", "~b=1"]);
}
