//! Properties of any untrusted input: no panic, and decoded values round-trip.
//!
//! The fuzzer calls these with its own inputs, `crates/kinds/tests/fuzz.rs` with seeded ones.

#![allow(
    unreachable_pub,
    reason = "tests include this file as a module of their own"
)]

use std::sync::LazyLock;

use mizzen_cel as cel;
use mizzen_cel::{Environment, EvalLimits, UnknownSizes};
use mizzen_go_regexp as go_regexp;
use mizzen_go_regexp::Regexp;
use mizzen_kinds::catalog;
use mizzen_object::jsonpath::Template;
use mizzen_object::managed_fields::FieldSet;
use mizzen_object::patch::{self, JsonPatch};
use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::structural::Structural;
use mizzen_object::{Action, Kind, User, Violations, decode, default, proto, schema};
use mizzen_value::{Value, json, quantity, yaml};

/// JSON of any shape.
pub fn json(bytes: &[u8]) {
    let Ok(value) = json::parse(bytes) else {
        return;
    };
    let text = json::to_string(&value);
    assert_eq!(json::parse(text.as_bytes()).as_ref(), Ok(&value), "{text}");
    json::pretty(text.as_bytes());
    patch::go_text(&value);
    patch::repeated_keys(bytes);
    let _ = decode::type_meta(bytes);
}

/// YAML of any shape.
pub fn yaml(bytes: &[u8]) {
    let Ok(document) = yaml::read(bytes) else {
        return;
    };
    let text = yaml::write(&document.value);
    let again = yaml::read(text.as_bytes()).map(|document| document.value);
    assert_eq!(again.as_ref(), Ok(&document.value), "{text}");
    assert!(json::parse(&document.to_json()).is_ok(), "{text}");
}

/// A pod in JSON: decoded, defaulted and validated.
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
    let Ok(canonical) = quantity::canonical(&text) else {
        return;
    };
    assert_eq!(
        quantity::canonical(&canonical).as_ref(),
        Ok(&canonical),
        "{text}"
    );
}

/// A JSON Patch, applied to a pod.
pub fn json_patch(bytes: &[u8]) {
    let Ok(patch) = JsonPatch::parse(bytes) else {
        return;
    };
    let mut pod = json::parse(POD_TEXT).expect("sound JSON");
    if patch.apply(&mut pod).is_ok() {
        let _ = decode::from_unstructured(&POD.root, pod);
    }
}

/// A strategic merge patch, applied to a pod.
pub fn strategic_patch(bytes: &[u8]) {
    let Ok(mut patch) = json::parse(bytes) else {
        return;
    };
    let mut pod = json::parse(POD_TEXT).expect("sound JSON");
    if patch::strategic_merge(&POD.root, &mut pod, &mut patch).is_ok() {
        let _ = decode::from_unstructured(&POD.root, pod);
    }
}

/// An expression, compiled and evaluated with a pod as `object`. Its cost stays within the budget.
pub fn cel(bytes: &[u8]) {
    const MOST: u64 = 100_000;
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(program) = CEL.compile(text) else {
        return;
    };
    program.estimate(&UnknownSizes);
    let pod = json::parse(POD_TEXT).expect("sound JSON");
    let variables = [("object", cel::Value::data(&pod))];
    let evaluation = program.evaluate(&variables, EvalLimits::cost(MOST));
    assert!(
        evaluation.value.is_err() || evaluation.cost <= MOST,
        "{text}: {}",
        evaluation.cost
    );
}

/// A regular expression and, after a NUL, the text that it is matched with. Matches lie in the text, in order.
pub fn go_regexp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, subject) = text
        .split_once('\0')
        .unwrap_or((&text, "abc-123 \u{e9}\n.*"));
    let is_accepted = go_regexp::check(pattern).is_ok();
    let regexp = Regexp::new(pattern);
    let found = regexp.find_all(subject, 10);
    assert_eq!(found.is_ok(), is_accepted, "{pattern}");
    let Ok(found) = found else { return };
    assert_eq!(regexp.is_match(subject), Ok(!found.is_empty()), "{pattern}");
}

/// The schema of a custom kind and, in the next line, an object of it. If the schema is accepted, the object can be pruned,
/// defaulted and validated; pruning and defaulting twice is the same as once.
pub fn structural_schema(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let mut next = || json::parse(parts.next()?).ok();
    let Some(schema) = next() else { return };
    let mut object = next().unwrap_or_else(|| json::parse(POD_TEXT).expect("sound JSON"));
    let definition = DEFINITION_TEXT.replace("SCHEMA", &json::to_string(&schema));
    let definition = json::parse(definition.as_bytes()).expect("sound JSON");
    let Ok(decoded) = decode::from_unstructured(&DEFINITION.root, definition) else {
        return;
    };
    let mut definition = decoded.value;
    DEFINITION.hooks.default(&mut definition);
    let (who, mut violations) = (User::default(), Violations::default());
    let context = who.context(Action::Create, "2026-01-01T00:00:00Z");
    DEFINITION
        .hooks
        .validate(&definition, None, &context, &mut violations);
    if !violations.is_empty() {
        return;
    }
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let structural = Structural::compile(schema, false);
    for _ in 0..2 {
        let before = object.clone();
        structural.prune(&mut object);
        structural.default(&mut object);
        structural.validate(&object, Some(&before), &mut Violations::default());
        structural.validate_lists(&object, Some(&before), &mut Violations::default());
        structural.validate_rules(&object, Some(&before), &mut Violations::default());
        let mut again = object.clone();
        structural.prune(&mut again);
        structural.default(&mut again);
        assert_eq!(again, object);
    }
}

/// `fieldsV1` of a managedFields entry round-trips.
pub fn fields_v1(bytes: &[u8]) {
    let Ok(set) = FieldSet::parse(&String::from_utf8_lossy(bytes)) else {
        return;
    };
    assert_eq!(FieldSet::from_value(&set.to_value()), Ok(set));
}

/// A JSONPath template, applied to a pod.
pub fn json_path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(template) = Template::parse(&text) else {
        return;
    };
    let _ = template.execute(&json::parse(POD_TEXT).expect("sound JSON"));
}

static CEL: LazyLock<Environment> =
    LazyLock::new(|| Environment::new((1, 36)).with_variable("object", cel::Type::Dyn));

static DEFINITION: LazyLock<Kind> = LazyLock::new(|| kind("CustomResourceDefinition"));

const DEFINITION_TEXT: &str = r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Namespaced","names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":SCHEMA}}]}}"#;

/// A seed schema.
pub const SCHEMA_TEXT: &[u8] = br#"{"type":"object","properties":{"spec":{"type":"object","required":["replicas"],"properties":{"replicas":{"type":"integer","format":"int32","minimum":0,"maximum":10,"default":1},"name":{"type":"string","pattern":"^[a-z]+$","maxLength":5,"enum":["a","b"]},"ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],"maxItems":10,"items":{"type":"object","required":["port"],"properties":{"port":{"x-kubernetes-int-or-string":true},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}},"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"map":{"type":"object","additionalProperties":{"type":"number","multipleOf":0.5}}},"oneOf":[{"required":["name"]},{"not":{"required":["ports"]}}],"x-kubernetes-validations":[{"rule":"self.replicas < 5","message":"m"}]}}}
{"spec":{"replicas":7,"name":"abc","ports":[{"port":80},{"port":"80","any":{"x":1}}],"tags":["a","a"],"map":{"k":0.25},"unknown":1}}"#;

/// A seed pod.
pub const POD_TEXT: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","labels":{"c":"d"},"annotations":{"e":"f"},"ownerReferences":[{"apiVersion":"v1","kind":"g","name":"h","uid":"i"}],"finalizers":["j/k"]},"spec":{"containers":[{"name":"l","image":"m","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"n","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"limits":{"cpu":"1500m","memory":"1Gi"}},"volumeMounts":[{"name":"o","mountPath":"/p"}],"livenessProbe":{"httpGet":{"path":"/","port":"q"},"periodSeconds":5}}],"volumes":[{"name":"o","emptyDir":{}},{"name":"r","projected":{"sources":[{"secret":{"name":"s"}}]}}],"tolerations":[{"key":"t","operator":"Exists","tolerationSeconds":3}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"u","operator":"Gt","values":["1"]}]}]}}},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"v","whenUnsatisfiable":"DoNotSchedule"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"hostNetwork":true},"status":{"phase":"Pending","startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;

static POD: LazyLock<Kind> = LazyLock::new(|| kind("Pod"));

fn kind(name: &str) -> Kind {
    let kinds = catalog().kinds;
    kinds
        .into_iter()
        .find(|kind| kind.gvk.kind == name)
        .expect("a built-in kind")
}

/// A pod in its envelope, as bytes.
pub fn pod_message() -> Vec<u8> {
    let pod = decode::decode(&POD.root, POD_TEXT)
        .expect("a sound pod")
        .value;
    proto::encode_object(&POD.gvk, &POD.root, &pod)
}

/// What the server does with a decoded pod.
fn live(mut pod: Value) {
    schema::canonical(&POD.root, &mut pod);
    check_round_trips(&pod);
    default::apply(&POD.root, &mut pod);
    POD.hooks.default(&mut pod);
    schema::canonical(&POD.root, &mut pod);

    let old = pod.clone();
    let who = User::default();
    for (action, old) in [
        (Action::Create, None),
        (Action::Update, Some(&old)),
        (Action::Status, Some(&old)),
    ] {
        let context = who.context(action, "2026-01-01T00:00:00Z");
        POD.hooks.prepare(&mut pod, old, &context);
        POD.hooks
            .validate(&pod, old, &context, &mut Violations::default());
        POD.hooks.warnings(&pod, old, &context);
    }
    POD.hooks.cells(&pod, 1_800_000_000);
    POD.hooks.grace_period(&pod, None);
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
    assert_eq!(
        proto::decode_message(&POD.root, &message),
        Ok(pod),
        "in protobuf: {text}"
    );
}
