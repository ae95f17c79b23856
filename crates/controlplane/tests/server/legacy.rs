//! Versions that Kubernetes has removed: not there unless asked for, and then one object in two forms.

use mizzen_controlplane::Options;

use crate::rig::{Reply, Rig};

const INGRESSES: [&str; 2] = [
    "/apis/networking.k8s.io/v1beta1/namespaces/default/ingresses",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
];

const GROUPS: [&str; 7] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
];

async fn legacy() -> Rig {
    Rig::with(Options {
        legacy_apis: true,
        ..Options::default()
    })
    .await
}

fn ingress(port: u16) -> String {
    let head =
        r#""apiVersion":"networking.k8s.io/v1beta1","kind":"Ingress","metadata":{"name":"a"}"#;
    format!(r#"{{{head},"spec":{{"backend":{{"serviceName":"s","servicePort":{port}}}}}}}"#)
}

fn versions(group: &Reply) -> Vec<&str> {
    group.body["versions"]
        .list()
        .iter()
        .map(|version| version["version"].str())
        .collect()
}

#[tokio::test]
async fn removed_versions_are_hidden_unless_enabled() {
    let (plain, legacy) = (Rig::new().await, legacy().await);
    for group in GROUPS {
        let path = format!("/apis/{group}");
        assert_eq!(
            versions(&plain.get(&path).await.expect(200)),
            ["v1"],
            "{group}"
        );
        let group = legacy.get(&path).await.expect(200);
        assert_eq!(versions(&group), ["v1", "v1beta1"]);
        assert_eq!(group.body.at("preferredVersion.version").str(), "v1");
        plain.get(&format!("{path}/v1beta1")).await.expect(404);
        plain
            .get(&format!("/openapi/v3{path}/v1beta1"))
            .await
            .expect(404);
        legacy.get(&format!("{path}/v1beta1")).await.expect(200);
        legacy
            .get(&format!("/openapi/v3{path}/v1beta1"))
            .await
            .expect(200);
    }
    plain.get(INGRESSES[0]).await.expect(404);
    plain.post(INGRESSES[1], &ingress(80)).await.expect(400);
}

#[tokio::test]
async fn both_versions_serve_one_object() {
    let rig = legacy().await;
    let made = rig.post(INGRESSES[0], &ingress(80)).await.expect(201);
    let warning = "299 - \"networking.k8s.io/v1beta1 Ingress is deprecated in v1.19+, unavailable in v1.22+; \
                   use networking.k8s.io/v1 Ingress\"";
    assert_eq!(made.warnings, [warning]);
    let path = INGRESSES.map(|path| format!("{path}/a"));
    let new = rig.get(&path[1]).await.expect(200);
    assert_eq!(new.warnings, Vec::<String>::new());
    assert_eq!(new.version(), made.version());
    assert_eq!(
        new.body.at("spec.defaultBackend.service.port.number").int(),
        80
    );
    let patch = r#"{"spec":{"defaultBackend":{"service":{"port":{"number":null,"name":"web"}}}}}"#;
    rig.patch(&path[1], patch).await.expect(200);
    let old = rig.get(&path[0]).await.expect(200);
    assert_eq!(old.body.at("spec.backend.servicePort").str(), "web");
    assert_eq!(old.body.at("metadata.generation").int(), 2);
    let mut events = rig.watch(&format!("{}?watch=1", INGRESSES[0])).await;
    let event = events.next().await.expect("an event");
    assert_eq!(
        event.at("object.apiVersion").str(),
        "networking.k8s.io/v1beta1"
    );
    assert_eq!(event.at("object.spec.backend.serviceName").str(), "s");
    rig.delete(&path[0], "").await.expect(200);
    rig.get(&path[1]).await.expect(404);
}

#[tokio::test]
async fn a_field_has_its_manager_in_both_versions() {
    let rig = legacy().await;
    let path = INGRESSES.map(|path| format!("{path}/a"));
    rig.apply(&path[0], "old", &ingress(80)).await.expect(201);
    let new = |number: u16| {
        format!(
            r#"{{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","spec":{{"defaultBackend":{{"service":{{"name":"s","port":{{"number":{number}}}}}}}}}}}"#
        )
    };
    let conflict = rig.apply(&path[1], "new", &new(81)).await.expect(409);
    // In the words of the version in which it is owned.
    let message = "Apply failed with 1 conflict: conflict with \"old\": .spec.backend.servicePort";
    assert_eq!(conflict.body["message"].str(), message);
    let shared = rig.apply(&path[1], "new", &new(80)).await.expect(200);
    let owners = shared.body.at("metadata.managedFields").list();
    let owner = |name: &str| {
        owners
            .iter()
            .find(|owner| owner["manager"].str() == name)
            .expect("an owner")
    };
    assert!(
        owner("old")
            .at("fieldsV1.f:spec.f:backend")
            .get("f:servicePort")
            .is_some()
    );
    assert!(
        owner("new")
            .at("fieldsV1.f:spec.f:defaultBackend.f:service")
            .get("f:port")
            .is_some()
    );
    // What "old" wants no more stays, for "new" still does.
    let kept = rig
        .apply(
            &path[0],
            "old",
            r#"{"apiVersion":"networking.k8s.io/v1beta1","kind":"Ingress"}"#,
        )
        .await;
    assert_eq!(
        kept.expect(200).body.at("spec.backend.servicePort").int(),
        80
    );
}

#[tokio::test]
async fn an_object_of_an_old_version_is_rejected_with_every_violation() {
    let rig = legacy().await;
    let path = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions";
    let column = r#"[{"name":"a","type":"string","JSONPath":".a"}]"#;
    let body = format!(
        r#"{{"metadata":{{"name":"as.x.io"}},"spec":{{"group":"x","names":{{"plural":"as","kind":"A"}},"additionalPrinterColumns":{column},
        "versions":[{{"name":"v1","served":true,"storage":true,"additionalPrinterColumns":{column}}}]}}}}"#
    );
    let refused = rig.post(path, &body).await.expect(422);
    let causes = refused.body.at("details.causes").list();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].str()).collect();
    assert_eq!(
        fields,
        [
            "spec.additionalPrinterColumns",
            "spec.versions",
            "metadata.name",
            "spec.group"
        ],
        "{}",
        refused.body["message"].str()
    );
}
