//! How clients share the seats, on virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use mizzen_object::User;
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
use crate::authorization::{Attributes, Target};
use crate::request::{Query, RequestInfo};

const SERVICE: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(15);

/// Levels and schemas at work.
struct Scene {
    flows: FlowConfiguration,
    house: Arc<ServerConcurrency>,
}

impl Scene {
    /// A server of `limit` seats. Schemas are named like the user that they are for.
    fn new(limit: usize, levels: &[Value], schemas: &[Value]) -> Scene {
        let house = Arc::new(ServerConcurrency::new(limit));
        Scene {
            flows: FlowConfiguration::new(&FlowConfiguration::default(), levels, schemas, &house),
            house,
        }
    }

    /// One level of `seats` with queues, and a schema that tells users apart.
    fn of_one_level(seats: usize) -> Scene {
        // The rest is for everything else.
        Scene::new(
            seats + 1,
            &[queue("shared", 95 * seats, 0, 64), reject(0)],
            &[schema("all", "shared", "*")],
        )
    }

    fn configure(&mut self, levels: &[Value], schemas: &[Value]) {
        self.flows = FlowConfiguration::new(&self.flows, levels, schemas, &self.house);
    }

    fn room(&self, level: &str) -> Arc<PriorityLevel> {
        self.flows.levels[level].clone()
    }

    /// A request of `user`: it is let in, at once or after a while, or turned away.
    async fn enter(&self, user: &str, work: WorkEstimate) -> Result<SeatLease, RejectReason> {
        let user = User::component(user);
        let asked = Attributes {
            user: &user,
            verb: "get",
            target: Target::Page("/version"),
        };
        let schema = self.flows.find_schema(&asked).clone();
        let (_, hash) = schema.flow_distinguisher(&asked);
        let info = RequestInfo::new(
            &Method::GET,
            &Uri::from_static("/version"),
            &Query::default(),
        )
        .unwrap();
        let about = RequestDigest {
            info,
            ..RequestDigest::default()
        };
        let newcomer = ArrivingRequest {
            counts_idx: schema.counts_idx,
            flow_hash: hash,
            work,
            watchers: None,
            digest: about,
        };
        let (mut place, wait) = schema.level.admit(newcomer)?;
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

/// What is for everything else, with so many shares.
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

/// What a client got.
#[derive(Debug, Default)]
struct Served {
    answers: usize,
    refusals: usize,
    longest_wait: Duration,
    waited: Duration,
}

/// Asks again and again until `end`, `n` requests at a time. Who is turned away comes back after a second.
fn client(
    scene: &Rc<Scene>,
    set: &LocalSet,
    user: &'static str,
    n: usize,
    work: WorkEstimate,
    end: Instant,
) -> Rc<RefCell<Served>> {
    let served = Rc::new(RefCell::new(Served::default()));
    for _ in 0..n {
        let (scene, served) = (scene.clone(), served.clone());
        set.spawn_local(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                match scene.enter(user, work).await {
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
async fn a_greedy_client_does_not_keep_a_polite_one_waiting() {
    let (scene, set) = (Rc::new(Scene::of_one_level(10)), LocalSet::new());
    assert_eq!(
        scene.room("shared").inspect(|state| state.seats.nominal),
        11
    );
    let end = Instant::now() + Duration::from_secs(10);
    let greedy = client(&scene, &set, "greedy", 1_000, WorkEstimate::ONE, end);
    let polite = client(&scene, &set, "polite", 1, WorkEstimate::ONE, end);
    set.await;
    let (greedy, polite) = (greedy.borrow(), polite.borrow());
    // Eleven seats of ten milliseconds make 1,100 answers a second. First come, first served would have the polite one
    // wait for about 300 others, more than a quarter of a second each time, if it were not turned away.
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
async fn clients_that_are_equally_greedy_get_the_same() {
    let (scene, set) = (Rc::new(Scene::of_one_level(10)), LocalSet::new());
    let end = Instant::now() + Duration::from_secs(10);
    let served =
        ["a", "b", "c"].map(|user| client(&scene, &set, user, 100, WorkEstimate::ONE, end));
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
    let (scene, set) = (Rc::new(Scene::of_one_level(10)), LocalSet::new());
    let end = Instant::now() + Duration::from_secs(10);
    let wide = client(&scene, &set, "wide", 50, WorkEstimate::seats(5), end);
    let narrow = client(&scene, &set, "narrow", 50, WorkEstimate::ONE, end);
    set.await;
    let (wide, narrow) = (wide.borrow().answers, narrow.borrow().answers);
    let ratio = narrow as f64 / wide as f64;
    // About five; while seats are gathered for a wide one some stay empty.
    assert!(
        (3.0..6.0).contains(&ratio),
        "{narrow} narrow ones and {wide} wide ones"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_requests_away() {
    let scene = Rc::new(Scene::new(
        1,
        &[queue("shared", 1, 0, 1), reject(0)],
        &[schema("all", "shared", "*")],
    ));
    let _place = scene.enter("a", WorkEstimate::ONE).await.unwrap();
    let set = LocalSet::new();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let scene = scene.clone();
            set.spawn_local(async move { scene.enter("a", WorkEstimate::ONE).await.map(drop) })
        })
        .collect();
    set.run_until(async {
        yield_now().await;
        assert_eq!(
            scene.room("shared").inspect(|state| state.queues.waiting),
            50
        );
        assert_eq!(
            scene.enter("a", WorkEstimate::ONE).await.err(),
            Some(RejectReason::QueueFull)
        );
        let began = Instant::now();
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Err(RejectReason::TimeOut));
        }
        assert_eq!(began.elapsed().as_secs(), LONG.as_secs());
    })
    .await;
    let rejected = scene
        .room("shared")
        .inspect(|state| state.queues.schema_counts[0].rejected.clone());
    assert_eq!(
        rejected.into_iter().collect::<Vec<_>>(),
        [(RejectReason::QueueFull, 1), (RejectReason::TimeOut, 50)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_level_without_queues_turns_away_what_is_too_much() {
    let scene = Scene::new(2, &[], &[]);
    let first = scene.enter("a", WorkEstimate::ONE).await.unwrap();
    let _second = scene.enter("b", WorkEstimate::ONE).await.unwrap();
    assert_eq!(
        scene.enter("c", WorkEstimate::ONE).await.err(),
        Some(RejectReason::ConcurrencyLimit)
    );
    drop(first);
    assert!(scene.enter("c", WorkEstimate::ONE).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_let_in_however_full_it_is() {
    let exempt = schema("exempt", "exempt", "root");
    let scene = Scene::new(
        1,
        &[value!({ "metadata": { "name": "exempt" }, "spec": { "type": "Exempt", "exempt": {} } })],
        &[exempt],
    );
    let _place = scene.enter("a", WorkEstimate::ONE).await.unwrap();
    assert_eq!(
        scene.enter("a", WorkEstimate::ONE).await.err(),
        Some(RejectReason::ConcurrencyLimit)
    );
    let mut places = Vec::new();
    for _ in 0..100 {
        places.push(scene.enter("root", WorkEstimate::seats(10)).await.unwrap());
    }
    assert_eq!(
        scene
            .room("exempt")
            .inspect(|state| state.queues.seats_in_use),
        1_000
    );
}

#[tokio::test(start_paused = true)]
async fn a_level_borrows_what_another_does_not_use() {
    let levels = [queue("busy", 50, 0, 8), queue("idle", 50, 80, 8), reject(0)];
    let scene = Rc::new(Scene::new(
        100,
        &levels,
        &[schema("a", "busy", "a"), schema("b", "idle", "b")],
    ));
    let limits = |scene: &Scene| {
        ["busy", "idle"].map(|name| scene.room(name).inspect(|state| state.queues.limit()))
    };
    assert_eq!(
        limits(&scene),
        [83, 17],
        "nobody wants anything, so everybody gets the same part of what he keeps"
    );
    let set = LocalSet::new();
    let end = Instant::now() + Duration::from_secs(60);
    client(&scene, &set, "a", 200, WorkEstimate::ONE, end);
    set.run_until(async {
        sleep(Duration::from_secs(10)).await;
        scene.flows.update_borrowing();
        assert_eq!(limits(&scene), [90, 10], "what is kept anyway is not lent");
    })
    .await;
    client(&scene, &set, "b", 45, WorkEstimate::ONE, end);
    set.run_until(async {
        sleep(Duration::from_secs(10)).await;
        scene.flows.update_borrowing();
        assert_eq!(limits(&scene), [55, 45], "who wants his own back gets it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_when_there_are_more_seats() {
    let schemas = [schema("all", "shared", "*")];
    let levels = |shares| [queue("shared", shares, 0, 8), reject(10 - shares)];
    let mut scene = Scene::new(10, &levels(1), &schemas);
    let room = scene.room("shared");
    let waiting = |n: usize| assert_eq!(room.inspect(|state| state.queues.waiting), n);
    let enter = |n: usize| {
        let newcomer = || ArrivingRequest {
            counts_idx: 0,
            flow_hash: 7,
            work: WorkEstimate::ONE,
            watchers: None,
            digest: RequestDigest::default(),
        };
        (0..n)
            .map(|_| room.admit(newcomer()).unwrap())
            .collect::<Vec<_>>()
    };
    let places = enter(6);
    waiting(5);
    scene.configure(&levels(4), &schemas);
    waiting(2);
    // The level is gone, but those in it are not.
    scene.configure(&[], &[]);
    assert!(room.inspect(|state| state.is_quiescing));
    assert!(scene.flows.levels.contains_key("shared"));
    drop(places);
    waiting(0);
    assert!(scene.flows.has_idle_quiescing_level());
    scene.configure(&[], &[]);
    assert!(!scene.flows.levels.contains_key("shared"));
}

#[tokio::test(start_paused = true)]
async fn fewer_queues_are_used_up_before_they_go() {
    let schemas = [schema("all", "shared", "*")];
    let mut scene = Scene::new(1, &[queue("shared", 1, 0, 32), reject(0)], &schemas);
    let room = scene.room("shared");
    let newcomer = |hash| ArrivingRequest {
        counts_idx: 0,
        flow_hash: hash,
        work: WorkEstimate::ONE,
        watchers: None,
        digest: RequestDigest::default(),
    };
    let mut places: Vec<_> = (0..40)
        .map(|n| room.admit(newcomer(n * 0x9e37_79b9)).unwrap())
        .collect();
    scene.configure(&[queue("shared", 1, 0, 2), reject(0)], &schemas);
    let n_queues = || room.inspect(|state| state.queues.all().len());
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
async fn a_client_that_goes_away_gives_its_place_back() {
    let scene = Rc::new(Scene::new(
        1,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    ));
    let place = scene.enter("a", WorkEstimate::ONE).await.unwrap();
    let (set, room) = (LocalSet::new(), scene.room("shared"));
    let (other, last) = (scene.clone(), scene.clone());
    let gone = set.spawn_local(async move { other.enter("b", WorkEstimate::ONE).await.map(drop) });
    let stays = set.spawn_local(async move { last.enter("c", WorkEstimate::ONE).await.map(drop) });
    set.run_until(async {
        yield_now().await;
        assert_eq!(room.inspect(|state| state.queues.waiting), 2);
        gone.abort();
        yield_now().await;
        assert_eq!(room.inspect(|state| state.queues.waiting), 1);
        drop(place);
        assert_eq!(stays.await.unwrap(), Ok(()));
    })
    .await;
    assert!(room.inspect(|state| state.queues.is_idle() && state.queues.seats_in_use == 0));
    let rejected = room.inspect(|state| state.queues.schema_counts[0].rejected.clone());
    assert_eq!(
        rejected.into_iter().collect::<Vec<_>>(),
        [(RejectReason::TimeOut, 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn seats_of_a_write_are_kept_until_everybody_has_heard_of_it() {
    let scene = Scene::new(
        10,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let heard = WorkEstimate {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_millis(50),
    };
    drop(scene.enter("a", heard).await.unwrap());
    let began = Instant::now();
    drop(scene.enter("b", WorkEstimate::ONE).await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    assert_eq!(
        scene
            .room("shared")
            .inspect(|state| state.queues.seats_in_use),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn seats_that_are_given_back_earlier_are_not_waited_for_longer() {
    let scene = Scene::new(
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
        scene.enter("a", heard(50)).await.unwrap(),
        scene.enter("a", heard(5)).await.unwrap(),
    );
    let began = Instant::now();
    let leave = async {
        yield_now().await;
        drop(late);
        drop(early);
    };
    let (entered, ()) = tokio::join!(scene.enter("b", WorkEstimate::ONE), leave);
    drop(entered.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn who_wants_more_seats_than_there_are_gets_all_of_them() {
    let scene = Scene::new(
        2,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let place = scene.enter("a", WorkEstimate::seats(9)).await.unwrap();
    let began = Instant::now();
    tokio::join!(
        async {
            sleep(SERVICE).await;
            drop(place);
        },
        async { drop(scene.enter("b", WorkEstimate::ONE).await.unwrap()) },
    );
    assert_eq!(began.elapsed(), SERVICE);
}

#[track_caller]
fn check_level(scene: &Scene, user: &User, level: &str) {
    let asked = Attributes {
        user,
        verb: "get",
        target: Target::Page("/version"),
    };
    assert_eq!(
        scene.flows.find_schema(&asked).level.name,
        level,
        "{}",
        user.name
    );
}

#[tokio::test(start_paused = true)]
async fn schemas_are_asked_by_precedence_and_then_by_name() {
    let mut early = schema("z", "first", "a");
    early.entry("spec").set("matchingPrecedence", 5);
    let levels = ["first", "second", "third"].map(|name| queue(name, 1, 0, 8));
    let schemas = [
        schema("y", "third", "*"),
        schema("x", "second", "*"),
        early,
        schema("w", "nowhere", "*"),
    ];
    let scene = Scene::new(10, &levels, &schemas);
    check_level(&scene, &User::component("a"), "first");
    check_level(&scene, &User::component("b"), "second");
}

#[tokio::test(start_paused = true)]
async fn what_must_be_there_is_there_even_if_nobody_wrote_it() {
    let broken = value!({ "metadata": { "name": "exempt" }, "spec": { "type": "Limited" } });
    let scene = Scene::new(10, &[broken], &[schema("all", "exempt", "*")]);
    check_level(&scene, &User::master("admin"), "exempt");
    check_level(&scene, &User::component("a"), "catch-all");
    check_level(
        &scene,
        &User {
            name: "stranger".into(),
            ..User::default()
        },
        "catch-all",
    );
    assert_eq!(
        scene
            .room("catch-all")
            .inspect(|state| state.queues.limit()),
        10
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_known_for_how_long_how_much_was_in_use() {
    let scene = Scene::new(
        2,
        &[queue("shared", 1, 0, 8), reject(0)],
        &[schema("all", "shared", "*")],
    );
    let room = scene.room("shared");
    let ann = scene.enter("a", WorkEstimate::ONE).await.unwrap();
    sleep(Duration::from_nanos(100_000_000)).await;
    let bob = scene.enter("b", WorkEstimate::ONE).await.unwrap();
    let leave = async {
        sleep(Duration::from_nanos(300_000_000)).await;
        let crowds = || {
            let mut sizes = Vec::new();
            scene.house.for_each_class(|standing, size, _| {
                sizes.push((standing.phase, standing.is_write, size))
            });
            sizes
                .into_iter()
                .filter(|(_, is_write, _)| !is_write)
                .map(|(phase, _, size)| (phase, size))
        };
        assert_eq!(
            crowds().collect::<Vec<_>>(),
            [(Phase::Waiting, 1), (Phase::Executing, 2)]
        );
        drop(ann);
        yield_now().await;
        assert_eq!(
            crowds().collect::<Vec<_>>(),
            [(Phase::Waiting, 0), (Phase::Executing, 2)]
        );
        drop(bob);
    };
    let (last, ()) = tokio::join!(scene.enter("c", WorkEstimate::ONE), leave);
    let mut families = mizzen_metrics::Families::default();
    super::metrics::collect(&scene.flows, &scene.house, &mut families);
    let text = families.to_string();
    // Half of the seats for a tenth of a second, and then all of them for three.
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
    assert!(room.inspect(|state| state.queues.is_idle()));
    scene.house.for_each_class(|_, size, _| assert_eq!(size, 0));
}
