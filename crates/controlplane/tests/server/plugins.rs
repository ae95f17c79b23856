//! Admission plug-ins that are off unless asked for.

use std::path::Path;
use std::time::Duration;

use mizzen_apiserver::User;
use mizzen_controlplane::{Admission, Options, Plugins};
use mizzen_registry::Store;
use mizzen_value::{Value, json, value};

use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Rig, registry};

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NAMESPACE: &str = "/api/v1/namespaces/default";

fn plugins(name: &str) -> Plugins {
    let mut plugins = Plugins::alone();
    plugins.enable(name).unwrap();
    plugins
}

/// A server with one more plug-in.
async fn with(name: &str) -> Rig {
    Rig::with(Options {
        plugins: plugins(name),
        ..Options::default()
    })
    .await
}

/// The same, where the plug-in is configured.
async fn with_configuration(name: &str, configuration: &str) -> Rig {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{{name: {name}, configuration: {configuration}}}]"
    );
    let admission = Admission::read(text.as_bytes(), Path::new("")).unwrap();
    let plugins = plugins(name);
    plugins.check(&admission).unwrap();
    Rig::with(Options {
        plugins,
        admission,
        ..Options::default()
    })
    .await
}

/// A pod with an image; `spec` says more.
fn pod(name: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]{spec}}}}}"#
    )
}

#[tokio::test]
async fn always_deny_rejects_every_write_and_no_read() {
    let store = Store::in_memory(Default::default());
    let rig = Rig::on(store.clone(), Options::default()).await;
    rig.make("a", "x").await;
    let options = Options {
        plugins: plugins("AlwaysDeny"),
        ..Options::default()
    };
    let rig = Rig {
        server: mizzen_controlplane::server(registry(store), options),
    };
    let path = format!("{CONFIG_MAPS}/a");
    rig.get(&path).await.expect(200);
    for refused in [
        rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"},"data":{"!":""}}"#)
            .await,
        rig.patch(&path, r#"{"data":{"b":"c"}}"#).await,
        rig.delete(&path, "").await,
    ] {
        let refused = refused.expect(403);
        let why = r#"configmaps "a" is forbidden: admission control is denying all modifications"#;
        assert_eq!(refused.message(), why);
    }
}

#[tokio::test]
async fn always_admit_admits() {
    with("AlwaysAdmit").await.make("a", "x").await;
}

#[tokio::test]
async fn a_missing_namespace_is_provisioned_but_not_by_a_dry_run() {
    let rig = with("NamespaceAutoProvision").await;
    let maps = "/api/v1/namespaces/fresh/configmaps";
    rig.post(
        &format!("{maps}?dryRun=All"),
        r#"{"metadata":{"name":"a"}}"#,
    )
    .await
    .expect(404);
    rig.get("/api/v1/namespaces/fresh").await.expect(404);
    rig.post(maps, r#"{"metadata":{"name":"a"}}"#)
        .await
        .expect(201);
    let namespace = rig.get("/api/v1/namespaces/fresh").await.expect(200).body;
    assert_eq!(namespace.at("status.phase").str(), "Active");
    let refused = rig
        .post(
            "/api/v1/namespaces/-/configmaps",
            r#"{"metadata":{"name":"a"}}"#,
        )
        .await
        .expect(403);
    assert!(
        refused
            .message()
            .starts_with(r#"configmaps "a" is forbidden: Namespace "-" is invalid: "#)
    );
}

#[tokio::test]
async fn nothing_is_written_to_a_namespace_that_does_not_exist() {
    let mut plugins = plugins("NamespaceExists");
    plugins.disable("NamespaceLifecycle").unwrap();
    let store = Store::in_memory(Default::default());
    let mut lax = Plugins::alone();
    lax.disable("NamespaceLifecycle").unwrap();
    let rig = Rig::on(
        store.clone(),
        Options {
            plugins: lax,
            ..Options::default()
        },
    )
    .await;
    let maps = "/api/v1/namespaces/lost/configmaps";
    rig.post(maps, r#"{"metadata":{"name":"a"}}"#)
        .await
        .expect(201);
    let rig = Rig {
        server: mizzen_controlplane::server(
            registry(store),
            Options {
                plugins,
                ..Options::default()
            },
        ),
    };
    for refused in [
        rig.post(maps, r#"{"metadata":{"name":"b"}}"#).await,
        rig.patch(&format!("{maps}/a"), r#"{"data":{"b":"c"}}"#)
            .await,
        rig.delete(&format!("{maps}/a"), "").await,
    ] {
        assert_eq!(
            refused.expect(404).message(),
            r#"namespaces "lost" not found"#
        );
    }
    rig.make("a", "x").await;
}

#[tokio::test]
async fn anti_affinity_is_limited_to_nodes() {
    let rig = with("LimitPodHardAntiAffinityTopology").await;
    let rule = |list: &str, key: &str| {
        let term = match list {
            "required" => format!(r#"{{"topologyKey":"{key}"}}"#),
            _ => format!(r#"{{"weight":1,"podAffinityTerm":{{"topologyKey":"{key}"}}}}"#),
        };
        let rules = format!(
            r#"{{"podAntiAffinity":{{"{list}DuringSchedulingIgnoredDuringExecution":[{term}]}}}}"#
        );
        pod("p", &format!(r#","affinity":{rules}"#))
    };
    let refused = rig.post(PODS, &rule("required", "zone")).await.expect(403);
    let why = r#"pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed"#;
    assert_eq!(refused.message(), why);
    rig.post(&format!("{PODS}?dryRun=All"), &rule("preferred", "zone"))
        .await
        .expect(201);
    rig.post(PODS, &rule("required", "kubernetes.io/hostname"))
        .await
        .expect(201);
}

#[tokio::test]
async fn images_are_always_pulled() {
    let rig = with("AlwaysPullImages").await;
    let more = r#","initContainers":[{"name":"d","image":"i:1","imagePullPolicy":"Never"}],"volumes":[{"name":"v","image":{"reference":"r:1","pullPolicy":"Never"}}]"#;
    let made = rig.post(PODS, &pod("p", more)).await.expect(201).body;
    for path in ["containers", "initContainers"] {
        assert_eq!(
            made["spec"][path][0]["imagePullPolicy"].str(),
            "Always",
            "{path}"
        );
    }
    assert_eq!(
        made["spec"]["volumes"][0]["image"]["pullPolicy"].str(),
        "Always"
    );
    rig.patch(&format!("{PODS}/p"), r#"{"metadata":{"labels":{"a":"b"}}}"#)
        .await
        .expect(200);
}

#[tokio::test]
async fn external_addresses_are_denied_to_services_that_do_not_have_them() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let service = |addresses: &str| {
        format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"ports":[{{"port":80}}],"externalIPs":[{addresses}]}}}}"#
        )
    };
    let store = Store::in_memory(Default::default());
    let rig = Rig::on(store.clone(), Options::default()).await;
    rig.post(SERVICES, &service(r#""192.0.2.1","192.0.2.2""#))
        .await
        .expect(201);
    let options = Options {
        plugins: plugins("DenyServiceExternalIPs"),
        ..Options::default()
    };
    let rig = Rig {
        server: mizzen_controlplane::server(registry(store), options),
    };
    rig.server.start().await;
    let change = async |addresses: &str| {
        let body = format!(r#"{{"spec":{{"externalIPs":[{addresses}]}}}}"#);
        rig.patch(&format!("{SERVICES}/s"), &body).await
    };
    change(r#""192.0.2.2""#).await.expect(200);
    let refused = change(r#""192.0.2.2","192.0.2.3""#).await.expect(403);
    let why = r#"services "s" is forbidden: Use of external IPs is denied by admission control"#;
    assert_eq!(refused.message(), why);
    change("").await.expect(200);
    change(r#""192.0.2.2""#).await.expect(403);
    let refused = rig
        .post(
            SERVICES,
            &service(r#""192.0.2.1""#).replace(r#""s""#, r#""t""#),
        )
        .await;
    assert!(
        refused
            .expect(403)
            .message()
            .ends_with("Use of external IPs is denied by admission control")
    );
}

#[tokio::test]
async fn a_pod_tolerates_the_taint_of_the_resource_that_it_requests() {
    let rig = with("ExtendedResourceToleration").await;
    let body = pod("p", "").replace(
        r#""image":"i""#,
        r#""image":"i","resources":{"limits":{"example.com/gpu":"1","cpu":"1"}}"#,
    );
    let made = rig.post(PODS, &body).await.expect(201).body;
    let keys: Vec<&str> = made["spec"]["tolerations"]
        .list()
        .iter()
        .map(|one| one["key"].str())
        .collect();
    assert!(
        keys.contains(&"example.com/gpu") && !keys.contains(&"cpu"),
        "{keys:?}"
    );
}

fn event(name: &str, about: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"involvedObject":{{"kind":"Pod","namespace":"default","name":"{about}"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn events_are_limited_by_server_namespace_user_and_object() {
    const HEAD: &str = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration";
    let limited = async |limits: &str| {
        with_configuration("EventRateLimit", &format!("{{{HEAD}, limits: [{limits}]}}")).await
    };
    let rig = limited("{type: Server, qps: 1, burst: 2}").await;
    for name in ["a", "b"] {
        rig.post(EVENTS, &event(name, "p")).await.expect(201);
    }
    let refused = rig.post(EVENTS, &event("c", "p")).await.expect(429);
    assert_eq!(
        refused.message(),
        "Too many requests: limit reached on type Server for key "
    );
    assert_eq!(refused.body["reason"].str(), "TooManyRequests");
    rig.post(&format!("{EVENTS}?dryRun=All"), &event("c", "p"))
        .await
        .expect(201);
    rig.patch(&format!("{EVENTS}/a"), r#"{"count":2}"#)
        .await
        .expect(429);
    rig.make("a", "x").await;
    tokio::time::advance(Duration::from_secs(1)).await;
    rig.post(EVENTS, &event("c", "p")).await.expect(201);

    let rig =
        limited("{type: User, qps: 1, burst: 1}, {type: SourceAndObject, qps: 1, burst: 1}").await;
    let post = async |user: &str, name: &str, about: &str| {
        rig.call_as(User::master(user), &[], "POST", EVENTS, &event(name, about))
            .await
    };
    post("jane", "a", "p").await.expect(201);
    let refused = post("jane", "b", "p").await.expect(429);
    let why = "Too many requests: [limit reached on type User for key jane, limit reached on type SourceAndObject for key Poddefaultp]";
    assert_eq!(refused.message(), why);
    let refused = post("joe", "b", "p").await.expect(429);
    assert!(
        refused
            .message()
            .ends_with("limit reached on type SourceAndObject for key Poddefaultp")
    );
    post("jill", "b", "q").await.expect(201);

    let rig = limited("{type: Namespace, qps: 1, burst: 1}").await;
    rig.post("/api/v1/namespaces", r#"{"metadata":{"name":"other"}}"#)
        .await
        .expect(201);
    rig.post(EVENTS, &event("a", "p")).await.expect(201);
    let refused = rig.post(EVENTS, &event("b", "p")).await.expect(429);
    assert_eq!(
        refused.message(),
        "Too many requests: limit reached on type Namespace for key default"
    );
    let other = event("a", "p").replace(r#""namespace":"default""#, r#""namespace":"other""#);
    rig.post("/api/v1/namespaces/other/events", &other)
        .await
        .expect(201);
}

#[tokio::test]
async fn pods_run_on_the_nodes_of_their_namespace() {
    let configuration = "{podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: 'zone=a', default: 'zone=b,zone=a,disk=ssd'}}";
    let rig = with_configuration("PodNodeSelector", configuration).await;
    let selector = |reply: &Value| json::to_string(&reply["spec"]["nodeSelector"]);
    let select = |labels: &str| pod("p", &format!(r#","nodeSelector":{labels}"#));
    let dry = format!("{PODS}?dryRun=All");
    let made = rig.post(&dry, &pod("p", "")).await.expect(201).body;
    assert_eq!(selector(&made), r#"{"zone":"a"}"#);
    let made = rig
        .post(&dry, &select(r#"{"disk":"ssd"}"#))
        .await
        .expect(201)
        .body;
    assert_eq!(selector(&made), r#"{"disk":"ssd","zone":"a"}"#);
    let refused = rig.post(&dry, &select(r#"{"zone":"c"}"#)).await.expect(403);
    let why = r#"pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector"#;
    assert_eq!(refused.message(), why);
    let refused = rig
        .post(&dry, &select(r#"{"disk":"hdd"}"#))
        .await
        .expect(403);
    let why = r#"pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist"#;
    assert_eq!(refused.message(), why);
    let annotate = async |selector: &str| {
        let body = value!({ "metadata": { "annotations": { "scheduler.alpha.kubernetes.io/node-selector": selector } } });
        rig.patch(NAMESPACE, &json::to_string(&body))
            .await
            .expect(200);
    };
    annotate("disk=ssd").await;
    let made = rig.post(&dry, &pod("p", "")).await.expect(201).body;
    assert_eq!(selector(&made), r#"{"disk":"ssd"}"#);
    annotate("nonsense").await;
    let refused = rig.post(&dry, &pod("p", "")).await.expect(500);
    assert_eq!(refused.message(), "invalid selector: [nonsense]");
}

#[tokio::test]
async fn pods_tolerate_what_their_namespace_tolerates_and_no_more_than_it_may() {
    let configuration = "{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: a, operator: Exists}], whitelist: [{key: a, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}, {operator: Exists, effect: NoExecute}]}";
    let rig = with_configuration("PodTolerationRestriction", configuration).await;
    let dry = format!("{PODS}?dryRun=All");
    let keys = |reply: &Value| -> Vec<String> {
        let tolerations = reply["spec"]["tolerations"].list().iter();
        tolerations
            .map(|one| one["key"].str().to_owned())
            .filter(|key| !key.ends_with("/not-ready") && !key.ends_with("/unreachable"))
            .collect()
    };
    let made = rig.post(&dry, &pod("p", "")).await.expect(201).body;
    assert_eq!(keys(&made), ["a"]);
    let requesting = pod("p", "").replace(
        r#""image":"i""#,
        r#""image":"i","resources":{"requests":{"cpu":"1"}}"#,
    );
    let made = rig.post(&dry, &requesting).await.expect(201).body;
    assert_eq!(keys(&made), ["a", "node.kubernetes.io/memory-pressure"]);
    let tolerating = pod(
        "p",
        r#","tolerations":[{"key":"b","operator":"Exists","effect":"NoSchedule"}]"#,
    );
    let refused = rig.post(&dry, &tolerating).await.expect(500);
    let conflict =
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its";
    assert_eq!(refused.message(), format!("{conflict} cluster whitelist"));
    let annotate = async |name: &str, text: &str| {
        let mut body = Value::object();
        let key = format!("scheduler.alpha.kubernetes.io/{name}");
        body.entry("metadata").entry("annotations").set(&key, text);
        rig.patch(NAMESPACE, &json::to_string(&body))
            .await
            .expect(200);
    };
    annotate(
        "tolerationsWhitelist",
        r#"[{"operator":"Exists","effect":"NoExecute"}]"#,
    )
    .await;
    let refused = rig.post(&dry, &tolerating).await.expect(500);
    assert_eq!(refused.message(), format!("{conflict} namespace whitelist"));
    annotate("tolerationsWhitelist", "").await;
    annotate("defaultTolerations", "").await;
    let made = rig.post(&dry, &tolerating).await.expect(201).body;
    assert_eq!(keys(&made), ["b"]);
}

#[tokio::test]
async fn changing_owners_needs_the_right_to_delete_and_blocking_them_to_update_their_finalizers() {
    let plugins = plugins("OwnerReferencesPermissionEnforcement");
    let rig = Rig::with(Options {
        plugins,
        ..Options::default()
    })
    .await;
    let owner = rig
        .make("owner", "x")
        .await
        .body
        .at("metadata.uid")
        .str()
        .to_owned();
    rig.make("owned", "x").await;
    let allow = async |name: &str, verbs: &str, resources: &str| {
        let rules =
            format!(r#"[{{"verbs":[{verbs}],"apiGroups":[""],"resources":[{resources}]}}]"#);
        let role = format!(r#"{{"metadata":{{"name":"{name}"}},"rules":{rules}}}"#);
        rig.post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            &role,
        )
        .await
        .expect(201);
        let binding = format!(
            r#"{{"metadata":{{"name":"{name}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{name}"}},"subjects":[{{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}}]}}"#
        );
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        rig.post(bindings, &binding).await.expect(201);
    };
    let owned = |kind: &str, blocks: bool| {
        let reference = format!(
            r#"{{"apiVersion":"v1","kind":"{kind}","name":"owner","uid":"{owner}","blockOwnerDeletion":{blocks}}}"#
        );
        format!(r#"{{"metadata":{{"ownerReferences":[{reference}]}}}}"#)
    };
    let jane = || User {
        name: "jane".into(),
        ..User::default()
    };
    let path = format!("{CONFIG_MAPS}/owned");
    let patch = async |body: &str| rig.call_as(jane(), &[], "PATCH", &path, body).await;
    allow("edit", r#""patch","create""#, r#""configmaps""#).await;
    let refused = patch(&owned("ConfigMap", false)).await.expect(403);
    let why = r#"configmaps "owned" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>"#;
    assert_eq!(refused.message(), why);
    patch(r#"{"data":{"a":"b"}}"#).await.expect(200);
    let create = owned("ConfigMap", false).replace(
        r#"{"ownerReferences""#,
        r#"{"name":"new","ownerReferences""#,
    );
    rig.call_as(jane(), &[], "POST", CONFIG_MAPS, &create)
        .await
        .expect(201);
    let refused = rig
        .call_as(
            jane(),
            &[],
            "POST",
            CONFIG_MAPS,
            &create.replace("false", "true"),
        )
        .await;
    let blocking = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
    assert_eq!(
        refused.expect(403).message(),
        format!(r#"configmaps "new" is forbidden: {blocking}: , <nil>"#)
    );

    allow("delete", r#""delete""#, r#""configmaps""#).await;
    patch(&owned("ConfigMap", false)).await.expect(200);
    let refused = patch(&owned("ConfigMap", true)).await.expect(403);
    assert!(
        refused.message().contains(blocking),
        "{}",
        refused.message()
    );
    let refused = patch(&owned("Odd", true)).await.expect(403);
    let why = r#"configmaps "owned" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Odd: no matches for kind "Odd" in version "v1""#;
    assert_eq!(refused.message(), why);
    allow("finalize", r#""update""#, r#""configmaps/finalizers""#).await;
    patch(&owned("ConfigMap", true)).await.expect(200);
    patch(r#"{"metadata":{"ownerReferences":null}}"#)
        .await
        .expect(200);
    rig.patch(&path, &owned("Odd", true)).await.expect(200);
}

/// A server that asks a webhook about images.
async fn judged(peer: &Peer, more: &str) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let text = format!(
        "current-context: a
contexts: [{{name: a, context: {{cluster: b, user: c}}}}]
clusters: [{{name: b, cluster: {{server: 'https://127.0.0.1:{}/images', certificate-authority-data: {}}}}}]
users: [{{name: c, user: {{token: ours}}}}]
",
        peer.port,
        peer.bundle()
    );
    std::fs::write(&file, text).unwrap();
    let configuration = format!(
        "{{imagePolicy: {{kubeConfigFile: {}{more}}}}}",
        file.display()
    );
    with_configuration("ImagePolicyWebhook", &configuration).await
}

fn verdict(status: &str) -> String {
    format!(
        r#"{{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{status}}}"#
    )
}

#[tokio::test]
async fn a_webhook_decides_which_images_run() {
    let peer = Peer::start(&["127.0.0.1"], |request| {
        let review = json::parse(request.body()).unwrap();
        let status = match review["spec"]["containers"][0]["image"].str() {
            "good" => r#"{"allowed":true}"#,
            "bad" => r#"{"allowed":false,"reason":"too old"}"#,
            _ => r#"{"allowed":false}"#,
        };
        Reaction::Reply(200, verdict(status))
    })
    .await;
    let rig = judged(&peer, "").await;
    let post = async |name: &str, image: &str| {
        let body = pod(name, "").replace(r#""image":"i""#, &format!(r#""image":"{image}""#));
        rig.post(PODS, &body).await
    };
    post("a", "good").await.expect(201);
    let seen = peer.seen();
    let review = json::parse(seen[0].body()).unwrap();
    let expected = r#"{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":{"containers":[{"image":"good"}],"namespace":"default"},"status":{"allowed":false}}"#;
    assert_eq!(json::to_string(&review), expected);
    assert_eq!(seen[0].headers()["authorization"], "Bearer ours");
    post("b", "good").await.expect(201);
    assert_eq!(peer.seen().len(), 1, "the answer is remembered");
    let refused = post("c", "bad").await.expect(403);
    let why =
        r#"pods "c" is forbidden: image policy webhook backend denied one or more images: too old"#;
    assert_eq!(refused.message(), why);
    let refused = post("c", "odd").await.expect(403);
    assert_eq!(
        refused.message(),
        r#"pods "c" is forbidden: one or more images rejected by webhook backend"#
    );
}

#[tokio::test]
async fn images_are_rejected_if_their_webhook_fails_unless_that_is_configured() {
    for (more, expected) in [("", 403), (", defaultAllow: true", 201)] {
        let peer = Peer::answering(400, "no").await;
        let rig = judged(&peer, more).await;
        rig.post(PODS, &pod("p", "")).await.expect(expected);
    }
}
