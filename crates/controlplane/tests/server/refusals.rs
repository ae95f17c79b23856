//! Errors of refused writes: tables of verb, kind and wrong input, as v1.36.4 answers them.

use std::fmt::Write as _;

use expect_test::expect;
use mizzen_value::{Value, json};

use crate::crd::{DEFINITIONS, FOOS, foo};
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
        let below = if subresource.is_empty() {
            String::new()
        } else {
            format!("/{subresource}")
        };
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
                format!(
                    "/apis/{}",
                    found.body.at("preferredVersion.groupVersion").str()
                )
            }
        };
        let page = rig.get(&root).await.expect(200).body;
        let row = page["resources"]
            .list()
            .iter()
            .find(|row| row["name"].str() == plural)
            .expect("is served");
        let below = page["resources"].list().iter().filter_map(|row| {
            let tail = row["name"].str().strip_prefix(plural)?.strip_prefix('/')?;
            ["status", "approval"]
                .contains(&tail)
                .then(|| tail.to_owned())
        });
        let placed = if row["namespaced"].bool() {
            "/namespaces/default"
        } else {
            ""
        };
        let text = json::to_string(&objects.list()[0]).replace("$ns", "default");
        let mut object = json::parse(text.as_bytes()).expect("sound JSON");
        object.set(
            "apiVersion",
            root.trim_start_matches("/apis/")
                .trim_start_matches("/api/"),
        );
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

/// The fields of metadata that are refused, in the order of the causes.
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
    reply
        .body
        .at("details.causes")
        .list()
        .iter()
        .map(letter)
        .collect()
}

/// Every kind's own validation repeats a part of what is checked of all. `LAOSLAO` is what is checked of all: labels,
/// annotations, owners and the syntax of finalizers, then what may not change. `F` are names of finalizers, `G` is the
/// prefix of a name.
#[tokio::test]
async fn every_kind_validates_metadata_on_update_in_its_own_way() {
    let rig = Rig::new().await;
    let wrong = r#"{"labels":{"a":"x y"},"finalizers":["x","a b/c"],"generateName":"A_","annotations":{"a b":"1"},
        "ownerReferences":[{"apiVersion":"v1","kind":"","name":"x","uid":"u"}]}"#;
    let wrong = json::parse(wrong.as_bytes()).unwrap();
    let mut found = String::new();
    for sample in samples(&rig).await {
        rig.post(&sample.collection, &json::to_string(&sample.object))
            .await
            .expect(201);
        let stored = rig.get(&sample.path("")).await.expect(200);
        let mut object = sample.object.clone();
        let metadata = object.entry("metadata");
        metadata.set(
            "resourceVersion",
            stored.body.at("metadata.resourceVersion").str(),
        );
        wrong
            .entries()
            .for_each(|(name, value)| metadata.set(name, value.clone()));
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

async fn with_foo() -> Rig {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
        "x-kubernetes-preserve-unknown-fields":true}}}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    rig.post(FOOS, &foo("v1", "a", r#"{"n":1}"#))
        .await
        .expect(201);
    rig
}

#[tokio::test]
async fn warnings_are_sent_with_every_response() {
    let rig = with_foo().await;
    rig.make("a", "").await;
    let config_map = |metadata: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata},"x":1}}"#)
    };
    let one = format!("{CONFIG_MAPS}/a");
    let custom = |version: &str| {
        format!(r#"{{"apiVersion":"{version}","kind":"Foo","metadata":{{"name":"b"}},"x":1}}"#)
    };
    for (method, path, body, code) in [
        (
            "POST",
            CONFIG_MAPS,
            config_map(r#"{"name":"b","namespace":"other"}"#),
            400,
        ),
        ("POST", CONFIG_MAPS, config_map(r#"{"name":"A_"}"#), 422),
        ("POST", CONFIG_MAPS, config_map(r#"{"name":"a"}"#), 409),
        ("PUT", &one, config_map(r#"{"name":"b"}"#), 400),
        (
            "PUT",
            &one,
            config_map(r#"{"name":"a","resourceVersion":"1"}"#),
            409,
        ),
        (
            "PUT",
            &format!("{CONFIG_MAPS}/none"),
            config_map(r#"{"name":"none"}"#),
            404,
        ),
        (
            "PATCH",
            &one,
            r#"{"metadata":{"name":"b"},"x":1}"#.into(),
            400,
        ),
        (
            "STRATEGIC",
            &one,
            r#"{"metadata":{"name":"b"},"x":1}"#.into(),
            400,
        ),
        (
            "JSON",
            &one,
            r#"[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/metadata/name"}]"#
                .into(),
            400,
        ),
        ("PUT", &format!("{FOOS}/a"), custom("example.com/v1"), 400),
    ] {
        let reply = rig.call(method, path, &body).await.expect(code);
        assert_eq!(
            reply.warnings,
            [r#"299 - "unknown field \"x\"""#],
            "{method} {path} {body}"
        );
        let ignored = format!("{path}?fieldValidation=Ignore");
        assert!(
            rig.call(method, &ignored, &body)
                .await
                .expect(code)
                .warnings
                .is_empty()
        );
    }
    // What cannot be decoded at all is not warned of; what is refused as strict is an error and no warning.
    let undecodable = r#"{"metadata":{"name":"b"},"x":1,"data":5}"#;
    assert!(
        rig.post(CONFIG_MAPS, undecodable)
            .await
            .expect(400)
            .warnings
            .is_empty()
    );
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    assert!(
        rig.post(&strict, &config_map("{}"))
            .await
            .expect(400)
            .warnings
            .is_empty()
    );
    // A key that is applied twice is warned of once the rest has been merged.
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{},"data":{},"x":1}"#;
    assert!(
        rig.apply(&one, "m", twice)
            .await
            .expect(500)
            .warnings
            .is_empty()
    );
}

#[tokio::test]
async fn deprecated_versions_have_a_warning_in_every_response() {
    let rig = Rig::new().await;
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let user = || mizzen_apiserver::User::master("admin");
    for (method, path, accept, code, n_warnings) in [
        ("GET", endpoints, "application/json", 200, 1),
        (
            "GET",
            endpoints,
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            406,
            1,
        ),
        (
            "GET",
            &format!("{endpoints}/none"),
            "application/json",
            404,
            1,
        ),
        (
            "GET",
            &format!("{endpoints}?limit=x"),
            "application/json",
            400,
            1,
        ),
        // The router refuses this one.
        ("GET", endpoints, "text/html", 406, 0),
    ] {
        let reply = rig
            .call_as(user(), &[("accept", accept)], method, path, "")
            .await
            .expect(code);
        assert_eq!(reply.warnings.len(), n_warnings, "{method} {path} {accept}");
    }
}

#[tokio::test]
async fn invalid_metadata_of_an_embedded_object_rejects_the_whole_object() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"t":{
        "type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    let labels = r#"{"t":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":1}}}}"#;
    let expected = "Foo in version \"v1\" cannot be handled as a Foo: spec.t.metadata: Invalid value: \
                    {\"labels\":{\"a\":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels \
                    of type string";
    check(
        &rig.post(FOOS, &foo("v1", "a", labels)).await,
        400,
        expected,
    );
}

#[tokio::test]
async fn a_custom_object_is_a_map_before_it_is_of_a_kind() {
    let rig = with_foo().await;
    let unrecognized = |body: &str| {
        let start: String = body.chars().take(30).collect();
        format!(
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in '{body}' ({start} ...)"
        )
    };
    for body in [
        r#"{"apiVersion":"example.com/v1","metadata":{"name":"b"}}"#,
        r#"{"metadata":{"name":"bbbbbbbbbbbbbbbbb"}}"#,
        r#"{"Kind":"Foo","metadata":{"name":"bbbbbbbbbbb"}}"#,
    ] {
        check(&rig.post(FOOS, body).await, 400, &unrecognized(body));
        check(
            &rig.post(&format!("{FOOS}?fieldValidation=Strict"), body)
                .await,
            400,
            &unrecognized(body),
        );
        let ignored = rig
            .post(&format!("{FOOS}?fieldValidation=Ignore"), body)
            .await
            .expect(400);
        let expected = format!(
            "Foo in version \"v1\" cannot be handled as a Foo: Object 'Kind' is missing in '{body}'"
        );
        assert_eq!(ignored.message(), expected);
    }
    for (body, expected) in [
        (
            r#"{"kind":"Bar","metadata":"x"}"#,
            "Bar in version \"\" cannot be handled as a Foo: json: cannot unmarshal string into Go value of type \
             v1.ObjectMeta",
        ),
        (
            r#"{"apiVersion":"v9","kind":"Foo","metadata":{"name":[]}}"#,
            "Foo in version \"v9\" cannot be handled as a Foo: json: cannot unmarshal array into Go struct field \
             ObjectMeta.name of type string",
        ),
        (
            r#"{"apiVersion":"v9","kind":"Foo","metadata":{"name":"b"}}"#,
            "the API version in the data (v9) does not match the expected API version (example.com/v1)",
        ),
        (
            r#"{"kind":"Foo","metadata":{"name":"b"}}"#,
            "the API version in the data () does not match the expected API version (example.com/v1)",
        ),
    ] {
        check(&rig.post(FOOS, body).await, 400, expected);
    }
    // What says that it is of another kind is not pruned, so that its fields are not warned of.
    let other =
        r#"{"apiVersion":"example.com/v1","kind":"Bar","metadata":{"name":"b","y":1},"x":1}"#;
    let reply = rig.post(FOOS, other).await.expect(422);
    assert_eq!(reply.warnings, [r#"299 - "unknown field \"metadata.y\"""#]);
    let strict = rig
        .post(&format!("{FOOS}?fieldValidation=Strict"), other)
        .await;
    let expected = "Bar in version \"v1\" cannot be handled as a Bar: strict decoding error: unknown field \
                    \"metadata.y\"";
    check(&strict, 400, expected);
}

#[tokio::test]
async fn decoding_errors_name_one_of_three_schemes() {
    let rig = Rig::new().await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let no_kind = |kind: &str, version: &str, scheme: &str| {
        format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\"")
    };
    let main = "pkg/api/legacyscheme/scheme.go:30";
    let definitions = "pkg/apiserver/apiserver.go:55";
    let aggregator = "pkg/apiserver/scheme/scheme.go:28";
    for (path, version, kind, expected) in [
        (CONFIG_MAPS, "v1", "Pod", "converting (v1.Pod) to (core.ConfigMap): unknown conversion".into()),
        (
            CONFIG_MAPS,
            "autoscaling/v1",
            "Scale",
            "converting (v1.Scale) to (core.ConfigMap): unknown conversion".into(),
        ),
        (
            CONFIG_MAPS,
            "v1",
            "PodLogOptions",
            "converting (v1.PodLogOptions) to (core.ConfigMap): unknown conversion".into(),
        ),
        (CONFIG_MAPS, "x/v1", "Pod", no_kind("Pod", "x/v1", main)),
        (
            CONFIG_MAPS,
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            no_kind("CustomResourceDefinition", "apiextensions.k8s.io/v1", main),
        ),
        (DEFINITIONS, "v1", "Pod", no_kind("Pod", "v1", definitions)),
        (DEFINITIONS, "v1", "List", no_kind("List", "v1", definitions)),
        (
            DEFINITIONS,
            "5%",
            "CustomResourceDefinition",
            no_kind("CustomResourceDefinition", "5%", definitions),
        ),
        (
            DEFINITIONS,
            "v1",
            "Status",
            "converting (v1.Status) to (apiextensions.CustomResourceDefinition): unknown conversion".into(),
        ),
        (services, "apps/v1", "DeleteOptions", no_kind("DeleteOptions", "apps/v1", aggregator)),
    ] {
        let body = format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"x"}}}}"#);
        let reply = rig.post(path, &body).await.expect(400);
        assert!(reply.message().ends_with(&format!(": {expected}")), "{path} {body}: {}", reply.message());
    }
}

#[tokio::test]
async fn a_patched_object_without_an_api_version_is_rejected() {
    let rig = Rig::new().await;
    rig.make("a", "t").await;
    let path = format!("{CONFIG_MAPS}/a");
    let lost = "the name of the object (a based on URL) was undeterminable: name must be provided";
    for (method, patch) in [
        ("PATCH", r#"{"apiVersion":null}"#),
        ("PATCH", r#"{"apiVersion":""}"#),
        ("JSON", r#"[{"op":"remove","path":"/apiVersion"}]"#),
        (
            "JSON",
            r#"[{"op":"move","path":"/metadata/name","from":"/apiVersion"}]"#,
        ),
    ] {
        let reply = rig.call(method, &path, patch).await;
        check(&reply, 400, lost);
        let expected = [
            r#"299 - "unknown field \"data\"""#,
            r#"299 - "unknown field \"metadata\"""#,
        ];
        assert_eq!(reply.warnings, expected, "{patch}");
        let ignored = rig
            .call(method, &format!("{path}?fieldValidation=Ignore"), patch)
            .await;
        check(&ignored, 400, lost);
        assert!(ignored.warnings.is_empty());
        let strict = rig
            .call(method, &format!("{path}?fieldValidation=Strict"), patch)
            .await
            .expect(422);
        let end = "strict decoding error: unknown field \"data\", unknown field \"metadata\"";
        assert!(strict.message().ends_with(end), "{}", strict.message());
    }
}

#[tokio::test]
async fn a_merge_patch_that_is_not_validated_is_not_decoded_first() {
    let rig = Rig::new().await;
    rig.make("a", "t").await;
    let ignore = format!("{CONFIG_MAPS}/a?fieldValidation=Ignore");
    for patch in ["a: b", "null", "\"x\"", "1", "{}{}", ""] {
        check(&rig.patch(&ignore, patch).await, 400, "Invalid JSON Patch");
    }
    let list = rig.patch(&ignore, "[]").await.expect(422);
    assert!(
        list.message()
            .contains("couldn't get version/kind; json parse error"),
        "{}",
        list.message()
    );
    for patch in ["a: b", "[]", "\"x\""] {
        let reply = rig
            .patch(&format!("{CONFIG_MAPS}/a"), patch)
            .await
            .expect(400);
        assert!(
            reply.message().starts_with("error decoding patch: "),
            "{}",
            reply.message()
        );
    }
}

#[tokio::test]
async fn the_storage_rejects_a_resource_version() {
    let rig = Rig::new().await;
    let body = |name: &str| format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#);
    let refused = rig.post(CONFIG_MAPS, &body("a")).await;
    check(
        &refused,
        500,
        "resourceVersion should not be set on objects to be created",
    );
    rig.post(CONFIG_MAPS, &body("A_")).await.expect(422);
    let dry = rig
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &body("a"))
        .await
        .expect(201);
    assert_eq!(dry.body.at("metadata.resourceVersion").str(), "1");
}

#[tokio::test]
async fn a_precondition_names_the_key_where_it_is_kept() {
    let rig = Rig::new().await;
    for (path, body, key) in [
        (CONFIG_MAPS, "", "/configmaps/default/a"),
        (
            "/api/v1/namespaces/default/endpoints",
            "",
            "/services/endpoints/default/a",
        ),
        ("/api/v1/nodes", "", "/minions/a"),
        (
            "/api/v1/namespaces/default/services",
            r#","spec":{"ports":[{"port":80}]}"#,
            "/services/specs/default/a",
        ),
    ] {
        rig.post(path, &format!(r#"{{"metadata":{{"name":"a"}}{body}}}"#))
            .await
            .expect(201);
        let other = format!(r#"{{"metadata":{{"name":"a","uid":"zz"}}{body}}}"#);
        for (query, root) in [("", "/registry"), ("?dryRun=All", "")] {
            let reply = rig
                .put(&format!("{path}/a{query}"), &other)
                .await
                .expect(409);
            let expected = format!("Code: 4, Key: {root}{key}, ResourceVersion: 0,");
            assert!(reply.message().contains(&expected), "{}", reply.message());
        }
    }
}

#[tokio::test]
async fn an_object_is_identified_before_its_resource_version() {
    let rig = Rig::new().await;
    let root = "/apis/node.k8s.io/v1/runtimeclasses";
    rig.post(root, r#"{"metadata":{"name":"a"},"handler":"h"}"#)
        .await
        .expect(201);
    for (metadata, code) in [
        (r#""uid":"zz""#, 409),
        (r#""uid":"zz","resourceVersion":"abc""#, 409),
        (r#""resourceVersion":"abc""#, 500),
        (r#""labels":{}"#, 422),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"a",{metadata}}},"handler":"h"}}"#);
        rig.put(&format!("{root}/a"), &body).await.expect(code);
    }
}

#[tokio::test]
async fn bytes_may_be_a_list_of_numbers() {
    let rig = Rig::new().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |data: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"generateName":"s"}},"data":{{"a":{data}}}}}"#
        )
    };
    for (data, stored) in [
        ("[]", ""),
        ("[97,98]", "YWI="),
        ("[0,255]", "AP8="),
        ("[null]", "AA=="),
    ] {
        let made = rig.post(secrets, &secret(data)).await.expect(201);
        assert_eq!(made.body["data"]["a"].str(), stored, "{data}");
    }
    for (data, found) in [
        ("[256]", "number 256"),
        ("[\"x\"]", "string"),
        ("[-1]", "number -1"),
    ] {
        let refused = rig.post(secrets, &secret(data)).await.expect(400);
        let expected = format!(
            "json: cannot unmarshal {found} into Go struct field Secret.data of type uint8"
        );
        assert!(
            refused.message().ends_with(&expected),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn a_default_is_not_of_a_type_that_does_not_exist() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","properties":{"n":{"type":"x","default":3}}}}}]}}"#;
    let refused = rig.post(DEFINITIONS, definition).await.expect(422);
    let expected = r#"CustomResourceDefinition.apiextensions.k8s.io "foos.example.com" is invalid: [spec.validation.openAPIV3Schema.properties[n].default: Invalid value: "integer":  in body must be of type x: "integer", spec.validation.openAPIV3Schema.properties[n].type: Unsupported value: "x": supported values: "array", "boolean", "integer", "number", "object", "string"]"#;
    assert_eq!(refused.message(), expected);
}

#[tokio::test]
async fn an_object_that_an_update_creates_keeps_its_metadata() {
    let rig = Rig::new().await;
    let lease = r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":5,"selfLink":"/x"}}"#;
    let made = rig
        .put(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
            lease,
        )
        .await
        .expect(201);
    assert_eq!(made.body.at("metadata.deletionGracePeriodSeconds").int(), 5);
    assert!(
        made.body.at("metadata.selfLink").is_null(),
        "it is not stored"
    );
    let dry = r#"{"metadata":{"name":"b","resourceVersion":"7"}}"#;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/b?dryRun=All";
    assert_eq!(rig.put(path, dry).await.expect(201).version(), 7);
    let applied = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","deletionGracePeriodSeconds":5}}"#;
    let made = rig
        .apply(&format!("{CONFIG_MAPS}/a"), "m", applied)
        .await
        .expect(201);
    assert_eq!(made.body.at("metadata.deletionGracePeriodSeconds").int(), 5);
    let posted = rig
        .post(CONFIG_MAPS, &applied.replace("\"a\"", "\"b\""))
        .await
        .expect(201);
    assert!(
        posted
            .body
            .at("metadata.deletionGracePeriodSeconds")
            .is_null()
    );
}

#[tokio::test]
async fn a_job_has_the_labels_of_its_template_after_every_write() {
    let rig = Rig::new().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{"template":{"spec":{
        "restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let made = rig.post(jobs, job).await.expect(201);
    let labels = made.body.at("metadata.labels");
    assert!(!labels.is_empty());
    let put = rig.put(&format!("{jobs}/a/status"), job).await.expect(200);
    assert_eq!(put.body.at("metadata.labels"), labels);
    let patched = rig
        .patch(&format!("{jobs}/a"), r#"{"metadata":{"labels":null}}"#)
        .await
        .expect(200);
    assert_eq!(patched.body.at("metadata.labels"), labels);
}

#[tokio::test]
async fn a_name_conflict_with_generate_name_mentions_generation() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"a","generateName":"b-"}}"#;
    rig.post(CONFIG_MAPS, body).await.expect(201);
    let expected = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
    let refused = rig.post(CONFIG_MAPS, body).await;
    check(&refused, 409, expected);
    assert_eq!(refused.body.at("details.retryAfterSeconds").int(), 1);
}

#[tokio::test]
async fn a_patched_scale_is_shown_with_its_owners() {
    let rig = Rig::new().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = r#"{"metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{
        "metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    rig.post(sets, set).await.expect(201);
    let refused = rig
        .patch(&format!("{sets}/a/scale"), r#"{"kind":"Pod"}"#)
        .await
        .expect(422);
    assert!(
        refused
            .message()
            .contains(r#"\"f:spec\":{\"f:replicas\":{}}"#),
        "{}",
        refused.message()
    );
    let scaled = rig
        .patch(&format!("{sets}/a/scale"), r#"{"spec":{"replicas":2}}"#)
        .await
        .expect(200);
    assert!(scaled.body.at("metadata.managedFields").is_null());
    assert_eq!(
        rig.get(&format!("{sets}/a"))
            .await
            .body
            .at("spec.replicas")
            .int(),
        2
    );
}

#[tokio::test]
async fn an_ip_address_is_named_after_its_address() {
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
    let causes: Vec<&str> = refused
        .body
        .at("details.causes")
        .list()
        .iter()
        .map(|cause| cause["field"].str())
        .collect();
    assert_eq!(causes, ["metadata.generateName", "metadata.name"]);
}

#[tokio::test]
async fn field_labels_are_those_of_the_kind() {
    let rig = Rig::new().await;
    for (path, label, code) in [
        ("/api/v1/namespaces", "metadata.namespace", 400),
        ("/api/v1/nodes", "metadata.namespace", 400),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "metadata.namespace",
            400,
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "metadata.namespace",
            400,
        ),
        ("/api/v1/persistentvolumes", "metadata.namespace", 200),
        ("/api/v1/pods", "metadata.namespace", 200),
        ("/api/v1/nodes", "metadata.name", 200),
        ("/api/v1/nodes", "spec.unschedulable", 200),
    ] {
        let reply = rig.get(&format!("{path}?fieldSelector={label}%3Dx")).await;
        assert_eq!(reply.status, code, "{path} {label}: {}", reply.message());
    }
}

#[tokio::test]
async fn events_are_read_without_a_cache() {
    let rig = Rig::new().await;
    let events = "/api/v1/namespaces/default/events";
    for name in ["a", "b"] {
        let body = format!(
            r#"{{"metadata":{{"name":"{name}"}},"involvedObject":{{"namespace":"default"}}}}"#
        );
        rig.post(events, &body).await.expect(201);
        rig.make(name, "").await;
    }
    assert_eq!(
        rig.get(&format!("{events}?limit=1&resourceVersion=0"))
            .await
            .names(),
        ["a"]
    );
    assert_eq!(
        rig.get(&format!("{CONFIG_MAPS}?limit=1&resourceVersion=0"))
            .await
            .names(),
        ["a", "b"]
    );
    let problem = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    let reply = rig.get(&format!("{events}/a?resourceVersion=abc")).await;
    check(&reply, 400, &format!("invalid resource version: {problem}"));
    check(
        &rig.get(&format!("{CONFIG_MAPS}/a?resourceVersion=abc"))
            .await,
        500,
        problem,
    );
}

#[tokio::test]
async fn a_dry_run_create_reports_that_the_object_is_being_deleted() {
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
    rig.delete(&format!("{CONFIG_MAPS}/a"), "")
        .await
        .expect(200);
    for query in ["", "?dryRun=All"] {
        let expected = "object is being deleted: configmaps \"a\" already exists";
        check(
            &rig.post(&format!("{CONFIG_MAPS}{query}"), body).await,
            409,
            expected,
        );
    }
}

/// Kubernetes: pkg/registry/core/limitrange names an object that has neither a name nor a prefix; no other kind does.
#[tokio::test]
async fn a_limit_range_without_a_name_is_named_by_a_uuid() {
    let rig = Rig::new().await;
    let path = "/api/v1/namespaces/default/limitranges";
    let made = rig.post(path, r#"{"metadata":{}}"#).await.expect(201).body;
    let (name, uid) = (
        made.at("metadata.name").str(),
        made.at("metadata.uid").str(),
    );
    assert_eq!((name.len(), name.matches('-').count()), (36, 4), "{name}");
    assert_ne!(name, uid);
    rig.get(&format!("{path}/{name}")).await.expect(200);
    let prefixed = rig
        .post(path, r#"{"metadata":{"generateName":"lr-"}}"#)
        .await
        .expect(201);
    assert_eq!(
        prefixed.body.at("metadata.name").str().len(),
        "lr-12345".len()
    );
    let invalid = r#"{"metadata":{},"spec":{"limits":[{"type":"x","max":{"cpu":"1"}}]}}"#;
    let refused = rig.post(path, invalid).await.expect(422);
    let name = refused.body.at("details.name").str();
    assert_eq!(
        refused.message(),
        format!(
            "LimitRange {name:?} is invalid: spec.limits[0].type: Invalid value: \"x\": must be a standard limit type or fully qualified"
        )
    );
    assert_eq!(name.len(), 36);
    rig.post(CONFIG_MAPS, r#"{"metadata":{}}"#)
        .await
        .expect(422);
}

#[tokio::test]
async fn bytes_that_are_null_in_a_map_are_empty_when_they_are_stored() {
    let rig = Rig::new().await;
    let path = "/api/v1/namespaces/default/secrets";
    let body = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"k":null}}"#;
    let made = rig.post(path, body).await.expect(201).body;
    assert_eq!(json::to_string(&made["data"]), r#"{"k":""}"#);
    let name = format!("{path}/s");
    rig.delete(&name, "").await.expect(200);
    let applied = rig.apply(&name, "m", body).await.expect(201).body;
    assert_eq!(json::to_string(&applied["data"]), r#"{"k":""}"#);
}

#[tokio::test(start_paused = true)]
async fn a_resource_version_with_a_continue_token_is_rejected_before_the_wait() {
    let rig = Rig::new().await;
    // {"v":"meta.k8s.io/v1","rv":1099511627776,"start":"x"}
    let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTA5OTUxMTYyNzc3Niwic3RhcnQiOiJ4In0";
    let path = format!("{CONFIG_MAPS}?continue={token}");
    rig.get(&path).await.expect(504);
    rig.get(&format!("{path}&resourceVersion=0"))
        .await
        .expect(504);
    for version in ["5", "x"] {
        let refused = rig
            .get(&format!("{path}&resourceVersion={version}"))
            .await
            .expect(400);
        assert_eq!(
            refused.message(),
            "specifying resource version is not allowed when using continue"
        );
    }
}
