//! The code for several definitions: it compiles, it is what the generator makes now, and no object
//! loses a field in its types. For random schemas the code is valid Rust.

mod property;

/// What the generator makes; `UPDATE_EXPECT=1` writes it.
#[allow(missing_docs, unreachable_pub)]
mod generated {
    pub mod at;
    pub mod broker;
    pub mod every;
    pub mod foo;
    pub mod option;
}

use std::fs;
use std::path::{Path, PathBuf};

use kube::CustomResourceExt;
use mizzen_crd_types::{GenerateError, generate};
use mizzen_value::{Value, json, yaml};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crd_types")
}

fn read_yaml(path: &Path) -> Value {
    yaml::read(&fs::read(path).unwrap()).unwrap().value
}

/// The definition of a name. That of the example `at` is where its operator has it.
fn definition(name: &str) -> Value {
    let path = match name {
        "at" => tests()
            .join("../../../../examples/at/config/crd/cnat.programming-kubernetes.info_ats.yaml"),
        name => tests().join(format!("definitions/{name}.yaml")),
    };
    read_yaml(&path)
}

#[test]
fn the_committed_types_are_those_of_the_definitions() {
    for name in ["at", "broker", "every", "foo", "option"] {
        let code = generate(&definition(name), None).unwrap();
        let path = tests().join(format!("generated/{name}.rs"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &code).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap();
        assert!(committed == code, "{name}.rs is stale: set UPDATE_EXPECT=1");
    }
}

/// Decodes an object, encodes it, and compares every field.
#[track_caller]
fn check_round_trip<K: DeserializeOwned + Serialize>(object: &Value) {
    let typed: K = serde_json::from_str(&json::to_string(object)).unwrap();
    let again = serde_json::to_string(&typed).unwrap();
    let mut again = json::parse(again.as_bytes()).unwrap();
    let mut object = object.clone();
    sort(&mut again);
    sort(&mut object);
    assert_eq!(json::to_string(&again), json::to_string(&object));
}

fn sort(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(sort);
        }
        Value::List(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

fn sample(name: &str) -> Value {
    read_yaml(&tests().join(format!("definitions/{name}.sample.yaml")))
}

#[test]
fn no_object_loses_a_field() {
    check_round_trip::<generated::foo::Foo>(&sample("foo"));
    check_round_trip::<generated::every::Everything>(&sample("every"));
    check_round_trip::<generated::broker::Broker>(&sample("broker"));
    check_round_trip::<generated::option::OptionObject>(&sample("option"));
    let at = tests().join("../../../../examples/at/manifests/at.yaml");
    check_round_trip::<generated::at::At>(&read_yaml(&at));
}

#[test]
fn defaults_are_those_of_the_schema() {
    let mut object = sample("every");
    let optional = [
        "replicas", "region", "ratio", "enabled", "strategy", "limits",
    ];
    for field in optional {
        object.entry("spec").remove(field);
    }
    let text = json::to_string(&object);
    let every: generated::every::Everything = serde_json::from_str(&text).unwrap();
    assert_eq!(every.spec.replicas, 3);
    assert_eq!(every.spec.region, "north \"pole\"");
    assert_eq!(every.spec.ratio, 1.0);
    assert!(every.spec.enabled);
    let strategy = generated::every::EverythingSpecStrategy::Rolling;
    assert_eq!(every.spec.strategy, strategy);
    assert_eq!(every.spec.limits, None);
}

/// The types name the resource as the definition does.
#[track_caller]
fn check_names<K: CustomResourceExt>(name: &str) {
    let (expected, found) = (definition(name), K::crd());
    let found = json::parse(&serde_json::to_vec(&found).unwrap()).unwrap();
    assert_eq!(found.at("metadata.name"), expected.at("metadata.name"));
    for field in ["kind", "plural", "shortNames", "categories"] {
        let names = |value: &Value| {
            let names = value.at("spec.names").get(field);
            let names = names.filter(|names| !names.is_empty());
            names.map(json::to_string)
        };
        assert_eq!(names(&found), names(&expected), "{field}");
    }
    assert_eq!(found.at("spec.scope"), expected.at("spec.scope"));
}

#[test]
fn a_type_knows_the_names_of_its_resource() {
    check_names::<generated::at::At>("at");
    check_names::<generated::broker::Broker>("broker");
    check_names::<generated::every::Everything>("every");
    check_names::<generated::foo::Foo>("foo");
    check_names::<generated::option::OptionObject>("option");
}

#[test]
fn a_version_can_be_chosen() {
    let every = definition("every");
    let code = generate(&every, Some("v1")).unwrap();
    assert!(code.contains("version = \"v1\"") && code.contains("pub old: Option<String>"));
    let error = generate(&every, Some("v3")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "everythings.test.example.com has no version \"v3\"; its versions are v1, v2"
    );
    let mut old = every;
    old.set("apiVersion", "apiextensions.k8s.io/v1beta1");
    assert!(matches!(
        generate(&old, None),
        Err(GenerateError::NotADefinition(_))
    ));
}

#[test]
fn the_order_of_properties_does_not_matter() {
    let mut every = definition("every");
    let code = generate(&every, None).unwrap();
    sort(&mut every);
    assert_eq!(generate(&every, None).unwrap(), code);
}
