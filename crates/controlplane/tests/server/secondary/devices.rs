//! A claim of devices needs permissions for what it asks for and for what its status says.

use mizzen_apiserver::User;
use mizzen_value::{Value, json, value};

use super::{Rule, as_jane, check_invalid, grant, grant_rules, jane, rules};
use crate::rig::Rig;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";

fn claim(name: &str, admin: bool) -> Value {
    let mut exactly = value!({ "deviceClassName": "gpu" });
    if admin {
        exactly.set("adminAccess", true);
    }
    let plain = value!({ "name": "a", "exactly": { "deviceClassName": "gpu" } });
    value!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name },
        "spec": { "devices": { "requests": [(plain), { "name": "r", "exactly": (exactly) }] } }
    })
}

fn template(name: &str, admin: bool) -> Value {
    value!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": name },
        "spec": { "spec": (claim("", admin)["spec"].clone()) }
    })
}

const NO_LABEL: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

async fn label_namespace(rig: &Rig, value: &str) {
    let labels =
        value!({ "metadata": { "labels": { "resource.kubernetes.io/admin-access": value } } });
    rig.patch("/api/v1/namespaces/default", &json::to_string(&labels))
        .await
        .expect(200);
}

#[tokio::test]
async fn administrative_access_needs_a_label_of_the_namespace() {
    let rig = Rig::new().await;
    let expected = format!("spec.devices.requests[1].adminAccess: Forbidden: {NO_LABEL}");
    for wrong in ["", "false", "TRUE"] {
        label_namespace(&rig, wrong).await;
        for (path, object) in [(CLAIMS, claim("c", true)), (TEMPLATES, template("c", true))] {
            // Even for cluster administrators.
            check_invalid(rig.post(path, &json::to_string(&object)).await, &expected);
            let applied = rig
                .apply(&format!("{path}/c"), "m", &json::to_string(&object))
                .await;
            check_invalid(applied, &expected);
        }
    }
    for (path, object) in [
        (CLAIMS, claim("plain", false)),
        (TEMPLATES, template("plain", false)),
    ] {
        rig.post(path, &json::to_string(&object)).await.expect(201);
    }
    // Beside what else is wrong, and before it.
    let mut invalid = claim("c", true);
    invalid
        .entry("spec")
        .entry("devices")
        .entry("requests")
        .list_mut()[0]
        .set("name", "A");
    let refused = rig
        .post(CLAIMS, &json::to_string(&invalid))
        .await
        .expect(422);
    let causes: Vec<&str> = refused.body["details"]["causes"]
        .list()
        .iter()
        .map(|cause| cause["field"].str())
        .collect();
    assert_eq!(
        causes,
        [
            "spec.devices.requests[1].adminAccess",
            "spec.devices.requests[0].name"
        ]
    );

    label_namespace(&rig, "true").await;
    for (path, object) in [(CLAIMS, claim("c", true)), (TEMPLATES, template("c", true))] {
        rig.post(path, &json::to_string(&object)).await.expect(201);
    }
    // A claim keeps what it was given when the label goes.
    label_namespace(&rig, "").await;
    for path in [CLAIMS, TEMPLATES] {
        rig.patch(&format!("{path}/c"), r#"{"metadata":{"labels":{"a":"b"}}}"#)
            .await
            .expect(200);
    }
    let status = json::to_string(&value!({ "status": (status(true, &[])) }));
    let granted = rig.patch(&format!("{CLAIMS}/c/status"), &status).await;
    let expected =
        format!("status.allocation.devices.results[0].adminAccess: Forbidden: {NO_LABEL}");
    check_invalid(granted, &expected);
    label_namespace(&rig, "true").await;
    rig.patch(&format!("{CLAIMS}/c/status"), &status)
        .await
        .expect(200);
    label_namespace(&rig, "").await;
    let reserved = r#"{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}}"#;
    rig.patch(&format!("{CLAIMS}/c/status"), reserved)
        .await
        .expect(200);
}

/// The status of a claim with two devices of two drivers on a node; `devices` are those that something is said of.
fn status(admin: bool, devices: &[&str]) -> Value {
    let result = |driver: &str, request: &str| {
        let mut result =
            value!({ "request": request, "driver": driver, "pool": "p", "device": "d" });
        if admin {
            result.set("adminAccess", true);
        }
        result
    };
    let field = value!({ "key": "metadata.name", "operator": "In", "values": ["n1"] });
    let mut status = value!({
        "allocation": {
            "devices": { "results": [(result("a.example.com", "r")), (result("b.example.com", "a"))] },
            "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [(field)] }] }
        }
    });
    let said = |driver: &&str| value!({ "driver": (*driver), "pool": "p", "device": "d", "data": { "x": "y" } });
    if !devices.is_empty() {
        status.set("devices", devices.iter().map(said).collect::<Vec<_>>());
    }
    status
}

/// Writes to the status of claims, in any way.
const STATUS: Rule = ("update patch", "resource.k8s.io", "resourceclaims/status");

#[tokio::test]
async fn changing_an_allocation_needs_the_binding_permission() {
    let rig = Rig::new().await;
    rig.post(CLAIMS, &json::to_string(&claim("c", false)))
        .await
        .expect(201);
    let path = format!("{CLAIMS}/c/status");
    let expected = |verb: &str| {
        format!(
            "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
             resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: resourceclaims.resource.k8s.io is forbidden: \
             User \"jane\" cannot {verb} resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster \
             scope"
        )
    };
    let allocated = value!({ "status": (status(false, &[])) });
    let mut whole = claim("c", false);
    whole.set("status", allocated["status"].clone());
    grant(&rig, "", &jane(), &[STATUS]).await;
    // In one namespace is not in the whole cluster.
    grant(
        &rig,
        "default",
        &jane(),
        &[("update patch", "resource.k8s.io", "resourceclaims/binding")],
    )
    .await;
    check_invalid(
        as_jane(&rig, "PATCH", &path, &allocated).await,
        &expected("patch"),
    );
    check_invalid(
        as_jane(&rig, "PUT", &path, &whole).await,
        &expected("update"),
    );
    let applied = as_jane(&rig, "APPLY", &format!("{path}?fieldManager=m"), &whole).await;
    check_invalid(applied, &expected("patch"));
    // The verb is that of the request.
    grant(
        &rig,
        "",
        &jane(),
        &[
            STATUS,
            ("update", "resource.k8s.io", "resourceclaims/binding"),
        ],
    )
    .await;
    check_invalid(
        as_jane(&rig, "PATCH", &path, &allocated).await,
        &expected("patch"),
    );
    as_jane(&rig, "PUT", &path, &whole).await.expect(200);

    grant(&rig, "", &jane(), &[STATUS]).await;
    let users =
        value!({ "status": { "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }] } });
    check_invalid(
        as_jane(&rig, "PATCH", &path, &users).await,
        &expected("patch"),
    );
    let released = value!({ "status": { "allocation": null } });
    check_invalid(
        as_jane(&rig, "PATCH", &path, &released).await,
        &expected("patch"),
    );
    // What changes neither needs no more than the verb.
    as_jane(&rig, "PATCH", &path, &allocated).await.expect(200);
    as_jane(
        &rig,
        "PATCH",
        &path,
        &value!({ "status": { "reservedFor": [] } }),
    )
    .await
    .expect(200);
    // The status is not written through the claim itself.
    grant(
        &rig,
        "",
        &jane(),
        &[("update patch", "resource.k8s.io", "resourceclaims")],
    )
    .await;
    let patched = as_jane(&rig, "PATCH", &format!("{CLAIMS}/c"), &users)
        .await
        .expect(200);
    assert!(patched.body["status"]["reservedFor"].is_null());
}

#[tokio::test]
async fn changing_a_device_status_needs_the_driver_permission() {
    let rig = Rig::new().await;
    rig.post(CLAIMS, &json::to_string(&claim("c", false)))
        .await
        .expect(201);
    let path = format!("{CLAIMS}/c/status");
    let (a, b) = ("a.example.com", "b.example.com");
    let said = |devices: &[&str]| value!({ "status": (status(false, devices)) });
    rig.patch(&path, &json::to_string(&said(&[])))
        .await
        .expect(200);
    let refusal = |user: &User, verbs: &[&str]| {
        format!(
            "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" \
             permission: resourceclaims.resource.k8s.io \"{{driver}}\" is forbidden: User \"{}\" cannot {} resource \
             \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\"",
            verbs.join(" "),
            user.name,
            verbs[0]
        )
    };
    let expected = |user: &User, verbs: &[&str], driver: &str| {
        refusal(user, verbs).replace("{driver}", driver)
    };
    let arbitrary = |user: &User, driver: &str| expected(user, &["arbitrary-node:patch"], driver);
    let driver_rules = |verbs: &str, driver: &str| {
        let mut all = rules(&[STATUS, (verbs, "resource.k8s.io", "resourceclaims/driver")]);
        all.list_mut()[1].set("resourceNames", vec![Value::from(driver)]);
        all
    };

    // By driver, and for each that changes.
    grant(&rig, "", &jane(), &[STATUS]).await;
    let both = as_jane(&rig, "PATCH", &path, &said(&[b, a])).await;
    check_invalid(
        both,
        &format!("[{}, {}]", arbitrary(&jane(), a), arbitrary(&jane(), b)),
    );
    grant_rules(&rig, "", &jane(), driver_rules("arbitrary-node:patch", a)).await;
    let both = as_jane(&rig, "PATCH", &path, &said(&[a, b])).await;
    check_invalid(both, &arbitrary(&jane(), b));
    as_jane(&rig, "PATCH", &path, &said(&[a])).await.expect(200);
    let mut whole = claim("c", false);
    whole.set("status", said(&[])["status"].clone());
    let removed = as_jane(&rig, "PUT", &path, &whole).await;
    check_invalid(removed, &expected(&jane(), &["arbitrary-node:update"], a));
    as_jane(&rig, "PATCH", &path, &said(&[a])).await.expect(200);

    // A service account says more about the node that it runs on.
    let account = |nodes: Vec<Value>| {
        let extra = value!({ "authentication.kubernetes.io/node-name": (nodes) });
        User {
            extra,
            ..User::service_account("kube-system", "driver")
        }
    };
    let here = account(vec!["n1".into()]);
    grant_rules(&rig, "", &here, driver_rules("associated-node:patch", b)).await;
    let call = async |user: User, body: &Value| {
        rig.call_as(user, &[], "PATCH", &path, &json::to_string(body))
            .await
    };
    let two = value!({ "status": (status(false, &[a, b])) });
    for elsewhere in [
        account(vec!["n2".into()]),
        account(vec![]),
        account(vec!["n1".into(), "n1".into()]),
        User {
            name: here.name.clone(),
            ..User::default()
        },
    ] {
        check_invalid(
            call(elsewhere.clone(), &two).await,
            &arbitrary(&elsewhere, b),
        );
    }
    call(here.clone(), &two).await.expect(200);
    let changed = said(&[b]);
    let verbs = ["associated-node:patch", "arbitrary-node:patch"];
    check_invalid(
        call(here.clone(), &changed).await,
        &expected(&here, &verbs, a),
    );

    // What is said of devices goes with the allocation.
    grant(
        &rig,
        "",
        &jane(),
        &[
            STATUS,
            ("patch", "resource.k8s.io", "resourceclaims/binding"),
        ],
    )
    .await;
    let released = value!({ "status": { "allocation": null } });
    let released = as_jane(&rig, "PATCH", &path, &released).await.expect(200);
    assert!(released.body["status"]["devices"].is_null());
}
