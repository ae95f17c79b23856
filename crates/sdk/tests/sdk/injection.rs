//! Webhooks of a manager, CA bundles in every kind of target, and certificates that an outside
//! writer rotates.

#![cfg(unix)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use mizzen_apiserver::User;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::manager::{Manager, Task};
use mizzen_sdk::resource::CUSTOM_RESOURCE_DEFINITIONS;
use mizzen_sdk::webhook::{
    AdmissionRequest, Authority, CertificateFiles, CertificateRotator, Denied, Endpoint,
    InjectionTarget, RotationOptions, Rule, Server, ServingCertificate, Validity, Webhook,
};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::sleep;

const API_SERVICES: ResourceType =
    ResourceType::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
const MUTATING_WEBHOOKS: ResourceType = ResourceType::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
);

async fn client() -> Client {
    let server = mizzen_controlplane::in_memory().await;
    Client::new(server.in_process(User::master("alice"), "test"), "default")
}

/// A definition whose conversion is by webhook, an APIService and a webhook configuration, without
/// CA bundles.
async fn create_targets(api: &DynamicClient) -> Vec<InjectionTarget> {
    let service = value!({"namespace": "default", "name": "shop", "port": 443});
    let version = |name: &str, is_storage: bool| {
        let schema = value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        value!({"name": name, "served": true, "storage": is_storage, "schema": {"openAPIV3Schema": schema}})
    };
    let definition = value!({
        "metadata": {"name": "ovens.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "ovens", "kind": "Oven"},
            "versions": [(version("v1", true)), (version("v2", false))],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": (service.clone())},
            }},
        },
    });
    let api_service = value!({
        "metadata": {"name": "v1.warehouse.example.com"},
        "spec": {
            "group": "warehouse.example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": (service.clone()),
        },
    });
    let webhook = |name: &str| {
        value!({
            "name": name,
            "clientConfig": {"service": (service.clone())},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
        })
    };
    let webhooks = value!({
        "metadata": {"name": "shop"},
        "webhooks": [(webhook("a.example.com")), (webhook("b.example.com"))],
    });
    api.create(&CUSTOM_RESOURCE_DEFINITIONS, &definition)
        .await
        .unwrap();
    api.create(&API_SERVICES, &api_service).await.unwrap();
    api.create(&MUTATING_WEBHOOKS, &webhooks).await.unwrap();
    vec![
        InjectionTarget::Conversion("ovens.shop.example.com".into()),
        InjectionTarget::ApiService("v1.warehouse.example.com".into()),
        InjectionTarget::MutatingWebhooks("shop".into()),
        InjectionTarget::ValidatingWebhooks("not-installed".into()),
    ]
}

/// The CA bundles of the targets, in base64.
async fn bundles(api: &DynamicClient) -> Vec<String> {
    let read = async |resource: &ResourceType, name: &str| -> Object {
        api.get(resource, &Key::cluster(name)).await.unwrap()
    };
    let definition = read(&CUSTOM_RESOURCE_DEFINITIONS, "ovens.shop.example.com").await;
    let api_service = read(&API_SERVICES, "v1.warehouse.example.com").await;
    let configuration = read(&MUTATING_WEBHOOKS, "shop").await;
    let conversion = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let mut bundles = vec![
        conversion["caBundle"].str().to_owned(),
        api_service["spec"]["caBundle"].str().to_owned(),
    ];
    for webhook in configuration["webhooks"].list() {
        bundles.push(webhook["clientConfig"]["caBundle"].str().to_owned());
    }
    bundles
}

fn base64(text: &str) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(text.into())).unwrap();
    encoded.as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn every_target_gets_the_bundle_and_gets_it_back() {
    let client = client().await;
    let api = DynamicClient::new(client.clone());
    let mut options = RotationOptions::new("default", "webhook", vec!["shop.default.svc".into()]);
    options.targets = create_targets(&api).await;
    let rotator = Arc::new(CertificateRotator::start(client, options).await.unwrap());
    let expected = vec![base64(&rotator.bundle()); 4];
    assert_eq!(bundles(&api).await, expected);

    let running = rotator.clone();
    let task = tokio::spawn(async move { running.run().await });
    for (resource, name, path) in [
        (
            CUSTOM_RESOURCE_DEFINITIONS,
            "ovens.shop.example.com",
            "spec.conversion.webhook.clientConfig",
        ),
        (API_SERVICES, "v1.warehouse.example.com", "spec"),
    ] {
        let mut object = api.get(&resource, &Key::cluster(name)).await.unwrap();
        object.at_mut(path).unwrap().set(
            "caBundle",
            base64("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"),
        );
        let _ = api.update(&resource, &object).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bundles(&api).await, expected, "{name}");
    }
    task.abort();
}

/// A webhook that denies the name `bad`.
fn deny_bad() -> Server {
    let webhook = Webhook::validating(
        "names.example.com",
        Rule::kind::<ConfigMap>(),
        async |request: AdmissionRequest<ConfigMap>| match &*request.name {
            "bad" => Err(Denied::new("a bad name")),
            _ => Ok(()),
        },
    );
    Server::builder("names").webhook(webhook).build().unwrap()
}

async fn create(client: &Client, name: &str) -> Result<(), Error> {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.into());
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created = configs.create(&PostParams::default(), &config).await;
    created.map(drop)
}

#[tokio::test]
async fn a_manager_serves_webhooks_before_its_tasks_run_and_until_they_have_ended() {
    let client = client().await;
    let server = deny_bad();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let options = RotationOptions::new("default", "webhook", endpoint.names());
    let rotator = CertificateRotator::start(client.clone(), options)
        .await
        .unwrap();
    server
        .apply(&client, &endpoint, &rotator.bundle())
        .await
        .unwrap();

    let mut manager = Manager::new(client.clone());
    manager.add_webhooks(server, listener, rotator.certificate());
    let (stop, stopped) = oneshot::channel::<()>();
    let writer = client.clone();
    manager.add_task(Task::new("writer", async move |task| {
        create(&writer, "good").await?;
        let denied = create(&writer, "bad").await.unwrap_err().to_string();
        assert!(denied.contains("a bad name"), "{denied}");
        drop(stop);
        task.requested().await;
        create(&writer, "last").await?;
        Ok(())
    }));
    manager.run(async { drop(stopped.await) }).await.unwrap();
    assert!(
        create(&client, "late").await.is_err(),
        "the webhook is not served any more"
    );
}

/// Writes a pair as the kubelet updates a mounted Secret: into a new directory, to which the link
/// `..data` is moved at once.
fn mount(directory: &Path, revision: &str, authority: &Authority) {
    let pair = authority.sign(&["127.0.0.1".into()], &Validity::default(), now());
    let pair = pair.unwrap();
    let data = directory.join(format!("..{revision}"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("tls.crt"), &pair.certificate).unwrap();
    std::fs::write(data.join("tls.key"), &pair.key).unwrap();
    let link = directory.join("..data_tmp");
    std::os::unix::fs::symlink(format!("..{revision}"), &link).unwrap();
    std::fs::rename(&link, directory.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        let _ = std::os::unix::fs::symlink(format!("..data/{name}"), directory.join(name));
    }
}

/// Unix seconds: the API server checks certificates against the wall clock.
fn now() -> i64 {
    mizzen_sdk::clock::wall_clock()().as_second()
}

#[tokio::test]
async fn a_mounted_certificate_is_served_after_it_was_rotated_from_outside() {
    let (client, directory) = (client().await, tempfile::tempdir().unwrap());
    let authority = Authority::generate("outside", &Validity::default(), now()).unwrap();
    mount(directory.path(), "1", &authority);
    let files = CertificateFiles::in_directory(directory.path());
    let certificate = ServingCertificate::from_files(&files).unwrap();
    let following = tokio::spawn(certificate.clone().follow_files(files));
    let server = deny_bad();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let applied = server.apply(&client, &endpoint, authority.certificate());
    applied.await.unwrap();
    let serving = certificate.clone();
    tokio::spawn(async move {
        let grace = Duration::ZERO;
        server
            .serve(listener, serving, std::future::pending(), grace)
            .await;
    });
    create(&client, "before").await.unwrap();

    let first = certificate.leaf();
    mount(directory.path(), "2", &authority);
    tokio::time::pause();
    sleep(Duration::from_secs(3)).await;
    tokio::time::resume();
    assert_ne!(certificate.leaf(), first);
    create(&client, "after").await.unwrap();
    let denied = create(&client, "bad").await.unwrap_err().to_string();
    assert!(denied.contains("a bad name"), "{denied}");
    following.abort();
}
