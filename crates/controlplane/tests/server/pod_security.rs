//! What a namespace demands of its pods.

use mizzen_controlplane::{
    Admission, NamespacePolicy, Options, PodSecurity, Standard, StandardLevel, StandardVersion,
};

use crate::rig::Rig;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const HOST: &str = r#"{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}"#;

async fn label(rig: &Rig, mode: &str, level: &str) -> crate::rig::Reply {
    let body =
        format!(r#"{{"metadata":{{"labels":{{"pod-security.kubernetes.io/{mode}":"{level}"}}}}}}"#);
    rig.patch(NAMESPACE, &body).await
}

#[tokio::test]
async fn a_pod_that_violates_the_enforced_level_is_rejected() {
    let rig = Rig::new().await;
    label(&rig, "enforce", "baseline").await.expect(200);
    let refused = rig.post(PODS, HOST).await.expect(403);
    let why = r#"pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#;
    assert_eq!(refused.message(), why);
    rig.post(
        PODS,
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
    )
    .await
    .expect(201);
}

#[tokio::test]
async fn a_violating_workload_gets_a_warning() {
    let rig = Rig::new().await;
    label(&rig, "enforce", "baseline").await.expect(200);
    let deployment = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"hostPID":true,"containers":[{"name":"c","image":"i"}]}}}}"#;
    let made = rig
        .post("/apis/apps/v1/namespaces/default/deployments", deployment)
        .await
        .expect(201);
    let warning =
        r#"299 - "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)""#;
    assert_eq!(made.warnings, [warning]);
}

#[tokio::test]
async fn a_stricter_namespace_label_warns_of_existing_violations() {
    let rig = Rig::new().await;
    for name in ["p", "q"] {
        rig.post(PODS, &HOST.replace("\"p\"", &format!("\"{name}\"")))
            .await
            .expect(201);
    }
    let labelled = label(&rig, "enforce", "baseline").await.expect(200);
    assert_eq!(
        labelled.warnings,
        [
            r#"299 - "existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"""#,
            r#"299 - "p (and 1 other pod): host namespaces""#,
        ]
    );
    label(&rig, "enforce", "strict").await.expect(422);
}

#[tokio::test]
async fn the_configuration_has_the_defaults_of_namespaces_without_labels() {
    let baseline = Standard {
        level: StandardLevel::Baseline,
        version: StandardVersion::Latest,
    };
    let pod_security = PodSecurity {
        defaults: NamespacePolicy {
            enforce: baseline,
            ..NamespacePolicy::default()
        },
        users: vec!["root".into()],
        ..PodSecurity::default()
    };
    let strict = Admission {
        pod_security: pod_security.clone(),
        ..Admission::default()
    };
    let rig = Rig::with(Options {
        admission: strict,
        ..Options::default()
    })
    .await;
    rig.post(PODS, HOST).await.expect(403);
    let users = vec!["admin".to_string()];
    let exempt = Admission {
        pod_security: PodSecurity {
            users,
            ..pod_security
        },
        ..Admission::default()
    };
    let rig = Rig::with(Options {
        admission: exempt,
        ..Options::default()
    })
    .await;
    rig.post(PODS, HOST).await.expect(201);
}
