//! Policies of the cluster: what they refuse, warn of and change, and where they end.

use mizzen_apiserver::{Options, User};
use mizzen_authorization as authorization;
use mizzen_value::{Value, json, value};

use crate::rig::{CONFIG_MAPS, Reply, Rig};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const TRIAL: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";

/// Makes a policy that is about writes of ConfigMaps unless `spec` says otherwise, and binds it.
pub(crate) async fn enforce(rig: &Rig, kind: &str, name: &str, spec: &Value, binding: &Value) {
    let rule = value!({ "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"] });
    let mut whole = value!({ "matchConstraints": { "resourceRules": [(rule)] } });
    let mut bound = value!({ "policyName": name });
    match kind {
        "mutating" => whole.set("reinvocationPolicy", "Never"),
        _ => bound.set("validationActions", vec![Value::from("Deny")]),
    };
    for (part, more) in [(&mut whole, spec), (&mut bound, binding)] {
        more.entries()
            .for_each(|(field, value)| part.set(field, value.clone()));
    }
    for (plural, spec) in [("policies", whole), ("policybindings", bound)] {
        let body = json::to_string(&value!({ "metadata": { "name": name }, "spec": (spec) }));
        rig.post(&format!("{GROUP}/{kind}admission{plural}"), &body)
            .await
            .expect(201);
    }
}

async fn validating(spec: Value) -> Rig {
    let rig = Rig::new().await;
    enforce(&rig, "validating", "p", &spec, &Value::object()).await;
    rig
}

async fn mutating(spec: Value) -> Rig {
    let rig = Rig::new().await;
    enforce(&rig, "mutating", "m", &spec, &Value::object()).await;
    rig
}

fn config_map(name: &str, data: Value) -> String {
    json::to_string(&value!({ "metadata": { "name": name }, "data": (data) }))
}

/// What a policy says of a ConfigMap; empty if nothing.
fn verdict(reply: &Reply) -> &str {
    let said = reply.body["message"].str();
    said.split_once("denied request: ")
        .map_or(said, |(_, said)| said)
}

#[track_caller]
fn check(reply: &Reply, status: u16, expected: &str) {
    assert_eq!(
        (reply.status, verdict(reply)),
        (status, expected),
        "{:?}",
        reply.body
    );
}

#[tokio::test]
async fn a_rejection_names_the_policy_the_binding_and_the_reason() {
    let rig = validating(value!({ "validations": [
        { "expression": "object.metadata.name != 'a'" },
        { "expression": "object.metadata.name != 'b'", "message": " no b ", "reason": "Forbidden" },
        { "expression": "object.metadata.name != 'c'", "messageExpression": "'no ' + object.metadata.name" },
        { "expression": "object.metadata.name != 'd'", "messageExpression": "'x\\ny'", "message": "no d", "reason": "RequestEntityTooLarge" }
    ] }))
    .await;
    let cases = [
        ("a", 422, "failed expression: object.metadata.name != 'a'"),
        ("b", 403, "no b"),
        ("c", 422, "no c"),
        ("d", 413, "no d"),
        ("e", 201, ""),
    ];
    for (name, status, said) in cases {
        check(
            &rig.post(TRIAL, &config_map(name, value!({}))).await,
            status,
            said,
        );
    }
    let reply = rig.post(TRIAL, &config_map("b", value!({}))).await;
    let said = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no b";
    assert_eq!(
        reply.body["message"].str(),
        format!("configmaps \"b\" is forbidden: {said}")
    );
    assert_eq!(
        reply.body["details"]["causes"],
        value!([{ "message": said }])
    );
}

#[tokio::test]
async fn an_evaluation_error_rejects_a_request_unless_the_policy_ignores_failures() {
    let spec = value!({ "validations": [{ "expression": "object.data.x == 'y'" }] });
    let rig = validating(spec.clone()).await;
    let body = config_map("a", value!({ "z": "z" }));
    check(
        &rig.post(TRIAL, &body).await,
        422,
        "expression 'object.data.x == 'y'' resulted in error: no such key: x",
    );
    let mut lenient = spec;
    lenient.set("failurePolicy", "Ignore");
    check(&validating(lenient).await.post(TRIAL, &body).await, 201, "");
}

#[tokio::test]
async fn match_conditions_decide_whether_a_policy_is_evaluated() {
    let rig = validating(value!({
        "matchConditions": [
            { "name": "x", "expression": "object.data.x == 'y'" },
            { "name": "z", "expression": "object.data.z == 'y'" }
        ],
        "validations": [{ "expression": "false", "message": "heard" }]
    }))
    .await;
    let errors = "[expression 'object.data.x == 'y'' resulted in error: no such key: x, \
                  expression 'object.data.z == 'y'' resulted in error: no such key: z]";
    check(
        &rig.post(TRIAL, &config_map("a", value!({ "x": "y", "z": "y" })))
            .await,
        422,
        "heard",
    );
    check(
        &rig.post(TRIAL, &config_map("a", value!({ "x": "n" })))
            .await,
        201,
        "",
    );
    check(
        &rig.post(TRIAL, &config_map("a", value!({ "q": "" }))).await,
        422,
        errors,
    );
}

#[tokio::test]
async fn variables_are_evaluated_lazily_and_see_the_preceding_ones() {
    let rig = validating(value!({
        "variables": [
            { "name": "size", "expression": "size(object.metadata.name)" },
            { "name": "twice", "expression": "variables.size * 2" },
            { "name": "trouble", "expression": "1 / (variables.size - 3)" }
        ],
        "validations": [
            { "expression": "variables.twice < 8", "messageExpression": "'twice ' + string(variables.twice)" },
            { "expression": "variables.size != 3 || variables.trouble > 0" }
        ]
    }))
    .await;
    check(
        &rig.post(TRIAL, &config_map("ab", value!({}))).await,
        201,
        "",
    );
    check(
        &rig.post(TRIAL, &config_map("abcd", value!({}))).await,
        422,
        "twice 8",
    );
    check(
        &rig.post(TRIAL, &config_map("abc", value!({}))).await,
        422,
        "expression 'variables.size != 3 || variables.trouble > 0' resulted in error: composited variable \"trouble\" \
         fails to evaluate: division by zero",
    );
}

/// A variable may be declared twice, and so come to depend on itself.
#[tokio::test]
async fn a_variable_that_depends_on_itself_has_no_value() {
    let rig = validating(value!({
        "variables": [
            { "name": "a", "expression": "1" },
            { "name": "b", "expression": "variables.a" },
            { "name": "a", "expression": "variables.b" }
        ],
        "validations": [{ "expression": "variables.a == 1" }]
    }))
    .await;
    let reply = rig.post(TRIAL, &config_map("a", value!({}))).await;
    assert_eq!(reply.status, 422);
    assert!(
        verdict(&reply).contains("composited variable \"a\" depends on too many others"),
        "{:?}",
        reply.body
    );
}

#[tokio::test]
async fn a_long_chain_of_variables_does_not_overflow_the_stack() {
    let each = (0..1000).map(|at| match at {
        0 => value!({ "name": "v0", "expression": "1" }),
        _ => {
            value!({ "name": (format!("v{at}")), "expression": (format!("variables.v{}", at - 1)) })
        }
    });
    let rig = validating(value!({
        "variables": (each.collect::<Vec<_>>()),
        "validations": [{ "expression": "variables.v999 == 1" }]
    }))
    .await;
    let reply = rig.post(TRIAL, &config_map("a", value!({}))).await;
    assert!(
        verdict(&reply).contains("depends on too many others"),
        "{:?}",
        reply.body
    );
}

/// A loop over ten items in a loop over ten items, so many times.
fn loops(depth: usize, inside: &str) -> String {
    (0..depth).fold(inside.to_owned(), |inside, at| {
        format!("[1,2,3,4,5,6,7,8,9,10].all(v{at}, {inside})")
    })
}

const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

#[tokio::test]
async fn an_expression_ends_at_its_cost_limit() {
    let text = loops(12, "v0 > 0");
    let rig = validating(value!({ "validations": [{ "expression": (text.clone()) }] })).await;
    let reply = rig.post(TRIAL, &config_map("a", value!({}))).await;
    let said = format!(
        "expression '{text}' resulted in error: operation cancelled: actual cost limit exceeded"
    );
    check(&reply, 422, &said);
}

#[tokio::test]
async fn all_expressions_of_a_policy_share_a_cost_budget() {
    let dear = value!({ "expression": (loops(5, "v0 + v1 + v2 > 0")) });
    let few = validating(value!({ "validations": (vec![dear.clone(); 8]) })).await;
    check(
        &few.post(TRIAL, &config_map("a", value!({}))).await,
        201,
        "",
    );
    let many = validating(value!({ "validations": (vec![dear.clone(); 24]) })).await;
    check(
        &many.post(TRIAL, &config_map("a", value!({}))).await,
        422,
        SPENT,
    );

    let conditions = (0..6).map(|at| {
        let mut condition = dear.clone();
        condition.set("name", format!("n{at}"));
        condition
    });
    let spec = value!({
        "matchConditions": (conditions.collect::<Vec<_>>()),
        "validations": [{ "expression": "true" }]
    });
    check(
        &validating(spec)
            .await
            .post(TRIAL, &config_map("a", value!({})))
            .await,
        422,
        SPENT,
    );
}

#[tokio::test]
async fn policies_are_evaluated_on_update_and_delete() {
    let rig = validating(value!({ "validations": [
        { "expression": "request.operation != 'UPDATE' || object.data.text == oldObject.data.text", "message": "changed" },
        { "expression": "request.operation != 'DELETE' || object == null && oldObject.data.text != 'keep'", "message": "kept" }
    ] }))
    .await;
    rig.make("a", "keep").await;
    rig.make("b", "go").await;
    check(
        &rig.patch(&format!("{CONFIG_MAPS}/a"), r#"{"data":{"text":"x"}}"#)
            .await,
        422,
        "changed",
    );
    check(
        &rig.patch(&format!("{CONFIG_MAPS}/a"), r#"{"data":{"more":"x"}}"#)
            .await,
        200,
        "",
    );
    check(
        &rig.delete(&format!("{CONFIG_MAPS}/a"), "").await,
        422,
        "kept",
    );
    check(&rig.delete(&format!("{CONFIG_MAPS}/b"), "").await, 200, "");
}

#[tokio::test]
async fn a_policy_is_enforced_while_its_binding_exists() {
    let rig = Rig::new().await;
    let spec = value!({ "validations": [{ "expression": "false", "message": "no" }] });
    let body = config_map("a", value!({}));
    check(&rig.post(TRIAL, &body).await, 201, "");
    enforce(&rig, "validating", "p", &spec, &Value::object()).await;
    check(&rig.post(TRIAL, &body).await, 422, "no");
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    rig.patch(
        &path,
        r#"{"spec":{"validations":[{"expression":"false","message":"never"}]}}"#,
    )
    .await
    .expect(200);
    check(&rig.post(TRIAL, &body).await, 422, "never");
    check(
        &rig.restarted().await.post(TRIAL, &body).await,
        422,
        "never",
    );
    rig.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p"), "")
        .await
        .expect(200);
    check(&rig.post(TRIAL, &body).await, 201, "");
}

#[tokio::test]
async fn a_binding_may_warn_or_audit_instead_of_denying() {
    let spec = value!({ "validations": [{ "expression": "false", "message": "no" }] });
    let said = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no\"";
    for (actions, warnings) in [
        (value!(["Warn", "Audit"]), vec![said]),
        (value!(["Audit"]), Vec::new()),
    ] {
        let rig = Rig::new().await;
        enforce(
            &rig,
            "validating",
            "p",
            &spec,
            &value!({ "validationActions": (actions) }),
        )
        .await;
        let reply = rig
            .post(TRIAL, &config_map("a", value!({})))
            .await
            .expect(201);
        assert_eq!(reply.warnings, warnings);
    }
}

#[tokio::test]
async fn parameters_are_found_by_name_or_by_label() {
    let spec = value!({
        "paramKind": { "apiVersion": "v1", "kind": "Secret" },
        "validations": [{
            "expression": "size(object.metadata.name) <= int(params.metadata.labels.max)",
            "messageExpression": "'longer than ' + params.metadata.labels.max"
        }]
    });
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    let secret = |name: &str, max: &str| {
        format!(r#"{{"metadata":{{"name":"{name}","labels":{{"max":"{max}"}}}}}}"#)
    };
    let cases = [
        (
            value!({ "name": "three", "parameterNotFoundAction": "Deny" }),
            422,
            "longer than 3",
        ),
        (
            value!({ "name": "three", "namespace": "default", "parameterNotFoundAction": "Deny" }),
            422,
            "longer than 3",
        ),
        (
            value!({ "name": "none", "parameterNotFoundAction": "Deny" }),
            422,
            missing,
        ),
        (
            value!({ "name": "none", "parameterNotFoundAction": "Allow" }),
            201,
            "",
        ),
        (
            value!({ "selector": { "matchLabels": { "max": "9" } }, "parameterNotFoundAction": "Deny" }),
            201,
            "",
        ),
        (
            value!({ "selector": {}, "parameterNotFoundAction": "Deny" }),
            422,
            "longer than 3",
        ),
    ];
    for (reference, status, said) in cases {
        let rig = Rig::new().await;
        for (name, max) in [("three", "3"), ("nine", "9")] {
            rig.post("/api/v1/namespaces/default/secrets", &secret(name, max))
                .await
                .expect(201);
        }
        enforce(
            &rig,
            "validating",
            "p",
            &spec,
            &value!({ "paramRef": (reference) }),
        )
        .await;
        check(
            &rig.post(TRIAL, &config_map("abcde", value!({}))).await,
            status,
            said,
        );
    }
}

#[tokio::test]
async fn parameters_of_an_unknown_kind_are_a_configuration_error() {
    let rig = validating(value!({
        "paramKind": { "apiVersion": "example.com/v1", "kind": "Nope" },
        "validations": [{ "expression": "true" }]
    }))
    .await;
    let reply = rig.post(TRIAL, &config_map("a", value!({}))).await;
    let said = "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nope'";
    check(&reply, 422, said);
}

#[tokio::test]
async fn match_constraints_include_and_exclude_objects() {
    let rule = |more: Value| {
        let mut rule = value!({ "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["configmaps"] });
        more.entries()
            .for_each(|(field, value)| rule.set(field, value.clone()));
        rule
    };
    let rig = validating(value!({
        "matchConstraints": {
            "resourceRules": [(rule(value!({ "resourceNames": ["a", "b"] })))],
            "excludeResourceRules": [(rule(value!({ "resourceNames": ["b"] })))]
        },
        "validations": [{ "expression": "false", "message": "no" }]
    }))
    .await;
    for (name, status, said) in [("a", 422, "no"), ("b", 201, ""), ("c", 201, "")] {
        check(
            &rig.post(TRIAL, &config_map(name, value!({}))).await,
            status,
            said,
        );
    }
}

#[tokio::test]
async fn policies_and_reviews_are_exempt_from_policies() {
    let rule = value!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] });
    let rig = validating(value!({
        "matchConstraints": { "resourceRules": [(rule)] },
        "validations": [{ "expression": "false", "message": "no" }]
    }))
    .await;
    check(
        &rig.post(TRIAL, &config_map("a", value!({}))).await,
        422,
        "no",
    );
    let review = r#"{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}"#;
    rig.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        review,
    )
    .await
    .expect(201);
    rig.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p"), "")
        .await
        .expect(200);
    check(
        &rig.post(TRIAL, &config_map("a", value!({}))).await,
        201,
        "",
    );
}

#[tokio::test]
async fn expressions_call_the_authorizer() {
    let spec = value!({ "validations": [
        { "expression": "authorizer.requestResource.check('delete').allowed()", "message": "may not delete" },
        { "expression": "authorizer.serviceAccount('default', 'sa').path('/x').check('get').allowed()", "message": "sa may not" }
    ] });
    let rig = validating(spec).await;
    let role = r#"{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create"]}]}"#;
    rig.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        .await
        .expect(201);
    let binding = r#"{"metadata":{"name":"r"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
        "name":"r"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}"#;
    rig.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        binding,
    )
    .await
    .expect(201);
    let jane = User {
        name: "jane".into(),
        groups: vec!["system:authenticated".into()],
        ..User::default()
    };
    let body = config_map("a", value!({}));
    check(
        &rig.call_as(jane, &[], "POST", TRIAL, &body).await,
        422,
        "may not delete",
    );
    check(&rig.post(TRIAL, &body).await, 422, "sa may not");
}

/// One who decides, but not at once.
#[derive(Debug)]
struct Slow;

impl authorization::Authorizer for Slow {
    fn authorize<'a>(
        &'a self,
        attributes: &'a authorization::Attributes<'a>,
    ) -> mizzen_registry::BoxFuture<'a, authorization::Decision> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match attributes.verb {
                "dance" => {
                    authorization::Decision::Deny(authorization::DecisionReason::new("not here"))
                }
                _ => authorization::Decision::Allow(authorization::DecisionReason::default()),
            }
        })
    }
}

#[tokio::test]
async fn a_slow_authorizer_is_awaited() {
    let options = Options {
        authorizers: vec![std::sync::Arc::new(Slow)],
        ..Options::default()
    };
    let rig = Rig::with(options).await;
    let spec = value!({ "validations": [
        { "expression": "authorizer.path('/floor').check('walk').allowed()", "message": "may not walk" },
        { "expression": "authorizer.path('/floor').check('dance').reason() == ''", "message": "may not dance" }
    ] });
    enforce(&rig, "validating", "p", &spec, &Value::object()).await;
    let jane = User {
        name: "jane".into(),
        ..User::default()
    };
    let reply = rig
        .call_as(jane, &[], "POST", TRIAL, &config_map("a", value!({})))
        .await;
    check(&reply, 422, "may not dance");
}

fn apply(expression: &str) -> Value {
    value!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } })
}

fn patch(expression: &str) -> Value {
    value!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } })
}

#[tokio::test]
async fn mutations_are_applied_in_order() {
    let rig = mutating(value!({
        "variables": [{ "name": "size", "expression": "string(size(object.metadata.name))" }],
        "mutations": [
            (apply("Object{metadata: Object.metadata{labels: Object.metadata.labels{size: variables.size}}}")),
            (patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: object.metadata.labels.size}]")),
            (patch("[JSONPatch{op: 'test', path: '/data/x', value: 'nope'}, JSONPatch{op: 'remove', path: '/data'}]"))
        ]
    }))
    .await;
    let reply = rig
        .post(TRIAL, &config_map("abc", value!({ "x": "y" })))
        .await
        .expect(201);
    assert_eq!(
        reply.body["metadata"]["labels"],
        value!({ "a/b": "3", "size": "3" })
    );
    assert_eq!(reply.body["data"], value!({ "x": "y" }));
}

#[tokio::test]
async fn a_forbidden_mutation_is_an_error() {
    let of_pods = |mutation: Value| {
        let rule = value!({ "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"] });
        value!({ "matchConstraints": { "resourceRules": [(rule)] }, "mutations": [(mutation)] })
    };
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let lay = "error applying patch";
    let cases = [
        (apply("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}"), format!("{lay}: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector")),
        (apply("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', command: ['x']}]}}"), format!("{lay}: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].command")),
        (apply("Object{spec: Object.spec{nope: 1}}"), format!("{lay}: failed to convert patch object to typed object: .spec.nope: field not declared in schema")),
        (apply("Object{spec: Object.wrong{}}"), "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches field name path from root Object type".into()),
        (patch("[JSONPatch{op: 'remove', path: '/spec/nope'}]"), "JSON Patch: error in remove for path: '/spec/nope': Unable to remove nonexistent key: nope: missing value".into()),
    ];
    for (mutation, said) in cases {
        let reply = mutating(of_pods(mutation))
            .await
            .post("/api/v1/namespaces/default/pods", pod)
            .await;
        check(&reply, 403, &said);
        assert_eq!(reply.body["reason"].str(), "Invalid");
    }
    let unknown = of_pods(patch(
        "[JSONPatch{op: 'add', path: '/spec/nope', value: 1}]",
    ));
    let reply = mutating(unknown)
        .await
        .post("/api/v1/namespaces/default/pods", pod)
        .await
        .expect(500);
    assert!(
        verdict(&reply).contains("strict decoding error: unknown field \"spec.nope\""),
        "{:?}",
        reply.body
    );
}

#[tokio::test]
async fn a_mutation_that_fails_is_skipped_where_failures_are_ignored() {
    let rig = mutating(value!({
        "failurePolicy": "Ignore",
        "mutations": [
            (apply("Object{metadata: Object.metadata{labels: {'a': object.data.nope}}}")),
            (apply("Object{metadata: Object.metadata{labels: {'b': 'b'}}}"))
        ]
    }))
    .await;
    let reply = rig
        .post(TRIAL, &config_map("a", value!({})))
        .await
        .expect(201);
    assert_eq!(reply.body["metadata"]["labels"], value!({ "b": "b" }));
}

#[tokio::test]
async fn a_policy_is_reinvoked_after_later_mutations() {
    let rig = Rig::new().await;
    let count = "Object{metadata: Object.metadata{labels: {'n': has(object.metadata.labels) && 'n' in object.metadata.labels \
                 ? object.metadata.labels.n + 'x' : 'x'}}}";
    let again = value!({ "reinvocationPolicy": "IfNeeded", "mutations": [(apply(count))] });
    enforce(&rig, "mutating", "a", &again, &Value::object()).await;
    let other =
        value!({ "mutations": [(apply("Object{metadata: Object.metadata{labels: {'b': 'b'}}}"))] });
    enforce(&rig, "mutating", "b", &other, &Value::object()).await;
    let reply = rig
        .post(TRIAL, &config_map("a", value!({})))
        .await
        .expect(201);
    assert_eq!(
        reply.body["metadata"]["labels"],
        value!({ "b": "b", "n": "xx" })
    );
}

#[tokio::test]
async fn a_rejected_delete_collection_has_no_name() {
    let rig = validating(value!({ "validations": [
        { "expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'b'", "message": "not b" },
    ] }))
    .await;
    for name in ["a", "b"] {
        rig.post(CONFIG_MAPS, &config_map(name, Value::object()))
            .await
            .expect(201);
    }
    let refused =
        "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not b";
    for (path, name) in [
        (CONFIG_MAPS.to_owned(), "Unknown"),
        (format!("{CONFIG_MAPS}/b"), "b"),
    ] {
        let reply = rig.delete(&path, "").await.expect(422);
        assert_eq!(reply.message(), format!("configmaps \"{name}\" {refused}"));
        assert_eq!(reply.body.at("details.name").str(), name);
    }
    assert_eq!(rig.get(CONFIG_MAPS).await.names(), ["b"]);
}
