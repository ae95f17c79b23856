//! What must hold of any bytes that strangers send: no panic, and what is read can be written and read again.
//!
//! The fuzzer calls these with inputs that it finds; `crates/kinds/tests/fuzz.rs` with seeded ones.

use std::sync::LazyLock;

use mizzen_kinds::catalog;
use mizzen_object::patch::{self, JsonPatch};
use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::{
    Action, Kind, Value, Violations, Who, decode, default, json, proto, quantity, schema, yaml,
};

/// JSON of any shape.
pub fn json(bytes: &[u8]) {
    let Ok(value) = json::parse(bytes) else { return };
    let text = json::to_string(&value);
    assert_eq!(json::parse(text.as_bytes()).as_ref(), Ok(&value), "{text}");
    json::pretty(text.as_bytes());
    patch::go_text(&value);
    patch::repeated_keys(bytes);
    let _ = decode::type_meta(bytes);
}

/// YAML of any shape.
pub fn yaml(bytes: &[u8]) {
    let Ok(document) = yaml::read(bytes) else { return };
    let text = yaml::write(&document.value);
    let again = yaml::read(text.as_bytes()).map(|document| document.value);
    assert_eq!(again.as_ref(), Ok(&document.value), "{text}");
    assert!(json::parse(&document.to_json()).is_ok(), "{text}");
}

/// A pod in JSON, all the way to where its rules are checked.
pub fn pod_json(bytes: &[u8]) {
    if let Ok(decoded) = decode::decode(&POD.root, bytes) {
        live(decoded.value);
    }
}

/// A pod in protobuf, in its envelope or without one.
pub fn pod_proto(bytes: &[u8]) {
    let message = proto::decode_object(bytes).map_or(bytes, |unknown| unknown.raw);
    if let Ok(pod) = proto::decode_message(&POD.root, message) {
        live(pod);
    }
}

/// A label selector of a query.
pub fn label_selector(bytes: &[u8]) {
    if let Ok(selector) = LabelSelector::parse(&String::from_utf8_lossy(bytes)) {
        selector.matches(|_| Some("1"));
        selector.matches(|_| None);
    }
}

/// A field selector of a query.
pub fn field_selector(bytes: &[u8]) {
    if let Ok(selector) = FieldSelector::parse(&String::from_utf8_lossy(bytes)) {
        selector.matches(|_| "1");
    }
}

/// A quantity: its canonical form is its own canonical form.
pub fn quantity(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(canonical) = quantity::canonical(&text) else { return };
    assert_eq!(quantity::canonical(&canonical).as_ref(), Ok(&canonical), "{text}");
}

/// A JSON Patch, applied to a pod.
pub fn json_patch(bytes: &[u8]) {
    let Ok(patch) = JsonPatch::parse(bytes) else { return };
    let mut pod = json::parse(POD_TEXT).expect("sound JSON");
    if patch.apply(&mut pod).is_ok() {
        let _ = decode::restore(&POD.root, pod);
    }
}

/// A strategic merge patch, applied to a pod.
pub fn strategic_patch(bytes: &[u8]) {
    let Ok(mut patch) = json::parse(bytes) else { return };
    let mut pod = json::parse(POD_TEXT).expect("sound JSON");
    if patch::strategic_merge(&POD.root, &mut pod, &mut patch).is_ok() {
        let _ = decode::restore(&POD.root, pod);
    }
}

/// A pod to begin with.
pub const POD_TEXT: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","labels":{"c":"d"},"annotations":{"e":"f"},"ownerReferences":[{"apiVersion":"v1","kind":"g","name":"h","uid":"i"}],"finalizers":["j/k"]},"spec":{"containers":[{"name":"l","image":"m","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"n","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"limits":{"cpu":"1500m","memory":"1Gi"}},"volumeMounts":[{"name":"o","mountPath":"/p"}],"livenessProbe":{"httpGet":{"path":"/","port":"q"},"periodSeconds":5}}],"volumes":[{"name":"o","emptyDir":{}},{"name":"r","projected":{"sources":[{"secret":{"name":"s"}}]}}],"tolerations":[{"key":"t","operator":"Exists","tolerationSeconds":3}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"u","operator":"Gt","values":["1"]}]}]}}},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"v","whenUnsatisfiable":"DoNotSchedule"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"hostNetwork":true},"status":{"phase":"Pending","startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;

static POD: LazyLock<Kind> = LazyLock::new(|| {
    let kinds = catalog().kinds;
    kinds.into_iter().find(|kind| kind.gvk.kind == "Pod").expect("there are pods")
});

/// A pod in its envelope, as bytes.
pub fn pod_message() -> Vec<u8> {
    let pod = decode::decode(&POD.root, POD_TEXT).expect("a sound pod").value;
    proto::encode_object(&POD.gvk, &POD.root, &pod)
}

/// What the server does with a pod that could be read.
fn live(mut pod: Value) {
    schema::canonical(&POD.root, &mut pod);
    check_round_trips(&pod);
    default::apply(&POD.root, &mut pod);
    POD.hooks.default(&mut pod);
    schema::canonical(&POD.root, &mut pod);

    let old = pod.clone();
    let who = Who::default();
    for (action, old) in [(Action::Create, None), (Action::Update, Some(&old)), (Action::Status, Some(&old))]
    {
        let context = who.context(action, "2026-01-01T00:00:00Z");
        POD.hooks.prepare(&mut pod, old, &context);
        POD.hooks.validate(&pod, old, &context, &mut Violations::default());
        POD.hooks.warnings(&pod, old, &context);
    }
    POD.hooks.cells(&pod, 1_800_000_000);
    POD.hooks.grace(&pod, None);
}

fn check_round_trips(pod: &Value) {
    let text = json::to_string(pod);
    let again = decode::decode(&POD.root, text.as_bytes()).map(|decoded| decoded.value);
    assert_eq!(again.as_ref().ok(), Some(pod), "in JSON: {text}");
    // Protobuf has these in the envelope.
    let mut pod = pod.clone();
    pod.remove("kind");
    pod.remove("apiVersion");
    let mut message = Vec::new();
    proto::encode_message(&POD.root, &pod, &mut message);
    assert_eq!(proto::decode_message(&POD.root, &message), Ok(pod), "in protobuf: {text}");
}
