//! What is refused of somebody who applies, and what a writer owns.

use mizzen_value::{json, value};

use crate::crd::{FOOS, define, definition, foo, version};
use crate::rig::{CONFIG_MAPS, Rig};

#[tokio::test]
async fn an_apply_with_the_uid_of_a_missing_object_is_a_conflict_before_other_errors() {
    let rig = Rig::new().await;
    for metadata in [
        r#"{"name":"a","uid":"u"}"#,
        r#"{"uid":"u"}"#,
        r#"{"name":"a","namespace":"else","uid":"u"}"#,
    ] {
        let config = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#);
        let refused = rig
            .apply(&format!("{CONFIG_MAPS}/a"), "me", &config)
            .await
            .expect(409);
        let why =
            "uid mismatch: the provided object specified uid u, and no existing object was found";
        assert_eq!(
            refused.message(),
            format!(r#"Operation cannot be fulfilled on configmaps "a": {why}"#),
            "{metadata}"
        );
    }
    let unnamed = r#"{"apiVersion":"v1","kind":"ConfigMap"}"#;
    rig.apply(&format!("{CONFIG_MAPS}/a"), "me", unnamed)
        .await
        .expect(400);
}

/// A job as its creator `m` gets it: its labels without their values, and whose they are.
async fn job(rig: &Rig, labels: &str, of_template: &str) -> (Vec<String>, String) {
    let body = format!(
        r#"{{"metadata":{{"name":"j","labels":{labels}}},"spec":{{"template":{{"metadata":{{"labels":{of_template}}},
        "spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    );
    let jobs = "/apis/batch/v1/namespaces/default/jobs?dryRun=All&fieldManager=m";
    let made = rig.post(jobs, &body).await.expect(201).body;
    let labels = made["metadata"]["labels"]
        .entries()
        .map(|(name, _)| name.to_owned())
        .collect();
    (
        labels,
        json::to_string(&made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]),
    )
}

#[tokio::test]
async fn the_creator_owns_the_template_labels_of_a_job_except_generated_ones() {
    let rig = Rig::new().await;
    let generated = [
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
    ];
    let (own, of_creator) = (r#"{"a":"b"}"#, r#"{"f:labels":{".":{},"f:a":{}}}"#);
    let (labels, owned) = job(&rig, "{}", own).await;
    assert_eq!(
        (labels.contains(&"a".into()), labels.len(), owned.as_str()),
        (true, 5, of_creator)
    );
    let (labels, owned) = job(&rig, "{}", "{}").await;
    assert_eq!(
        (labels, owned.as_str()),
        (generated.map(String::from).into(), "null")
    );
    let (labels, owned) = job(&rig, own, own).await;
    assert_eq!((labels, owned.as_str()), (vec!["a".into()], of_creator));
}

#[tokio::test]
async fn invalid_template_labels_of_a_job_are_reported_for_the_job() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"j"},"spec":{"template":{"metadata":{"labels":{"a":"-"}},
        "spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let refused = rig
        .post("/apis/batch/v1/namespaces/default/jobs", body)
        .await
        .expect(422);
    let fields = refused.body["details"]["causes"]
        .list()
        .iter()
        .map(|cause| cause["field"].str());
    assert_eq!(
        fields.collect::<Vec<_>>(),
        ["metadata.labels", "spec.template.labels"]
    );
}

/// Each answer was seen at v1.36.4.
#[tokio::test(start_paused = true)]
async fn nulls_that_a_schema_forbids_are_pruned_except_from_an_applied_configuration() {
    let rig = Rig::new().await;
    let properties = r#"{"a":{"type":"string"},"n":{"type":"string","nullable":true},
        "d":{"type":"string","default":"x"},"m":{"type":"object","additionalProperties":{"type":"string"}}}"#;
    define(&rig, &definition(vec![version("v1", true, properties)])).await;
    let cases = [
        (
            r#"{"a":null}"#,
            r#"{"d":"x"}"#,
            Some(r#"spec.a: Invalid value: "null": spec.a in body must be of type string: "null""#),
        ),
        (r#"{"n":null}"#, r#"{"d":"x","n":null}"#, None),
        (r#"{"d":null}"#, r#"{"d":"x"}"#, None),
        (
            r#"{"m":{"k":null}}"#,
            r#"{"d":"x","m":{}}"#,
            Some(
                r#"spec.m.k: Invalid value: "null": spec.m.k in body must be of type string: "null""#,
            ),
        ),
    ];
    for (spec, expected, refused) in cases {
        let path = format!("{FOOS}/one");
        let made = rig.post(FOOS, &foo("v1", "one", spec)).await.expect(201);
        assert_eq!(json::to_string(&made.body["spec"]), expected, "{spec}");
        rig.delete(&path, "").await.expect(200);
        let applied = rig.apply(&path, "m", &foo("v1", "one", spec)).await;
        match refused {
            Some(why) => {
                let message = applied.expect(422).message().to_owned();
                assert_eq!(
                    message,
                    format!(r#"Foo.example.com "one" is invalid: {why}"#)
                );
            }
            None => {
                let applied = applied.expect(201).body;
                assert_eq!(json::to_string(&applied["spec"]), expected, "{spec}");
                rig.delete(&path, "").await.expect(200);
            }
        }
    }
}

/// Each answer was seen at v1.36.4.
#[tokio::test(start_paused = true)]
async fn the_scale_of_a_custom_object_is_applied_only_where_that_needs_no_conversion() {
    let rig = Rig::new().await;
    let mut version = version(
        "v1",
        true,
        r#"{"n":{"type":"integer"},"x":{"type":"string"}}"#,
    );
    version.set(
        "subresources",
        value!({ "scale": { "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n" } }),
    );
    define(&rig, &definition(vec![version])).await;
    rig.post(FOOS, &foo("v1", "unowned", r#"{"x":"y"}"#))
        .await
        .expect(201);
    rig.post(FOOS, &foo("v1", "owned", r#"{"n":1}"#))
        .await
        .expect(201);
    let scale = |name: &str, spec: &str| {
        format!(
            r#"{{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
        )
    };
    let two = r#"{"replicas":2}"#;
    let conversion = "request to convert CR to an invalid group/version: autoscaling/v1";
    let cases = [
        ("none", scale("none", two), 404, r#"foos.example.com "none" not found"#.to_owned()),
        ("unowned", "[]".into(), 400, "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}".into()),
        ("unowned", foo("v1", "unowned", "{}"), 400, "invalid object type: example.com/v1, Kind=Foo".into()),
        ("unowned", scale("unowned", r#"{"replicas":"x"}"#), 500, format!("failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: {conversion}")),
        ("unowned", scale("unowned", two), 500, format!("failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: {conversion}")),
        ("owned", scale("owned", r#"{"replicas":"x"}"#), 500, "failed to create typed patch object (/owned; autoscaling/v1, Kind=Scale): .spec.replicas: expected numeric (int or float), got string".into()),
        ("owned", scale("owned", two), 409, r#"Apply failed with 1 conflict: conflict with "unknown" using autoscaling/v1: .spec.replicas"#.into()),
    ];
    for (name, body, code, expected) in cases {
        let reply = rig.apply(&format!("{FOOS}/{name}/scale"), "m", &body).await;
        assert_eq!(reply.message(), expected, "{name} {body}");
        reply.expect(code);
    }
    let forced = rig
        .call(
            "APPLY",
            &format!("{FOOS}/owned/scale?fieldManager=m&force=true"),
            &scale("owned", two),
        )
        .await
        .expect(500);
    assert_eq!(
        forced.message(),
        format!(
            "failed to convert new object (/owned; autoscaling/v1, Kind=Scale) to proper version: {conversion}"
        )
    );
    let unchanged = rig
        .apply(
            &format!("{FOOS}/owned/scale"),
            "m",
            &scale("owned", r#"{"replicas":1}"#),
        )
        .await
        .expect(200);
    assert_eq!(unchanged.body.at("spec.replicas").int(), 1);
}
