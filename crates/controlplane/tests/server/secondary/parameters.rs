//! A policy or binding needs permission to read its parameters.

use mizzen_value::{Value, json, value};

use super::{Rule, as_jane, check_invalid, grant, grant_rules, jane, rules};
use crate::aggregation::{in_front, shop};
use crate::peer::Reaction;
use crate::rig::Rig;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Jane as messages show her.
const JANE: &str = "&{jane  [dev system:authenticated] map[]}";

/// A policy with parameters of a kind.
fn policy(word: &str, name: &str, param_kind: (&str, &str)) -> Value {
    let rule = value!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"] });
    let mut spec = value!({
        "paramKind": { "apiVersion": (param_kind.0), "kind": (param_kind.1) },
        "matchConstraints": { "resourceRules": [(rule)] }
    });
    match word {
        "mutating" => {
            spec.set("reinvocationPolicy", "Never");
            let change = value!({ "expression": "Object{}" });
            let mutation =
                value!({ "patchType": "ApplyConfiguration", "applyConfiguration": (change) });
            spec.set("mutations", vec![mutation]);
        }
        _ => spec.set(
            "validations",
            vec![value!({ "expression": "params.data.size() > 0" })],
        ),
    };
    let kind = if word == "mutating" {
        "MutatingAdmissionPolicy"
    } else {
        "ValidatingAdmissionPolicy"
    };
    value!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": (spec)
    })
}

/// A binding with a reference to parameters.
fn binding(word: &str, name: &str, policy: &str, reference: Value) -> Value {
    let mut spec = value!({ "policyName": policy, "paramRef": (reference) });
    if word == "validating" {
        spec.set("validationActions", vec![Value::from("Deny")]);
    }
    let kind = if word == "mutating" {
        "MutatingAdmissionPolicyBinding"
    } else {
        "ValidatingAdmissionPolicyBinding"
    };
    value!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": (spec)
    })
}

fn named(name: &str, namespace: &str) -> Value {
    value!({ "name": name, "namespace": namespace, "parameterNotFoundAction": "Deny" })
}

/// Writes to policies and bindings.
const WRITES: Rule = ("create update patch", "admissionregistration.k8s.io", "*");

#[tokio::test]
async fn a_policy_needs_get_on_all_objects_of_its_parameters_kind() {
    for word in ["validating", "mutating"] {
        let rig = Rig::new().await;
        let path = format!("{POLICIES}/{word}admissionpolicies");
        let expected = |kind: &str, version: &str| {
            format!(
                "spec.paramKind: Forbidden: user {JANE} must have \"get\" permission on all objects of the referenced \
                 paramKind (kind={kind}, apiVersion={version})"
            )
        };
        let secrets = policy(word, "p", ("v1", "Secret"));
        let not_enough: [Vec<Rule>; 4] = [
            vec![WRITES],
            vec![WRITES, ("list watch", "", "secrets")],
            vec![WRITES, ("get", "", "configmaps")],
            vec![WRITES, ("get", "apps", "secrets")],
        ];
        for granted in not_enough {
            grant(&rig, "", &jane(), &granted).await;
            let created = as_jane(&rig, "POST", &path, &secrets).await;
            check_invalid(created, &expected("Secret", "v1"));
            let applied =
                as_jane(&rig, "APPLY", &format!("{path}/p?fieldManager=m"), &secrets).await;
            check_invalid(applied, &expected("Secret", "v1"));
        }
        // Some of the objects are not all of them.
        let mut one = rules(&[WRITES, ("get", "", "secrets")]);
        one.list_mut()[1].set("resourceNames", vec![Value::from("s")]);
        grant_rules(&rig, "", &jane(), one).await;
        grant(&rig, "default", &jane(), &[("get", "", "secrets")]).await;
        check_invalid(
            as_jane(&rig, "POST", &path, &secrets).await,
            &expected("Secret", "v1"),
        );

        grant(&rig, "", &jane(), &[WRITES, ("get", "", "secrets")]).await;
        as_jane(&rig, "POST", &path, &secrets).await.expect(201);
        // Nothing else may be read than before.
        for (method, change) in [
            (
                "PATCH",
                value!({ "spec": { "paramKind": { "kind": "ConfigMap" } } }),
            ),
            (
                "STRATEGIC",
                value!({ "spec": { "paramKind": { "kind": "ConfigMap" } } }),
            ),
            (
                "JSON",
                value!([{ "op": "replace", "path": "/spec/paramKind/kind", "value": "ConfigMap" }]),
            ),
        ] {
            let patched = as_jane(&rig, method, &format!("{path}/p"), &change).await;
            check_invalid(patched, &expected("ConfigMap", "v1"));
        }
        let mut changed = rig.get(&format!("{path}/p")).await.expect(200).body;
        changed
            .entry("spec")
            .entry("paramKind")
            .set("kind", "ConfigMap");
        let updated = as_jane(&rig, "PUT", &format!("{path}/p"), &changed).await;
        check_invalid(updated, &expected("ConfigMap", "v1"));
        // What was authorized once is not authorized again.
        grant(&rig, "", &jane(), &[WRITES]).await;
        let label = value!({ "metadata": { "labels": { "a": "b" } } });
        as_jane(&rig, "PATCH", &format!("{path}/p"), &label)
            .await
            .expect(200);
        let without = value!({ "spec": { "paramKind": null } });
        if word == "mutating" {
            as_jane(&rig, "PATCH", &format!("{path}/p"), &without)
                .await
                .expect(200);
            let again =
                value!({ "spec": { "paramKind": { "apiVersion": "v1", "kind": "Secret" } } });
            let patched = as_jane(&rig, "PATCH", &format!("{path}/p"), &again).await;
            check_invalid(patched, &expected("Secret", "v1"));
        }
    }
}

#[tokio::test]
async fn a_kind_that_is_not_served_needs_get_on_every_resource_of_its_version() {
    let rig = Rig::new().await;
    let path = format!("{POLICIES}/validatingadmissionpolicies");
    let unknown = policy("validating", "p", ("example.com/v1", "Widget"));
    let expected = format!(
        "spec.paramKind: Forbidden: user {JANE} must have \"get\" permission on all objects of the referenced paramKind \
         (kind=Widget, apiVersion=example.com/v1)"
    );
    grant(
        &rig,
        "",
        &jane(),
        &[WRITES, ("get", "example.com", "widgets")],
    )
    .await;
    check_invalid(as_jane(&rig, "POST", &path, &unknown).await, &expected);
    grant(&rig, "", &jane(), &[WRITES, ("get", "example.com", "*")]).await;
    as_jane(&rig, "POST", &path, &unknown).await.expect(201);

    // A custom kind is resolved like a built-in one.
    let definition = value!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "names": { "kind": "Widget", "plural": "widgets" },
            "scope": "Cluster",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } }
            }]
        }
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    rig.post(definitions, &json::to_string(&definition))
        .await
        .expect(201);
    grant(
        &rig,
        "",
        &jane(),
        &[WRITES, ("get", "example.com", "gadgets")],
    )
    .await;
    let mut other = unknown.clone();
    other.entry("metadata").set("name", "q");
    check_invalid(as_jane(&rig, "POST", &path, &other).await, &expected);
    grant(
        &rig,
        "",
        &jane(),
        &[WRITES, ("get", "example.com", "widgets")],
    )
    .await;
    as_jane(&rig, "POST", &path, &other).await.expect(201);
}

#[tokio::test]
async fn a_kind_of_an_aggregated_server_is_resolved_by_its_discovery() {
    let peer = shop(|_| Reaction::Reply(404, "{}".into())).await;
    let rig = in_front(Rig::new().await, &peer).await;
    let path = format!("{POLICIES}/validatingadmissionpolicies");
    let things = policy("validating", "p", ("shop.example.com/v1", "Thing"));
    grant(
        &rig,
        "",
        &jane(),
        &[WRITES, ("get", "shop.example.com", "thing")],
    )
    .await;
    as_jane(&rig, "POST", &path, &things).await.expect(422);
    grant(
        &rig,
        "",
        &jane(),
        &[WRITES, ("get", "shop.example.com", "things")],
    )
    .await;
    as_jane(&rig, "POST", &path, &things).await.expect(201);
}

#[tokio::test]
async fn superusers_and_invalid_policies_are_not_authorized() {
    let rig = Rig::new().await;
    let path = format!("{POLICIES}/validatingadmissionpolicies");
    let mut invalid = policy("validating", "p", ("v1", "Secret"));
    invalid
        .entry("spec")
        .set("validations", vec![value!({ "expression": "" })]);
    grant(&rig, "", &jane(), &[WRITES]).await;
    let refused = as_jane(&rig, "POST", &path, &invalid).await.expect(422);
    assert!(
        !refused.message().contains("paramKind"),
        "{}",
        refused.message()
    );
    rig.post(
        &path,
        &json::to_string(&policy("validating", "p", ("v1", "Secret"))),
    )
    .await
    .expect(201);
}

#[tokio::test]
async fn a_binding_needs_get_on_the_parameters_that_it_names() {
    for word in ["validating", "mutating"] {
        let rig = Rig::new().await;
        let path = format!("{POLICIES}/{word}admissionpolicybindings");
        let expected = |verb: &str| match word {
            // Kubernetes: verb and user have changed places.
            "mutating" => format!(
                "spec.paramRef: Forbidden: user {verb} does not have \"{JANE}\" permission on the object referenced by \
                 paramRef"
            ),
            _ => format!(
                "spec.paramRef: Forbidden: user {JANE} does not have \"{verb}\" permission on the object referenced by \
                 paramRef"
            ),
        };
        let made = policy(word, "p", ("v1", "Secret"));
        rig.post(
            &format!("{POLICIES}/{word}admissionpolicies"),
            &json::to_string(&made),
        )
        .await
        .expect(201);
        let by_name = binding(word, "b", "p", named("s", "default"));
        grant(&rig, "", &jane(), &[WRITES, ("list", "", "secrets")]).await;
        check_invalid(
            as_jane(&rig, "POST", &path, &by_name).await,
            &expected("get"),
        );
        let applied = as_jane(&rig, "APPLY", &format!("{path}/b?fieldManager=m"), &by_name).await;
        check_invalid(applied, &expected("get"));

        // A role in the namespace of the parameters is enough, one elsewhere is not.
        grant(&rig, "", &jane(), &[WRITES]).await;
        let mut one = rules(&[("get", "", "secrets")]);
        one.list_mut()[0].set("resourceNames", vec![Value::from("s")]);
        grant_rules(&rig, "default", &jane(), one).await;
        as_jane(&rig, "POST", &path, &by_name).await.expect(201);
        for other in [named("t", "default"), named("s", "kube-system")] {
            let change = value!({ "spec": { "paramRef": (other) } });
            check_invalid(
                as_jane(&rig, "PATCH", &format!("{path}/b"), &change).await,
                &expected("get"),
            );
        }
        // Without a namespace it is about every one.
        let everywhere = value!({ "name": "s", "parameterNotFoundAction": "Deny" });
        check_invalid(
            as_jane(&rig, "POST", &path, &binding(word, "c", "p", everywhere)).await,
            &expected("get"),
        );

        let selected = value!({
            "namespace": "default",
            "selector": { "matchLabels": { "a": "b" } },
            "parameterNotFoundAction": "Deny"
        });
        let by_label = binding(word, "d", "p", selected);
        check_invalid(
            as_jane(&rig, "POST", &path, &by_label).await,
            &expected("list"),
        );
        grant(&rig, "default", &jane(), &[("list", "", "secrets")]).await;
        as_jane(&rig, "POST", &path, &by_label).await.expect(201);

        // An update is authorized again, though it leaves the reference as it is.
        let label = value!({ "metadata": { "labels": { "a": "b" } } });
        check_invalid(
            as_jane(&rig, "PATCH", &format!("{path}/b"), &label).await,
            &expected("get"),
        );
        let mut same = rig.get(&format!("{path}/b")).await.expect(200).body;
        check_invalid(
            as_jane(&rig, "PUT", &format!("{path}/b"), &same).await,
            &expected("get"),
        );
        same.entry("spec").remove("paramRef");
        as_jane(&rig, "PUT", &format!("{path}/b"), &same)
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_binding_whose_parameters_cannot_be_resolved_needs_get_on_everything() {
    let rig = Rig::new().await;
    for word in ["validating", "mutating"] {
        let path = format!("{POLICIES}/{word}admissionpolicybindings");
        let unable = |what: &str| {
            format!(
                "spec.paramRef: Forbidden: unable to {what} to determine minimum required permissions and user {JANE} does \
                 not have \"get\" permission for all groups, versions and resources"
            )
        };
        grant(
            &rig,
            "",
            &jane(),
            &[WRITES, ("get", "", "*"), ("get", "example.com", "widgets")],
        )
        .await;
        let no_policy = binding(word, "b", "none", named("s", "default"));
        check_invalid(
            as_jane(&rig, "POST", &path, &no_policy).await,
            &unable("get policy none"),
        );
        let unknown = policy(word, "unknown", ("example.com/v1", "Widget"));
        rig.post(
            &format!("{POLICIES}/{word}admissionpolicies"),
            &json::to_string(&unknown),
        )
        .await
        .expect(201);
        let to_unknown = binding(word, "c", "unknown", named("s", "default"));
        check_invalid(
            as_jane(&rig, "POST", &path, &to_unknown).await,
            &unable("resolve paramKind &{example.com/v1 Widget}"),
        );
        grant(&rig, "", &jane(), &[WRITES, ("get", "example.com", "*")]).await;
        as_jane(&rig, "POST", &path, &to_unknown).await.expect(201);
        check_invalid(
            as_jane(&rig, "POST", &path, &no_policy).await,
            &unable("get policy none"),
        );
        grant(&rig, "", &jane(), &[WRITES, ("get", "*", "*")]).await;
        as_jane(&rig, "POST", &path, &no_policy).await.expect(201);
    }
}
