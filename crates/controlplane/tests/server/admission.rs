//! What plug-ins do to writes, one after the other.

use mizzen_controlplane::{Options, Plugins};

use crate::rig::{CONFIG_MAPS, Rig};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const CLAIM: &str = r#"{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#;

/// A server without one of the plug-ins.
async fn without(plugin: &str) -> Rig {
    let mut plugins = Plugins::alone();
    plugins.disable(plugin).unwrap();
    Rig::with(Options {
        plugins,
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn a_claim_gets_the_default_class_and_is_resized_if_the_class_allows_it() {
    let rig = Rig::new().await;
    let class = r#"{"metadata":{"name":"fast","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}"#;
    rig.post(CLASSES, class).await.expect(201);
    let claim = rig.post(CLAIMS, CLAIM).await.expect(201).body;
    assert_eq!(claim["spec"]["storageClassName"].str(), "fast");
    assert_eq!(
        claim["metadata"]["finalizers"][0].str(),
        "kubernetes.io/pvc-protection"
    );

    let path = format!("{CLAIMS}/v");
    rig.patch(&format!("{path}/status"), r#"{"status":{"phase":"Bound"}}"#)
        .await
        .expect(200);
    rig.patch(&path, r#"{"spec":{"volumeName":"x"}}"#)
        .await
        .expect(200);
    let larger = r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#;
    let refused = rig.patch(&path, larger).await.expect(403);
    assert!(
        refused
            .message()
            .ends_with("the storageclass that provisions the pvc must support resize")
    );
    rig.patch(
        &format!("{CLASSES}/fast"),
        r#"{"allowVolumeExpansion":true}"#,
    )
    .await
    .expect(200);
    rig.patch(&path, larger).await.expect(200);
}

#[tokio::test]
async fn an_ingress_gets_the_default_class() {
    let rig = Rig::new().await;
    let class = r#"{"metadata":{"name":"nginx","annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}},"spec":{"controller":"example.com/c"}}"#;
    rig.post("/apis/networking.k8s.io/v1/ingressclasses", class)
        .await
        .expect(201);
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = r#""spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}"#;
    let made = rig
        .post(
            ingresses,
            &format!(r#"{{"metadata":{{"name":"i"}},{backend}}}"#),
        )
        .await
        .expect(201);
    assert_eq!(made.body["spec"]["ingressClassName"].str(), "nginx");
    let old = r#"{"name":"j","annotations":{"kubernetes.io/ingress.class":"other"}}"#;
    let made = rig
        .post(ingresses, &format!(r#"{{"metadata":{old},{backend}}}"#))
        .await
        .expect(201);
    assert!(made.body["spec"]["ingressClassName"].is_null());
}

#[tokio::test]
async fn only_one_priority_is_the_default() {
    let rig = Rig::new().await;
    let class = |name: &str| {
        format!(r#"{{"metadata":{{"name":"{name}"}},"value":5,"globalDefault":true}}"#)
    };
    rig.post(PRIORITIES, &class("a")).await.expect(201);
    let refused = rig.post(PRIORITIES, &class("b")).await.expect(403);
    let why = r#"priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked as default. Only one default can exist"#;
    assert_eq!(refused.message(), why);
    rig.patch(&format!("{PRIORITIES}/a"), r#"{"description":"d"}"#)
        .await
        .expect(200);
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let made = rig
        .post("/api/v1/namespaces/default/pods", pod)
        .await
        .expect(201)
        .body;
    assert_eq!(
        (
            made["spec"]["priority"].int(),
            made["spec"]["priorityClassName"].str()
        ),
        (5, "a")
    );
}

#[tokio::test]
async fn a_plugin_that_is_off_does_nothing() {
    let node = r#"{"metadata":{"name":"n"}}"#;
    let made = Rig::new()
        .await
        .post("/api/v1/nodes", node)
        .await
        .expect(201);
    assert_eq!(
        made.body["spec"]["taints"][0]["key"].str(),
        "node.kubernetes.io/not-ready"
    );
    let made = without("TaintNodesByCondition")
        .await
        .post("/api/v1/nodes", node)
        .await
        .expect(201);
    assert!(made.body["spec"]["taints"].is_null());
    let rig = without("StorageObjectInUseProtection").await;
    assert!(rig.post(CLAIMS, CLAIM).await.expect(201).body["metadata"]["finalizers"].is_null());
}

#[tokio::test]
async fn duplicate_owner_references_are_removed_with_a_warning() {
    let rig = Rig::new().await;
    let owner = r#"{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1"}"#;
    let body = format!(r#"{{"metadata":{{"name":"c","ownerReferences":[{owner},{owner}]}}}}"#);
    let made = rig.post(CONFIG_MAPS, &body).await.expect(201);
    assert_eq!(made.body["metadata"]["ownerReferences"].list().len(), 1);
    let warning = r#"299 - ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u1""#;
    assert_eq!(made.warnings, [warning]);
    let patched = rig
        .patch(&format!("{CONFIG_MAPS}/c"), &body)
        .await
        .expect(200);
    assert!(
        patched.warnings[0].contains("after mutating admission happens"),
        "{:?}",
        patched.warnings
    );
}

#[tokio::test]
async fn a_bound_pod_gets_the_topology_labels_of_its_node() {
    let rig = Rig::new().await;
    rig.post(
        "/api/v1/nodes",
        r#"{"metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"z"}}}"#,
    )
    .await
    .expect(201);
    let pods = "/api/v1/namespaces/default/pods";
    rig.post(
        pods,
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
    )
    .await
    .expect(201);
    let binding = r#"{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}"#;
    rig.post(&format!("{pods}/p/binding"), binding)
        .await
        .expect(201);
    let pod = rig.get(&format!("{pods}/p")).await.body;
    assert_eq!(
        pod["metadata"]["labels"]["topology.kubernetes.io/zone"].str(),
        "z"
    );
}
