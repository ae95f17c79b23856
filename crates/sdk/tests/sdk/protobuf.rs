//! The protobuf encoding against a real server.

use parking_lot::Mutex;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderMap};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use mizzen_apiserver::User;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::protobuf::Protobuf;
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_testing::Cluster;
use serde_json::json;
use tower::{Service, service_fn};

use crate::{define_shirts, start};

/// The content types of requests and responses, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn write(&self, headers: &HeaderMap) {
        let content_type = headers
            .get(CONTENT_TYPE)
            .map_or("-", |value| value.to_str().unwrap());
        let form = content_type.rsplit(['/', '.']).next().unwrap_or_default();
        self.0.lock().push(form.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A client with the protobuf encoding, and its recorded content types.
fn client(cluster: &Cluster) -> (Client, Log) {
    let server = cluster.server().in_process(User::master("admin"), "test");
    let log = Log::default();
    let writer = log.clone();
    let service = service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut server, log) = (server.clone(), writer.clone());
        async move {
            log.write(request.headers());
            let response = server.call(request).await?;
            log.write(response.headers());
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let catalog = mizzen_kinds::catalog();
    let protobuf = Protobuf::new(
        &catalog.schemas,
        catalog.kinds.iter().map(|kind| &*kind.data),
    );
    (protobuf.wrap(Client::new(service, "default")), log)
}

fn deployment() -> Deployment {
    let web = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {
        "replicas": 2, "paused": true, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}, "ports": [{"containerPort": 80}]},
        ]}},
    }});
    serde_json::from_value(web).unwrap()
}

#[tokio::test(start_paused = true)]
async fn protobuf_objects_equal_json_objects() {
    let cluster = start().await;
    let (client, log) = client(&cluster);
    let api: Api<Deployment> = Api::default_namespaced(client);
    let plain: Api<Deployment> = Api::default_namespaced(cluster.client());
    let made = api
        .create(&PostParams::default(), &deployment())
        .await
        .unwrap();
    assert_eq!(log.take(), ["protobuf", "protobuf"]);
    assert_eq!(made, plain.get("web").await.unwrap());
    let mut read = api.get("web").await.unwrap();
    assert_eq!(log.take(), ["-", "protobuf"]);
    assert_eq!(read, made);
    read.spec.as_mut().unwrap().replicas = Some(3);
    let replaced = api
        .replace("web", &PostParams::default(), &read)
        .await
        .unwrap();
    assert_eq!(log.take(), ["protobuf", "protobuf"]);
    assert_eq!(replaced, plain.get("web").await.unwrap());
    let listed = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(log.take(), ["-", "protobuf"]);
    let expected = plain.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        (listed.items, listed.metadata),
        (expected.items, expected.metadata)
    );
}

#[tokio::test(start_paused = true)]
async fn protobuf_status_is_decoded_as_an_error() {
    let cluster = start().await;
    let (client, log) = client(&cluster);
    let api: Api<Deployment> = Api::default_namespaced(client);
    assert!(is_not_found(&api.get("none").await.unwrap_err()));
    assert_eq!(log.take(), ["-", "protobuf"]);
    api.create(&PostParams::default(), &deployment())
        .await
        .unwrap();
    assert!(is_already_exists(
        &api.create(&PostParams::default(), &deployment())
            .await
            .unwrap_err()
    ));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_and_watches_fall_back_to_json() {
    let cluster = start().await;
    let (client, log) = client(&cluster);
    define_shirts(&cluster).await;
    let shirts =
        kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Shirt"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &shirts);
    let red = DynamicObject::new("red", &shirts).data(json!({"size": 4}));
    api.create(&PostParams::default(), &red).await.unwrap();
    assert_eq!(api.get("red").await.unwrap().data["size"], 4);
    assert_eq!(log.take(), ["json", "json", "-", "json"]);

    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &deployment())
        .await
        .unwrap();
    assert_eq!(
        api.get_scale("web").await.unwrap().spec.unwrap().replicas,
        Some(2)
    );
    let informer: Informer<Deployment> = Informer::new(ListWatch::namespaced(client, "default"));
    informer.start();
    informer.wait_for_sync().await;
    assert!(
        informer
            .lister()
            .namespaced("default")
            .get("web")
            .unwrap()
            .is_some()
    );
}
