//! Priority and fairness over HTTP: requests that are served, wait, and are rejected.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use mizzen_apiserver::{Concurrency, Options, User};
use mizzen_authorization::{Attributes, AttributesTarget, Authorizer, Decision, DecisionReason};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{CONFIG_MAPS, Rig};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// Allows everything, after a while: so every request takes some time while it has its place.
#[derive(Debug)]
struct Slow(Duration);

impl Authorizer for Slow {
    fn authorize<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
    ) -> mizzen_registry::BoxFuture<'a, Decision> {
        Box::pin(async move {
            if !matches!(attributes.target, AttributesTarget::NonResource(_)) {
                sleep(self.0).await;
            }
            Decision::Allow(DecisionReason::default())
        })
    }
}

/// A server of so many seats, on which answering takes `takes`.
async fn rig(seats: usize, is_fair: bool, takes: Duration) -> Rig {
    let concurrency = Concurrency {
        reads: seats,
        writes: if is_fair { 0 } else { seats },
        is_fair,
    };
    let authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Slow(takes))];
    Rig::with(Options {
        concurrency,
        authorizers,
        ..Options::default()
    })
    .await
}

/// All seats for a level with queues, whose flows are distinguished by user.
async fn share(rig: &Rig) {
    let level = r#"{"metadata":{"name":"shared"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1000,
        "limitResponse":{"type":"Queue","queuing":{"queues":64,"queueLengthLimit":50,"handSize":6}}}}}"#;
    rig.post(&format!("{GROUP}/prioritylevelconfigurations"), level)
        .await
        .expect(201);
    let rest = r#"{"metadata":{"name":"catch-all"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,
        "lendablePercent":0,"limitResponse":{"type":"Reject"}}}}"#;
    rig.post(&format!("{GROUP}/prioritylevelconfigurations"), rest)
        .await
        .expect(201);
    rig.post(&format!("{GROUP}/flowschemas"), &schema("everybody"))
        .await
        .expect(201);
}

fn schema(name: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"priorityLevelConfiguration":{{"name":"shared"}},
           "matchingPrecedence":500,"distinguisherMethod":{{"type":"ByUser"}},"rules":[{{
           "subjects":[{{"kind":"Group","group":{{"name":"system:authenticated"}}}}],
           "resourceRules":[{{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}}],
           "nonResourceRules":[{{"verbs":["*"],"nonResourceURLs":["*"]}}]}}]}}}}"#
    )
}

async fn get_as(rig: &Rig, user: &'static str) -> u16 {
    rig.call_as(
        User::component(user),
        &[],
        "GET",
        &format!("{CONFIG_MAPS}/x"),
        "",
    )
    .await
    .status
}

/// The answers to `n` requests of a polite client, one after the other, while a greedy one has 1,000 under way; and
/// the longest that one of them took.
async fn polite_beside_greedy(rig: &Rig, n: usize) -> (Vec<u16>, Duration) {
    rig.make("x", "").await;
    let greedy: Vec<_> = (0..1_000)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move {
                loop {
                    if get_as(&rig, "greedy").await == 429 {
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(500)).await;
    let (mut codes, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..n {
        let began = Instant::now();
        codes.push(get_as(rig, "polite").await);
        longest = longest.max(began.elapsed());
    }
    greedy.iter().for_each(|task| task.abort());
    (codes, longest)
}

const TAKES: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn a_greedy_client_cannot_starve_another() {
    let rig = rig(10, true, TAKES).await;
    share(&rig).await;
    let (codes, longest) = polite_beside_greedy(&rig, 100).await;
    assert!(codes.iter().all(|code| *code == 200), "{codes:?}");
    // Ten requests, and at most two rounds of other flows; the 300 waiting ones would take 300 ms.
    assert!(longest <= Duration::from_millis(30), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn without_fairness_a_greedy_client_starves_another() {
    let rig = rig(10, false, TAKES).await;
    let (codes, _) = polite_beside_greedy(&rig, 100).await;
    assert!(codes.contains(&429), "{codes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_request_gets_retry_after() {
    let rig = rig(1, true, TAKES).await;
    rig.make("x", "").await;
    let busy = tokio::spawn({
        let rig = rig.clone();
        async move { get_as(&rig, "ann").await }
    });
    tokio::task::yield_now().await;
    let answer = rig
        .send_as(
            User::component("bob"),
            &[],
            "GET",
            &format!("{CONFIG_MAPS}/x"),
            "",
        )
        .await;
    assert_eq!(answer.status(), 429);
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header("retry-after").as_deref(), Some("1"));
    assert_eq!(
        header("content-type").as_deref(),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(
        header("x-kubernetes-pf-flowschema-uid").as_deref(),
        Some(""),
        "nobody has written the schema"
    );
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Too many requests, please try again later.\n");
    assert_eq!(
        rig.get(&format!("{CONFIG_MAPS}/x")).await.status,
        200,
        "who may do everything is let in"
    );
    assert_eq!(busy.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_response_names_its_flow_schema_and_priority_level() {
    let rig = rig(10, true, TAKES).await;
    share(&rig).await;
    let uid = |body: &mizzen_value::Value| body.at("metadata.uid").str().to_owned();
    let schema = uid(&rig
        .get(&format!("{GROUP}/flowschemas/everybody"))
        .await
        .body);
    let level = uid(&rig
        .get(&format!("{GROUP}/prioritylevelconfigurations/shared"))
        .await
        .body);
    let answer = rig
        .send_as(
            User::component("ann"),
            &[],
            "GET",
            &format!("{CONFIG_MAPS}/nothing"),
            "",
        )
        .await;
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.headers()["x-kubernetes-pf-flowschema-uid"], *schema);
    assert_eq!(
        answer.headers()["x-kubernetes-pf-prioritylevel-uid"],
        *level
    );
    let log = "/api/v1/namespaces/default/pods/p/log";
    let answer = rig
        .send_as(User::component("ann"), &[], "GET", log, "")
        .await;
    assert!(
        !answer
            .headers()
            .contains_key("x-kubernetes-pf-flowschema-uid"),
        "what lasts has no turn"
    );
}

/// A server whose one seat is taken for forty seconds, and the request that holds it.
async fn occupied() -> (Rig, JoinHandle<u16>) {
    let rig = rig(1, true, Duration::from_secs(40)).await;
    share(&rig).await;
    rig.make("x", "").await;
    let busy = tokio::spawn({
        let rig = rig.clone();
        async move { get_as(&rig, "ann").await }
    });
    tokio::task::yield_now().await;
    (rig, busy)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_is_rejected() {
    let (rig, busy) = occupied().await;
    let began = Instant::now();
    assert_eq!(get_as(&rig, "bob").await, 429);
    assert_eq!(
        began.elapsed().as_secs(),
        15,
        "a quarter of the time that a request may take"
    );
    assert_eq!(busy.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_deadline_shortens_the_wait() {
    let (rig, busy) = occupied().await;
    for (query, seconds) in [
        ("timeout=8s", 2),
        ("timeout=0", 15),
        ("watch=true&timeout=8s", 15),
    ] {
        let began = Instant::now();
        let path = format!("{CONFIG_MAPS}?{query}");
        let answer = rig
            .call_as(User::component("bob"), &[], "GET", &path, "")
            .await;
        assert_eq!(
            (answer.status, began.elapsed().as_secs()),
            (429, seconds),
            "{query}"
        );
    }
    let metrics = rig.get("/metrics").await.expect(200).body.str().to_owned();
    let rejected = r#"rejected_requests_total{flow_schema="everybody",priority_level="shared",reason="time-out"} 3"#;
    assert!(metrics.contains(rejected), "{metrics}");
    for (verb, count) in [("LIST", 2), ("WATCH", 1)] {
        let labels = r#"code="429",component="apiserver",group="",resource="configmaps",scope="namespace",subresource="""#;
        let terminated = format!(
            "apiserver_request_terminations_total{{{labels},verb=\"{verb}\",version=\"v1\"}} {count}\n"
        );
        assert!(
            metrics.contains(&terminated),
            "{terminated} is not in\n{metrics}"
        );
    }
    assert_eq!(busy.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_limits_the_duration_of_its_request() {
    let rig = rig(10, true, Duration::from_secs(40)).await;
    let get = async |query: &str| {
        let (began, path) = (Instant::now(), format!("{CONFIG_MAPS}?{query}"));
        let answer = rig
            .send_as(User::component("ann"), &[], "GET", &path, "")
            .await;
        let (code, kind) = (
            answer.status().as_u16(),
            answer.headers()["content-type"].clone(),
        );
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (
            code,
            began.elapsed().as_secs(),
            kind,
            String::from_utf8(body.to_vec()).unwrap(),
        )
    };
    let (code, seconds, kind, body) = get("timeout=2s").await;
    assert_eq!(
        (code, seconds, kind.to_str().unwrap()),
        (504, 2, "text/plain; charset=utf-8")
    );
    assert_eq!(
        body,
        "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the allotted \
         timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n"
    );
    let (code, seconds, _, body) = get("timeout=soon").await;
    assert_eq!((code, seconds), (400, 0));
    let why = r#""message":"invalid timeout specified in the request URL - time: invalid duration \"soon\"""#;
    assert!(body.contains(why), "{body}");
    assert_eq!(get("timeout=50s").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_watch_takes_a_seat_until_its_initial_events_are_sent() {
    let rig = rig(1, true, Duration::ZERO).await;
    for n in 0..300 {
        rig.make(&format!("x{n}"), "").await;
    }
    rig.make("x", "").await;
    let ann = || User::component("ann");
    let answer = rig
        .send_as(ann(), &[], "GET", &format!("{CONFIG_MAPS}?watch=true"), "")
        .await;
    let mut body = answer.into_body();
    assert_eq!(get_as(&rig, "bob").await, 429);
    body.frame().await.unwrap().unwrap();
    assert_eq!(get_as(&rig, "bob").await, 429, "there is more to send");
    while timeout(Duration::from_millis(1), body.frame())
        .await
        .is_ok()
    {}
    assert_eq!(get_as(&rig, "bob").await, 200);
    let version = rig.get(CONFIG_MAPS).await.version();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let _later = rig.send_as(ann(), &[], "GET", &path, "").await;
    assert_eq!(
        get_as(&rig, "bob").await,
        200,
        "who knows what was there takes no seat"
    );
    let unread = rig
        .send_as(ann(), &[], "GET", &format!("{CONFIG_MAPS}?watch=true"), "")
        .await;
    assert_eq!(get_as(&rig, "bob").await, 429);
    drop(unread);
    assert_eq!(
        get_as(&rig, "bob").await,
        200,
        "who does not read it gives it back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_takes_a_seat_until_it_has_been_written() {
    let rig = rig(1, true, Duration::ZERO).await;
    rig.make("x", "").await;
    rig.make("large", &"x".repeat(200_000)).await;
    let ann = || User::component("ann");
    let (object, gzip) = (format!("{CONFIG_MAPS}/large"), ("accept-encoding", "gzip"));
    let forms = [
        None,
        Some(("accept", "application/vnd.kubernetes.protobuf")),
        Some(gzip),
    ];
    for (path, header) in [object.as_str(), CONFIG_MAPS]
        .into_iter()
        .flat_map(|path| forms.map(|form| (path, form)))
    {
        let response = rig.send_as(ann(), header.as_slice(), "GET", path, "").await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        assert_eq!(
            get_as(&rig, "bob").await,
            429,
            "{path} {header:?} has not been read"
        );
        rig.get(path).await.expect(200);
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
        assert_eq!(
            get_as(&rig, "bob").await,
            429,
            "{path} {header:?} may not have been written"
        );
        drop(body);
        assert_eq!(get_as(&rig, "bob").await, 200, "{path} {header:?} has been");
    }
    let _small = rig
        .send_as(ann(), &[], "GET", &format!("{CONFIG_MAPS}/x"), "")
        .await;
    assert_eq!(
        get_as(&rig, "bob").await,
        200,
        "a short response is written without its reader's help"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flow_schema_has_a_condition_if_its_level_is_missing() {
    let rig = Rig::new().await;
    let path = format!("{GROUP}/flowschemas/lonely");
    rig.post(&format!("{GROUP}/flowschemas"), &schema("lonely"))
        .await
        .expect(201);
    let condition = async || {
        sleep(Duration::from_millis(20)).await;
        let schema = rig.get(&path).await.body;
        let condition = &schema.at("status.conditions").list()[0];
        format!(
            "{} {} {}",
            condition["type"].str(),
            condition["status"].str(),
            condition["reason"].str()
        )
    };
    assert_eq!(condition().await, "Dangling True NotFound");
    share(&rig).await;
    assert_eq!(condition().await, "Dangling False Found");
    rig.delete(&format!("{GROUP}/prioritylevelconfigurations/shared"), "")
        .await
        .expect(200);
    assert_eq!(condition().await, "Dangling True NotFound");
}

#[tokio::test(start_paused = true)]
async fn metrics_and_debug_pages_show_queued_and_executing_requests() {
    let rig = rig(2, true, Duration::from_secs(1)).await;
    share(&rig).await;
    let busy: Vec<_> = (0..5)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { get_as(&rig, "ann").await })
        })
        .collect();
    tokio::task::yield_now().await;
    let page = async |path: &str| rig.get(path).await.expect(200).body.str().to_owned();
    let metrics = page("/metrics").await;
    let labels = r#"flow_schema="everybody",priority_level="shared""#;
    for line in [
        format!("apiserver_flowcontrol_current_executing_requests{{{labels}}} 2"),
        format!("apiserver_flowcontrol_current_inqueue_requests{{{labels}}} 3"),
        format!("apiserver_flowcontrol_dispatched_requests_total{{{labels}}} 2"),
        r#"apiserver_current_inqueue_requests{request_kind="readOnly"} 3"#.into(),
        r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="shared"} 2"#.into(),
        r#"apiserver_flowcontrol_current_limit_seats{priority_level="shared"} 2"#.into(),
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
    let root = "/debug/api_priority_and_fairness";
    let levels = page(&format!("{root}/dump_priority_levels")).await;
    let shared: Vec<&str> = levels
        .lines()
        .find(|line| line.starts_with("shared"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(shared[4..7], ["3,", "2,", "2,"], "{levels}");
    assert!(
        page(&format!("{root}/dump_queues"))
            .await
            .lines()
            .filter(|line| line.starts_with("shared,"))
            .count()
            == 64
    );
    let requests = page(&format!("{root}/dump_requests?includeRequestDetails=1")).await;
    let shared = requests
        .lines()
        .filter(|line| line.contains("everybody") && line.contains("configmaps/x,"));
    assert_eq!(shared.count(), 5, "{requests}");
    rig.get(&format!("{root}/nothing")).await.expect(404);
    for busy in busy {
        assert_eq!(busy.await.unwrap(), 404);
    }
}
