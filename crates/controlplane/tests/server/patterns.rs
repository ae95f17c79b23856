//! Regular expressions of definitions and policies: what they may cost.

use parking_lot::Mutex;

use mizzen_go_regexp::{MAX_COMPILED_BYTES, MAX_SIZE, compiled_bytes};
use mizzen_value::{Value, json, value};

use crate::crd::DEFINITIONS;
use crate::rig::{CONFIG_MAPS, Reply, Rig};

const N_KINDS: usize = 6;
const N_PATTERNS: usize = 700;

/// A pattern of Unicode classes, which took 140 KB and milliseconds once.
fn pattern(index: usize) -> String {
    format!(r"^[\p{{L}}\p{{N}}\p{{M}}]+\P{{Greek}}{{1,3}}{index}$")
}

/// The definition of `kind<index>s.example.com` with these patterns, one for each field of `spec`.
fn definition(index: usize, patterns: impl Iterator<Item = String>) -> Value {
    let mut properties = Value::object();
    for (field, pattern) in patterns.enumerate() {
        properties.set(
            &format!("f{field}"),
            value!({ "type": "string", "pattern": pattern }),
        );
    }
    let (plural, kind) = (format!("kind{index}s"), format!("Kind{index}"));
    value!({
        "metadata": { "name": (format!("{plural}.example.com")) },
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": { "plural": plural, "kind": kind },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "properties": (properties) } },
                } },
            }],
        },
    })
}

async fn define(rig: &Rig, index: usize, patterns: impl Iterator<Item = String>) -> Reply {
    rig.post(DEFINITIONS, &json::to_string(&definition(index, patterns)))
        .await
}

fn path(index: usize) -> String {
    format!("/apis/example.com/v1/kind{index}s")
}

fn object(index: usize, name: &str, spec: Value) -> String {
    let kind = format!("Kind{index}");
    let object = value!({
        "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": name }, "spec": (spec),
    });
    json::to_string(&object)
}

/// A spec in which every field matches.
fn matching() -> Value {
    let mut spec = Value::object();
    (0..N_PATTERNS).for_each(|index| spec.set(&format!("f{index}"), format!("été日本-{index}")));
    spec
}

#[tokio::test]
async fn patterns_of_definitions_are_compiled_when_they_are_matched_shared_and_bounded() {
    let rig = Rig::new().await;
    for index in 0..N_KINDS {
        define(&rig, index, (0..N_PATTERNS).map(pattern))
            .await
            .expect(201);
        rig.get(&path(index)).await.expect(200);
    }
    assert_eq!(
        compiled_bytes(),
        0,
        "neither a definition nor a read compiles patterns"
    );

    rig.post(&path(0), &object(0, "a", matching()))
        .await
        .expect(201);
    let bytes = compiled_bytes();
    assert!(bytes > 0 && bytes < N_PATTERNS * 2000, "{bytes}");
    for index in 1..N_KINDS {
        rig.post(&path(index), &object(index, "a", matching()))
            .await
            .expect(201);
    }
    assert_eq!(compiled_bytes(), bytes, "equal patterns are compiled once");
    assert!(bytes < MAX_COMPILED_BYTES);

    let refused = rig
        .post(&path(0), &object(0, "b", value!({ "f7": "αβγ7" })))
        .await
        .expect(422);
    assert!(
        refused
            .message()
            .contains(r"should match '^[\p{L}\p{N}\p{M}]+\P{Greek}{1,3}7$'"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn patterns_are_freed_with_their_definition() {
    let rig = Rig::new().await;
    define(&rig, 0, (0..N_PATTERNS).map(pattern))
        .await
        .expect(201);
    rig.post(&path(0), &object(0, "a", matching()))
        .await
        .expect(201);
    assert!(compiled_bytes() > 0);
    rig.delete(&format!("{DEFINITIONS}/kind0s.example.com"), "")
        .await
        .expect(200);
    for _ in 0..10_000 {
        if compiled_bytes() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} bytes are still in use", compiled_bytes());
}

#[tokio::test]
async fn a_definition_with_too_large_patterns_is_rejected() {
    let rig = Rig::new().await;
    let one = format!("(?:[a-z]{{1000}}){{1}}{}", "x".repeat(MAX_SIZE));
    let refused = define(&rig, 0, [one].into_iter()).await.expect(422);
    let place = "spec.validation.openAPIV3Schema.properties[spec].properties[f0].pattern";
    assert!(refused.message().contains(place), "{refused:?}");
    assert!(
        refused
            .message()
            .contains("error parsing regexp: expression too large"),
        "{refused:?}"
    );

    let many = (0..21).map(|index| format!("{index}{}", "(?:[a-z]{1000})".repeat(48)));
    let refused = define(&rig, 0, many).await.expect(422);
    let expected = "spec.versions: Forbidden: the regular expressions of all versions take 10";
    assert!(refused.message().contains(expected), "{refused:?}");
    assert_eq!(compiled_bytes(), 0);
}

/// On one thread, so that work that is done on it would be done before the second request is looked at.
#[tokio::test]
async fn an_object_that_takes_long_to_match_delays_no_other_request() {
    let rig = Rig::new().await;
    define(&rig, 0, [r"^(\p{L}?){1000}$".to_string()].into_iter())
        .await
        .expect(201);
    let order = Mutex::new(Vec::new());
    let note = |what| order.lock().push(what);
    let body = object(0, "a", value!({ "f0": (("é").repeat(12_000)) }));
    let long = async {
        let reply = rig.post(&path(0), &body).await;
        note("long");
        reply
    };
    let short = async {
        rig.get(CONFIG_MAPS).await.expect(200);
        note("short");
    };
    let (reply, ()) = tokio::join!(long, short);
    assert!(reply.expect(422).message().contains("should match"));
    assert_eq!(*order.lock(), ["short", "long"]);
}

#[tokio::test]
async fn patterns_of_expressions_are_compiled_when_they_are_matched() {
    let rig = Rig::new().await;
    let rule = |index| {
        let pattern = pattern(index).replace('\\', r"\\");
        value!({ "expression": (format!("object.metadata.name != 'x' || 'été-{index}'.matches('{pattern}')")) })
    };
    let rules: Vec<Value> = (0..200).map(rule).collect();
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = value!({ "metadata": { "name": "p" }, "spec": {
        "matchConstraints": { "resourceRules": [
            { "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"] },
        ] },
        "validations": (rules),
    } });
    let path = format!("{group}/validatingadmissionpolicies");
    rig.post(&path, &json::to_string(&policy)).await.expect(201);
    let binding = value!({ "metadata": { "name": "p" }, "spec": { "policyName": "p", "validationActions": ["Deny"] } });
    let path = format!("{group}/validatingadmissionpolicybindings");
    rig.post(&path, &json::to_string(&binding))
        .await
        .expect(201);
    rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"}}"#)
        .await
        .expect(201);
    assert_eq!(compiled_bytes(), 0, "no pattern was matched");
    rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"x"}}"#)
        .await
        .expect(201);
    let bytes = compiled_bytes();
    assert!(bytes > 0 && bytes < 200 * 2000, "{bytes}");
}
