//! Extenders over HTTP, on real time.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_testing::Cluster;
use mizzen_value::{Value, json, value};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::device;
use crate::fixtures::{create_node, create_pod, parse, pod_of, start_scheduler, start_server};

/// Maps a path and a body to the body of a response.
pub(crate) type Answer = fn(&str, &Value) -> (u16, Value);

/// The requests that an extender got.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender that records its requests.
struct Extender {
    port: u16,
    asked: Asked,
}

impl Extender {
    async fn start(answer: Answer) -> Extender {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Asked::default();
        let memory = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, memory.clone()));
            }
        });
        Extender { port, asked }
    }

    fn asked(&self, verb: &str) -> Vec<Value> {
        let asked = self.asked.lock();
        asked
            .iter()
            .filter(|(path, _)| path.ends_with(verb))
            .map(|(_, body)| body.clone())
            .collect()
    }
}

/// Serves one connection until the client closes it.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    asked: Asked,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("post ") {
                path = rest.split(' ').next()?.to_string();
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let body = json::parse(&body).ok()?;
        let (code, reply) = answer(&path, &body);
        asked.lock().push((path, body));
        let text = json::to_string(&reply);
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        stream
            .write_all(format!("{head}{text}").as_bytes())
            .await
            .ok()?;
    }
}

async fn cluster(extender: &Extender, more: &str) -> Cluster {
    let configuration = format!(
        "extenders:\n- urlPrefix: http://127.0.0.1:{}/x\n  {more}\n",
        extender.port
    );
    let cluster = start_server().await;
    for name in ["n1", "n2"] {
        create_node(&cluster, name, "{}").await;
    }
    start_scheduler(&cluster, parse(&configuration)).await;
    cluster
}

/// Polls a pod until `done`.
pub(crate) async fn wait(cluster: &Cluster, pod: &str, done: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let pod = cluster.object(&PODS, &format!("default/{pod}")).await;
            if done(&pod) {
                return pod.0;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look)
        .await
        .expect("it comes to that")
}

async fn place(cluster: &Cluster, pod: &str) -> String {
    let pod = wait(cluster, pod, |pod| {
        !pod["spec"]["nodeName"].str().is_empty()
    })
    .await;
    pod["spec"]["nodeName"].str().to_string()
}

async fn message(cluster: &Cluster, pod: &str) -> (String, String) {
    let pod = wait(cluster, pod, |pod| !pod["status"]["conditions"].is_empty()).await;
    let condition = &pod["status"]["conditions"][0];
    (
        condition["reason"].str().to_string(),
        condition["message"].str().to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_filters_nodes_with_reasons() {
    let extender = Extender::start(|_, body| {
        let both = body["NodeNames"].list().len() == 2;
        (
            200,
            value!({"NodeNames": ["n2"], "FailedNodes": {"n1": "too loud"}, "Both": both}),
        )
    })
    .await;
    let cluster = cluster(&extender, "filterVerb: filter\n  nodeCacheCapable: true").await;
    create_pod(&cluster, "p", "{}").await;
    assert_eq!(place(&cluster, "p").await, "n2");
    let asked = extender.asked("/x/filter");
    assert_eq!(asked[0]["Pod"]["metadata"]["name"].str(), "p");
    assert_eq!(asked[0]["NodeNames"].list().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_reasons_are_in_the_message() {
    let extender = Extender::start(|_, _| {
        (
            200,
            value!({"Nodes": {"items": []}, "FailedNodes": {"n1": "too loud", "n2": "too loud"}}),
        )
    })
    .await;
    let cluster = cluster(&extender, "filterVerb: filter").await;
    create_pod(&cluster, "p", "{}").await;
    let (reason, message) = message(&cluster, "p").await;
    assert_eq!(reason, "Unschedulable");
    assert!(
        message.starts_with("0/2 nodes are available: 2 too loud. "),
        "{message}"
    );
    let asked = extender.asked("/x/filter");
    assert_eq!(
        asked[0]["Nodes"]["items"][0]["status"]["allocatable"]["cpu"].str(),
        "4"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_scores_nodes() {
    let extender = Extender::start(|_, _| {
        (
            200,
            value!([{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 10}]),
        )
    })
    .await;
    let cluster = cluster(&extender, "prioritizeVerb: prioritize\n  weight: 5").await;
    for at in 0..3 {
        create_pod(&cluster, &format!("p{at}"), "{}").await;
        assert_eq!(place(&cluster, &format!("p{at}")).await, "n2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_binds_pods() {
    let extender = Extender::start(|_, _| (200, value!({}))).await;
    let cluster = cluster(&extender, "bindVerb: bind").await;
    create_pod(&cluster, "p", "{}").await;
    while extender.asked("/x/bind").is_empty() {
        tokio::task::yield_now().await;
    }
    let asked = &extender.asked("/x/bind")[0];
    assert_eq!(
        (asked["PodName"].str(), asked["PodNamespace"].str()),
        ("p", "default")
    );
    assert!(["n1", "n2"].contains(&asked["Node"].str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_failure_is_an_error_unless_ignorable() {
    let extender = Extender::start(|_, _| (500, value!({}))).await;
    let strict = cluster(&extender, "filterVerb: filter").await;
    create_pod(&strict, "p", "{}").await;
    let (reason, message) = message(&strict, "p").await;
    let url = format!("http://127.0.0.1:{}/x/filter", extender.port);
    assert_eq!(reason, "SchedulerError");
    assert_eq!(
        message,
        format!("failed filter with extender at URL {url}, code 500")
    );
    let lenient = cluster(&extender, "filterVerb: filter\n  ignorable: true").await;
    create_pod(&lenient, "p", "{}").await;
    assert!(!place(&lenient, "p").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_binding_requeues_the_pod() {
    let extender = Extender::start(|_, body| {
        let refused = body["Node"].str() == "n1";
        (
            200,
            if refused {
                value!({"Error": "not there"})
            } else {
                value!({})
            },
        )
    })
    .await;
    let cluster = cluster(&extender, "bindVerb: bind").await;
    create_pod(
        &cluster,
        "p",
        "{spec: {nodeSelector: {kubernetes.io/hostname: n1}}}",
    )
    .await;
    assert_eq!(
        message(&cluster, "p").await,
        ("SchedulerError".to_string(), "not there".to_string())
    );
    let again = async {
        while extender.asked("/x/bind").len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again)
        .await
        .expect("it is tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_binding_releases_the_claim() {
    let extender = Extender::start(|_, _| (200, value!({"Error": "not there"}))).await;
    let cluster = cluster(&extender, "bindVerb: bind").await;
    device::class(&cluster).await;
    device::slice(&cluster, "n1").await;
    device::claim(&cluster, "c", "true").await;
    create_pod(&cluster, "p", device::POD).await;
    // Both fields are set in one request, so that an allocation alone is the state after Unreserve.
    let given_back = async {
        loop {
            let status = cluster.object(&RESOURCE_CLAIMS, "default/c").await["status"].clone();
            if !status["allocation"].is_null() && status["reservedFor"].is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), given_back)
        .await
        .expect("it gives its claim back");
    assert!(!extender.asked("/x/bind").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let extender = Extender {
        port: silent.local_addr().unwrap().port(),
        asked: Arc::default(),
    };
    let cluster = cluster(&extender, "filterVerb: filter\n  httpTimeout: 50ms").await;
    create_pod(&cluster, "p", "{}").await;
    let (reason, message) = message(&cluster, "p").await;
    assert_eq!(reason, "SchedulerError");
    assert!(
        message.ends_with(": context deadline exceeded"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_handles_its_managed_resources_only() {
    let extender = Extender::start(|_, _| (200, value!({"NodeNames": []}))).await;
    let more = "filterVerb: filter\n  nodeCacheCapable: true\n  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]";
    let cluster = cluster(&extender, more).await;
    create_pod(&cluster, "plain", "{}").await;
    assert!(!place(&cluster, "plain").await.is_empty());
    assert!(extender.asked("/x/filter").is_empty());
    create_pod(
        &cluster,
        "gpu",
        "{spec: {containers: [{name: c, image: i, resources: {limits: {example.com/gpu: '1'}}}]}}",
    )
    .await;
    let (reason, _) = message(&cluster, "gpu").await;
    assert_eq!(
        (reason.as_str(), extender.asked("/x/filter").is_empty()),
        ("Unschedulable", false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_filters_preemption_victims() {
    let extender = Extender::start(|_, body| {
        let victims = body["NodeNameToMetaVictims"].clone();
        let mut left = Value::object();
        left.set("n2", victims["n2"].clone());
        (200, value!({"NodeNameToMetaVictims": left}))
    })
    .await;
    let cluster = cluster(&extender, "preemptVerb: preempt\n  nodeCacheCapable: true").await;
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        let more = format!(
            "{{spec: {{nodeSelector: {{kubernetes.io/hostname: {node}}}, containers: [{{name: c, image: i, resources: {{requests: {{cpu: '3'}}}}}}]}}}}"
        );
        create_pod(&cluster, name, &more).await;
        assert_eq!(place(&cluster, name).await, node);
    }
    pod_of(&cluster, "vip", "3", 100).await;
    wait(&cluster, "b", |pod| {
        !pod["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    assert!(!cluster.object(&PODS, "default/a").await.is_terminating());
    let vip = wait(&cluster, "vip", |pod| {
        !pod["status"]["nominatedNodeName"].is_null()
    })
    .await;
    assert_eq!(vip["status"]["nominatedNodeName"].str(), "n2");
}
