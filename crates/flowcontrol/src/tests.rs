//! Requests that share seats, on virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use mizzen_object::User;
use mizzen_request::{Attributes, AttributesTarget, RequestInfo, RequestQuery};
use mizzen_value::{Value, json, value};
use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, sleep};

use super::RejectReason;
use super::entry::{ArrivingRequest, RequestDigest};
use super::flows::FlowConfiguration;
use super::priority_level::PriorityLevel;
use super::seat_lease::SeatLease;
use super::server_concurrency::{Phase, ServerConcurrency};
use super::work_estimate::WorkEstimate;

const SERVICE: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(15);

/// A configuration and its server.
struct Fixture {
    flows: FlowConfiguration,
    server: Arc<ServerConcurrency>,
}

impl Fixture {
    /// A server of `limit` seats. Schemas are named like their user.
    fn new(limit: usize, levels: &[Value], schemas: &[Value]) -> Fixture {
        let server = Arc::new(ServerConcurrency::new(limit));
        Fixture {
            flows: FlowConfiguration::new(&FlowConfiguration::default(), levels, schemas, &server),
            server,
        }
    }

    /// One level of `seats` with queues, and a schema that distinguishes users.
    fn of_one_level(seats: usize) -> Fixture {
        // The catch-all level gets the rest.
        Fixture::new(
            seats + 1,
            &[queue("shared", 95 * seats, 0, 64), reject(0)],
            &[schema("all", "shared", "*")],
        )
    }

    fn configure(&mut self, levels: &[Value], schemas: &[Value]) {
        self.flows = FlowConfiguration::new(&self.flows, levels, schemas, &self.server);
    }

    fn level(&self, level: &str) -> Arc<PriorityLevel> {
        self.flows.levels[level].clone()
    }

    /// A request of `user`: dispatched, at once or after a while, or rejected.
    async fn enter(&self, user: &str, work: WorkEstimate) -> Result<SeatLease, RejectReason> {
        let user = User::component(user);
        let attributes = Attributes {
            user: &user,
            verb: "get",
            target: AttributesTarget::NonResource("/version"),
        };
        let schema = self.flows.find_schema(&attributes).clone();
        let (_, hash) = schema.flow_distinguisher(&attributes);
        let info = RequestInfo::new(
            &Method::GET,
            &Uri::from_static("/version"),
            &RequestQuery::default(),
        )
        .unwrap();
        let digest = RequestDigest {
            info,
            ..RequestDigest::default()
        };
        let arriving = ArrivingRequest {
            counts_idx: schema.counts_idx,
            flow_hash: hash,
            work,
            watchers: None,
            digest,
        };
        let (mut place, wait) = schema.level.admit(arriving)?;
        let is_in = match wait {
            Some(wait) => place.wait(wait, Instant::now() + LONG).await,
            None => true,
        };
        is_in.then_some(place).ok_or(RejectReason::TimeOut)
    }
}

fn queue(name: &str, shares: usize, lendable: usize, queues: usize) -> Value {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"type":"Limited","limited":{{"nominalConcurrencyShares":{shares},
           "lendablePercent":{lendable},"limitResponse":{{"type":"Queue",
           "queuing":{{"queues":{queues},"queueLengthLimit":50,"handSize":{}}}}}}}}}}}"#,
        queues.min(6)
    );
    json::parse(text.as_bytes()).unwrap()
}

/// The catch-all level, with so many shares.
fn reject(shares: usize) -> Value {
    let text = format!(
        r#"{{"metadata":{{"name":"catch-all"}},"spec":{{"type":"Limited","limited":{{"nominalConcurrencyShares":{shares},
           "limitResponse":{{"type":"Reject"}}}}}}}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    value!({
        "metadata": { "name": name },
        "spec": {
            "matchingPrecedence": 100,
            "priorityLevelConfiguration": { "name": level },
            "distinguisherMethod": { "type": "ByUser" },
            "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": user } }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }]
            }]
        }
    })
}

/// The results of a client.
#[derive(Debug, Default)]
struct Served {
    answers: usize,
    refusals: usize,
    longest_wait: Duration,
    waited: Duration,
}

/// Sends requests until `end`, `n` at a time. A rejected one is retried after a second.
fn client(
    fixture: &Rc<Fixture>,
    set: &LocalSet,
    user: &'static str,
    n: usize,
    work: WorkEstimate,
    end: Instant,
) -> Rc<RefCell<Served>> {
    let served = Rc::new(RefCell::new(Served::default()));
    for _ in 0..n {
        let (fixture, served) = (fixture.clone(), served.clone());
        set.spawn_local(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                match fixture.enter(user, work).await {
                    Ok(place) => {
                        let waited = asked.elapsed();
                        sleep(SERVICE).await;
                        drop(place);
                        let mut served = served.borrow_mut();
                        served.answers += 1;
                        served.waited += waited;
                        served.longest_wait = served.longest_wait.max(waited);
                    }
                    Err(_) => {
                        served.borrow_mut().refusals += 1;
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        });
    }
    served
}

#[tokio::test(start_paused = true)]
async fn a_greedy_client_does_not_delay_a_modest_one() {
    let (fixture, set) = (Rc::new(Fixture::of_one_level(10)), LocalSet::new());
    assert_eq!(
        fixture.level("shared").inspect(|state| state.seats.nominal),
        11
    );
    let end = Instant::now() + Duration::from_secs(10);
    let greedy = client(&fixture, &set, "greedy", 1_000, WorkEstimate::ONE, end);
    let polite = client(&fixture, &set, "polite", 1, WorkEstimate::ONE, end);
    set.await;
    let (greedy, polite) = (greedy.borrow(), polite.borrow());
    // Eleven seats of ten milliseconds serve 1,100 requests a second. With first come, first served
    // the polite client would wait for about 300 other requests, more than a quarter of a second
    // each time, if it were not rejected.
    assert!(
        polite.longest_wait <= Duration::from_millis(25),
        "{polite:?}"
    );
    assert!(polite.answers >= 450, "{polite:?}");
    assert_eq!(polite.refusals, 0);
    assert!(
        greedy.answers >= 10_000,
        "nothing is left unused: {greedy:?}"
    );
    assert!(greedy.refusals > 0, "{greedy:?}");
}

#[tokio::test(start_paused = true)]
async fn equally_greedy_clients_get_equal_shares() {
    let (fixture, set) = (Rc::new(Fixture::of_one_level(10)), LocalSet::new());
    let end = Instant::now() + Duration::from_secs(10);
    let served =
        ["a", "b", "c"].map(|user| client(&fixture, &set, user, 100, WorkEstimate::ONE, end));
    set.await;
    let answers = served.map(|served| served.borrow().answers);
    let mean = answers.iter().sum::<usize>() / 3;
    assert!(
        answers.iter().all(|n| n.abs_diff(mean) * 20 < mean),
        "within 5 %: {answers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn wide_requests_count_by_their_seats() {
    let (fixture, set) = (Rc::new(Fixture::of_one_level(10)), LocalSet::new());
    let end = Instant::now() + Duration::from_secs(10);
    let wide = client(&fixture, &set, "wide", 50, WorkEstimate::seats(5), end);
    let narrow = client(&fixture, &set, "narrow", 50, WorkEstimate::ONE, end);
    set.await;
    let (wide, narrow) = (wide.borrow().answers, narrow.borrow().answers);
    let ratio = narrow as f64 / wide as f64;
    // About five; some seats stay empty until there are enough for a wide request.
    assert!(
        (3.0..6.0).contains(&ratio),
        "{narrow} narrow ones and {wide} wide ones"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_rejects_requests() {
    let fixture = Rc::new(Fixture::new(
        1,
        &[queue("shared", 1, 0, 1), reject(0)],
        &[schema("all", "shared", "*")],
    ));
    let _place = fixture.enter("a", WorkEstimate::ONE).await.unwrap();
    let set = LocalSet::new();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let fixture = fixture.clone();
            set.spawn_local(async move { fixture.enter("a", WorkEstimate::ONE).await.map(drop) })
        })
        .collect();
    set.run_until(async {
        yield_now().await;
        assert_eq!(
            fixture
                .level("shared")
                .inspect(|state| state.queues.waiting),
            50
        );
        assert_eq!(
            fixture.enter("a", WorkEstimate::ONE).await.err(),
            Some(RejectReason::QueueFull)
        );
        let began = Instant::now();
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Err(RejectReason::TimeOut));
        }
        assert_eq!(began.elapsed().as_secs(), LONG.as_secs());
    })
    .await;
    let rejected = fixture
        .level("shared")
        .inspect(|state| state.queues.schema_counts[0].rejected.clone());
    assert_eq!(
        rejected.into_iter().collect::<Vec<_>>(),
        [(RejectReason::QueueFull, 1), (RejectReason::TimeOut, 50)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_level_without_queues_rejects_excess_requests() {
    let fixture = Fixture::new(2, &[], &[]);
    let first = fixture.enter("a", WorkEstimate::ONE).await.unwrap();
    let _second = fixture.enter("b", WorkEstimate::ONE).await.unwrap();
    assert_eq!(
        fixture.enter("c", WorkEstimate::ONE).await.err(),
        Some(RejectReason::ConcurrencyLimit)
    );
    drop(first);
    assert!(fixture.enter("c", WorkEstimate::ONE).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_never_limited() {
    let exempt = schema("exempt", "exempt", "root");
    let fixture = Fixture::new(
        1,
        &[value!({ "metadata": { "name": "exempt" }, "spec": { "type": "Exempt", "exempt": {} } })],
        &[exempt],
    );
    let _place = fixture.enter("a", WorkEstimate::ONE).await.unwrap();
    assert_eq!(
        fixture.enter("a", WorkEstimate::ONE).await.err(),
        Some(RejectReason::ConcurrencyLimit)
    );
    let mut places = Vec::new();
    for _ in 0..100 {
        places.push(
            fixture
                .enter("root", WorkEstimate::seats(10))
                .await
                .unwrap(),
        );
    }
    assert_eq!(
        fixture
            .level("exempt")
            .inspect(|state| state.queues.seats_in_use),
        1_000
    );
}

#[tokio::test(start_paused = true)]
async fn a_level_borrows_unused_seats_of_another() {
    let levels = [queue("busy", 50, 0, 8), queue("idle", 50, 80, 8), reject(0)];
    let fixture = Rc::new(Fixture::new(
        100,
        &levels,
        &[schema("a", "busy", "a"), schema("b", "idle", "b")],
    ));
    let limits = |fixture: &Fixture| {
        ["busy", "idle"].map(|name| fixture.level(name).inspect(|state| state.queues.limit()))
    };
    assert_eq!(
        limits(&fixture),
        [83, 17],
        "nobody wants anything, so everybody gets the same part of what he keeps"
    );
    let set = LocalSet::new();
    let end = Instant::now() + Duration::from_secs(60);
    client(&fixture, &set, "a", 200, WorkEstimate::ONE, end);
    set.run_until(async {
        sleep(Duration::from_secs(10)).await;
        fixture.flows.update_borrowing();
        assert_eq!(
            limits(&fixture),
            [90, 10],
            "what is kept anyway is not lent"
        );
    })
    .await;
    client(&fixture, &set, "b", 45, WorkEstimate::ONE, end);
    set.run_until(async {
        sleep(Duration::from_secs(10)).await;
        fixture.flows.update_borrowing();
        assert_eq!(limits(&fixture), [55, 45], "who wants his own back gets it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_dispatched_when_the_limit_rises() {
    let schemas = [schema("all", "shared", "*")];
    let levels = |shares| [queue("shared", shares, 0, 8), reject(10 - shares)];
    let mut fixture = Fixture::new(10, &levels(1), &schemas);
    let level = fixture.level("shared");
    let waiting = |n: usize| assert_eq!(level.inspect(|state| state.queues.waiting), n);
    let enter = |n: usize| {
        let arriving = || ArrivingRequest {
            counts_idx: 0,
            flow_hash: 7,
            work: WorkEstimate::ONE,
            watchers: None,
            digest: RequestDigest::default(),
        };
        (0..n)
            .map(|_| level.admit(arriving()).unwrap())
            .collect::<Vec<_>>()
    };
    let places = enter(6);
    waiting(5);
    fixture.configure(&levels(4), &schemas);
    waiting(2);
    // The level is no longer configured, but its requests remain.
    fixture.configure(&[], &[]);
    assert!(level.inspect(|state| state.is_quiescing));
    assert!(fixture.flows.levels.contains_key("shared"));
    drop(places);
    waiting(0);
    assert!(fixture.flows.has_idle_quiescing_level());
    fixture.configure(&[], &[]);
    assert!(!fixture.flows.levels.contains_key("shared"));
}

#[tokio::test(start_paused = true)]
async fn removed_queues_are_drained_first() {
    let schemas = [schema("all", "shared", "*")];
    let mut fixture = Fixture::new(1, &[queue("shared", 1, 0, 32), reject(0)], &schemas);
    let level = fixture.level("shared");
    let arriving = |hash| ArrivingRequest {
        counts_idx: 0,
        flow_hash: hash,
        work: WorkEstimate::ONE,
        watchers: None,
        digest: RequestDigest::default(),
    };
    let mut places: Vec<_> = (0..40)
        .map(|n| level.admit(arriving(n * 0x9e37_79b9)).unwrap())
        .collect();
    fixture.configure(&[queue("shared", 1, 0, 2), reject(0)], &schemas);
    let n_queues = || level.inspect(|state| state.queues.all().len());
    assert!(n_queues() > 2);
    let mut n_served = 0;
    while let Some(at) = places
        .iter()
        .position(|(_, wait)| wait.as_ref().is_none_or(|wait| !wait.is_empty()))
    {
        drop(places.swap_remove(at));
        n_served += 1;
    }
    assert_eq!((n_served, n_queues()), (40, 2), "everybody had his turn");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_releases_its_seats() {
    let fixture = Rc::new(Fixture::new(
        1,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    ));
    let place = fixture.enter("a", WorkEstimate::ONE).await.unwrap();
    let (set, level) = (LocalSet::new(), fixture.level("shared"));
    let (other, last) = (fixture.clone(), fixture.clone());
    let gone = set.spawn_local(async move { other.enter("b", WorkEstimate::ONE).await.map(drop) });
    let stays = set.spawn_local(async move { last.enter("c", WorkEstimate::ONE).await.map(drop) });
    set.run_until(async {
        yield_now().await;
        assert_eq!(level.inspect(|state| state.queues.waiting), 2);
        gone.abort();
        yield_now().await;
        assert_eq!(level.inspect(|state| state.queues.waiting), 1);
        drop(place);
        assert_eq!(stays.await.unwrap(), Ok(()));
    })
    .await;
    assert!(level.inspect(|state| state.queues.is_idle() && state.queues.seats_in_use == 0));
    let rejected = level.inspect(|state| state.queues.schema_counts[0].rejected.clone());
    assert_eq!(
        rejected.into_iter().collect::<Vec<_>>(),
        [(RejectReason::TimeOut, 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn seats_of_a_write_linger_until_watchers_are_notified() {
    let fixture = Fixture::new(
        10,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let heard = WorkEstimate {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_millis(50),
    };
    drop(fixture.enter("a", heard).await.unwrap());
    let began = Instant::now();
    drop(fixture.enter("b", WorkEstimate::ONE).await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    assert_eq!(
        fixture
            .level("shared")
            .inspect(|state| state.queues.seats_in_use),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn early_release_of_seats_dispatches_at_once() {
    let fixture = Fixture::new(
        2,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let heard = |millis| WorkEstimate {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_millis(millis),
    };
    let (late, early) = (
        fixture.enter("a", heard(50)).await.unwrap(),
        fixture.enter("a", heard(5)).await.unwrap(),
    );
    let began = Instant::now();
    let leave = async {
        yield_now().await;
        drop(late);
        drop(early);
    };
    let (entered, ()) = tokio::join!(fixture.enter("b", WorkEstimate::ONE), leave);
    drop(entered.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn a_request_wider_than_the_limit_gets_all_seats() {
    let fixture = Fixture::new(
        2,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let place = fixture.enter("a", WorkEstimate::seats(9)).await.unwrap();
    let began = Instant::now();
    tokio::join!(
        async {
            sleep(SERVICE).await;
            drop(place);
        },
        async { drop(fixture.enter("b", WorkEstimate::ONE).await.unwrap()) },
    );
    assert_eq!(began.elapsed(), SERVICE);
}

#[track_caller]
fn check_level(fixture: &Fixture, user: &User, level: &str) {
    let attributes = Attributes {
        user,
        verb: "get",
        target: AttributesTarget::NonResource("/version"),
    };
    assert_eq!(
        fixture.flows.find_schema(&attributes).level.name,
        level,
        "{}",
        user.name
    );
}

#[tokio::test(start_paused = true)]
async fn schemas_match_by_precedence_and_then_by_name() {
    let mut early = schema("z", "first", "a");
    early.entry("spec").set("matchingPrecedence", 5);
    let levels = ["first", "second", "third"].map(|name| queue(name, 1, 0, 8));
    let schemas = [
        schema("y", "third", "*"),
        schema("x", "second", "*"),
        early,
        schema("w", "nowhere", "*"),
    ];
    let fixture = Fixture::new(10, &levels, &schemas);
    check_level(&fixture, &User::component("a"), "first");
    check_level(&fixture, &User::component("b"), "second");
}

#[tokio::test(start_paused = true)]
async fn mandatory_objects_exist_without_being_stored() {
    let broken = value!({ "metadata": { "name": "exempt" }, "spec": { "type": "Limited" } });
    let fixture = Fixture::new(10, &[broken], &[schema("all", "exempt", "*")]);
    check_level(&fixture, &User::master("admin"), "exempt");
    check_level(&fixture, &User::component("a"), "catch-all");
    check_level(
        &fixture,
        &User {
            name: "stranger".into(),
            ..User::default()
        },
        "catch-all",
    );
    assert_eq!(
        fixture
            .level("catch-all")
            .inspect(|state| state.queues.limit()),
        10
    );
}

#[tokio::test(start_paused = true)]
async fn seat_utilization_is_measured_over_time() {
    let fixture = Fixture::new(
        2,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let level = fixture.level("shared");
    let ann = fixture.enter("a", WorkEstimate::ONE).await.unwrap();
    sleep(Duration::from_nanos(100_000_000)).await;
    let bob = fixture.enter("b", WorkEstimate::ONE).await.unwrap();
    let leave = async {
        sleep(Duration::from_nanos(300_000_000)).await;
        let gauges = || {
            let mut sizes = Vec::new();
            fixture
                .server
                .for_each_class(|class, size, _| sizes.push((class.phase, class.is_write, size)));
            sizes
                .into_iter()
                .filter(|(_, is_write, _)| !is_write)
                .map(|(phase, _, size)| (phase, size))
        };
        assert_eq!(
            gauges().collect::<Vec<_>>(),
            [(Phase::Waiting, 1), (Phase::Executing, 2)]
        );
        drop(ann);
        yield_now().await;
        assert_eq!(
            gauges().collect::<Vec<_>>(),
            [(Phase::Waiting, 0), (Phase::Executing, 2)]
        );
        drop(bob);
    };
    let (last, ()) = tokio::join!(fixture.enter("c", WorkEstimate::ONE), leave);
    let mut families = mizzen_metrics::Families::default();
    super::metrics::collect(&fixture.flows, &fixture.server, &mut families);
    let text = families.to_string();
    // Half of the seats for a tenth of a second, then all of them for three.
    for line in [
        r#"priority_level_seat_utilization_bucket{phase="executing",priority_level="shared",le="0.5"} 1e+08"#,
        r#"priority_level_seat_utilization_bucket{phase="executing",priority_level="shared",le="1"} 4e+08"#,
        r#"priority_level_request_utilization_bucket{phase="waiting",priority_level="shared",le="0"} 1e+08"#,
        r#"priority_level_request_utilization_count{phase="waiting",priority_level="shared"} 4e+08"#,
        r#"demand_seats_bucket{priority_level="shared",le="1.4"} 1e+08"#,
        r#"demand_seats_bucket{priority_level="shared",le="1.7"} 4e+08"#,
        r#"read_vs_write_current_requests_bucket{phase="executing",request_kind="readOnly",le="0.5"} 1e+08"#,
        r#"read_vs_write_current_requests_count{phase="waiting",request_kind="mutating"} 4e+08"#,
    ] {
        let line = format!("apiserver_flowcontrol_{line}");
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
    drop(last);
    assert!(level.inspect(|state| state.queues.is_idle()));
    fixture
        .server
        .for_each_class(|_, size, _| assert_eq!(size, 0));
}
