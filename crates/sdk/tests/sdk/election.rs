//! Leader election: at most one leader at a time.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mizzen_sdk::election::{Election, Options, SetupError};
use mizzen_sdk::event::{ApiSink, Broadcaster};
use mizzen_sdk::metrics::Families;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::wire::Wire;
use crate::{send, start};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/test";

/// The current leader and the terms of all. Panics on two leaders at a time.
#[derive(Clone, Default)]
struct LeaderRecord(Arc<Mutex<Vec<String>>>, Arc<Mutex<Option<String>>>);

/// A term of a leader.
struct Term(LeaderRecord, String);

impl LeaderRecord {
    fn begin_term(&self, name: &str) -> Term {
        let before = self.1.lock().replace(name.into());
        assert_eq!(before, None, "{name} began while another led");
        self.0.lock().push(format!("+{name}"));
        Term(self.clone(), name.into())
    }

    fn history(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        *self.0.1.lock() = None;
        self.0.0.lock().push(format!("-{}", self.1));
    }
}

fn options(name: &str) -> Options {
    Options {
        rng: Arc::new(|| 0.5),
        ..Options::new(name)
    }
}

/// Runs for election and leads for `time`.
fn stand(
    client: Client,
    leaders: &LeaderRecord,
    options: Options,
    time: Duration,
) -> JoinHandle<Option<()>> {
    let (leaders, name) = (leaders.clone(), options.identity.clone());
    let election = Election::new(client, "default", "test", options).unwrap();
    tokio::spawn(election.lead(async move {
        let _term = leaders.begin_term(&name);
        sleep(time).await;
    }))
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_at_once() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let a = stand(cluster.client(), &leaders, options("a"), 60 * SECOND);
    sleep(SECOND).await;
    let b = stand(cluster.client(), &leaders, options("b"), 10 * SECOND);
    sleep(58 * SECOND).await;
    assert_eq!(leaders.history(), ["+a"]);
    assert_eq!(a.await.unwrap(), Some(()));
    let ended = Instant::now();
    assert_eq!(b.await.unwrap(), Some(()));
    assert!(
        ended.elapsed() < 13 * SECOND,
        "it waited although the lease was given back"
    );
    assert_eq!(leaders.history(), ["+a", "-a", "+b", "-b"]);
    let lease = send(&cluster, "GET", LEASE, Value::Null).await;
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_acquired() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let a = stand(cluster.client(), &leaders, options("a"), 3600 * SECOND);
    sleep(30 * SECOND).await;
    let b = stand(cluster.client(), &leaders, options("b"), SECOND);
    sleep(5 * SECOND).await;
    a.abort();
    let vanished = Instant::now();
    b.await.unwrap();
    let took = vanished.elapsed().as_secs();
    assert!((13..=20).contains(&took), "it took {took} s");
    assert_eq!(leaders.history(), ["+a", "-a", "+b", "-b"]);
}

#[tokio::test(start_paused = true)]
async fn disconnected_leader_stops_before_the_next_leads() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let (near, far) = (Wire::to(&cluster), Wire::to(&cluster));
    let a = stand(near.client(), &leaders, options("a"), 3600 * SECOND);
    sleep(30 * SECOND).await;
    let b = stand(far.client(), &leaders, options("b"), SECOND);
    sleep(7 * SECOND).await;
    near.cut_off();
    let cut = Instant::now();
    assert_eq!(a.await.unwrap(), None, "it did not notice");
    assert!(
        cut.elapsed() <= 10 * SECOND,
        "it led on for {:?}",
        cut.elapsed()
    );
    assert_eq!(leaders.history(), ["+a", "-a"]);
    b.await.unwrap();
    assert_eq!(leaders.history(), ["+a", "-a", "+b", "-b"]);
}

/// Clocks of different rates: durations are shorter for one and longer for the other.
#[tokio::test(start_paused = true)]
async fn tolerated_clock_drift_allows_one_leader() {
    let plain = options("");
    let drift = plain.tolerated_drift();
    assert!((drift - 0.2).abs() < 1e-9, "{drift}");
    for offset in 0..20 {
        let (cluster, leaders) = (start().await, LeaderRecord::default());
        let (near, far) = (Wire::to(&cluster), Wire::to(&cluster));
        // The reader's clock decides about the lease duration, so that it must not exceed the fast clock's wait.
        let slow = Options {
            lease_duration: 12 * SECOND,
            renew_deadline: plain.renew_deadline.mul_f64(1.0 + drift - 0.01),
            ..options("a")
        };
        let a = stand(near.client(), &leaders, slow, 3600 * SECOND);
        sleep(30 * SECOND).await;
        let fast = Options {
            lease_duration: plain.lease_duration.mul_f64(1.0 - drift + 0.01),
            renew_deadline: plain.renew_deadline.mul_f64(1.0 - drift),
            retry_period: Duration::from_millis(100),
            ..options("b")
        };
        let b = stand(far.client(), &leaders, fast, SECOND);
        sleep(Duration::from_millis(7_000 + 100 * offset)).await;
        near.cut_off();
        a.await.unwrap();
        b.await.unwrap();
        assert_eq!(leaders.history(), ["+a", "-a", "+b", "-b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn lease_without_holder_is_acquired_at_once() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let a = stand(cluster.client(), &leaders, options("a"), 3600 * SECOND);
    sleep(30 * SECOND).await;
    a.abort();
    let _ = a.await;
    let vanished = Instant::now();
    let heir = Options {
        has_ended: Arc::new(|holder| holder == "a"),
        ..options("b")
    };
    stand(cluster.client(), &leaders, heir, SECOND)
        .await
        .unwrap();
    assert!(
        vanished.elapsed() < 2 * SECOND,
        "it took {:?}",
        vanished.elapsed()
    );
    let lease = send(&cluster, "GET", LEASE, Value::Null).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn leadership_changes_are_recorded_as_events() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::core(cluster.client()))]);
    let recorder = Some(broadcaster.recorder("shop", ""));
    stand(
        cluster.client(),
        &leaders,
        Options {
            recorder,
            ..options("a")
        },
        SECOND,
    )
    .await
    .unwrap();
    broadcaster.stop().await;
    let events = send(
        &cluster,
        "GET",
        "/api/v1/namespaces/default/events",
        Value::Null,
    )
    .await;
    let told: Vec<String> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(told)
        .collect();
    assert_eq!(
        told,
        [
            "Normal LeaderElection coordination.k8s.io/v1 Lease test by shop: a became leader",
            "Normal LeaderElection coordination.k8s.io/v1 Lease test by shop: a stopped leading",
        ]
    );
}

fn told(event: &Value) -> String {
    let text = |path: &str| {
        event
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!(
        "{} {} {} {} {} by {}: {}",
        text("/type"),
        text("/reason"),
        text("/involvedObject/apiVersion"),
        text("/involvedObject/kind"),
        text("/involvedObject/name"),
        text("/source/component"),
        text("/message")
    )
}

#[tokio::test(start_paused = true)]
async fn election_errors_name_the_cause() {
    let cluster = start().await;
    let election = Election::new(cluster.client(), "nowhere", "test", options("a")).unwrap();
    let mut observer = election.observe();
    let waiting = tokio::spawn(election.lead(std::future::pending::<()>()));
    let state = timeout(60 * SECOND, observer.changed())
        .await
        .expect("nothing is said");
    assert_eq!(
        (state.trouble.as_str(), state.leading),
        ("namespaces \"nowhere\" not found", false)
    );
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn unchanged_lease_is_renewed_without_a_get() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let leading = stand(cluster.client(), &leaders, options("a"), 3600 * SECOND);
    sleep(10 * SECOND).await;
    let renewed = |lease: &Value| {
        lease["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let before = send(&cluster, "GET", LEASE, Value::Null).await;
    // After a foreign write, the next renewal reads the lease again and succeeds.
    let mut touched = before.clone();
    touched["metadata"]["labels"] = serde_json::json!({"by": "somebody"});
    let touched = send(&cluster, "PUT", LEASE, touched).await;
    sleep(20 * SECOND).await;
    let after = send(&cluster, "GET", LEASE, Value::Null).await;
    assert_ne!(renewed(&touched), renewed(&after));
    assert_eq!(after["metadata"]["labels"]["by"], "somebody");
    assert_eq!(leaders.history(), ["+a"]);
    leading.abort();
}

#[tokio::test(start_paused = true)]
async fn election_observer_reports_leader_and_health() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    stand(cluster.client(), &leaders, options("a"), 3600 * SECOND);
    sleep(SECOND).await;
    let election = Election::new(cluster.client(), "default", "test", options("b")).unwrap();
    let mut observer = election.observe();
    let waiting = tokio::spawn(election.lead(std::future::pending::<()>()));
    let state = timeout(60 * SECOND, observer.changed())
        .await
        .expect("nothing is seen");
    assert_eq!((state.leader.as_str(), state.leading), ("a", false));
    assert!(observer.is_healthy(SECOND), "who waits is well");
    assert!(
        Families::of(&[&observer])
            .to_string()
            .contains("leader_election_master_status{name=\"test\"} 0")
    );
    waiting.abort();

    let own = Election::new(cluster.client(), "default", "other", options("c")).unwrap();
    let observer = own.observe();
    // The work blocks the renewal, as in a process that hangs.
    let leading = own.lead(async { sleep(SECOND).await });
    tokio::pin!(leading);
    assert!(timeout(SECOND / 2, &mut leading).await.is_err());
    assert!(observer.state().leading && observer.is_healthy(SECOND));
    assert!(
        Families::of(&[&observer])
            .to_string()
            .contains("leader_election_master_status{name=\"other\"} 1")
    );
    tokio::time::advance(17 * SECOND).await;
    assert!(
        !observer.is_healthy(SECOND),
        "it was not polled for longer than its lease lasts"
    );
}

#[tokio::test]
async fn invalid_durations_are_rejected() {
    let client = start().await.client();
    let check = |options: Options, expected: SetupError| {
        assert_eq!(
            Election::new(client.clone(), "default", "test", options).err(),
            Some(expected)
        );
    };
    check(options(""), SetupError::EmptyIdentity);
    check(
        Options {
            lease_duration: 10 * SECOND,
            ..options("a")
        },
        SetupError::LeaseTooShort,
    );
    check(
        Options {
            retry_period: 9 * SECOND,
            ..options("a")
        },
        SetupError::DeadlineTooShort,
    );
}

/// A wall clock that is `offset` seconds off.
fn clock(offset: &Arc<AtomicI64>) -> mizzen_sdk::clock::Clock {
    let (began, offset) = (Instant::now(), offset.clone());
    Arc::new(move || {
        let seconds =
            1_700_000_000 + began.elapsed().as_secs() as i64 + offset.load(Ordering::Relaxed);
        Timestamp::from_second(seconds).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn wall_clock_step_changes_no_leader() {
    for step in [-3600, 3600] {
        let (cluster, leaders, offset) = (
            start().await,
            LeaderRecord::default(),
            Arc::new(AtomicI64::new(0)),
        );
        let with_clock = |name: &str| Options {
            clock: clock(&offset),
            ..options(name)
        };
        let a = stand(cluster.client(), &leaders, with_clock("a"), 3600 * SECOND);
        sleep(10 * SECOND).await;
        let b = stand(cluster.client(), &leaders, with_clock("b"), 10 * SECOND);
        sleep(30 * SECOND).await;
        offset.store(step, Ordering::Relaxed);
        sleep(300 * SECOND).await;
        assert_eq!(leaders.history(), ["+a"], "{step}");
        // A leader that vanishes is replaced after the lease duration.
        a.abort();
        let vanished = Instant::now();
        b.await.unwrap();
        assert!(
            vanished.elapsed() < 30 * SECOND,
            "{step}: {:?}",
            vanished.elapsed()
        );
        assert_eq!(leaders.history(), ["+a", "-a", "+b", "-b"], "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_there_is_one_leader() {
    let (cluster, leaders) = (start().await, LeaderRecord::default());
    let _a = stand(cluster.client(), &leaders, options("a"), 7200 * SECOND);
    sleep(10 * SECOND).await;
    let _b = stand(cluster.client(), &leaders, options("b"), 7200 * SECOND);
    sleep(30 * SECOND).await;
    tokio::time::advance(3600 * SECOND).await;
    // Two leaders at once would have panicked in `LeaderRecord::begin_term`.
    sleep(60 * SECOND).await;
    let history = leaders.history();
    let n_leaders = history.iter().filter(|one| one.starts_with('+')).count();
    let n_ended = history.iter().filter(|one| one.starts_with('-')).count();
    assert_eq!(n_leaders - n_ended, 1, "{history:?}");
}
