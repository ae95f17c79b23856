//! What is told of a write that is refused: tables of verb, kind and wrong input, as v1.36.4 answers them.

use std::fmt::Write as _;

use expect_test::expect;
use mizzen_object::{Value, json};

use crate::rig::{CONFIG_MAPS, Reply, Rig};

#[track_caller]
fn check(reply: &Reply, code: u16, message: &str) {
    assert_eq!((reply.status, reply.message()), (code, message));
}

const TEMPLATES: &str = include_str!("../../../../tools/templates.json");

/// A kind that the server lists, with an object of it.
struct Sample {
    group: String,
    kind: String,
    collection: String,
    subresources: Vec<String>,
    object: Value,
}

impl Sample {
    fn name(&self) -> &str {
        self.object.at("metadata.name").str()
    }

    fn path(&self, subresource: &str) -> String {
        let below = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        format!("{}/{}{below}", self.collection, self.name())
    }
}

/// A sample of every built-in kind that there is a template of.
async fn samples(rig: &Rig) -> Vec<Sample> {
    let templates = json::parse(TEMPLATES.as_bytes()).expect("sound JSON");
    let mut samples = Vec::new();
    for (key, objects) in templates["objects"].entries() {
        let (plural, group) = key.split_once('.').unwrap_or((key, ""));
        if group.ends_with("example.com") {
            continue;
        }
        let root = match group {
            "" => "/api/v1".to_string(),
            group => {
                let found = rig.get(&format!("/apis/{group}")).await.expect(200);
                format!("/apis/{}", found.body.at("preferredVersion.groupVersion").str())
            }
        };
        let page = rig.get(&root).await.expect(200).body;
        let row = page["resources"].list().iter().find(|row| row["name"].str() == plural).expect("is served");
        let below = page["resources"].list().iter().filter_map(|row| {
            let tail = row["name"].str().strip_prefix(plural)?.strip_prefix('/')?;
            ["status", "approval"].contains(&tail).then(|| tail.to_owned())
        });
        let placed = if row["namespaced"].bool() { "/namespaces/default" } else { "" };
        let text = json::to_string(&objects.list()[0]).replace("$ns", "default");
        let mut object = json::parse(text.as_bytes()).expect("sound JSON");
        object.set("apiVersion", root.trim_start_matches("/apis/").trim_start_matches("/api/"));
        object.set("kind", row["kind"].str());
        if object.at("metadata.name").is_empty() {
            object.entry("metadata").set("name", "sample");
        }
        samples.push(Sample {
            group: group.into(),
            kind: row["kind"].str().into(),
            collection: format!("{root}{placed}/{plural}"),
            subresources: below.collect(),
            object,
        });
    }
    samples.sort_by(|a, b| (&a.group, &a.kind).cmp(&(&b.group, &b.kind)));
    samples
}

/// The fields of metadata that are refused, in the order in which that is told.
fn refused_fields(reply: &Reply) -> String {
    if reply.status != 422 {
        return reply.status.to_string();
    }
    let letter = |cause: &Value| match cause["field"].str() {
        "metadata.labels" => "L",
        "metadata.annotations" => "A",
        "metadata.ownerReferences.kind" => "O",
        "metadata.finalizers" => "S",
        "metadata.finalizers[0]" => "F",
        "metadata.generateName" => "G",
        _ => "-",
    };
    reply.body.at("details.causes").list().iter().map(letter).collect()
}

/// Every kind's own validation repeats a part of what is checked of all. `LAOSLAO` is what is checked of all: labels,
/// annotations, owners and the syntax of finalizers, then what may not change. `F` are names of finalizers, `G` is the
/// prefix of a name.
#[tokio::test]
async fn every_kind_judges_metadata_on_update_in_its_own_way() {
    let rig = Rig::new().await;
    let wrong = r#"{"labels":{"a":"x y"},"finalizers":["x","a b/c"],"generateName":"A_","annotations":{"a b":"1"},
        "ownerReferences":[{"apiVersion":"v1","kind":"","name":"x","uid":"u"}]}"#;
    let wrong = json::parse(wrong.as_bytes()).unwrap();
    let mut found = String::new();
    for sample in samples(&rig).await {
        let made = rig.post(&sample.collection, &json::to_string(&sample.object)).await.expect(201);
        let mut object = sample.object.clone();
        let metadata = object.entry("metadata");
        metadata.set("resourceVersion", made.body.at("metadata.resourceVersion").str());
        wrong.entries().for_each(|(name, value)| metadata.set(name, value.clone()));
        let places = std::iter::once("").chain(sample.subresources.iter().map(String::as_str));
        for subresource in places {
            let path = format!("{}?dryRun=All", sample.path(subresource));
            let reply = rig.put(&path, &json::to_string(&object)).await;
            let name = format!("{}/{} {subresource}", sample.group, sample.kind);
            writeln!(found, "{}: {}", name.trim_end(), refused_fields(&reply)).unwrap();
        }
        rig.delete(&sample.path(""), "").await.expect(200);
    }
    expect![[r#"
        /ConfigMap: LAOSLAOLAOFGLAOSF
        /Endpoints: LAOSLAOLAOFGLAOSF
        /Event: LAOSLAO
        /LimitRange: LAOSLAOGLAOSF
        /Node: LAOSLAOGLAOSFLAOF
        /Node status: LAOSLAOLAOF
        /PersistentVolume: LAOSLAOGLAOSFGLAOSF
        /PersistentVolume status: LAOSLAOLAOF
        /PersistentVolumeClaim: LAOSLAOLAOFGLAOSF
        /PersistentVolumeClaim status: LAOSLAOLAOF
        /Pod: LAOSLAOLAOFGLAOSF
        /Pod status: LASLALAF
        /PodTemplate: LAOSLAOLAOF
        /ReplicationController: LAOSLAOLAOF
        /ReplicationController status: LAOSLAOLAOF
        /ResourceQuota: LAOSLAOLAOF
        /ResourceQuota status: LAOSLAOLAOF
        /Secret: LAOSLAOLAOFGLAOSF
        /Service: LAOSLAOLAOF
        /Service status: LAOSLAOLAOF
        /ServiceAccount: LAOSLAOLAOFGLAOSF
        admissionregistration.k8s.io/MutatingAdmissionPolicy: LAOSLAOGLAOS
        admissionregistration.k8s.io/MutatingAdmissionPolicyBinding: LAOSLAOGLAOS
        admissionregistration.k8s.io/MutatingWebhookConfiguration: LAOSLAOGLAOS
        admissionregistration.k8s.io/ValidatingAdmissionPolicy: LAOSLAOGLAOS
        admissionregistration.k8s.io/ValidatingAdmissionPolicy status: 200
        admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding: LAOSLAOGLAOS
        admissionregistration.k8s.io/ValidatingWebhookConfiguration: LAOSLAOGLAOS
        apiextensions.k8s.io/CustomResourceDefinition: LAOSLAOLAO
        apiextensions.k8s.io/CustomResourceDefinition status: LAOSLAOLAO
        apps/ControllerRevision: LAOSLAOLAOFGLAOSF
        apps/DaemonSet: LAOSLAOLAOF
        apps/DaemonSet status: LAOSLAOLAOF
        apps/Deployment: LAOSLAOLAOF
        apps/Deployment status: AOSAOAOF
        apps/ReplicaSet: LAOSLAOLAOF
        apps/ReplicaSet status: LAOSLAOLAOF
        apps/StatefulSet: LAOSLAOLAOF
        apps/StatefulSet status: LAOSLAOLAOF
        autoscaling/HorizontalPodAutoscaler: LAOSLAOLAOF
        autoscaling/HorizontalPodAutoscaler status: LAOSLAOLAOF
        batch/CronJob: LAOSLAOLAOF
        batch/CronJob status: LAOSLAO
        batch/Job: LAOSLAOGLAOSF--LAOF----
        batch/Job status: LAOSLAOLAOF
        certificates.k8s.io/CertificateSigningRequest: LAOSLAOLAOSFLAOF
        certificates.k8s.io/CertificateSigningRequest approval: LAOSLAOLAOSFLAOF
        certificates.k8s.io/CertificateSigningRequest status: LAOSLAOLAOSFLAOF
        coordination.k8s.io/Lease: LAOSLAOLAO
        discovery.k8s.io/EndpointSlice: LAOSLAOGLAOSF
        flowcontrol.apiserver.k8s.io/FlowSchema: LAOSLAOGLAOSF
        flowcontrol.apiserver.k8s.io/FlowSchema status: 200
        flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration: LAOSLAOGLAOSF
        flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration status: 200
        networking.k8s.io/IPAddress: LAOSLAOGLAOSFLAOF
        networking.k8s.io/Ingress: LAOSLAOLAOFGLAOSF
        networking.k8s.io/Ingress status: LAOSLAOLAOF
        networking.k8s.io/IngressClass: LAOSLAOLAOFGLAOSF
        networking.k8s.io/NetworkPolicy: LAOSLAOLAOF
        networking.k8s.io/ServiceCIDR: LAOSLAOLAOF
        networking.k8s.io/ServiceCIDR status: 200
        node.k8s.io/RuntimeClass: LAOSLAOGLAOSLAO
        policy/PodDisruptionBudget: LAOSLAO
        policy/PodDisruptionBudget status: LAOSLAO
        rbac.authorization.k8s.io/ClusterRole: LAOSLAOLAOSFLAOF
        rbac.authorization.k8s.io/ClusterRoleBinding: LAOSLAOLAOSFLAOF
        rbac.authorization.k8s.io/Role: LAOSLAOLAOSFLAOF
        rbac.authorization.k8s.io/RoleBinding: LAOSLAOLAOSFLAOF
        resource.k8s.io/DeviceClass: LAOSLAOLAOSFLAOF
        resource.k8s.io/ResourceClaim: LAOSLAOGLAOSFLAOF
        resource.k8s.io/ResourceClaim status: 200
        resource.k8s.io/ResourceClaimTemplate: LAOSLAOGLAOSFLAOF
        resource.k8s.io/ResourceSlice: LAOSLAOLAOF
        scheduling.k8s.io/PriorityClass: LAOSLAOLAOF
        storage.k8s.io/CSIDriver: LAOSLAOLAOF
        storage.k8s.io/CSINode: LAOSLAOGLAOSF
        storage.k8s.io/CSIStorageCapacity: LAOSLAOGLAOSFLAOF
        storage.k8s.io/StorageClass: LAOSLAOGLAOSFLAOF
        storage.k8s.io/VolumeAttachment: LAOSLAOGLAOSF
        storage.k8s.io/VolumeAttachment status: G
        storage.k8s.io/VolumeAttributesClass: LAOSLAOLAOFGLAOSF
    "#]]
    .assert_eq(&found);
}

#[tokio::test]
async fn a_version_is_for_the_storage_to_refuse() {
    let rig = Rig::new().await;
    let body = |name: &str| format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#);
    let refused = rig.post(CONFIG_MAPS, &body("a")).await;
    check(&refused, 500, "resourceVersion should not be set on objects to be created");
    rig.post(CONFIG_MAPS, &body("A_")).await.expect(422);
    let dry = rig.post(&format!("{CONFIG_MAPS}?dryRun=All"), &body("a")).await.expect(201);
    assert_eq!(dry.body.at("metadata.resourceVersion").str(), "1");
}

#[tokio::test]
async fn a_precondition_names_the_key_where_it_is_kept() {
    let rig = Rig::new().await;
    for (path, body, key) in [
        (CONFIG_MAPS, "", "/configmaps/default/a"),
        ("/api/v1/namespaces/default/endpoints", "", "/services/endpoints/default/a"),
        ("/api/v1/nodes", "", "/minions/a"),
        (
            "/api/v1/namespaces/default/services",
            r#","spec":{"ports":[{"port":80}]}"#,
            "/services/specs/default/a",
        ),
    ] {
        rig.post(path, &format!(r#"{{"metadata":{{"name":"a"}}{body}}}"#)).await.expect(201);
        let other = format!(r#"{{"metadata":{{"name":"a","uid":"zz"}}{body}}}"#);
        for (query, root) in [("", "/registry"), ("?dryRun=All", "")] {
            let reply = rig.put(&format!("{path}/a{query}"), &other).await.expect(409);
            let expected = format!("Code: 4, Key: {root}{key}, ResourceVersion: 0,");
            assert!(reply.message().contains(&expected), "{}", reply.message());
        }
    }
}

#[tokio::test]
async fn an_address_is_the_name_of_itself() {
    let rig = Rig::new().await;
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let body = |name: &str| {
        format!(
            r#"{{"metadata":{{"generateName":"{name}"}},"spec":{{"parentRef":{{"resource":"services","name":"x"}}}}}}"#
        )
    };
    let made = rig.post(addresses, &body("192.0.2.7")).await.expect(201);
    assert_eq!(made.body.at("metadata.name").str(), "192.0.2.7");
    let refused = rig.post(addresses, &body("gen-")).await.expect(422);
    let causes: Vec<&str> =
        refused.body.at("details.causes").list().iter().map(|cause| cause["field"].str()).collect();
    assert_eq!(causes, ["metadata.generateName", "metadata.name"]);
}

#[tokio::test]
async fn events_are_read_without_a_cache() {
    let rig = Rig::new().await;
    let events = "/api/v1/namespaces/default/events";
    for name in ["a", "b"] {
        let body =
            format!(r#"{{"metadata":{{"name":"{name}"}},"involvedObject":{{"namespace":"default"}}}}"#);
        rig.post(events, &body).await.expect(201);
        rig.make(name, "").await;
    }
    assert_eq!(rig.get(&format!("{events}?limit=1&resourceVersion=0")).await.names(), ["a"]);
    assert_eq!(rig.get(&format!("{CONFIG_MAPS}?limit=1&resourceVersion=0")).await.names(), ["a", "b"]);
    let problem =
        "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    let reply = rig.get(&format!("{events}/a?resourceVersion=abc")).await;
    check(&reply, 400, &format!("invalid resource version: {problem}"));
    check(&rig.get(&format!("{CONFIG_MAPS}/a?resourceVersion=abc")).await, 500, problem);
}

#[tokio::test]
async fn a_dry_run_says_that_what_is_there_is_being_deleted() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"a","finalizers":["example.com/x"]}}"#;
    rig.post(CONFIG_MAPS, body).await.expect(201);
    for query in ["", "?dryRun=All"] {
        check(
            &rig.post(&format!("{CONFIG_MAPS}{query}"), body).await,
            409,
            "configmaps \"a\" already exists",
        );
    }
    rig.delete(&format!("{CONFIG_MAPS}/a"), "").await.expect(200);
    for query in ["", "?dryRun=All"] {
        let expected = "object is being deleted: configmaps \"a\" already exists";
        check(&rig.post(&format!("{CONFIG_MAPS}{query}"), body).await, 409, expected);
    }
}
