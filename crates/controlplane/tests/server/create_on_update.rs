//! PUT and apply to a name that does not exist: which of them create the object, through the resource and its parts.

use mizzen_apiserver::User;
use mizzen_value::{Value, json};

use crate::rig::Rig;

/// Kubernetes: `AllowCreateOnUpdate` of the strategies in pkg/registry.
const CREATED_BY_PUT: [&str; 12] = [
    "endpoints",
    "events",
    "limitranges",
    "services",
    "services/status",
    "events.k8s.io/events",
    "coordination.k8s.io/leases",
    "node.k8s.io/runtimeclasses",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/roles",
];

/// Kubernetes: every other subresource passes `forceAllowCreate` on as false.
const SUBRESOURCES_CREATED_BY_APPLY: [&str; 2] = [
    "services/status",
    "admissionregistration.k8s.io/validatingadmissionpolicies/status",
];

/// Resources and subresources that discovery lists, as `group/resource/subresource`, with their version.
async fn listed(rig: &Rig) -> Vec<(String, String, Value)> {
    let mut pages = vec![(String::new(), "v1".to_owned(), "/api/v1".to_owned())];
    let groups = rig.get("/apis").await.expect(200);
    for group in groups.body["groups"].list() {
        for version in group["versions"].list() {
            let page = format!("/apis/{}", version["groupVersion"].str());
            let (group, version) = (group["name"].str(), version["version"].str());
            pages.push((format!("{group}/"), version.to_owned(), page));
        }
    }
    let mut found = Vec::new();
    for (prefix, version, page) in pages {
        let page = rig.get(&page).await.expect(200);
        for row in page.body["resources"].list() {
            let name = format!("{prefix}{}", row["name"].str());
            found.push((name, version.clone(), row.clone()));
        }
    }
    found
}

/// Sends an object that has a name and nothing else to a path at which there is none.
async fn is_found(rig: &Rig, method: &str, resource: &str, version: &str, row: &Value) -> bool {
    let (plural, below) = row["name"]
        .str()
        .split_once('/')
        .unwrap_or((row["name"].str(), ""));
    let group = resource.strip_suffix(row["name"].str()).unwrap_or_default();
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}{version}"),
    };
    let home = if row["namespaced"].bool() {
        "/namespaces/default"
    } else {
        ""
    };
    // A Scale has a version of its own.
    let own = |field: &str| row[field].as_str().filter(|own| !own.is_empty());
    let api_version = match own("group") {
        Some(own_group) => format!("{own_group}/{}", own("version").unwrap_or_default()),
        None => format!("{group}{version}"),
    };
    let kind = row["kind"].str();
    let body =
        format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"none"}}}}"#);
    let below = if below.is_empty() {
        String::new()
    } else {
        format!("/{below}")
    };
    let path = format!("{root}{home}/{plural}/none{below}?fieldManager=m&dryRun=All");
    let reply = rig.call(method, &path, &body).await;
    assert!(
        reply.status != 405,
        "{method} {path}: {}",
        json::to_string(&reply.body)
    );
    reply.status != 404
}

#[tokio::test(start_paused = true)]
async fn a_put_or_apply_of_a_missing_object_creates_it_where_upstream_does() {
    let rig = Rig::new().await;
    let (mut by_put, mut by_apply, mut n_others) = (Vec::new(), Vec::new(), 0);
    for (resource, version, row) in listed(&rig).await {
        let has = |verb: &str| row["verbs"].list().iter().any(|known| known.str() == verb);
        let is_sub = row["name"].str().contains('/');
        // A proxy sends everything on.
        if !has("update") || row["name"].str().ends_with("/proxy") {
            continue;
        }
        if is_found(&rig, "PUT", &resource, &version, &row).await {
            by_put.push(resource.clone());
        }
        // A namespace is finalized by PUT alone.
        if !has("patch") {
            continue;
        }
        let applied = is_found(&rig, "APPLY", &resource, &version, &row).await;
        match (is_sub, applied) {
            (true, true) => by_apply.push(resource),
            (false, false) => panic!("an apply of {resource} finds nothing"),
            _ => n_others += 1,
        }
    }
    by_put.dedup();
    by_apply.dedup();
    by_put.sort();
    let mut expected = CREATED_BY_PUT.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(by_put, expected);
    assert_eq!(by_apply, SUBRESOURCES_CREATED_BY_APPLY);
    assert!(n_others > 80, "{n_others} resources and subresources");
}

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
