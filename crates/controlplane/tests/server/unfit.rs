//! What is said of an object that looks right and cannot be read all the same: annotations that are numbers.

use crate::rig::{Reply, Rig};

const DEPLOYMENT: (&str, &str, &str) = (
    "deployments",
    "Deployment",
    "deprecated.deployment.rollback.to",
);
const DAEMON_SET: (&str, &str, &str) = (
    "daemonsets",
    "DaemonSet",
    "deprecated.daemonset.template.generation",
);

/// An object `d` with the annotation that is a number.
fn object((_, kind, annotation): (&str, &str, &str), text: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"{kind}","metadata":{{"name":"d","annotations":{{"{annotation}":"{text}"}}}},
        "spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},
        "spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    )
}

fn collection((resource, ..): (&str, &str, &str)) -> String {
    format!("/apis/apps/v1/namespaces/default/{resource}")
}

async fn patch(
    rig: &Rig,
    (resource, _, annotation): (&str, &str, &str),
    form: &str,
    text: &str,
) -> Reply {
    let path = format!("/apis/apps/v1/namespaces/default/{resource}/d");
    let merge = format!(r#"{{"metadata":{{"annotations":{{"{annotation}":"{text}"}}}}}}"#);
    let json = format!(
        r#"[{{"op":"add","path":"/metadata/annotations","value":{{"{annotation}":"{text}"}}}}]"#
    );
    rig.call(form, &path, if form == "JSON" { &json } else { &merge })
        .await
}

#[track_caller]
fn check(reply: Reply, code: u16, reason: &str, message: &str) {
    let body = &reply.expect(code).body;
    assert_eq!(
        (body["reason"].str(), body["message"].str()),
        (reason, message)
    );
}

#[tokio::test]
async fn an_undecodable_body_is_a_bad_request() {
    let rig = Rig::new().await;
    for (kind, text, problem) in [
        (
            DEPLOYMENT,
            "x",
            "failed to parse annotation[deprecated.deployment.rollback.to]=x as int64: strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            DAEMON_SET,
            "x",
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            DAEMON_SET,
            "",
            "strconv.ParseInt: parsing \"\": invalid syntax",
        ),
        (
            DAEMON_SET,
            "99999999999999999999",
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
        ),
    ] {
        let name = kind.1;
        let message = format!("{name} in version \"v1\" cannot be handled as a {name}: {problem}");
        let path = collection(kind);
        check(
            rig.post(&path, &object(kind, text)).await,
            400,
            "BadRequest",
            &message,
        );
        check(
            rig.put(&format!("{path}/d"), &object(kind, text)).await,
            400,
            "BadRequest",
            &message,
        );
    }
}

#[tokio::test]
async fn a_patch_that_makes_an_object_undecodable_is_rejected_by_patch_type() {
    let rig = Rig::new().await;
    for kind in [DEPLOYMENT, DAEMON_SET] {
        rig.post(&collection(kind), &object(kind, "1"))
            .await
            .expect(201);
        for form in ["JSON", "PATCH"] {
            let refused = patch(&rig, kind, form, "x").await.expect(422);
            let message = refused.message();
            assert!(
                message
                    .starts_with(" \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\""),
                "{message}"
            );
            assert!(
                message.ends_with("strconv.ParseInt: parsing \"x\": invalid syntax"),
                "{message}"
            );
        }
    }
    let problem = "strconv.ParseInt: parsing \"x\": invalid syntax";
    check(
        patch(&rig, DAEMON_SET, "STRATEGIC", "x").await,
        500,
        "",
        problem,
    );
    let applied = rig
        .apply(
            &format!("{}/d", collection(DAEMON_SET)),
            "m&force=true",
            &object(DAEMON_SET, "x"),
        )
        .await;
    let message =
        format!("failed to convert to unversioned (/d; apps/v1, Kind=DaemonSet): {problem}");
    check(applied, 500, "", &message);
}

#[tokio::test]
async fn a_number_is_stored_in_canonical_form() {
    let rig = Rig::new().await;
    let path = collection(DEPLOYMENT);
    let annotation = |reply: Reply| {
        reply.body["metadata"]["annotations"]
            .get(DEPLOYMENT.2)
            .cloned()
    };
    let made = rig.post(&path, &object(DEPLOYMENT, "+5")).await.expect(201);
    assert_eq!(annotation(made), Some("5".into()));
    let changed = patch(&rig, DEPLOYMENT, "PATCH", "007").await.expect(200);
    assert_eq!(annotation(changed), Some("7".into()));
    let emptied = patch(&rig, DEPLOYMENT, "STRATEGIC", "").await.expect(200);
    assert_eq!(annotation(emptied), None);
    let refused = patch(&rig, DEPLOYMENT, "PATCH", "-3").await.expect(422);
    let expected = "spec.rollback.version: Invalid value: -3: must be greater than or equal to 0";
    assert!(
        refused.message().ends_with(expected),
        "{}",
        refused.message()
    );
}
