//! Where do odd paths lead? What a path leaves empty is there all the same.

use crate::rig::Rig;

const NO_NAME: (u16, &str) = (400, "name must be provided");
const NO_NAMESPACE: (u16, &str) = (400, "Namespace parameter required.");
const NO_METHOD: (u16, &str) = (
    405,
    "the server does not allow this method on the requested resource",
);
const NOWHERE: (u16, &str) = (404, "the server could not find the requested resource");
const FINE: (u16, &str) = (200, "");

async fn check(path: &str, cases: &[(&str, (u16, &str))]) {
    let rig = Rig::new().await;
    for (method, (code, message)) in cases {
        let reply = rig.call(method, path, "{}").await;
        assert_eq!(
            (reply.status, reply.message()),
            (*code, *message),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn a_subresource_without_a_name_is_rejected() {
    for path in [
        "/api/v1/namespaces/x/pods//status",
        "/api/v1/namespaces//pods//status",
        "/api/v1/nodes//status",
        "/api/v1/namespaces//status",
        "/apis/apps/v1/namespaces/default/deployments//scale",
    ] {
        let cases = [
            ("GET", NO_NAME),
            ("PUT", NO_NAME),
            ("PATCH", NO_NAME),
            ("JSON", NO_NAME),
            ("APPLY", NO_NAME),
            ("POST", NO_METHOD),
            ("DELETE", NO_METHOD),
        ];
        check(path, &cases).await;
    }
    check(
        "/api/v1/namespaces//finalize",
        &[("GET", NO_METHOD), ("PUT", NO_NAME), ("PATCH", NO_METHOD)],
    )
    .await;
    check(
        "/api/v1/namespaces/x/pods//binding",
        &[("GET", NO_METHOD), ("POST", NO_NAME)],
    )
    .await;
    for path in [
        "/api/v1/namespaces/default/pods//foo",
        "/api/v1/namespaces/default/foos//status",
        "/api/v1/pods//status",
    ] {
        check(
            path,
            &[
                ("GET", NOWHERE),
                ("PUT", NOWHERE),
                ("PATCH", NOWHERE),
                ("DELETE", NOWHERE),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn an_object_without_a_namespace_is_not_found() {
    let undeterminable = (
        400,
        "the name of the object (p based on URL) was undeterminable: name must be provided",
    );
    let cases = [
        ("GET", NO_NAMESPACE),
        ("PATCH", NO_NAMESPACE),
        ("DELETE", NO_NAMESPACE),
        ("PUT", undeterminable),
    ];
    check("/api/v1/namespaces//pods/p", &cases).await;
    let all = [
        ("GET", FINE),
        ("DELETE", NO_NAMESPACE),
        ("PUT", NO_METHOD),
        ("PATCH", NO_METHOD),
    ];
    check("/api/v1/namespaces//pods", &all).await;
    check(
        "/api/v1/namespaces//nodes",
        &[("GET", NOWHERE), ("DELETE", NOWHERE)],
    )
    .await;
    check("/api/v1/pods/p", &[("GET", NOWHERE), ("DELETE", NOWHERE)]).await;
}

#[tokio::test]
async fn a_create_without_a_namespace_is_rejected() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"one"}}"#;
    let refused = rig
        .post("/api/v1/namespaces//configmaps", body)
        .await
        .expect(422);
    assert_eq!(
        refused.message(),
        "ConfigMap \"one\" is invalid: metadata.namespace: Required value"
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces//leases/one";
    let refused = rig.put(leases, body).await.expect(400);
    assert_eq!(refused.message(), NO_NAMESPACE.1);
}

#[tokio::test]
async fn trailing_slashes_are_ignored() {
    check("/api/v1/namespaces/default//", &[("GET", FINE)]).await;
    check(
        "/api/v1/namespaces/default/pods//",
        &[("GET", FINE), ("PUT", NO_METHOD), ("PATCH", NO_METHOD)],
    )
    .await;
    check("/api/v1/namespaces/default//pods", &[("GET", NOWHERE)]).await;
    check("/api/v1//pods", &[("GET", NOWHERE)]).await;
}

#[tokio::test]
async fn pages_of_go_restful_allow_only_get_and_other_pages_every_method() {
    let methods = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "FOO"];
    let all =
        |path: &'static str, first: u16, rest: u16| (path, [first, rest, rest, rest, rest, rest]);
    let rig = Rig::new().await;
    for (path, expected) in [
        all("/", 200, 200),
        all("/index.html", 200, 200),
        all("/api", 200, 405),
        all("/api/v1/", 200, 405),
        all("/apis", 200, 200),
        all("/apis/apps/", 200, 200),
        all("/apis/apiregistration.k8s.io", 200, 405),
        all("/apis/apps/v1", 200, 405),
        all("/apis//", 404, 404),
        all("/version/", 200, 405),
        all("/version/x", 404, 404),
        all("/metrics", 200, 200),
        all("/metrics/", 404, 404),
        all("/openapi/v2/", 404, 404),
        all("/openapi/v3/", 404, 404),
    ] {
        let mut found = Vec::new();
        for method in methods {
            found.push(rig.send(method, path, "").await.status().as_u16());
        }
        assert_eq!(found, expected, "{path} {methods:?}");
    }
    assert_eq!(rig.get("/version/x").await.message(), NOWHERE.1);
}

#[tokio::test]
async fn the_legacy_watch_prefix_is_for_get() {
    for path in [
        "/api/v1/watch/namespaces",
        "/api/v1/watch/namespaces/default",
        "/api/v1/watch/pods",
        "/api/v1/watch/namespaces/default/pods/p",
    ] {
        check(
            path,
            &["HEAD", "POST", "PUT", "PATCH", "DELETE"].map(|method| (method, NO_METHOD)),
        )
        .await;
    }
    for path in [
        "/api/v1/watch/namespaces/default/status",
        "/api/v1/watch/namespaces/default/pods/p/status",
        "/api/v1/watch/pods/p",
        "/api/v1/watch/componentstatuses",
        "/api/v1/proxy/namespaces/default/pods/p",
    ] {
        check(
            path,
            &["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| (method, NOWHERE)),
        )
        .await;
    }
}

#[tokio::test]
async fn a_path_without_a_handler_is_not_found() {
    let rig = Rig::new().await;
    for path in [
        "//api/v1/pods",
        "/apis//v1/pods",
        "//apis/apps/v1/deployments",
        "/apis//v1/namespaces/default/pods",
    ] {
        let reply = rig.get(path).await.expect(404);
        assert_eq!(reply.body.str(), "404 page not found\n", "{path}");
    }
}

#[tokio::test]
async fn a_legacy_verb_without_a_resource_is_an_error() {
    let rig = Rig::new().await;
    for path in ["/api/v1/watch", "/apis/apps/v1/proxy?a=b"] {
        let reply = rig.get(path).await.expect(500);
        let problem =
            "failed to create RequestInfo: unable to determine kind and namespace from url";
        assert_eq!(
            reply.body.str(),
            format!("Internal Server Error: \"{path}\": {problem}, {path}\n")
        );
    }
}

#[tokio::test]
async fn a_legacy_watch_of_one_object_selects_no_other() {
    let mismatch = (
        400,
        "fieldSelector metadata.name doesn't match requested name",
    );
    for selector in [
        "metadata.name%3Db",
        "metadata.name!%3Da",
        "metadata.namespace%3Ddefault",
    ] {
        let path =
            format!("/api/v1/watch/namespaces/default/configmaps/a?fieldSelector={selector}");
        check(&path, &[("GET", mismatch)]).await;
    }
}
