//! Administration: nodes, certificates, deletion.

use super::Kubectl;

#[tokio::test]
async fn a_node_is_cordoned_tainted_and_drained() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f node.yaml").await;
    kubectl.run("cordon one").await;
    kubectl.shows("get nodes", &["SchedulingDisabled"]).await;
    kubectl.run("uncordon one").await;
    kubectl.run("taint nodes one a=b:NoSchedule").await;
    // A new node is not ready until its status is written.
    let taints = "get node one -o jsonpath={.spec.taints[*].key}";
    assert_eq!(kubectl.run(taints).await, "a node.kubernetes.io/not-ready");
    kubectl.run("taint nodes one a-").await;
    assert_eq!(kubectl.run(taints).await, "node.kubernetes.io/not-ready");
    let pod = r#"{"metadata":{"name":"p"},"spec":{"nodeName":"one","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}]}}"#;
    let client = kubectl.process.admin().await;
    client
        .call("POST", "/api/v1/namespaces/default/pods", pod)
        .await
        .expect(201);
    let refused = kubectl.refused("drain one").await;
    // The second is the message before kubectl 1.24.
    assert!(
        ["declare no controller", "not managed by"]
            .iter()
            .any(|words| refused.contains(words)),
        "{refused}"
    );
    kubectl
        .run("drain one --force --grace-period=0 --timeout=30s")
        .await;
    assert!(kubectl.refused("get pod p").await.contains("NotFound"));
}

#[tokio::test]
async fn a_certificate_signing_request_is_approved_or_denied() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f requests.yaml").await;
    kubectl.run("certificate approve good").await;
    kubectl.run("certificate deny bad").await;
    kubectl
        .shows("get csr", &["REQUESTOR", "Approved", "Denied"])
        .await;
    assert!(
        kubectl
            .refused("certificate deny good")
            .await
            .contains("already Approved")
    );
}

#[tokio::test]
async fn objects_are_deleted_in_every_way() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f settings.yaml").await;
    kubectl.run("create -f pod.yaml").await;
    kubectl.shows("delete pod one --now", &["deleted"]).await;
    kubectl.run("create -f pod.yaml").await;
    kubectl
        .shows(
            "delete pod one --force --grace-period=0",
            &["force deleted"],
        )
        .await;
    kubectl.run("label cm settings a=b").await;
    kubectl
        .shows("delete cm -l a=b", &["\"settings\" deleted"])
        .await;
    kubectl.run("create -f web.yaml").await;
    kubectl
        .run("delete deploy web --cascade=foreground --wait=false")
        .await;
    let waiting = "get deploy web -o jsonpath={.metadata.finalizers}";
    assert_eq!(kubectl.run(waiting).await, "[\"foregroundDeletion\"]");
    kubectl
        .run("delete svc web --cascade=orphan --wait=false")
        .await;
    assert_eq!(
        kubectl
            .run("get svc web -o jsonpath={.metadata.finalizers}")
            .await,
        "[\"orphan\"]"
    );
    kubectl.run("create -f settings.yaml").await;
    kubectl.run("delete cm --all").await;
    assert_eq!(kubectl.run("get cm -o name").await, "");
}
