//! The bootstrap signer and the token cleaner.

use std::time::Duration;

use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_value::{time, value};

use crate::{settle, start};

const CONTROLLERS: &[&str] = &["bootstrap-signer-controller", "token-cleaner-controller"];

#[tokio::test(start_paused = true)]
async fn a_token_signs_until_it_expires() {
    let cluster = start(CONTROLLERS).await;
    for name in ["kube-public", "kube-system"] {
        if cluster
            .find_object(&mizzen_sdk::resource::NAMESPACES, name)
            .await
            .is_none()
        {
            cluster
                .create(&format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
                ))
                .await;
        }
    }
    cluster.create(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: cluster-info, namespace: kube-public}, data: {kubeconfig: k}}",
        )
        .await;
    let expires = time::from_unix(cluster.now() + 60);
    let secret = value!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
            "expiration": (expires)
        }
    });
    cluster
        .dynamic_client()
        .create(&SECRETS, &secret)
        .await
        .unwrap();
    settle(&cluster).await;
    let signature = "jws-kubeconfig-abcdef";
    let described = cluster
        .object(&CONFIG_MAPS, "kube-public/cluster-info")
        .await;
    let head = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..";
    assert!(
        described["data"][signature].str().starts_with(head),
        "{:?}",
        described["data"]
    );

    cluster.advance(Duration::from_secs(62)).await;
    assert!(
        cluster
            .find_object(&SECRETS, "kube-system/bootstrap-token-abcdef")
            .await
            .is_none()
    );
    let described = cluster
        .object(&CONFIG_MAPS, "kube-public/cluster-info")
        .await;
    assert!(described["data"][signature].is_null());
    assert_eq!(described["data"]["kubeconfig"].str(), "k");
}
