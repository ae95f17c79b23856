//! The webhook server: against the API server over loopback, its limits, and its certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Error};
use mizzen_sdk::Object;
use mizzen_sdk::resource::CONFIG_MAPS;
use mizzen_sdk::webhook::{
    AdmissionRequest, Authority, BuildError, Builder, CertificateFiles, CertificateRotator, Denied,
    Endpoint, InjectionTarget, Limits, Operation, RotationOptions, Rule, Server,
    ServingCertificate, Validity, Violations, Webhook,
};
use mizzen_testing::Cluster;
use mizzen_value::{Value, json, value};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

async fn client() -> Client {
    let cluster = Cluster::builder()
        .server_only()
        .without_bootstrap()
        .real_time()
        .start()
        .await;
    cluster.client_as("alice", &["system:masters"])
}

/// A webhook server that is served on loopback and registered with the API server.
struct Served {
    client: Client,
    rotator: CertificateRotator,
    stop: Option<oneshot::Sender<()>>,
}

async fn serve(client: &Client, builder: Builder) -> Served {
    let server = builder.build().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let mut options = RotationOptions::new("default", "webhook", endpoint.names());
    options.targets = server.injection_targets();
    let rotator = CertificateRotator::start(client.clone(), options)
        .await
        .unwrap();
    let (stop, stopped) = oneshot::channel();
    let (serving, certificate) = (server.clone(), rotator.certificate());
    tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        serving
            .serve(listener, certificate, stopped, Duration::from_secs(5))
            .await;
    });
    server
        .apply(client, &endpoint, &rotator.bundle())
        .await
        .unwrap();
    Served {
        client: client.clone(),
        rotator,
        stop: Some(stop),
    }
}

impl Served {
    fn configs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, colour: &str) -> Result<ConfigMap, Error> {
        self.configs()
            .create(&PostParams::default(), &config(name, colour))
            .await
    }
}

fn config(name: &str, colour: &str) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.into());
    config
        .data
        .get_or_insert_default()
        .insert("colour".into(), colour.into());
    config
}

fn colour(config: &ConfigMap) -> &str {
    config.data.as_ref().map_or("", |data| &data["colour"])
}

fn validating<K, F, R>(handler: F) -> Builder
where
    K: serde::de::DeserializeOwned + Send + 'static,
    F: Fn(AdmissionRequest<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Denied>> + Send + 'static,
{
    let rule = Rule::kind::<ConfigMap>().operations([
        Operation::Create,
        Operation::Update,
        Operation::Delete,
    ]);
    Server::builder("test").webhook(Webhook::validating("v.test.example.com", rule, handler))
}

#[track_caller]
fn denied(outcome: Result<ConfigMap, Error>) -> Box<kube::core::Status> {
    match outcome {
        Err(Error::Api(status)) => status,
        outcome => panic!("not denied: {outcome:?}"),
    }
}

#[tokio::test]
async fn a_denial_has_the_code_the_reason_and_the_message_of_its_handler() {
    let served = serve(
        &client().await,
        validating(
            async |request: AdmissionRequest<ConfigMap>| match colour(request.object()?) {
                "grey" => Err(Denied::new("no grey")),
                "tea" => Err(Denied::with_code(418, "Teapot", "no tea")),
                "broken" => Err("x".parse::<u8>().unwrap_err().into()),
                "invalid" => {
                    let mut violations = Violations::default();
                    violations.invalid("data.colour", "invalid", "must be a colour");
                    request.reject_invalid(&violations)
                }
                _ => Ok(()),
            },
        ),
    )
    .await;
    let check = async |colour: &str, code: u16, reason: &str, message: &str| {
        let status = denied(served.create("a", colour).await);
        let prefix = "admission webhook \"v.test.example.com\" denied the request: ";
        assert_eq!(status.message.strip_prefix(prefix), Some(message));
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
    };
    check("grey", 403, "Forbidden", "no grey").await;
    check("tea", 418, "Teapot", "no tea").await;
    let broken = "Internal error occurred: invalid digit found in string";
    check("broken", 500, "InternalError", broken).await;
    let invalid =
        "ConfigMap \"a\" is invalid: data.colour: Invalid value: \"invalid\": must be a colour";
    check("invalid", 422, "Invalid", invalid).await;
    served.create("a", "red").await.unwrap();
}

#[tokio::test]
async fn a_handler_sees_the_request_as_the_api_server_sends_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let served = serve(
        &client().await,
        validating(move |request: AdmissionRequest<ConfigMap>| {
            let colours =
                |config: Option<&ConfigMap>| config.map(|config| colour(config).to_owned());
            let line = format!(
                "{:?} {}/{} {} {} dry={} {:?} {:?} {}",
                request.operation,
                request.namespace,
                request.name,
                request.kind.kind,
                request.resource.resource,
                request.dry_run,
                colours(request.object.as_ref()),
                colours(request.old_object.as_ref()),
                request.user_info.username.as_deref().unwrap_or_default(),
            );
            log.lock().push(line);
            async { Ok(()) }
        }),
    )
    .await;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    served
        .configs()
        .create(&dry_run, &config("a", "red"))
        .await
        .unwrap();
    let mut made = served.create("a", "red").await.unwrap();
    made.data
        .get_or_insert_default()
        .insert("colour".into(), "blue".into());
    served
        .configs()
        .replace("a", &PostParams::default(), &made)
        .await
        .unwrap();
    served
        .configs()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(
        *seen.lock(),
        [
            "Create default/a ConfigMap configmaps dry=true Some(\"red\") None alice",
            "Create default/a ConfigMap configmaps dry=false Some(\"red\") None alice",
            "Update default/a ConfigMap configmaps dry=false Some(\"blue\") Some(\"red\") alice",
            "Delete default/a ConfigMap configmaps dry=false None Some(\"blue\") alice",
        ]
    );
}

#[tokio::test]
async fn untyped_objects_are_mutated() {
    let rule = Rule::resource(&CONFIG_MAPS);
    let mutate = async |request: AdmissionRequest<Object>, mut object: Object| {
        let user = request.user_info.username.clone().unwrap_or_default();
        object.entry("data").set("author", user);
        object
            .entry("metadata")
            .entry("labels")
            .set("example.com/seen", "yes");
        Ok(object)
    };
    let builder =
        Server::builder("test").webhook(Webhook::mutating("m.test.example.com", rule, mutate));
    let served = serve(&client().await, builder).await;
    let made = served.create("a", "red").await.unwrap();
    assert_eq!(made.data.unwrap()["author"], "alice");
    assert_eq!(made.metadata.labels.unwrap()["example.com/seen"], "yes");
}

#[tokio::test]
async fn warnings_reach_the_client_whatever_the_decision() {
    let served = serve(
        &client().await,
        validating(async |request: AdmissionRequest<ConfigMap>| {
            request.warn("this is old");
            request.annotate("checked", "yes");
            match colour(request.object()?) {
                "grey" => Err(Denied::new("no")),
                _ => Ok(()),
            }
        }),
    )
    .await;
    for (colour, code) in [("red", 201), ("grey", 403)] {
        let body = serde_json::to_vec(&config("a", colour)).unwrap();
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("content-type", "application/json")
            .body(kube::client::Body::from(body))
            .unwrap();
        let response = served.client.send(request).await.unwrap();
        assert_eq!(response.status(), code);
        assert_eq!(response.headers()["warning"], "299 - \"this is old\"");
    }
}

#[tokio::test]
async fn a_panic_is_answered_with_500_and_the_server_lives_on() {
    let served = serve(
        &client().await,
        validating(async |request: AdmissionRequest<ConfigMap>| {
            assert_ne!(colour(request.object()?), "grey", "secret detail");
            Ok(())
        }),
    )
    .await;
    let status = denied(served.create("a", "grey").await);
    assert_eq!(status.code, 500);
    assert!(
        status.message.ends_with("the webhook panicked"),
        "{}",
        status.message
    );
    served.create("a", "red").await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_finishes_the_requests_in_flight() {
    let (entered, arrived) = oneshot::channel();
    let (proceed, gate) = oneshot::channel::<()>();
    let parts = Mutex::new(Some((entered, gate)));
    let mut served = serve(
        &client().await,
        validating(move |_: AdmissionRequest<ConfigMap>| {
            let (entered, gate) = parts.lock().take().expect("one request");
            async move {
                let _ = entered.send(());
                let _ = gate.await;
                Ok(())
            }
        }),
    )
    .await;
    let configs = served.configs();
    let write = tokio::spawn(async move {
        configs
            .create(&PostParams::default(), &config("a", "red"))
            .await
    });
    arrived.await.unwrap();
    drop(served.stop.take());
    tokio::task::yield_now().await;
    proceed.send(()).unwrap();
    write.await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_succeed_while_certificates_are_rotated() {
    let served = serve(
        &client().await,
        validating(
            async |request: AdmissionRequest<ConfigMap>| match colour(request.object()?) {
                "grey" => Err(Denied::new("no")),
                _ => Ok(()),
            },
        ),
    )
    .await;
    let secrets: Api<Secret> = Api::namespaced(served.client.clone(), "default");
    let before = served.rotator.certificate().leaf();
    served.create("before", "red").await.unwrap();
    secrets
        .delete("webhook", &DeleteParams::default())
        .await
        .unwrap();
    served.rotator.reconcile().await.unwrap();
    assert_ne!(served.rotator.certificate().leaf(), before);
    assert_eq!(
        served.rotator.bundle().matches("BEGIN CERTIFICATE").count(),
        2
    );
    served.create("after", "red").await.unwrap();
    assert_eq!(denied(served.create("denied", "grey").await).code, 403);
}

/// A part of a kind: other fields are unknown to the type.
#[derive(Serialize, Deserialize, Clone, Debug)]
struct Partial {
    spec: PartialSpec,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct PartialSpec {
    #[serde(default)]
    always_written: u32,
    replicas: Option<u32>,
}

fn review(object: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u-1","name":"web",
        "kind":{{"group":"g","version":"v1","kind":"Foo"}},"resource":{{"group":"g","version":"v1","resource":"foos"}},
        "operation":"CREATE","userInfo":{{"username":"u"}},"object":{object},"oldObject":null,"dryRun":false}}}}"#
    )
}

async fn post(server: &Server, path: &str, body: impl Into<String>) -> (StatusCode, Value) {
    let body = Full::<hyper::body::Bytes>::from(body.into());
    let request = Request::post(path).body(body).unwrap();
    let response = server.handle(request).await;
    (response.status(), json::parse(response.body()).unwrap())
}

const RULE: mizzen_sdk::ResourceType =
    mizzen_sdk::ResourceType::namespaced("g", "v1", "foos", "Foo");

fn partial(default: impl Fn(&mut Partial) + Send + Sync + 'static) -> Server {
    let webhook =
        Webhook::defaulting("m.test.example.com", Rule::resource(&RULE), default).at("/m");
    Server::builder("test").webhook(webhook).build().unwrap()
}

#[tokio::test]
async fn a_patch_has_what_the_handler_changed_and_nothing_else() {
    let server = partial(|object| object.spec.replicas = object.spec.replicas.or(Some(3)));
    let object = r#"{"spec":{"unknown":{"a":1.50},"replicas":null},"status":{}}"#;
    let (code, answer) = post(&server, "/m", review(object)).await;
    let response = &answer["response"];
    assert_eq!(code, 200);
    assert_eq!(answer["apiVersion"].str(), "admission.k8s.io/v1");
    assert_eq!(
        (response["uid"].str(), response["allowed"].bool()),
        ("u-1", true)
    );
    assert_eq!(response["patchType"].str(), "JSONPatch");
    // [{"op":"replace","path":"/spec/replicas","value":3}]
    let patch = "W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL3JlcGxpY2FzIiwidmFsdWUiOjN9XQ==";
    assert_eq!(response["patch"].str(), patch);

    let unchanged = partial(|_| {});
    let (_, answer) = post(&unchanged, "/m", review(object)).await;
    assert!(answer["response"]["allowed"].bool() && answer["response"].get("patch").is_none());
}

#[tokio::test]
async fn what_is_not_a_review_gets_a_status() {
    let server = partial(|_| {});
    let check = async |request: Request<Full<hyper::body::Bytes>>, code: u16, message: &str| {
        let response = server.handle(request).await;
        let status = json::parse(response.body()).unwrap();
        assert_eq!(response.status(), code, "{status:?}");
        assert_eq!(
            (status["kind"].str(), status["code"].int()),
            ("Status", code.into())
        );
        assert!(status["message"].str().contains(message), "{status:?}");
    };
    let post = |path: &str| Request::post(path);
    let good = || Full::from(review("{}"));
    check(
        post("/other").body(good()).unwrap(),
        404,
        "no webhook is served at /other",
    )
    .await;
    check(Request::get("/m").body(good()).unwrap(), 405, "POST").await;
    let yaml = post("/m").header("content-type", "application/yaml");
    check(yaml.body(good()).unwrap(), 415, "application/yaml").await;
    check(post("/m").body(Full::from("{")).unwrap(), 400, "no review").await;
    let other = r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#;
    check(post("/m").body(Full::from(other)).unwrap(), 400, "v1beta1").await;
    let empty = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#;
    check(
        post("/m").body(Full::from(empty)).unwrap(),
        400,
        "has no request",
    )
    .await;
}

#[tokio::test]
async fn an_object_that_does_not_decode_is_denied() {
    let (code, answer) = post(&partial(|_| {}), "/m", review(r#"{"spec":7}"#)).await;
    let response = &answer["response"];
    assert_eq!(
        (code.as_u16(), response["status"]["code"].int()),
        (200, 400)
    );
    assert!(!response["allowed"].bool());
    assert!(
        response["status"]["message"]
            .str()
            .contains("invalid type: integer `7`")
    );
}

#[tokio::test]
async fn the_size_of_a_review_is_limited() {
    let limits = Limits {
        admission_body: 1000,
        ..Limits::default()
    };
    let rule = Rule::resource(&RULE);
    let webhook = Webhook::defaulting("m.test.example.com", rule, |_: &mut Object| {}).at("/m");
    let server = Server::builder("test")
        .webhook(webhook)
        .limits(limits)
        .build()
        .unwrap();
    let object = |n: usize| format!(r#"{{"data":"{}"}}"#, "x".repeat(n));
    assert_eq!(post(&server, "/m", review(&object(10))).await.0, 200);
    assert_eq!(post(&server, "/m", review(&object(1000))).await.0, 413);
    let two_objects = 2 * (3 << 20);
    assert!(Limits::default().admission_body > two_objects);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_times_out_as_the_api_server_says() {
    let server = validating(async |_: AdmissionRequest<Object>| std::future::pending().await)
        .build()
        .unwrap();
    let began = Instant::now();
    let path = "/validate/v.test.example.com";
    assert_eq!(
        post(&server, &format!("{path}?timeout=2s"), review("{}"))
            .await
            .0,
        504
    );
    assert_eq!(began.elapsed().as_secs(), 2);
    assert_eq!(post(&server, path, review("{}")).await.0, 504);
    assert_eq!(began.elapsed().as_secs(), 32);
}

#[tokio::test(start_paused = true)]
async fn reviews_above_the_limit_wait_for_their_turn() {
    let limits = Limits {
        concurrency: 2,
        ..Limits::default()
    };
    let slow = async |_: AdmissionRequest<Object>| {
        sleep(Duration::from_millis(900)).await;
        Ok(())
    };
    let server = validating(slow).limits(limits).build().unwrap();
    let (began, path) = (Instant::now(), "/validate/v.test.example.com?timeout=3s");
    let reviews = (0..8).map(|_| post(&server, path, review("{}")));
    let codes: Vec<u16> = futures_util::future::join_all(reviews)
        .await
        .iter()
        .map(|(code, _)| code.as_u16())
        .collect();
    assert_eq!(
        codes.iter().filter(|code| **code == 504).count(),
        2,
        "{codes:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn connections_above_the_limit_are_closed() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let server = validating(async |_: AdmissionRequest<Object>| Ok(()))
        .limits(limits)
        .build()
        .unwrap();
    let certificate =
        certificate(&Authority::generate("a", &Validity::default(), 1_800_000_000).unwrap());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        server
            .serve(
                listener,
                certificate,
                std::future::pending(),
                Duration::ZERO,
            )
            .await;
    });
    let _first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_eq!(second.read(&mut [0; 1]).await.unwrap_or(0), 0);
    task.abort();
}

#[test]
fn handlers_that_collide_are_rejected() {
    let webhook =
        |name: &str| Webhook::defaulting(name, Rule::resource(&RULE), |_: &mut Object| {});
    let build = |webhooks: Vec<Webhook>| {
        webhooks
            .into_iter()
            .fold(Server::builder("test"), Builder::webhook)
            .build()
            .map(drop)
    };
    let same = vec![webhook("a.b.c"), webhook("a.b.c").at("/other")];
    assert_eq!(build(same), Err(BuildError::DuplicateName("a.b.c".into())));
    let path = vec![webhook("a.b.c"), webhook("d.e.f").at("/mutate/a.b.c")];
    assert_eq!(
        build(path),
        Err(BuildError::DuplicatePath("/mutate/a.b.c".into()))
    );
    assert_eq!(
        build(vec![webhook("a.b.c").at("x")]),
        Err(BuildError::InvalidPath("x".into()))
    );
    let none = Limits {
        concurrency: 0,
        ..Limits::default()
    };
    assert_eq!(
        Server::builder("test").limits(none).build().map(drop),
        Err(BuildError::NoCapacity)
    );
}

async fn convert(server: &Server, objects: &str, version: &str) -> Value {
    let review = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"7","desiredAPIVersion":"{version}","objects":{objects}}}}}"#
    );
    let (code, answer) = post(server, "/convert/foos.g", review).await;
    assert_eq!(code, 200);
    assert_eq!(answer["response"]["uid"].str(), "7");
    answer["response"].clone()
}

#[tokio::test]
async fn all_objects_of_a_conversion_review_are_converted_or_none() {
    let handler = async |mut object: Object, version: String| match object["spec"].str() {
        "bad" => Err(Denied::new("cannot convert bad")),
        "panic" => panic!("oops"),
        "lie" => Ok(object),
        _ => {
            object.set("apiVersion", version);
            Ok(object)
        }
    };
    let server = Server::builder("test")
        .conversion("foos.g", handler)
        .build()
        .unwrap();
    let objects = r#"[{"apiVersion":"g/v1","spec":"a"},{"apiVersion":"g/v2","spec":"bad"}]"#;
    let response = convert(&server, objects, "g/v2").await;
    assert_eq!(response["result"]["status"].str(), "Success");
    let converted = response["convertedObjects"].list();
    assert_eq!(converted[0], value!({"apiVersion": "g/v2", "spec": "a"}));
    assert_eq!(
        converted[1]["spec"].str(),
        "bad",
        "it has the version already"
    );
    for (spec, message) in [
        ("bad", "cannot convert bad"),
        ("panic", "panicked"),
        ("lie", "returned an object of \"g/v1\""),
    ] {
        let objects = format!(
            r#"[{{"apiVersion":"g/v1","spec":"a"}},{{"apiVersion":"g/v1","spec":"{spec}"}}]"#
        );
        let response = convert(&server, &objects, "g/v2").await;
        assert_eq!(response["result"]["status"].str(), "Failure");
        assert!(
            response["result"]["message"].str().contains(message),
            "{response:?}"
        );
        assert!(response["convertedObjects"].list().is_empty());
    }
}

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

fn names() -> Vec<String> {
    vec!["web.default.svc".into()]
}

fn certificate(authority: &Authority) -> ServingCertificate {
    authority
        .sign(&names(), &Validity::default(), NOW)
        .unwrap()
        .serving()
        .unwrap()
}

/// Replicas with one clock, which a test sets.
struct Replicas {
    client: Client,
    now: Arc<AtomicI64>,
}

impl Replicas {
    async fn new() -> Replicas {
        Replicas {
            client: client().await,
            now: Arc::new(AtomicI64::new(NOW)),
        }
    }

    fn options(&self) -> RotationOptions {
        let now = self.now.clone();
        RotationOptions {
            targets: vec![InjectionTarget::ValidatingWebhooks("test".into())],
            clock: Arc::new(move || Timestamp::from_second(now.load(Ordering::Relaxed)).unwrap()),
            ..RotationOptions::new("default", "webhook", names())
        }
    }

    async fn start(&self) -> CertificateRotator {
        CertificateRotator::start(self.client.clone(), self.options())
            .await
            .unwrap()
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    async fn register(&self) {
        let server = validating(async |_: AdmissionRequest<Object>| Ok(()))
            .build()
            .unwrap();
        let endpoint = Endpoint::service("default", "web");
        let configuration = server.validating_configuration(&endpoint, "").unwrap();
        self.configurations()
            .create(&PostParams::default(), &configuration)
            .await
            .unwrap();
    }

    async fn injected(&self) -> String {
        let configuration = self.configurations().get("test").await.unwrap();
        let webhooks = configuration.webhooks.unwrap_or_default();
        let bundle = webhooks[0].client_config.ca_bundle.clone();
        String::from_utf8(bundle.map(|bundle| bundle.0).unwrap_or_default()).unwrap()
    }
}

#[tokio::test]
async fn replicas_that_start_together_share_one_certificate() {
    let replicas = Replicas::new().await;
    let (one, two) = tokio::join!(replicas.start(), replicas.start());
    assert_eq!(one.certificate().leaf(), two.certificate().leaf());
    assert_eq!(one.bundle(), two.bundle());
    let secrets: Api<Secret> = Api::namespaced(replicas.client.clone(), "default");
    assert_eq!(
        secrets
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_ends_and_the_bundle_stays() {
    let replicas = Replicas::new().await;
    replicas.register().await;
    let (one, two) = (replicas.start().await, replicas.start().await);
    let (leaf, bundle) = (one.certificate().leaf(), one.bundle());
    assert_eq!(replicas.injected().await, bundle);
    replicas.now.store(NOW + 270 * DAY, Ordering::Relaxed);
    one.reconcile().await.unwrap();
    assert_eq!(one.certificate().leaf(), leaf, "there are 95 days left");
    replicas.now.store(NOW + 280 * DAY, Ordering::Relaxed);
    one.reconcile().await.unwrap();
    assert_ne!(one.certificate().leaf(), leaf);
    assert_eq!(one.bundle(), bundle);
    two.reconcile().await.unwrap();
    assert_eq!(two.certificate().leaf(), one.certificate().leaf());
}

#[tokio::test]
async fn a_new_authority_is_trusted_beside_the_previous_one_until_that_expires() {
    let replicas = Replicas::new().await;
    replicas.register().await;
    let one = replicas.start().await;
    let old = one.bundle();
    replicas.now.store(NOW + 3300 * DAY, Ordering::Relaxed);
    one.reconcile().await.unwrap();
    let both = one.bundle();
    assert!(both.ends_with(&old) && both.len() > old.len(), "{both}");
    assert_eq!(replicas.injected().await, both);
    replicas.now.store(NOW + 3651 * DAY, Ordering::Relaxed);
    one.reconcile().await.unwrap();
    assert!(!one.bundle().contains(&old));
}

#[tokio::test]
async fn names_that_the_certificate_lacks_renew_it() {
    let replicas = Replicas::new().await;
    let one = replicas.start().await;
    let mut options = replicas.options();
    options.names.push("other.default.svc".into());
    let other = CertificateRotator::start(replicas.client.clone(), options)
        .await
        .unwrap();
    assert_ne!(one.certificate().leaf(), other.certificate().leaf());
    assert_eq!(one.bundle(), other.bundle());
}

#[tokio::test]
async fn a_damaged_secret_is_replaced() {
    let replicas = Replicas::new().await;
    let one = replicas.start().await;
    let secrets: Api<Secret> = Api::namespaced(replicas.client.clone(), "default");
    let mut secret = secrets.get("webhook").await.unwrap();
    let data = secret.data.get_or_insert_default();
    data.insert(
        "ca.key".into(),
        k8s_openapi::ByteString(b"nonsense".to_vec()),
    );
    secrets
        .replace("webhook", &PostParams::default(), &secret)
        .await
        .unwrap();
    let before = one.certificate().leaf();
    one.reconcile().await.unwrap();
    assert_ne!(one.certificate().leaf(), before);
}

#[tokio::test(start_paused = true)]
async fn a_running_rotator_restores_a_bundle_that_was_overwritten() {
    let replicas = Replicas::new().await;
    replicas.register().await;
    let one = Arc::new(replicas.start().await);
    let running = one.clone();
    let task = tokio::spawn(async move { running.run().await });
    let configurations = replicas.configurations();
    let mut configuration = configurations.get("test").await.unwrap();
    configuration.webhooks.as_mut().unwrap()[0]
        .client_config
        .ca_bundle = None;
    configurations
        .replace("test", &PostParams::default(), &configuration)
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(replicas.injected().await, one.bundle());
    // Without any change it checks at intervals.
    replicas.now.store(NOW + 280 * DAY, Ordering::Relaxed);
    let before = one.certificate().leaf();
    sleep(Duration::from_secs(601)).await;
    assert_ne!(one.certificate().leaf(), before);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn certificate_files_are_read_again_when_they_change() {
    let directory = tempfile::tempdir().unwrap();
    let files = CertificateFiles::in_directory(directory.path());
    let missing = ServingCertificate::from_files(&files)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("tls.crt"), "{missing}");
    let authority = Authority::generate("a", &Validity::default(), NOW).unwrap();
    let write = || {
        let pair = authority.sign(&names(), &Validity::default(), NOW).unwrap();
        std::fs::write(&files.key, &pair.key).unwrap();
        std::fs::write(&files.certificate, &pair.certificate).unwrap();
    };
    write();
    let certificate = ServingCertificate::from_files(&files).unwrap();
    let first = certificate.leaf();
    let task = tokio::spawn(certificate.clone().follow_files(files.clone()));
    write();
    sleep(Duration::from_secs(3)).await;
    let second = certificate.leaf();
    assert_ne!(second, first);
    std::fs::write(&files.key, "nonsense").unwrap();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        certificate.leaf(),
        second,
        "an invalid pair replaces nothing"
    );
    write();
    sleep(Duration::from_secs(3)).await;
    assert_ne!(certificate.leaf(), second);
    task.abort();
}

#[tokio::test]
async fn warnings_and_audit_annotations_are_in_the_response() {
    let webhook = Webhook::validating(
        "v.test.example.com",
        Rule::resource(&RULE),
        async |request: AdmissionRequest<Object>| {
            request.warn("this is old");
            request.annotate("checked", request.object()?["spec"]["size"].str());
            Ok(())
        },
    );
    let server = Server::builder("test").webhook(webhook).build().unwrap();
    let path = "/validate/v.test.example.com";
    let (code, answer) = post(&server, path, review(r#"{"spec":{"size":"large"}}"#)).await;
    assert_eq!(code, StatusCode::OK);
    let response = &answer["response"];
    assert!(response["allowed"].bool());
    assert_eq!(response["warnings"], value!(["this is old"]));
    assert_eq!(response["auditAnnotations"], value!({"checked": "large"}));
}
