//! Requests whose parts do not fit each other: a body and its path, a patch and its object, a form and what has it.

use mizzen_apiserver::User;

use crate::crd::{DEFINITIONS, FOOS, foo};
use crate::rig::{CONFIG_MAPS, Reply, Rig};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

#[track_caller]
fn check(reply: &Reply, code: u16, message: &str) {
    assert_eq!((reply.status, reply.message()), (code, message));
}

async fn with_foo() -> Rig {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}},
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    rig.post(FOOS, &foo("v1", "a", r#"{"n":1}"#))
        .await
        .expect(201);
    rig
}

#[tokio::test]
async fn duplicate_keys_of_an_apply_follow_field_validation() {
    let rig = Rig::new().await;
    let path = |name: &str, query: &str| format!("{CONFIG_MAPS}/{name}?fieldManager=m{query}");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: \"1\"}\ndata: {b: \"2\"}\n";
    let strict = rig
        .call("APPLY", &path("a", "&fieldValidation=Strict"), yaml)
        .await;
    let expected = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key \
                    \"data\" already set in map";
    check(&strict, 400, expected);
    for (query, warnings) in [
        (
            "",
            vec![r#"299 - "line 5: key \"data\" already set in map""#],
        ),
        (
            "&fieldValidation=Warn",
            vec![r#"299 - "line 5: key \"data\" already set in map""#],
        ),
        ("&fieldValidation=Ignore", vec![]),
    ] {
        let applied = rig
            .call("APPLY", &path("a", &format!("{query}&dryRun=All")), yaml)
            .await
            .expect(201);
        assert_eq!(applied.warnings, warnings, "{query}");
        let data = &applied.body["data"];
        assert_eq!((data["a"].is_null(), data["b"].str()), (true, "2"));
    }
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","a":"2"},"data":{"b":"3"}}"#;
    let applied = rig.call("APPLY", &path("a", ""), json).await.expect(201);
    assert_eq!(applied.warnings.len(), 2, "{:?}", applied.warnings);
    // What the schema does not have is told first.
    let unknown = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{},"data":{},"x":1}"#;
    let refused = rig
        .call("APPLY", &path("a", "&fieldValidation=Strict"), unknown)
        .await;
    let expected = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .x: field not declared in schema";
    check(&refused, 500, expected);
}

#[tokio::test]
async fn a_put_that_creates_ignores_the_resource_version() {
    let rig = Rig::new().await;
    for version in ["0", "1", "999999999"] {
        let body =
            format!(r#"{{"metadata":{{"name":"l{version}","resourceVersion":"{version}"}}}}"#);
        rig.put(&format!("{LEASES}/l{version}"), &body)
            .await
            .expect(201);
    }
    let odd = rig
        .put(
            &format!("{LEASES}/odd"),
            r#"{"metadata":{"name":"odd","resourceVersion":"abc"}}"#,
        )
        .await;
    check(
        &odd,
        500,
        "strconv.ParseUint: parsing \"abc\": invalid syntax",
    );
    let other = rig
        .put(
            &format!("{LEASES}/u"),
            r#"{"metadata":{"name":"u","uid":"xx"}}"#,
        )
        .await
        .expect(409);
    assert!(
        other
            .message()
            .contains("Precondition failed: UID in precondition: xx"),
        "{}",
        other.message()
    );
    let missing = r#"{"metadata":{"name":"none","resourceVersion":"1"}}"#;
    rig.put(&format!("{CONFIG_MAPS}/none"), missing)
        .await
        .expect(404);
}

#[tokio::test]
async fn a_namespace_mismatch_is_reported_before_a_name_mismatch() {
    let rig = with_foo().await;
    rig.make("a", "").await;
    let expected =
        "the namespace of the provided object does not match the namespace sent on the request";
    for metadata in [
        r#"{"name":"a","namespace":"other"}"#,
        r#"{"name":"b","namespace":"other"}"#,
        r#"{"name":null,"namespace":"other"}"#,
    ] {
        let patch = format!(r#"{{"metadata":{metadata}}}"#);
        let own = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#);
        let custom =
            format!(r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{metadata}}}"#);
        let one = format!("{CONFIG_MAPS}/a");
        check(&rig.put(&one, &own).await, 400, expected);
        check(&rig.patch(&one, &patch).await, 400, expected);
        check(&rig.call("STRATEGIC", &one, &patch).await, 400, expected);
        check(&rig.apply(&one, "m", &own).await, 400, expected);
        check(&rig.put(&format!("{FOOS}/a"), &custom).await, 400, expected);
        check(
            &rig.patch(&format!("{FOOS}/a"), &patch).await,
            400,
            expected,
        );
        check(
            &rig.patch(&format!("{FOOS}/a/scale"), &patch).await,
            400,
            expected,
        );
    }
    let named = "the name of the object (b) does not match the name on the URL (a)";
    check(
        &rig.patch(&format!("{CONFIG_MAPS}/a"), r#"{"metadata":{"name":"b"}}"#)
            .await,
        400,
        named,
    );
    let gone = "the name of the object (a based on URL) was undeterminable: name must be provided";
    for path in [format!("{CONFIG_MAPS}/a"), format!("{FOOS}/a")] {
        check(&rig.patch(&path, r#"{"metadata":null}"#).await, 400, gone);
        let kept = rig
            .patch(&path, r#"{"metadata":{"namespace":null}}"#)
            .await
            .expect(200);
        assert_eq!(kept.body.at("metadata.namespace").str(), "default");
    }
    // What is in no namespace forgets one.
    let made = rig
        .post(
            "/api/v1/namespaces",
            r#"{"metadata":{"name":"n","namespace":"other"}}"#,
        )
        .await
        .expect(201);
    assert!(made.body.at("metadata.namespace").is_null());
    rig.patch(
        "/api/v1/namespaces/n",
        r#"{"metadata":{"namespace":"other"}}"#,
    )
    .await
    .expect(200);
}

async fn table(rig: &Rig, method: &str, path: &str, body: &str) -> Reply {
    rig.call_as(
        User::master("admin"),
        &[("accept", TABLE)],
        method,
        path,
        body,
    )
    .await
}

#[tokio::test]
async fn include_object_of_a_table_is_validated_when_there_is_a_row() {
    let rig = with_foo().await;
    rig.make("a", "").await;
    let expected = "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": must be 'Metadata', \
                    'Object', 'None', or empty";
    for collection in [CONFIG_MAPS, FOOS] {
        for path in [collection, &format!("{collection}/a")] {
            check(
                &table(&rig, "GET", &format!("{path}?includeObject=x"), "").await,
                400,
                expected,
            );
            for good in ["", "None", "Metadata", "Object"] {
                table(&rig, "GET", &format!("{path}?includeObject={good}"), "")
                    .await
                    .expect(200);
            }
        }
        check(
            &table(
                &rig,
                "GET",
                &format!("{collection}?watch=1&includeObject=x"),
                "",
            )
            .await,
            400,
            expected,
        );
        table(
            &rig,
            "GET",
            &format!("{collection}/none?includeObject=x"),
            "",
        )
        .await
        .expect(404);
        // A client that wants no table has includeObject ignored.
        rig.get(&format!("{collection}/a?includeObject=x"))
            .await
            .expect(200);
    }
    let version = table(
        &rig,
        "GET",
        &format!("{CONFIG_MAPS}?includeObject=x&resourceVersion=abc"),
        "",
    )
    .await;
    assert!(
        version
            .expect(400)
            .message()
            .starts_with("invalid resource version")
    );
    let made = table(
        &rig,
        "POST",
        &format!("{CONFIG_MAPS}?includeObject=x"),
        r#"{"metadata":{"name":"b"}}"#,
    )
    .await;
    check(&made, 400, expected);
    rig.get(&format!("{CONFIG_MAPS}/b")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_where_an_object_cannot_be_rendered_as_a_list() {
    let rig = with_foo().await;
    rig.make("a", "").await;
    let accept = [(
        "accept",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    )];
    let admin = || User::master("admin");
    for collection in [CONFIG_MAPS, FOOS] {
        let began = tokio::time::Instant::now();
        let path = format!("{collection}?watch=1&timeoutSeconds=10");
        let reply = rig
            .call_as(admin(), &accept, "GET", &path, "")
            .await
            .expect(200);
        assert_eq!(
            (reply.body.str(), began.elapsed().as_secs()),
            ("", 0),
            "{collection}"
        );
    }
    let nothing = "/api/v1/namespaces/none/configmaps?watch=1&timeoutSeconds=1";
    let reply = rig
        .call_as(admin(), &accept, "GET", nothing, "")
        .await
        .expect(200);
    assert_eq!(reply.body.str(), "");
    let yaml = [("accept", "application/yaml")];
    let refused = rig
        .call_as(admin(), &yaml, "GET", &format!("{CONFIG_MAPS}?watch=1"), "")
        .await
        .expect(406);
    let expected =
        "application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch";
    assert!(
        refused.body.str().contains(expected),
        "{}",
        refused.body.str()
    );
}

#[tokio::test]
async fn a_patch_cannot_change_the_kind_of_a_custom_resource() {
    let rig = with_foo().await;
    let path = format!("{FOOS}/a");
    for (patch, code, expected) in [
        (
            r#"{"apiVersion":"example.com/v2"}"#,
            422,
            "Foo.example.com \"a\" is invalid: apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
        ),
        (
            r#"{"apiVersion":"other/v1"}"#,
            422,
            "Foo.other \"a\" is invalid: apiVersion: Invalid value: \"other/v1\": must be example.com/v1",
        ),
        (
            r#"{"apiVersion":"v1"}"#,
            422,
            "Foo \"a\" is invalid: apiVersion: Invalid value: \"v1\": must be example.com/v1",
        ),
        (
            r#"{"apiVersion":null}"#,
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            r#"{"kind":"Bar"}"#,
            422,
            "Bar.example.com \"a\" is invalid: kind: Invalid value: \"Bar\": must be Foo",
        ),
    ] {
        check(&rig.patch(&path, patch).await, code, expected);
    }
    for (patch, expected) in [
        (
            r#"{"apiVersion":"a/b/c"}"#,
            "unexpected GroupVersion string: a/b/c",
        ),
        (
            r#"{"apiVersion":5}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field \
             .apiVersion of type string",
        ),
        (
            r#"{"kind":5}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of \
             type string",
        ),
    ] {
        for path in [&path, &format!("{path}/scale")] {
            let refused = rig.patch(path, patch).await.expect(422);
            let (message, end) = (refused.message(), format!(": {expected}"));
            assert!(
                message.starts_with(" \"\" is invalid: patch:") && message.ends_with(&end),
                "{message}"
            );
        }
    }
    assert_eq!(rig.get(&path).await.body.at("metadata.generation").int(), 1);
}

#[tokio::test]
async fn a_patch_cannot_change_the_kind_of_a_scale() {
    let rig = with_foo().await;
    let path = format!("{FOOS}/a/scale");
    for (patch, expected) in [
        (
            r#"{"kind":"Pod"}"#,
            "no kind \"Pod\" is registered for version \"autoscaling/v1\" in scheme \"k8s.io/client-go/scale/util.go:146\"",
        ),
        (
            r#"{"apiVersion":"v1"}"#,
            "no kind \"Scale\" is registered for version \"v1\" in scheme \"k8s.io/client-go/scale/util.go:146\"",
        ),
        (
            r#"{"apiVersion":"apps/v1beta1"}"#,
            "converting (v1beta1.Scale) to (v1.Scale): unknown conversion",
        ),
        (
            r#"{"spec":{"replicas":"x"}}"#,
            "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32",
        ),
    ] {
        let refused = rig.patch(&path, patch).await.expect(422);
        assert!(
            refused.message().ends_with(&format!(": {expected}")),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn documents_of_go_restful_allow_only_get_and_other_documents_every_method() {
    let rig = Rig::new().await;
    for method in ["GET", "POST", "PUT", "DELETE"] {
        for path in ["/api", "/api/v1", "/apis/apps/v1", "/version"] {
            let reply = rig.call(method, path, "").await;
            assert_eq!(
                reply.status,
                if method == "GET" { 200 } else { 405 },
                "{method} {path}"
            );
        }
        for path in [
            "/",
            "/apis",
            "/apis/apps",
            "/openapi/v3",
            "/healthz",
            "/metrics",
        ] {
            rig.call(method, path, "").await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_collection_is_deleted_as_it_was_at_the_version_that_is_given() {
    let rig = Rig::new().await;
    let first = rig.make("a", "").await.version();
    rig.make("b", "").await;
    // The version is a precondition of every object, too.
    rig.delete(&format!("{CONFIG_MAPS}?resourceVersion={first}"), "")
        .await
        .expect(200);
    assert_eq!(rig.get(CONFIG_MAPS).await.names(), ["b"]);
}

#[tokio::test]
async fn aggregated_discovery_is_of_its_one_version() {
    let rig = Rig::new().await;
    let asked = |version: &str| {
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
    };
    let get = async |accept: String| {
        rig.call_as(
            User::master("admin"),
            &[("accept", &accept)],
            "GET",
            "/apis",
            "",
        )
        .await
    };
    assert_eq!(
        get(asked("v2")).await.expect(200).body["apiVersion"].str(),
        "apidiscovery.k8s.io/v2"
    );
    get(asked("v2beta1")).await.expect(406);
    let plain = get(format!("{},application/json", asked("v2beta1")))
        .await
        .expect(200);
    assert_eq!(plain.body["kind"].str(), "APIGroupList");
}

#[tokio::test]
async fn a_new_definition_ignores_its_status() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object"}}}]},
        "status":{"storedVersions":["v0","v2"],"acceptedNames":{"plural":"x","kind":"X"},"conditions":[]}}"#;
    let made = rig
        .post(&format!("{DEFINITIONS}?dryRun=All"), definition)
        .await
        .expect(201);
    let status = &made.body["status"];
    assert_eq!(
        status["storedVersions"].list(),
        [mizzen_value::Value::from("v1")]
    );
    assert_eq!(
        (
            status.at("acceptedNames.plural").str(),
            status["conditions"].is_null()
        ),
        ("", true)
    );
}

#[tokio::test]
async fn a_binding_names_its_pod() {
    let rig = Rig::new().await;
    const PODS: &str = "/api/v1/namespaces/default/pods";
    const BINDINGS: &str = "/api/v1/namespaces/default/bindings";
    rig.post(
        PODS,
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
    )
    .await
    .expect(201);
    let nameless = r#"{"target":{"name":"n"}}"#;
    check(
        &rig.post(BINDINGS, nameless).await,
        400,
        "Name parameter required.",
    );
    check(
        &rig.post(BINDINGS, "{}").await,
        500,
        "target.name: Required value",
    );
    let other = "name in URL does not match name in Binding object";
    check(
        &rig.post(&format!("{PODS}/p/binding"), nameless).await,
        400,
        other,
    );
    let old = r#"{"metadata":{"name":"p","resourceVersion":"1"},"target":{"name":"n"}}"#;
    for path in [BINDINGS, &format!("{PODS}/p/binding")] {
        let refused = rig.post(path, old).await.expect(409);
        let expected = "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: ";
        assert!(
            refused.message().contains(expected),
            "{}",
            refused.message()
        );
    }
    // In the old way, a uid does not count.
    let named = r#"{"metadata":{"name":"p","uid":"x"},"target":{"name":"n"}}"#;
    rig.post(&format!("{PODS}/p/binding"), named)
        .await
        .expect(409);
    rig.post(BINDINGS, named).await.expect(201);
}

#[tokio::test]
async fn a_patched_scale_has_no_preconditions() {
    let rig = with_foo().await;
    let patch = r#"{"metadata":{"uid":"x"},"spec":{"replicas":2,"x":1}}"#;
    let scaled = rig
        .patch(&format!("{FOOS}/a/scale"), patch)
        .await
        .expect(200);
    assert_eq!(
        (scaled.body.at("spec.replicas").int(), scaled.warnings.len()),
        (2, 1)
    );
    let exact = r#"{"metadata":{"name":"a","uid":"x"},"spec":{"replicas":3}}"#;
    rig.put(&format!("{FOOS}/a/scale"), exact).await.expect(409);
    const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
    let set = r#"{"metadata":{"name":"r"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":
        {"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let uid = rig
        .post(SETS, set)
        .await
        .expect(201)
        .body
        .at("metadata.uid")
        .str()
        .to_owned();
    let refused = rig.patch(&format!("{SETS}/r/scale"), patch).await;
    let expected = format!(
        "Operation cannot be fulfilled on replicasets/scale.apps \"r\": Precondition failed: UID in precondition: x, UID \
         in object meta: {uid}"
    );
    check(&refused, 409, &expected);
    assert_eq!(refused.warnings.len(), 1);
}

#[tokio::test]
async fn an_autoscaler_has_policies_or_no_scaling_rules() {
    let rig = Rig::new().await;
    let make = async |version: &str, annotation: &str, behavior: &str| {
        let body = format!(
            r#"{{"metadata":{{"generateName":"h","annotations":{{{annotation}}}}},"spec":{{"maxReplicas":3,"scaleTargetRef":
            {{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}{behavior}}}}}"#
        );
        let path =
            format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
        rig.post(&path, &body).await
    };
    for good in [
        "{}",
        r#"{"scaleUp":{}}"#,
        r#"{"scaleUp":{"policies":null}}"#,
    ] {
        make("v2", "", &format!(r#","behavior":{good}"#))
            .await
            .expect(201);
    }
    let empty = make(
        "v2",
        "",
        r#","behavior":{"scaleUp":{"policies":[]},"scaleDown":{"policies":[]}}"#,
    )
    .await;
    let message = empty.expect(422).message().to_owned();
    for part in [
        "spec.behavior.scaleUp.policies: Required value",
        "spec.behavior.scaleDown.policies: Required value",
    ] {
        assert!(message.contains(part), "{message}");
    }
    for annotation in [r#"{\"ScaleUp\":{}}"#, r#"{\"ScaleUp\":{\"Policies\":[]}}"#] {
        let annotation = format!(r#""autoscaling.alpha.kubernetes.io/behavior":"{annotation}""#);
        let refused = make("v1", &annotation, "").await.expect(422);
        let expected =
            "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
        assert!(
            refused.message().contains(expected),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn labels_are_shown_in_their_order() {
    let rig = Rig::new().await;
    let job = |manual: bool| {
        format!(
            r#"{{"metadata":{{"name":"j"}},"spec":{{"manualSelector":{manual},"selector":{{"matchLabels":{{"z":"1","a":"2"}}}},
            "template":{{"metadata":{{"labels":{{"q":"1","b":"2"}}}},"spec":{{"restartPolicy":"Never","containers":[{{"name":"c",
            "image":"i"}}]}}}}}}}}"#
        )
    };
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    let manual = rig.post(JOBS, &job(true)).await;
    let expected = "Job.batch \"j\" is invalid: spec.template.metadata.labels: Invalid value: {\"b\":\"2\",\"q\":\"1\"}: \
                    `selector` does not match template `labels`";
    check(&manual, 422, expected);
    let generated = rig.post(JOBS, &job(false)).await.expect(422);
    let selector = r#"spec.selector: Invalid value: {"matchLabels":{"a":"2","batch.kubernetes.io/controller-uid":"#;
    let labels = r#"spec.template.metadata.labels: Invalid value: {"b":"2","batch.kubernetes.io/controller-uid":"#;
    for part in [selector, labels] {
        assert!(
            generated.message().contains(part),
            "{}",
            generated.message()
        );
    }
}

#[tokio::test]
async fn nothing_but_the_status_comes_through_the_status_of_a_custom_resource() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    let made = rig.post(FOOS, &foo("v1", "a", "{}")).await.expect(201);
    for patch in [
        r#"{"metadata":{"uid":"x"}}"#,
        r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}"#,
        r#"{"metadata":{"labels":{"a":"b"},"finalizers":["x.io/y"]}}"#,
    ] {
        let patched = rig
            .patch(&format!("{FOOS}/a/status"), patch)
            .await
            .expect(200);
        assert_eq!(patched.body, made.body, "{patch}");
    }
    rig.patch(
        &format!("{FOOS}/a/status"),
        r#"{"metadata":{"resourceVersion":"1"}}"#,
    )
    .await
    .expect(409);
}

/// The code and message of what is there, asked for in a form.
async fn accepted(rig: &Rig, accept: &str, path: &str) -> (u16, String) {
    let reply = rig
        .call_as(
            User::master("admin"),
            &[("accept", accept)],
            "GET",
            path,
            "",
        )
        .await;
    (reply.status, reply.message().to_owned())
}

#[tokio::test]
async fn content_negotiation_fails_in_the_words_of_the_handler_of_a_path() {
    let rig = with_foo().await;
    let json = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for path in ["/api/v1", "/apis/apps/v1", CONFIG_MAPS] {
        let (code, message) = accepted(&rig, "application/*", path).await;
        let expected = format!("406: Not Acceptable\n\nAvailable representations: {json}");
        assert!(
            code == 406 && message.starts_with(&expected),
            "{path}: {message}"
        );
    }
    for path in [
        "/apis",
        "/apis/apps",
        "/apis/example.com",
        "/apis/example.com/v1",
        FOOS,
    ] {
        assert_eq!(accepted(&rig, "application/*", path).await.0, 200, "{path}");
        let expected = (
            406,
            format!("only the following media types are accepted: {json}"),
        );
        assert_eq!(accepted(&rig, "text/html", path).await, expected, "{path}");
        assert_eq!(
            accepted(&rig, "application/json;sv=x", path).await,
            expected,
            "{path}"
        );
    }
    for method in ["POST", "DELETE"] {
        rig.call(method, "/apis/example.com/v1", "")
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_path_that_ends_after_a_verb_has_no_resource() {
    let rig = Rig::new().await;
    for path in ["/api/v1/watch", "/apis/apps/v1/proxy"] {
        let reply = rig.get(path).await.expect(500);
        let expected = format!(
            "Internal Server Error: \"{path}\": failed to create RequestInfo: unable to determine kind and namespace from \
             url, {path}\n"
        );
        assert_eq!(reply.body.str(), expected);
    }
    rig.get("/metrics/").await.expect(404);
    let nothing = rig.send("GET", "/openapi/v3/nothing", "").await;
    assert_eq!(
        (
            nothing.status().as_u16(),
            nothing.headers().get("content-type")
        ),
        (404, None)
    );
}

#[tokio::test]
async fn unsupported_field_labels_are_rejected_in_the_words_of_their_kind() {
    let rig = Rig::new().await;
    for (path, expected) in [
        (
            "/apis/batch/v1/jobs",
            r#"field label "a" not supported for Job"#,
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: a",
        ),
        ("/api/v1/pods", "field label not supported: a"),
    ] {
        let refused = rig
            .get(&format!("{path}?fieldSelector=a%3Db"))
            .await
            .expect(400);
        assert_eq!(refused.message(), expected);
    }
}

#[tokio::test]
async fn deleting_a_missing_job_has_the_same_warning() {
    let rig = Rig::new().await;
    let reply = rig
        .delete("/apis/batch/v1/namespaces/default/jobs/x", "")
        .await
        .expect(404);
    assert_eq!(reply.warnings.len(), 1, "{:?}", reply.warnings);
    let policy = r#"{"propagationPolicy":"Background"}"#;
    let reply = rig
        .delete("/apis/batch/v1/namespaces/default/jobs/x", policy)
        .await
        .expect(404);
    assert!(reply.warnings.is_empty(), "{:?}", reply.warnings);
}

#[tokio::test]
async fn an_invalid_json_patch_follows_field_validation() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let path = |strictness: &str| format!("{CONFIG_MAPS}/a?fieldValidation={strictness}");
    let problem = "invalid character 'a' looking for beginning of value";
    let refused = rig.call("JSON", &path("Ignore"), "a: b").await.expect(400);
    assert_eq!(refused.message(), problem);
    for strictness in ["Warn", "Strict"] {
        let refused = rig
            .call("JSON", &path(strictness), "a: b")
            .await
            .expect(400);
        assert_eq!(
            refused.message(),
            format!("error decoding patch: {problem}")
        );
    }
}

#[tokio::test]
async fn an_applied_version_that_is_no_number_is_an_error_of_the_server() {
    let rig = Rig::new().await;
    let body =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","resourceVersion":"UDP"}}"#;
    let refused = rig
        .apply(&format!("{CONFIG_MAPS}/x"), "m", body)
        .await
        .expect(500);
    assert_eq!(
        refused.message(),
        r#"strconv.ParseUint: parsing "UDP": invalid syntax"#
    );
}

#[tokio::test]
async fn conversion_errors_have_the_full_kind() {
    let rig = Rig::new().await;
    let body =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"binaryData":{"a":"!"}}"#;
    let refused = rig
        .apply(&format!("{CONFIG_MAPS}/x"), "m", body)
        .await
        .expect(500);
    assert!(
        refused.message().starts_with(
            "failed to convert new object (/x; /v1, Kind=ConfigMap) to proper version"
        ),
        "{}",
        refused.message()
    );
    let root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let body = r#"{"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":1}]}}}"#;
    let refused = rig.post(root, body).await.expect(400);
    let field = "NamedRuleWithOperations.spec.matchConstraints.resourceRules.RuleWithOperations.Rule.apiGroups";
    assert!(refused.message().contains(field), "{}", refused.message());
}

#[tokio::test]
async fn a_schema_or_a_boolean_is_read_in_words_of_its_own() {
    let rig = Rig::new().await;
    let definition = |schema: &str| {
        format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"a.b.c"}},
            "spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
        )
    };
    for field in ["additionalItems", "additionalProperties"] {
        for value in ["1", "\"x\"", "[]"] {
            let body = definition(&format!(r#"{{"{field}":{value}}}"#));
            let refused = rig.post(DEFINITIONS, &body).await.expect(400);
            let expected = "CustomResourceDefinition in version \"v1\" cannot be handled as a \
                            CustomResourceDefinition: boolean or JSON schema expected";
            assert_eq!(refused.message(), expected, "{field} {value}");
        }
    }
    // A schema or a list of them takes anything else for nothing.
    rig.post(DEFINITIONS, &definition(r#"{"items":1}"#))
        .await
        .expect(422);
}

#[tokio::test]
async fn an_empty_struct_accepts_any_applied_field() {
    let rig = Rig::new().await;
    let definition = |unknown: &str| {
        format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
            "metadata":{{"name":"foos.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "names":{{"plural":"foos","kind":"Foo"}},"versions":[{{"name":"v1","served":true,"storage":true,
            "schema":{{"openAPIV3Schema":{{"type":"object"}}}},{unknown}}}]}}}}"#
        )
    };
    let path = format!("{DEFINITIONS}/foos.example.com");
    rig.apply(
        &path,
        "m",
        &definition(r#""subresources":{"status":{"x":1}}"#),
    )
    .await
    .expect(201);
    let refused = rig
        .apply(&path, "m", &definition(r#""subresources":{"x":1}"#))
        .await
        .expect(500);
    let expected = ".spec.versions[0].subresources.x: field not declared in schema";
    assert!(
        refused.message().ends_with(expected),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_json_patch_copy_has_sorted_keys() {
    let rig = Rig::new().await;
    let path = "/api/v1/namespaces/default/pods";
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    rig.post(path, pod).await.expect(201);
    // The text of the patched object is shown; in it, what the patch went through is sorted, copies included.
    let patch = r#"[{"op":"copy","from":"/spec/containers","path":"/spec/containers/0/name"}]"#;
    let refused = rig
        .call("JSON", &format!("{path}/p"), patch)
        .await
        .expect(422);
    let message = refused.message();
    assert!(
        message.contains(r#"\"name\":[{\"image\":\"i\""#),
        "{message}"
    );
}

#[tokio::test]
async fn openapi_is_served_in_its_encodings() {
    let rig = Rig::new().await;
    for (accept, expected) in [
        ("", 200),
        ("*/*", 200),
        ("application/*;q=0.5", 200),
        ("text/plain", 406),
        ("APPLICATION/JSON", 406),
    ] {
        let answer = rig
            .send_as(
                User::master("admin"),
                &[("accept", accept)],
                "GET",
                "/openapi/v2",
                "",
            )
            .await;
        assert_eq!(answer.status().as_u16(), expected, "{accept}");
    }
}

#[tokio::test]
async fn the_media_type_of_a_patch_is_checked_before_the_missing_name() {
    let rig = with_foo().await;
    let (path, admin) = (format!("{FOOS}/"), || User::master("admin"));
    let json = [("content-type", "application/json")];
    let unknown = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    let refused = rig.call_as(admin(), &json, "PATCH", &path, "{}").await;
    check(&refused, 415, unknown);
    for method in ["PATCH", "APPLY", "PUT"] {
        check(
            &rig.call(method, &path, "{}").await,
            400,
            "name must be provided",
        );
    }
}

#[tokio::test]
async fn an_invalid_time_is_dropped_where_a_custom_resource_is_applied() {
    let rig = with_foo().await;
    for (name, code) in [("a", 200), ("b", 201)] {
        for field in ["creationTimestamp", "deletionTimestamp"] {
            let body = format!(
                r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}","{field}":"yesterday"}}}}"#
            );
            let path = format!("{FOOS}/{name}");
            let query = format!("{path}?fieldManager=m&force=true&dryRun=All");
            let applied = rig.call("APPLY", &query, &body).await.expect(code);
            let metadata = &applied.body["metadata"];
            assert!(!metadata["creationTimestamp"].is_empty(), "{field}");
            assert!(metadata["deletionTimestamp"].is_null(), "{field}");
        }
    }
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"yesterday"}}"#;
    rig.apply(&format!("{CONFIG_MAPS}/a"), "m", body)
        .await
        .expect(500);
}

#[tokio::test]
async fn a_job_without_a_name_has_generated_labels() {
    let rig = Rig::new().await;
    let expected = "Job.batch \"\" is invalid: [metadata.name: Required value: name or generateName is required, \
                    spec.template.spec.containers: Required value, spec.template.spec.restartPolicy: Required value: \
                    valid values: \"OnFailure\", \"Never\"]";
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    check(&rig.post(jobs, "{}").await, 422, expected);
}

#[tokio::test]
async fn a_dependency_that_is_neither_schema_nor_list_is_shown_as_nothing() {
    let rig = Rig::new().await;
    let definition = r#"{"metadata":{"name":"nones.none.example.com"},"spec":{"group":"none.example.com","scope":"Namespaced",
        "names":{"plural":"nones","kind":"None"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
        "schema":{"openAPIV3Schema":{"$schema":"x","dependencies":{"zz":"http","a":"web","memory":["x"]}}}}]}}"#;
    let refused = rig.post(DEFINITIONS, definition).await.expect(422);
    let expected = r#""Dependencies":{"a":{"Schema":null,"Property":null},"memory":{"Schema":null,"Property":["x"]},"zz":{"Schema":null,"Property":null}}"#;
    assert!(
        refused.message().contains(expected),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn an_event_is_deleted_at_once_with_every_propagation_policy() {
    let rig = Rig::new().await;
    let events = "/api/v1/namespaces/default/events";
    let event = r#"{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"}}"#;
    for query in [
        "orphanDependents=true",
        "propagationPolicy=Orphan",
        "propagationPolicy=Foreground",
    ] {
        rig.post(events, event).await.expect(201);
        let gone = rig.delete(&format!("{events}/e?{query}"), "").await;
        assert_eq!(gone.expect(200).body["status"].str(), "Success", "{query}");
        rig.get(&format!("{events}/e")).await.expect(404);
    }
}

#[tokio::test]
async fn a_duplicate_version_is_stored_once() {
    let rig = Rig::new().await;
    let version = r#"{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}"#;
    let definition = format!(
        r#"{{"metadata":{{"name":"foos.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "names":{{"plural":"foos","kind":"Foo"}},"versions":[{version},{version}]}}}}"#
    );
    let refused = rig.post(DEFINITIONS, &definition).await.expect(422);
    let expected =
        r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v1"#;
    assert!(
        refused.message().contains(expected),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_custom_resource_without_a_version_is_rejected_in_the_words_of_go() {
    let rig = with_foo().await;
    let body = r#"{"apiVersion":null,"kind":"Foo","metadata":{"name":"b"}}"#;
    let expected = "Foo in version \"\" cannot be handled as a Foo: .apiVersion accessor error: <nil> is of the type \
                    <nil>, expected string";
    check(&rig.post(FOOS, body).await, 400, expected);
}

#[tokio::test]
async fn metadata_is_validated_as_often_as_upstream_does_it() {
    let rig = Rig::new().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = r#"{"metadata":{"name":"a"},"spec":{"validations":[{"expression":"true"}],"matchConstraints":{
        "resourceRules":[{"apiGroups":["x"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["a"]}]}}}"#;
    rig.post(policies, policy).await.expect(201);
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = r#"{"metadata":{"name":"v1.x.example.com"},"spec":{"group":"x.example.com","version":"v1",
        "groupPriorityMinimum":10,"versionPriority":10,"insecureSkipTLSVerify":true,
        "service":{"name":"a","namespace":"default"}}}"#;
    rig.post(services, service).await.expect(201);
    let (uid, annotation) = (
        r#"{"metadata":{"uid":"x"}}"#,
        r#"{"metadata":{"annotations":{"A b":"x"}}}"#,
    );
    for (path, patch, n_causes) in [
        (format!("{policies}/a"), uid, 1),
        (format!("{policies}/a/status"), uid, 1),
        (format!("{services}/v1.x.example.com"), annotation, 4),
    ] {
        let refused = rig.patch(&path, patch).await.expect(422);
        let causes = refused.body["details"]["causes"].list().len();
        assert_eq!(causes, n_causes, "{path}: {}", refused.message());
    }
}

#[tokio::test]
async fn a_json_patch_without_field_validation_is_rejected_in_the_words_of_its_library() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let generic = "the server rejected our request due to an error in our request";
    for (patch, code, expected) in [
        (
            r#"{"a":1}"#,
            400,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "[1]",
            400,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (r#"[{"op":5}]"#, 422, generic),
        (r#"[{"op":"remove","path":5}]"#, 422, generic),
    ] {
        let path = format!("{CONFIG_MAPS}/a?fieldValidation=Ignore");
        check(&rig.call("JSON", &path, patch).await, code, expected);
    }
}

#[tokio::test]
async fn an_invalid_url_is_quoted() {
    let rig = Rig::new().await;
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let body = r#"{"metadata":{"name":"a"},"webhooks":[{"name":"a.example.com","sideEffects":"None",
        "admissionReviewVersions":["v1"],"clientConfig":{"url":"a\nb"}}]}"#;
    let refused = rig.post(webhooks, body).await.expect(422);
    let expected = r#"parse "a\nb": net/url: invalid control character in URL"#;
    assert!(
        refused.message().contains(expected),
        "{}",
        refused.message()
    );
}
