//! Webhooks in the process of the test, and webhooks that are slow or dead.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResource, CustomResourceExt as _};
use mizzen_sdk::Object;
use mizzen_sdk::webhook::{AdmissionRequest, Denied, Endpoint, Rule, Server, Webhook};
use mizzen_testing::{ApplyError, Cluster, Explore, Fault, FaultRates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

const SITE: &str = "WEBHOOK colours.default.svc/validate/colours.example.com";

async fn forbid_grey(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
    match request.name.as_str() {
        "grey" => Err(Denied::new("grey is not a colour")),
        _ => Ok(()),
    }
}

fn paint(config: &mut ConfigMap) {
    let data = config.data.get_or_insert_default();
    data.entry("colour".into()).or_insert("red".into());
}

/// Serves webhooks for ConfigMaps of the namespace `default`; their timeout is 5 seconds.
async fn serve(cluster: &Cluster, policy: &str) {
    let configure = |webhook: Webhook| {
        webhook.configure(|webhook| {
            webhook.failure_policy = Some(policy.to_owned());
            webhook.timeout_seconds = Some(5);
            let selector = r#"{"matchLabels":{"kubernetes.io/metadata.name":"default"}}"#;
            webhook.namespace_selector = serde_json::from_str(selector).unwrap();
        })
    };
    let rule = Rule::kind::<ConfigMap>();
    let painting = Webhook::defaulting("paint.example.com", rule.clone(), paint);
    let validating = Webhook::validating("colours.example.com", rule, forbid_grey);
    let server = Server::builder("colours")
        .webhook(configure(painting))
        .webhook(configure(validating))
        .build()
        .unwrap();
    let endpoint = Endpoint::service("default", "colours");
    server
        .apply(&cluster.client(), &endpoint, "")
        .await
        .unwrap();
    cluster.serve_webhooks("colours.default.svc", move |request| {
        let server = server.clone();
        async move { server.handle(request).await }
    });
}

async fn create(cluster: &Cluster, name: &str) -> Result<(), ApplyError> {
    let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}");
    cluster.try_apply(&text).await
}

fn bare() -> mizzen_testing::Builder {
    Cluster::builder()
        .controllers([""; 0])
        .scheduler(false)
        .nodes(0)
}

#[tokio::test]
async fn a_webhook_in_process_changes_and_rejects_objects_without_a_port() {
    let cluster = bare().start().await;
    serve(&cluster, "Fail").await;
    create(&cluster, "wall").await.unwrap();
    let wall: ConfigMap = cluster.get("wall").await;
    assert_eq!(wall.data.unwrap()["colour"], "red");
    let denied = create(&cluster, "grey").await.unwrap_err().to_string();
    assert!(
        denied.ends_with("denied the request: grey is not a colour"),
        "{denied}"
    );

    let fork = cluster.fork().await;
    assert!(
        create(&fork, "grey").await.is_err(),
        "a fork has the webhooks"
    );
}

#[tokio::test]
async fn a_dead_webhook_rejects_or_is_ignored_by_its_failure_policy() {
    let cluster = bare().start().await;
    serve(&cluster, "Fail").await;
    cluster.inject("apiserver", SITE, 1, Fault::DeadWebhook);
    let error = create(&cluster, "wall").await.unwrap_err().to_string();
    let expected = "failed calling webhook \"colours.example.com\": failed to call webhook: Post \
        \"https://colours.default.svc:443/validate/colours.example.com?timeout=5s\": \
        dial tcp colours.default.svc:443: connect: connection refused";
    assert!(error.ends_with(expected), "{error}");
    create(&cluster, "wall").await.unwrap();

    serve(&cluster, "Ignore").await;
    cluster.inject("apiserver", SITE, 3, Fault::DeadWebhook);
    create(&cluster, "grey").await.unwrap();
    assert!(
        cluster
            .last_steps(2)
            .contains("is refused: connection refused")
    );
}

#[tokio::test]
async fn a_slow_webhook_is_given_up_at_its_timeout_in_virtual_time() {
    let cluster = bare().start().await;
    serve(&cluster, "Fail").await;
    let slow = |seconds: u32| Fault::SlowWebhook {
        millis: seconds * 1000,
    };
    let began = Instant::now();
    cluster.inject("apiserver", SITE, 1, slow(4));
    create(&cluster, "wall").await.unwrap();
    assert_eq!(
        began.elapsed().as_secs(),
        4,
        "within its timeout it is awaited"
    );

    cluster.inject("apiserver", SITE, 2, slow(30));
    let began = Instant::now();
    let error = create(&cluster, "door").await.unwrap_err().to_string();
    assert!(
        error.ends_with("?timeout=5s\": context deadline exceeded"),
        "{error}"
    );
    assert_eq!(began.elapsed().as_secs(), 5);

    serve(&cluster, "Ignore").await;
    cluster.inject("apiserver", SITE, 3, slow(30));
    create(&cluster, "grey").await.unwrap();
}

/// A kind with two versions, stored as v2.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Door", namespaced)]
struct DoorSpec {
    colour: String,
}

async fn convert(mut door: Object, version: String) -> Result<Object, Denied> {
    let (from, to) = match version.as_str() {
        "example.com/v1" => ("paint", "colour"),
        _ => ("colour", "paint"),
    };
    let colour = door["spec"][from].str().to_owned();
    door.entry("spec").set(to, colour);
    door.set("apiVersion", version);
    Ok(door)
}

/// Installs the kind with its conversion webhook, and creates the door `front`.
async fn install_doors(cluster: &Cluster) {
    let mut definition = serde_json::to_value(Door::crd()).unwrap();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions[0]["schema"] = serde_json::json!({"openAPIV3Schema":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let first = versions[0].clone();
    versions.push(first);
    versions[1]["name"] = "v2".into();
    versions[0]["storage"] = false.into();
    cluster.apply(&definition.to_string()).await;
    let server = Server::builder("doors").conversion("doors.example.com", convert);
    let server = server.build().unwrap();
    let endpoint = Endpoint::Url("https://doors.example.com:9443".into());
    server
        .apply(&cluster.client(), &endpoint, "")
        .await
        .unwrap();
    cluster.serve_webhooks("doors.example.com:9443", move |request| {
        let server = server.clone();
        async move { server.handle(request).await }
    });
    cluster.settle().await;
    cluster
        .apply("{apiVersion: example.com/v2, kind: Door, metadata: {name: front}, spec: {paint: blue}}")
        .await;
}

#[tokio::test]
async fn a_dead_conversion_webhook_fails_requests_for_the_other_version_alone() {
    let cluster = bare().start().await;
    install_doors(&cluster).await;
    let path =
        |version: &str| format!("/apis/example.com/{version}/namespaces/default/doors/front");
    let (code, door) = cluster.server().ask("GET", &path("v2"), None).await;
    assert_eq!((code, door["spec"]["paint"].str()), (200, "blue"));

    let site = "WEBHOOK doors.example.com/convert/doors.example.com";
    cluster.inject("apiserver", site, 1, Fault::DeadWebhook);
    let (code, status) = cluster.server().ask("GET", &path("v1"), None).await;
    assert_eq!(code, 500, "{status:?}");
    let message = status["message"].str();
    assert!(
        message.ends_with("connect: connection refused"),
        "{message}"
    );
    let (code, _) = cluster.server().ask("GET", &path("v2"), None).await;
    assert_eq!(code, 200);
    let (code, door) = cluster.server().ask("GET", &path("v1"), None).await;
    assert_eq!((code, door["spec"]["colour"].str()), (200, "blue"));
}

#[tokio::test]
async fn random_failures_of_conversions_hit_programs_and_spare_the_test() {
    let rates = FaultRates {
        dead_webhook: 50,
        ..FaultRates::none()
    };
    let cluster = bare().faults(rates).start().await;
    install_doors(&cluster).await;
    cluster.set_faults(true);
    let paint = |n: u32| Patch::Merge(serde_json::json!({"spec": {"colour": format!("{n}")}}));
    let doors: Api<Door> = Api::default_namespaced(cluster.client());
    for n in 0..10 {
        let (params, patch) = (PatchParams::default(), paint(n));
        doors.patch("front", &params, &patch).await.unwrap();
        let path = "/apis/example.com/v1/doors";
        let (code, list) = cluster.server().ask("GET", path, None).await;
        assert_eq!(code, 200, "{list:?}");
    }
    assert_eq!(cluster.injected(), []);

    cluster.run("painter", move |client: Client| async move {
        let doors: Api<Door> = Api::default_namespaced(client);
        for n in 10..20 {
            let (params, patch) = (PatchParams::default(), paint(n));
            let _ = doors.patch("front", &params, &patch).await;
        }
    });
    cluster.settle().await;
    let n_dead = cluster.injected().len();
    assert!(n_dead >= 5, "{n_dead} in ten patches");
}

/// Creates ConfigMaps until each exists.
async fn painter(client: Client) {
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    for n in 0..5 {
        let text = format!(r#"{{"metadata":{{"name":"wall-{n}"}}}}"#);
        let config: ConfigMap = serde_json::from_str(&text).unwrap();
        while let Err(error) = configs.create(&Default::default(), &config).await {
            if error.to_string().contains("already exists") {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[test]
fn random_failures_of_webhooks_hit_programs_and_spare_the_test() {
    let rates = FaultRates {
        slow_webhook: 20,
        dead_webhook: 20,
        ..FaultRates::none()
    };
    let explored =
        Explore::new(bare())
            .seeds(0..10)
            .faults(rates)
            .run(async |cluster: &Cluster| {
                serve(cluster, "Fail").await;
                cluster.run("painter", painter);
                for n in 0..5 {
                    create(cluster, &format!("own-{n}")).await.unwrap();
                    cluster.advance(Duration::from_secs(20)).await;
                }
            });
    assert!(explored.n_faults > 10, "{explored:?}");
}
