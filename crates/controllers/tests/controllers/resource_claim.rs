//! The resource claim controller.

use mizzen_sdk::dynamic::{DeleteOptions, ListOptions};
use mizzen_sdk::resource::{EVENTS, PODS, RESOURCE_CLAIMS};
use mizzen_value::value;

use crate::{settle, start};

const TEMPLATE: &str = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t, namespace: default}, \
                        spec: {metadata: {labels: {l: x}}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: d.example.com}}]}}}}";

fn pod(name: &str, node: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{nodeName: \"{node}\", \
         containers: [{{name: c, image: i}}], resourceClaims: [{{name: gpu, resourceClaimTemplateName: t}}]}}}}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_its_claim_as_soon_as_there_is_a_template() {
    let cluster = start(&["resourceclaim-controller"]).await;
    let made = cluster.create(&pod("p", "")).await;
    settle(&cluster).await;
    let options = ListOptions {
        fields: "reason=FailedResourceClaimCreation".into(),
        ..ListOptions::default()
    };
    let events = cluster
        .dynamic_client()
        .list(&EVENTS, "default", &options)
        .await
        .unwrap();
    let message = "PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    assert_eq!(events[0]["message"].str(), message);
    cluster.create(TEMPLATE).await;
    settle(&cluster).await;
    let claims = cluster.objects(&RESOURCE_CLAIMS, "default").await;
    assert_eq!(claims.len(), 1);
    assert!(claims[0].is_controlled_by(made.uid()) && claims[0].name().starts_with("p-gpu-"));
    assert_eq!(
        claims[0].annotation("resource.kubernetes.io/pod-claim-name"),
        Some("gpu")
    );
    let status =
        &cluster.object(&PODS, "default/p").await["status"]["resourceClaimStatuses"][0].clone();
    assert_eq!(
        (status["name"].str(), status["resourceClaimName"].str()),
        ("gpu", claims[0].name())
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_is_made_again() {
    let cluster = start(&["resourceclaim-controller"]).await;
    cluster.create(TEMPLATE).await;
    cluster.create(&pod("p", "")).await;
    settle(&cluster).await;
    let first = cluster.objects(&RESOURCE_CLAIMS, "default").await.remove(0);
    cluster
        .delete(&RESOURCE_CLAIMS, &first.key().to_string())
        .await;
    settle(&cluster).await;
    let again = cluster.objects(&RESOURCE_CLAIMS, "default").await.remove(0);
    assert_ne!(first.uid(), again.uid());
    let pod = cluster.object(&PODS, "default/p").await;
    assert_eq!(
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].str(),
        again.name()
    );
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_shares_its_claim_and_gives_it_back() {
    let cluster = start(&["resourceclaim-controller"]).await;
    cluster.create("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: mine, namespace: default}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: d.example.com}}]}}}").await;
    let keep = |claim: &mut mizzen_sdk::Object| {
        claim.entry("metadata").set(
            "finalizers",
            value!(["resource.kubernetes.io/delete-protection"]),
        );
    };
    cluster.change(&RESOURCE_CLAIMS, "default/mine", keep).await;
    let allocation = value!({"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}});
    cluster
        .change_status(&RESOURCE_CLAIMS, "default/mine", |status| {
            status.set("allocation", allocation)
        })
        .await;
    settle(&cluster).await;
    assert!(
        !cluster.object(&RESOURCE_CLAIMS, "default/mine").await["status"]["allocation"].is_null()
    );
    let user = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {nodeName: n1, containers: [{name: c, image: i}], resourceClaims: [{name: gpu, resourceClaimName: mine}]}}";
    let made = cluster.create(user).await;
    settle(&cluster).await;
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/mine").await;
    assert_eq!(
        claim["status"]["reservedFor"],
        value!([{"resource": "pods", "name": "p", "uid": (made.uid())}])
    );

    let now = DeleteOptions {
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &"default/p".parse().unwrap(), &now)
        .await
        .unwrap();
    settle(&cluster).await;
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/mine").await;
    assert!(claim["status"]["reservedFor"].is_empty() && claim["status"]["allocation"].is_null());
    assert!(claim["metadata"]["finalizers"].is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claim_made_for_a_pod_goes_when_the_pod_is_done() {
    let cluster = start(&["resourceclaim-controller"]).await;
    cluster.create(TEMPLATE).await;
    cluster.create(&pod("p", "n1")).await;
    settle(&cluster).await;
    assert_eq!(cluster.objects(&RESOURCE_CLAIMS, "default").await.len(), 1);
    cluster
        .change_status(&PODS, "default/p", |status| {
            status.set("phase", "Succeeded")
        })
        .await;
    settle(&cluster).await;
    assert_eq!(cluster.objects(&RESOURCE_CLAIMS, "default").await.len(), 0);
}
