//! Who pods act as.

use mizzen_controlplane::{Options, Plugins};

use crate::rig::Rig;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;

async fn rig() -> Rig {
    Rig::with(Options {
        plugins: Plugins::default(),
        ..Options::default()
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_default_account() {
    let rig = rig().await;
    let other = rig.clone();
    let pod = tokio::spawn(async move { other.post(PODS, POD).await });
    tokio::time::advance(std::time::Duration::from_millis(300)).await;
    rig.post(
        ACCOUNTS,
        r#"{"metadata":{"name":"default"},"imagePullSecrets":[{"name":"s"}]}"#,
    )
    .await
    .expect(201);
    let pod = pod.await.unwrap().expect(201).body;
    let spec = &pod["spec"];
    assert_eq!(
        (
            spec["serviceAccountName"].str(),
            spec["serviceAccount"].str()
        ),
        ("default", "default")
    );
    assert_eq!(spec["imagePullSecrets"][0]["name"].str(), "s");
    let volume = spec["volumes"][0]["name"].str();
    assert!(
        volume.starts_with("kube-api-access-") && volume.len() == "kube-api-access-".len() + 5,
        "{volume}"
    );
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["name"].str(), volume);
    assert_eq!(
        mount["mountPath"].str(),
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_service_account_is_rejected() {
    let rig = rig().await;
    let refused = rig.post(PODS, POD).await.expect(403);
    let why = r#"pods "p" is forbidden: error looking up service account default/default: serviceaccount "default" not found"#;
    assert_eq!(refused.message(), why);
}

#[tokio::test]
async fn a_pod_without_automount_gets_no_token() {
    let rig = rig().await;
    rig.post(
        ACCOUNTS,
        r#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#,
    )
    .await
    .expect(201);
    let pod = rig.post(PODS, POD).await.expect(201).body;
    assert!(pod["spec"]["volumes"].is_null());
}
