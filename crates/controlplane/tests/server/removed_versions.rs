//! Every kind of every removed version, through every verb: `--legacy-apis` serves them as they were.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::BodyExt;
use mizzen_apiserver::User;
use mizzen_controlplane::Options;
use mizzen_kinds::{legacy_catalog, legacy_kinds};
use mizzen_object::Kind;
use mizzen_value::{Value, json};

use crate::rig::Rig;

/// An object of a removed version.
struct Case {
    /// Version and kind.
    kind: &'static str,
    /// All of the object but version, kind and metadata.
    rest: &'static str,
    /// A field that the version fills in, and its value.
    default: (&'static str, &'static str),
    /// The same object in the version that is left: a field, and its value.
    stored: (&'static str, &'static str),
}

const fn case(
    kind: &'static str,
    rest: &'static str,
    default: (&'static str, &'static str),
    stored: (&'static str, &'static str),
) -> Case {
    Case {
        kind,
        rest,
        default,
        stored,
    }
}

const WORKLOAD: &str = r#""spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
/// Versions before apps/v1beta2 take the selector from the template.
const UNSELECTED: &str = r#""spec":{"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
const REVISION: &str = r#""data":{"a":1},"revision":1"#;
const LEVEL: &str = r#""spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}"#;
const SCHEMA: &str = r#""spec":{"priorityLevelConfiguration":{"name":"global-default"}}"#;
const SELECTOR: (&str, &str) = ("spec.selector", r#"{"matchLabels":{"app":"a"}}"#);
/// A request for a certificate, empty inside.
const REQUEST: &str = r#""spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUFZd0FEQUFBd0E9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="}"#;

const CASES: &[Case] = &[
    case(
        "apps/v1beta1 ControllerRevision",
        REVISION,
        ("revision", "1"),
        ("data", r#"{"a":1}"#),
    ),
    case(
        "apps/v1beta1 Deployment",
        UNSELECTED,
        ("spec.revisionHistoryLimit", "2"),
        SELECTOR,
    ),
    case(
        "apps/v1beta1 StatefulSet",
        UNSELECTED,
        ("spec.updateStrategy", r#"{"type":"OnDelete"}"#),
        SELECTOR,
    ),
    case(
        "apps/v1beta2 ControllerRevision",
        REVISION,
        ("revision", "1"),
        ("data", r#"{"a":1}"#),
    ),
    case(
        "apps/v1beta2 DaemonSet",
        WORKLOAD,
        ("spec.updateStrategy.type", r#""RollingUpdate""#),
        SELECTOR,
    ),
    case(
        "apps/v1beta2 Deployment",
        WORKLOAD,
        ("spec.revisionHistoryLimit", "10"),
        SELECTOR,
    ),
    case(
        "apps/v1beta2 ReplicaSet",
        WORKLOAD,
        ("spec.replicas", "1"),
        SELECTOR,
    ),
    case(
        "apps/v1beta2 StatefulSet",
        WORKLOAD,
        ("spec.updateStrategy.type", r#""RollingUpdate""#),
        SELECTOR,
    ),
    case(
        "autoscaling/v2beta1 HorizontalPodAutoscaler",
        r#""spec":{"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"maxReplicas":3}"#,
        (
            "spec.metrics",
            r#"[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":80}}]"#,
        ),
        (
            "spec.metrics",
            r#"[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]"#,
        ),
    ),
    case(
        "autoscaling/v2beta2 HorizontalPodAutoscaler",
        r#""spec":{"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"},"maxReplicas":3}"#,
        ("spec.minReplicas", "1"),
        (
            "spec.metrics",
            r#"[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]"#,
        ),
    ),
    case(
        "certificates.k8s.io/v1beta1 CertificateSigningRequest",
        REQUEST,
        ("spec.signerName", r#""kubernetes.io/legacy-unknown""#),
        ("spec.usages", r#"["digital signature","key encipherment"]"#),
    ),
    case(
        "coordination.k8s.io/v1beta1 Lease",
        r#""spec":{"holderIdentity":"me"}"#,
        ("spec.holderIdentity", r#""me""#),
        ("spec.holderIdentity", r#""me""#),
    ),
    case(
        "discovery.k8s.io/v1beta1 EndpointSlice",
        r#""addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"topology":{"topology.kubernetes.io/zone":"z","rack":"7"}}],"ports":[{"port":80}]"#,
        ("ports", r#"[{"name":"","protocol":"TCP","port":80}]"#),
        (
            "endpoints",
            r#"[{"addresses":["10.0.0.1"],"conditions":{},"deprecatedTopology":{"rack":"7"},"zone":"z"}]"#,
        ),
    ),
    case(
        "events.k8s.io/v1beta1 Event",
        r#""note":"n","regarding":{"kind":"Pod","namespace":"default"}"#,
        ("regarding.kind", r#""Pod""#),
        ("message", r#""n""#),
    ),
    case(
        "extensions/v1beta1 DaemonSet",
        UNSELECTED,
        ("spec.templateGeneration", "1"),
        SELECTOR,
    ),
    case(
        "extensions/v1beta1 Deployment",
        UNSELECTED,
        ("spec.progressDeadlineSeconds", "2147483647"),
        SELECTOR,
    ),
    case(
        "extensions/v1beta1 Ingress",
        r#""spec":{"rules":[{"http":{"paths":[{"backend":{"serviceName":"s","servicePort":80}}]}}]}"#,
        (
            "spec.rules.0.http.paths.0.pathType",
            r#""ImplementationSpecific""#,
        ),
        (
            "spec.rules.0.http.paths.0.backend",
            r#"{"service":{"name":"s","port":{"number":80}}}"#,
        ),
    ),
    case(
        "extensions/v1beta1 NetworkPolicy",
        r#""spec":{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}"#,
        ("spec.policyTypes", r#"["Ingress"]"#),
        (
            "spec.ingress",
            r#"[{"ports":[{"protocol":"TCP","port":80}]}]"#,
        ),
    ),
    case(
        "extensions/v1beta1 ReplicaSet",
        UNSELECTED,
        ("metadata.labels.app", r#""a""#),
        SELECTOR,
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema",
        SCHEMA,
        ("spec.matchingPrecedence", "1000"),
        ("spec.matchingPrecedence", "1000"),
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta1 PriorityLevelConfiguration",
        LEVEL,
        ("spec.limited.assuredConcurrencyShares", "30"),
        ("spec.limited.nominalConcurrencyShares", "30"),
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema",
        SCHEMA,
        ("spec.matchingPrecedence", "1000"),
        ("spec.matchingPrecedence", "1000"),
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta2 PriorityLevelConfiguration",
        LEVEL,
        ("spec.limited.assuredConcurrencyShares", "30"),
        ("spec.limited.nominalConcurrencyShares", "30"),
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema",
        SCHEMA,
        ("spec.matchingPrecedence", "1000"),
        ("spec.matchingPrecedence", "1000"),
    ),
    case(
        "flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration",
        LEVEL,
        ("spec.limited.nominalConcurrencyShares", "30"),
        ("spec.limited.nominalConcurrencyShares", "30"),
    ),
    case(
        "node.k8s.io/v1beta1 RuntimeClass",
        r#""handler":"h""#,
        ("handler", r#""h""#),
        ("handler", r#""h""#),
    ),
    case(
        "scheduling.k8s.io/v1beta1 PriorityClass",
        r#""value":10"#,
        ("preemptionPolicy", r#""PreemptLowerPriority""#),
        ("value", "10"),
    ),
    case(
        "storage.k8s.io/v1beta1 CSIDriver",
        r#""spec":{}"#,
        ("spec.volumeLifecycleModes", r#"["Persistent"]"#),
        ("spec.attachRequired", "true"),
    ),
    case(
        "storage.k8s.io/v1beta1 CSINode",
        r#""spec":{"drivers":[]}"#,
        ("spec.drivers", "null"),
        ("spec.drivers", "null"),
    ),
    case(
        "storage.k8s.io/v1beta1 CSIStorageCapacity",
        r#""storageClassName":"s""#,
        ("storageClassName", r#""s""#),
        ("storageClassName", r#""s""#),
    ),
    case(
        "storage.k8s.io/v1beta1 StorageClass",
        r#""provisioner":"p""#,
        ("volumeBindingMode", r#""Immediate""#),
        ("reclaimPolicy", r#""Delete""#),
    ),
    case(
        "storage.k8s.io/v1beta1 VolumeAttachment",
        r#""spec":{"attacher":"a","nodeName":"n","source":{"persistentVolumeName":"v"}}"#,
        ("spec.attacher", r#""a""#),
        ("status.attached", "false"),
    ),
    case(
        "storage.k8s.io/v1beta1 VolumeAttributesClass",
        r#""driverName":"d","parameters":{"a":"b"}"#,
        ("driverName", r#""d""#),
        ("parameters", r#"{"a":"b"}"#),
    ),
];

/// The groups whose removed versions `legacy.rs` and kubectl's tests are about.
const ELSEWHERE: [&str; 7] = [
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

fn find(kind: &str) -> Kind {
    let kinds = legacy_catalog().kinds;
    let is_it = |it: &Kind| format!("{} {}", it.gvk.api_version(), it.gvk.kind) == kind;
    kinds
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{kind} exists"))
}

/// Where objects of a kind are.
fn collection(kind: &Kind) -> String {
    let root = if kind.gvk.group.is_empty() {
        "/api/v1".into()
    } else {
        format!("/apis/{}", kind.gvk.api_version())
    };
    let namespace = if kind.is_namespaced() {
        "/namespaces/default"
    } else {
        ""
    };
    format!("{root}{namespace}/{}", kind.plural)
}

/// What a dotted path leads to, through lists as well.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(value, |value, name| match name.parse::<usize>() {
            Ok(index) => value.list().get(index).unwrap_or(&Value::Null),
            Err(_) => &value[name],
        })
}

#[track_caller]
fn check(kind: &str, object: &Value, (path, expected): (&str, &str)) {
    assert_eq!(json::to_string(at(object, path)), expected, "{kind} {path}");
}

impl Case {
    fn old(&self) -> Kind {
        find(self.kind)
    }

    fn hub(&self) -> Kind {
        let stored = self.old().stored.clone().expect("a version that is left");
        find(&format!("{} {}", stored.api_version(), stored.kind))
    }

    /// The object with a name, as a client sends it.
    fn body(&self) -> String {
        let (version, kind) = self.kind.split_once(' ').expect("version and kind");
        let metadata = if self.old().is_namespaced() {
            r#""name":"a","namespace":"default""#
        } else {
            r#""name":"a""#
        };
        format!(
            r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{{metadata}}},{}}}"#,
            self.rest
        )
    }
}

#[test]
fn every_removed_version_has_a_case() {
    let covered: BTreeSet<String> = CASES.iter().map(|case| case.kind.to_string()).collect();
    let is_kept = |kind: &str| find(kind).list_kind.is_some();
    let removed = legacy_kinds()
        .iter()
        .filter(|kind| !ELSEWHERE.contains(&kind.group));
    let removed = removed.map(|it| format!("{}/{} {}", it.group, it.version, it.kind));
    assert_eq!(covered, removed.filter(|kind| is_kept(kind)).collect());
}

#[tokio::test]
async fn an_object_of_a_removed_version_is_served_in_the_current_version() {
    let rig = legacy().await;
    for case in CASES {
        let (old, hub) = (case.old(), case.hub());
        let made = rig.post(&collection(&old), &case.body()).await.expect(201);
        assert!(
            made.warnings[0].contains(" is deprecated in v1."),
            "{}: {:?}",
            case.kind,
            made.warnings
        );
        assert_eq!(made.body["apiVersion"].str(), old.gvk.api_version());
        check(case.kind, &made.body, case.default);
        let path = format!("{}/a", collection(&hub));
        let stored = rig.get(&path).await.expect(200);
        assert_eq!(
            (stored.version(), stored.warnings.len()),
            (made.version(), 0),
            "{}",
            case.kind
        );
        check(case.kind, &stored.body, case.stored);
        // Another version of the same kind is next.
        rig.delete(&path, "").await.expect(200);
        rig.patch(&path, r#"{"metadata":{"finalizers":null}}"#)
            .await;
        rig.get(&format!("{}/a", collection(&old)))
            .await
            .expect(404);
    }
}

#[tokio::test]
async fn an_object_of_a_removed_version_can_be_written_in_every_way() {
    let rig = legacy().await;
    for case in CASES {
        let old = case.old();
        let all = collection(&old);
        let one = format!("{all}/a");
        rig.post(&all, &case.body()).await.expect(201);
        rig.patch(&one, r#"{"metadata":{"labels":{"merge":"1"}}}"#)
            .await
            .expect(200);
        rig.call(
            "STRATEGIC",
            &one,
            r#"{"metadata":{"labels":{"strategic":"1"}}}"#,
        )
        .await
        .expect(200);
        rig.call(
            "JSON",
            &one,
            r#"[{"op":"add","path":"/metadata/labels/json","value":"1"}]"#,
        )
        .await
        .expect(200);
        let mut config = json::parse(case.body().as_bytes()).unwrap();
        config.entry("metadata").entry("labels").set("apply", "1");
        let path = format!("{one}?force=true&fieldManager=me");
        let applied = rig
            .call("APPLY", &path, &json::to_string(&config))
            .await
            .expect(200);
        let owners = applied.body.at("metadata.managedFields").list();
        let mine = owners
            .iter()
            .find(|owner| owner["manager"].str() == "me")
            .expect("an owner");
        assert_eq!(
            mine["apiVersion"].str(),
            old.gvk.api_version(),
            "{}",
            case.kind
        );
        let mut sent = applied.body.clone();
        sent.entry("metadata").entry("labels").set("put", "1");
        let put = rig.put(&one, &json::to_string(&sent)).await.expect(200);
        let labels = put.body.at("metadata.labels");
        for label in ["merge", "strategic", "json", "apply", "put"] {
            assert_eq!(labels[label].str(), "1", "{} {label}", case.kind);
        }
        check(case.kind, &put.body, case.default);
        if old.has_status() {
            rig.patch(
                &format!("{one}/status"),
                r#"{"metadata":{"annotations":{"a":"b"}}}"#,
            )
            .await
            .expect(200);
        }
        rig.delete(&one, "").await.expect(200);
        rig.patch(&one, r#"{"metadata":{"finalizers":null}}"#).await;
        rig.get(&one).await.expect(404);
    }
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn an_object_of_a_removed_version_is_listed_watched_and_shown() {
    let rig = legacy().await;
    for case in CASES {
        let (old, hub) = (case.old(), case.hub());
        let all = collection(&old);
        let made = rig.post(&all, &case.body()).await.expect(201);
        let selected = format!("{all}?fieldSelector=metadata.name%3Da");
        let list = rig.get(&selected).await.expect(200);
        assert_eq!(
            list.body["kind"].str(),
            old.list_kind.as_deref().unwrap_or_default()
        );
        assert_eq!(list.body["apiVersion"].str(), old.gvk.api_version());
        check(case.kind, &list.body["items"].list()[0], case.default);
        let mut events = rig.watch(&format!("{selected}&watch=1")).await;
        let event = events.next().await.expect("an event");
        assert_eq!(event.at("object.apiVersion").str(), old.gvk.api_version());
        check(case.kind, &event["object"], case.default);

        let tables =
            [&all, &collection(&hub)].map(|all| format!("{all}?fieldSelector=metadata.name%3Da"));
        let admin = || User::master("admin");
        let table = |path: String| {
            let rig = &rig;
            async move {
                rig.call_as(admin(), &[("accept", TABLE)], "GET", &path, "")
                    .await
                    .expect(200)
                    .body
            }
        };
        let [of_old, of_hub] = tables;
        let (of_old, of_hub) = (table(of_old).await, table(of_hub).await);
        assert_eq!(
            of_old["columnDefinitions"], of_hub["columnDefinitions"],
            "{}",
            case.kind
        );
        assert_eq!(
            of_old["rows"].list()[0]["cells"],
            of_hub["rows"].list()[0]["cells"],
            "{}",
            case.kind
        );

        let one = format!("{all}/a");
        let message = protobuf(&rig, Method::GET, &one, Bytes::new()).await;
        assert!(message.starts_with(b"k8s\0"), "{}", case.kind);
        protobuf(&rig, Method::PUT, &one, message).await;
        let same = rig.get(&one).await.expect(200);
        assert_eq!(
            same.version(),
            made.version(),
            "{}: what comes back changes nothing",
            case.kind
        );
        rig.delete(&one, "").await.expect(200);
        rig.patch(&one, r#"{"metadata":{"finalizers":null}}"#).await;
    }
}

async fn protobuf(rig: &Rig, method: Method, path: &str, body: Bytes) -> Bytes {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, PROTOBUF.parse().unwrap());
    headers.insert(header::CONTENT_TYPE, PROTOBUF.parse().unwrap());
    let answer = rig
        .server
        .call(
            Some(User::master("admin")),
            method,
            path.parse().unwrap(),
            headers,
            body,
        )
        .await;
    assert_eq!(answer.status(), 200, "{path}");
    answer
        .into_body()
        .collect()
        .await
        .expect("no failure")
        .to_bytes()
}

#[tokio::test]
async fn a_removed_version_is_in_discovery_and_in_openapi() {
    let rig = legacy().await;
    for case in CASES {
        let old = case.old();
        let version = old.gvk.api_version();
        let resources = rig.get(&format!("/apis/{version}")).await.expect(200);
        let listed = resources.body["resources"]
            .list()
            .iter()
            .any(|it| it["name"].str() == old.plural);
        assert!(listed, "{}", case.kind);
        let document = rig
            .get(&format!("/openapi/v3/apis/{version}"))
            .await
            .expect(200);
        let package = old.gvk.group.split('.').next().unwrap_or_default();
        let definition = format!("io.k8s.api.{package}.{}.{}", old.gvk.version, old.gvk.kind);
        assert!(
            !document.body["components"]["schemas"][definition.as_str()].is_null(),
            "{definition}"
        );
    }
    let preferred = |group: &'static str| {
        let rig = &rig;
        async move {
            rig.get(&format!("/apis/{group}")).await.expect(200).body["preferredVersion"]["version"]
                .clone()
        }
    };
    assert_eq!(preferred("apps").await.str(), "v1");
    assert_eq!(preferred("autoscaling").await.str(), "v2");
    assert_eq!(preferred("extensions").await.str(), "v1beta1");
    // Clients that look for a kind by its short name find the version that is left first.
    let groups = rig.get("/apis").await.expect(200);
    let names: Vec<_> = groups.body["groups"]
        .list()
        .iter()
        .map(|group| group["name"].str())
        .collect();
    let position = |name: &str| names.iter().position(|it| *it == name).expect("a group");
    assert!(
        position("apps") < position("extensions")
            && position("networking.k8s.io") < position("extensions")
    );
}

const V1BETA1: &str = "/apis/apps/v1beta1/namespaces/default/deployments";

async fn deployment(rig: &Rig) {
    let case = CASES
        .iter()
        .find(|case| case.kind == "apps/v1beta1 Deployment")
        .expect("a case");
    rig.post(V1BETA1, &case.body()).await.expect(201);
}

#[tokio::test]
async fn a_workload_has_the_scale_of_its_version() {
    let rig = legacy().await;
    deployment(&rig).await;
    for version in ["apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"] {
        let path = format!("/apis/{version}/namespaces/default/deployments/a/scale");
        let scale = rig.get(&path).await.expect(200);
        assert_eq!(
            (scale.body["apiVersion"].str(), scale.body["kind"].str()),
            (version, "Scale")
        );
        let status = r#"{"replicas":0,"selector":{"app":"a"},"targetSelector":"app=a"}"#;
        assert_eq!(json::to_string(&scale.body["status"]), status);
        let mut wanted = scale.body.clone();
        wanted.entry("spec").set("replicas", 4);
        let scaled = rig.put(&path, &json::to_string(&wanted)).await.expect(200);
        assert_eq!(
            (
                scaled.body["apiVersion"].str(),
                scaled.body.at("spec.replicas").int()
            ),
            (version, 4)
        );
        let patched = rig
            .patch(&path, r#"{"spec":{"replicas":5}}"#)
            .await
            .expect(200);
        assert_eq!(patched.body.at("spec.replicas").int(), 5);
        let config = format!(
            r#"{{"apiVersion":"{version}","kind":"Scale","metadata":{{"name":"a"}},"spec":{{"replicas":6}}}}"#
        );
        let applied = rig
            .call("APPLY", &format!("{path}?fieldManager=me&force=1"), &config)
            .await
            .expect(200);
        assert_eq!(applied.body.at("spec.replicas").int(), 6);
    }
    let deployment = rig
        .get("/apis/apps/v1/namespaces/default/deployments/a")
        .await
        .expect(200);
    assert_eq!(deployment.body.at("spec.replicas").int(), 6);
    let current = rig
        .get("/apis/apps/v1/namespaces/default/deployments/a/scale")
        .await
        .expect(200);
    assert_eq!(current.body["apiVersion"].str(), "autoscaling/v1");
    assert_eq!(current.body.at("status.selector").str(), "app=a");
}

#[tokio::test]
async fn a_rollback_is_requested_of_the_controller() {
    let rig = legacy().await;
    deployment(&rig).await;
    let rollback = |name: &str, revision: i64| {
        format!(
            r#"{{"kind":"DeploymentRollback","apiVersion":"apps/v1beta1","name":"{name}","updatedAnnotations":{{"why":"bad"}},"rollbackTo":{{"revision":{revision}}}}}"#
        )
    };
    let path = format!("{V1BETA1}/a/rollback");
    let wrong = rig.post(&path, &rollback("b", 3)).await.expect(400);
    assert_eq!(
        wrong.message(),
        "name in URL does not match name in DeploymentRollback object"
    );
    let refused = rig.post(&path, &rollback("a", -1)).await.expect(422);
    assert!(
        refused
            .message()
            .contains("rollback.version: Invalid value: -1"),
        "{}",
        refused.message()
    );
    rig.post(&format!("{V1BETA1}/none/rollback"), &rollback("none", 1))
        .await
        .expect(404);
    rig.post(&format!("{path}?dryRun=All"), &rollback("a", 3))
        .await
        .expect(201);
    let before = rig.get(&format!("{V1BETA1}/a")).await.expect(200);
    assert!(before.body.at("spec.rollbackTo").is_null());
    let accepted = rig.post(&path, &rollback("a", 3)).await.expect(201);
    assert_eq!(
        accepted.message(),
        "rollback request for deployment \"a\" succeeded"
    );
    let old = rig.get(&format!("{V1BETA1}/a")).await.expect(200);
    assert_eq!(old.body.at("spec.rollbackTo.revision").int(), 3);
    let new = rig
        .get("/apis/apps/v1/namespaces/default/deployments/a")
        .await
        .expect(200);
    let annotations = &new.body["metadata"]["annotations"];
    assert_eq!(annotations["deprecated.deployment.rollback.to"].str(), "3");
    assert_eq!(annotations["why"].str(), "bad");
    rig.post(
        "/apis/apps/v1/namespaces/default/deployments/a/rollback",
        &rollback("a", 3),
    )
    .await
    .expect(404);
}

#[tokio::test]
async fn a_workload_of_a_removed_version_leaves_its_dependents_alone() {
    let rig = legacy().await;
    for case in CASES
        .iter()
        .filter(|case| case.rest == UNSELECTED || case.rest == WORKLOAD)
    {
        for (kind, orphans) in [(case.old(), true), (case.hub(), false)] {
            rig.post(&collection(&case.old()), &case.body())
                .await
                .expect(201);
            let path = format!("{}/a", collection(&kind));
            rig.delete(&path, "").await.expect(200);
            let left = rig.get(&path).await;
            assert_eq!(left.status == 200, orphans, "{} {path}", case.kind);
            if orphans {
                assert_eq!(
                    left.body.at("metadata.finalizers").list(),
                    ["orphan".into()],
                    "{}",
                    case.kind
                );
                rig.patch(&path, r#"{"metadata":{"finalizers":null}}"#)
                    .await
                    .expect(200);
            }
        }
    }
}

#[tokio::test]
async fn an_attachment_of_v1beta1_has_no_status_of_its_own() {
    let rig = legacy().await;
    let case = CASES
        .iter()
        .find(|case| case.kind.ends_with(" VolumeAttachment"))
        .expect("a case");
    let body = case
        .body()
        .replace(r#""spec":"#, r#""status":{"attached":true},"spec":"#);
    let made = rig.post(&collection(&case.old()), &body).await.expect(201);
    assert!(made.body.at("status.attached").bool());
    let path = format!("{}/a", collection(&case.old()));
    let detached = rig
        .patch(&path, r#"{"status":{"attached":false}}"#)
        .await
        .expect(200);
    assert!(!detached.body.at("status.attached").bool());
    rig.get(&format!("{path}/status")).await.expect(404);
    let path = format!("{}/a", collection(&case.hub()));
    let kept = rig
        .patch(&path, r#"{"status":{"attached":true}}"#)
        .await
        .expect(200);
    assert!(!kept.body.at("status.attached").bool());
}

#[tokio::test]
async fn a_template_of_a_removed_version_is_checked_for_pod_security() {
    let rig = legacy().await;
    let namespace = r#"{"metadata":{"name":"strict","labels":{"pod-security.kubernetes.io/warn":"restricted"}}}"#;
    rig.post("/api/v1/namespaces", namespace).await.expect(201);
    let cases = CASES
        .iter()
        .filter(|case| case.rest == UNSELECTED || case.rest == WORKLOAD);
    for case in cases {
        let old = case.old();
        let path = collection(&old).replace("/default/", "/strict/");
        let made = rig
            .post(&path, &case.body().replace("default", "strict"))
            .await
            .expect(201);
        let warned = made
            .warnings
            .iter()
            .any(|warning| warning.contains("would violate PodSecurity"));
        assert!(warned, "{}: {:?}", case.kind, made.warnings);
        rig.delete(&format!("{path}/a?propagationPolicy=Background"), "")
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_request_of_v1beta1_is_approved_in_its_version() {
    let rig = legacy().await;
    let case = CASES
        .iter()
        .find(|case| case.kind.ends_with("CertificateSigningRequest"))
        .expect("a case");
    let path = format!("{}/a", collection(&case.old()));
    let mut request = rig
        .post(&collection(&case.old()), &case.body())
        .await
        .expect(201)
        .body;
    let approved = json::parse(br#"[{"type":"Approved","reason":"r","message":"m"}]"#).unwrap();
    request.entry("status").set("conditions", approved);
    rig.put(&format!("{path}/approval"), &json::to_string(&request))
        .await
        .expect(200);
    let stored = rig
        .get("/apis/certificates.k8s.io/v1/certificatesigningrequests/a")
        .await
        .expect(200);
    let condition = &stored.body["status"]["conditions"].list()[0];
    assert_eq!(
        (condition["type"].str(), condition["status"].str()),
        ("Approved", "True")
    );
    // A status that forgets the decision does not undo it.
    let status = r#"{"status":{"conditions":[{"type":"Failed","status":"True"}]}}"#;
    let kept = rig
        .patch(&format!("{path}/status"), status)
        .await
        .expect(200);
    let types: Vec<_> = kept.body["status"]["conditions"]
        .list()
        .iter()
        .map(|it| it["type"].str())
        .collect();
    assert_eq!(types, ["Approved"]);
}

#[tokio::test]
async fn reviews_of_v1beta1_are_answered_as_those_of_v1() {
    let rig = legacy().await;
    let review = |kind: &str, spec: &str| {
        format!(r#"{{"apiVersion":"authorization.k8s.io/v1beta1","kind":"{kind}","spec":{spec}}}"#)
    };
    let authorization = "/apis/authorization.k8s.io/v1beta1";
    let attributes =
        r#""resourceAttributes":{"verb":"get","resource":"pods","namespace":"default"}"#;
    let spec = format!(r#"{{{attributes},"group":["system:masters"]}}"#);
    let path = format!("{authorization}/subjectaccessreviews");
    let allowed = rig
        .post(&path, &review("SubjectAccessReview", &spec))
        .await
        .expect(201);
    assert!(
        allowed.body.at("status.allowed").bool(),
        "{:?}",
        allowed.body
    );
    assert_eq!(
        allowed.body.at("spec.group").list(),
        ["system:masters".into()]
    );
    assert!(
        allowed.warnings[0].contains("use authorization.k8s.io/v1 SubjectAccessReview"),
        "{:?}",
        allowed.warnings
    );
    let spec = format!(r#"{{{attributes},"group":["nobody"]}}"#);
    let denied = rig
        .post(&path, &review("SubjectAccessReview", &spec))
        .await
        .expect(201);
    assert!(!denied.body.at("status.allowed").bool());
    rig.post(
        &path,
        &review("SubjectAccessReview", &format!("{{{attributes}}}")),
    )
    .await
    .expect(422);
    let local = format!("{authorization}/namespaces/default/localsubjectaccessreviews");
    let spec = format!(r#"{{{attributes},"group":["system:masters"]}}"#);
    let allowed = rig
        .post(&local, &review("LocalSubjectAccessReview", &spec))
        .await
        .expect(201);
    assert!(allowed.body.at("status.allowed").bool());
    let own = format!("{authorization}/selfsubjectaccessreviews");
    let allowed = rig
        .post(
            &own,
            &review("SelfSubjectAccessReview", &format!("{{{attributes}}}")),
        )
        .await
        .expect(201);
    assert!(allowed.body.at("status.allowed").bool());
    let rules = format!("{authorization}/selfsubjectrulesreviews");
    let found = rig
        .post(
            &rules,
            &review("SelfSubjectRulesReview", r#"{"namespace":"default"}"#),
        )
        .await
        .expect(201);
    assert_eq!(
        found.body["apiVersion"].str(),
        "authorization.k8s.io/v1beta1"
    );

    let authentication = "/apis/authentication.k8s.io/v1beta1";
    let token = r#"{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","spec":{"token":"x"}}"#;
    let reviewed = rig
        .post(&format!("{authentication}/tokenreviews"), token)
        .await
        .expect(201);
    assert!(!reviewed.body.at("status.authenticated").bool());
    let myself = r#"{"apiVersion":"authentication.k8s.io/v1beta1","kind":"SelfSubjectReview"}"#;
    let who = rig
        .post(&format!("{authentication}/selfsubjectreviews"), myself)
        .await
        .expect(201);
    assert_eq!(who.body.at("status.userInfo.username").str(), "admin");
}

const HINT: &str =
    "is not served; start the server with --legacy-apis to serve removed API versions\"";

#[tokio::test]
async fn a_client_that_looks_for_a_removed_version_gets_a_hint() {
    let plain = Rig::new().await;
    for kind in legacy_kinds() {
        let version = format!("{}/{}", kind.group, kind.version);
        let expected = [format!("299 - \"{version} {HINT}")];
        assert_eq!(
            plain
                .get(&format!("/apis/{version}"))
                .await
                .expect(404)
                .warnings,
            expected
        );
        let objects = format!("/apis/{version}/namespaces/default/things");
        assert_eq!(plain.get(&objects).await.expect(404).warnings, expected);
    }
    let group = plain.get("/apis/extensions").await.expect(404);
    assert_eq!(
        group.warnings,
        [format!("299 - \"extensions/v1beta1 {HINT}")]
    );
    let legacy = legacy().await;
    let none = legacy
        .get("/apis/extensions/v1beta1/namespaces/default/things")
        .await
        .expect(404);
    assert_eq!(none.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn ordinary_requests_get_no_hint() {
    let plain = Rig::new().await;
    let kubectl = [("user-agent", "kubectl/v1.36.4 (linux/amd64)")];
    for path in [
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/apps/v1/namespaces/default/deployments",
        "/openapi/v3",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=500",
    ] {
        let reply = plain
            .call_as(User::master("admin"), &kubectl, "GET", path, "")
            .await
            .expect(200);
        assert_eq!(reply.warnings, Vec::<String>::new(), "{path}");
    }
    for path in [
        "/apis/nope",
        "/apis/apps/nope",
        "/apis/apps/v1/namespaces/default/deployments/none",
    ] {
        assert_eq!(
            plain.get(path).await.expect(404).warnings,
            Vec::<String>::new(),
            "{path}"
        );
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(
        plain.get(definitions).await.expect(200).warnings,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn kubectl_gets_a_hint_when_it_does_not_know_the_version_of_a_manifest() {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (rig, hints) in [(Rig::new().await, 1), (legacy().await, 0)] {
        for agent in ["kubectl/v1.36.4 (linux/amd64)", "Helm/3.18.0"] {
            let admin = User::master("admin");
            let reply = rig
                .call_as(admin, &[("user-agent", agent)], "GET", definitions, "")
                .await
                .expect(200);
            assert_eq!(reply.warnings.len(), hints, "{agent}: {:?}", reply.warnings);
        }
    }
}
