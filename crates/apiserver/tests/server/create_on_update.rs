//! PUT and apply to a name that does not exist: which of them create the object, through the resource and its parts.

use mizzen_apiserver::User;
use mizzen_object::json;

use crate::rig::Rig;

#[tokio::test(start_paused = true)]
async fn a_service_that_its_status_creates_has_no_address() {
    let rig = Rig::new().await;
    let path = "/api/v1/namespaces/default/services/s";
    let service = |spec: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s"}},"spec":{spec},"status":{{"loadBalancer":{{"ingress":[{{"ip":"1.2.3.4"}}]}}}}}}"#
        )
    };
    // Kubernetes: the storage of the status allocates nothing, and does not copy clusterIP into clusterIPs.
    let headless = service(r#"{"ports":[{"port":80}],"clusterIP":"None"}"#);
    let refused = rig
        .put(&format!("{path}/status"), &headless)
        .await
        .expect(422);
    assert_eq!(
        refused.message(),
        r#"Service "s" is invalid: spec.clusterIPs: Required value"#
    );
    for method in ["PUT", "APPLY"] {
        let plain = service(r#"{"ports":[{"port":80}]}"#);
        let made = rig
            .call(method, &format!("{path}/status?fieldManager=m"), &plain)
            .await
            .expect(201);
        assert!(made.body["spec"]["clusterIP"].is_null());
        assert_eq!(
            json::to_string(&made.body["status"]),
            r#"{"loadBalancer":{}}"#
        );
        let owner = &made.body["metadata"]["managedFields"][0];
        assert_eq!(owner["subresource"].str(), "status");
        assert_eq!(
            json::to_string(&owner["fieldsV1"]),
            r#"{"f:status":{"f:loadBalancer":{"f:ingress":{}}}}"#
        );
        rig.delete(path, "").await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_creates_its_object_is_authorized_as_create_of_the_status() {
    let rig = Rig::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |verbs: &str| {
        format!(
            r#"{{"metadata":{{"name":"r"}},"rules":[{{"verbs":[{verbs}],"apiGroups":[""],"resources":["services/status"]}}]}}"#
        )
    };
    rig.post(&format!("{roles}/roles"), &role(r#""update","patch""#))
        .await
        .expect(201);
    let binding = r#"{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}"#;
    rig.post(&format!("{roles}/rolebindings"), binding)
        .await
        .expect(201);
    let jane = || User {
        name: "jane".into(),
        ..User::default()
    };
    for allowed in [false, true] {
        for method in ["PUT", "APPLY"] {
            let name = method.to_lowercase();
            let path = format!("/api/v1/namespaces/default/services/{name}/status?fieldManager=m");
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
            );
            let reply = rig.call_as(jane(), &[], method, &path, &body).await;
            if allowed {
                reply.expect(201);
                continue;
            }
            let why = format!(
                r#"services "{name}" is forbidden: User "jane" cannot create resource "services/status" in API group "" in the namespace "default""#
            );
            assert_eq!(reply.expect(403).message(), why);
        }
        rig.put(
            &format!("{roles}/roles/r"),
            &role(r#""update","patch","create""#),
        )
        .await
        .expect(200);
    }
}
