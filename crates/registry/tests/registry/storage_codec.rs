//! Objects in upstream's form: what upstream wrote is read, and what is written upstream can read.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use mizzen_kinds::{catalog, range_allocation, storage_catalog};
use mizzen_object::round_trip::arbitrary;
use mizzen_object::select::LabelSelector;
use mizzen_object::{Kind, default, proto, schema};
use mizzen_registry::{Codec, ListOptions, Selection, StorageCodec};
use mizzen_store::{Draft, Expect, KeyMark, Write};
use mizzen_value::{Value, json};

use crate::rig::{Rig, each_store, key};

fn codec() -> StorageCodec {
    let endpoints = kind("v1", "Endpoints");
    StorageCodec::new("/registry", storage_catalog().stored_kinds())
        .with_keyspace("masterleases", &endpoints)
        .with_keyspace("ranges", &range_allocation())
}

fn kind(api_version: &str, name: &str) -> Kind {
    let mut kinds = storage_catalog().kinds.into_iter();
    let is_it = |kind: &Kind| kind.gvk.api_version() == api_version && kind.gvk.kind == name;
    kinds.find(is_it).unwrap()
}

/// Every keyspace of a kind that is kept, by its prefix.
fn spaces(codec: &StorageCodec) -> BTreeMap<String, String> {
    let kinds = catalog().kinds.into_iter();
    let mut spaces: HashSet<String> = kinds
        .filter(|kind| kind.verbs.iter().any(|verb| verb == "watch"))
        .map(|kind| kind.space())
        .collect();
    spaces.extend(["masterleases".into(), "ranges".into()]);
    let by_prefix: BTreeMap<String, String> = spaces
        .iter()
        .map(|space| (codec.prefix(space), space.clone()))
        .collect();
    assert_eq!(by_prefix.len(), spaces.len(), "no two share a prefix");
    by_prefix
}

/// What a reader sees of a draft.
fn content(draft: &Draft) -> (String, Option<usize>, Vec<String>) {
    let mut terms: Vec<String> = draft.terms.iter().map(|term| term.to_string()).collect();
    terms.sort();
    let value = String::from_utf8_lossy(&draft.value).into_owned();
    (value, draft.stamp, terms)
}

/// The object of a draft, without a resourceVersion.
fn object(draft: &Draft) -> Value {
    let mut object = json::parse(&draft.value).expect("a draft is JSON");
    object.entry("metadata").remove("resourceVersion");
    object
}

/// A record of upstream.
struct UpstreamRecord {
    path: &'static str,
    form: &'static str,
    space: String,
    key: String,
    bytes: Bytes,
}

fn upstream_records(codec: &StorageCodec) -> Vec<UpstreamRecord> {
    let spaces = spaces(codec);
    let lines = include_str!("upstream.records").lines();
    let mut records = Vec::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [path, form, value] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (prefix, space) = spaces
            .iter()
            .find(|(prefix, _)| path.starts_with(*prefix))
            .unwrap();
        records.push(UpstreamRecord {
            path,
            form,
            space: space.clone(),
            key: path[prefix.len()..].into(),
            bytes: BASE64_STANDARD.decode(value).unwrap().into(),
        });
    }
    records
}

/// A definition as upstream writes it, in v1beta1: what its versions share stands above them.
const PIZZAS: &str = r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"pizzas.example.com","uid":"0d4ac3b2-6a53-4fd5-a9a3-6c4a1e2f0009","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"group":"example.com","version":"v1","names":{"plural":"pizzas","singular":"pizza","kind":"Pizza","listKind":"PizzaList"},"scope":"Namespaced","validation":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"rest":{"type":"object","additionalProperties":true,"x-kubernetes-preserve-unknown-fields":true},"size":{"type":"integer","default":30,"minimum":1},"toppings":{"type":"array","items":{"type":"string","enum":["salami","funghi"]}}}}}}},"subresources":{"status":{}},"versions":[{"name":"v1","served":true,"storage":true}],"conversion":{"strategy":"None"},"preserveUnknownFields":false},"status":{"conditions":[{"type":"Established","status":"True","lastTransitionTime":"2026-01-02T03:04:06Z","reason":"InitialNamesAccepted"}],"acceptedNames":{"plural":"pizzas","kind":"Pizza"},"storedVersions":["v1"]}}"#;

#[test]
fn what_upstream_wrote_is_written_again_byte_for_byte() {
    let codec = codec();
    let records = upstream_records(&codec);
    for record in &records {
        let (draft, mark) = codec.decode(&record.space, &record.key, &record.bytes);
        assert_eq!(mark, KeyMark::PLAIN);
        let written = codec.encode(&record.space, &record.key, &draft).unwrap();
        let mut expected = records
            .iter()
            .find(|it| it.path == record.path && it.form == "json")
            .unwrap()
            .bytes
            .clone();
        if record.path.ends_with("/old") {
            assert_eq!(object(&draft)["apiVersion"].str(), "autoscaling/v2");
            assert_eq!(object(&draft)["spec"]["metrics"].list().len(), 2);
            expected = written.bytes.clone();
        }
        // The record has the version that is served. Upstream's server writes another one.
        if record.path.ends_with("/pizzas.example.com") {
            assert_eq!(
                object(&draft)["apiVersion"].str(),
                "apiextensions.k8s.io/v1"
            );
            expected = format!("{PIZZAS}\n").into();
        }
        assert_eq!(
            String::from_utf8_lossy(&written.bytes),
            String::from_utf8_lossy(&expected),
            "{} in {}",
            record.path,
            record.form
        );
    }
    assert_eq!(records.len(), 32);
}

#[test]
fn every_kind_survives_as_json_and_as_protobuf() {
    let codec = codec();
    let mut n_kinds = 0;
    for (kind, stored) in storage_catalog().stored_kinds() {
        let is_kept = stored.verbs.iter().any(|verb| verb == "watch");
        if !is_kept && kind.gvk != stored.gvk {
            continue;
        }
        n_kinds += 1;
        for seed in 0..20 {
            let mut sent = arbitrary(&kind.root, seed);
            let message = proto::encode_object(&kind.gvk, &kind.root, &sent);
            sent.set("kind", &kind.gvk.kind);
            sent.set("apiVersion", kind.gvk.api_version());
            let (space, at) = (kind.space(), format!("{}, seed {seed}", kind.gvk));
            let text = json::to_string(&sent);
            let (from_text, _) = codec.decode(&space, "ns/a", &text.into());
            let (from_message, _) = codec.decode(&space, "ns/a", &message.into());
            if kind.hooks.normalize(&mut sent.clone()).is_err() {
                assert_eq!(from_text.stamp, None, "{at}");
                continue;
            }
            assert_eq!(content(&from_text), content(&from_message), "{at}");
            if kind.gvk == stored.gvk {
                let mut expected = sent;
                kind.hooks.normalize(&mut expected).unwrap();
                default::apply(&kind.root, &mut expected);
                kind.hooks.default(&mut expected);
                for field in ["resourceVersion", "selfLink"] {
                    expected.entry("metadata").remove(field);
                }
                schema::canonical_stored(&kind.root, &mut expected);
                assert_eq!(object(&from_text), expected, "{at}");
            }

            // Arbitrary definitions are none; `kinds/tests/convert.rs` converts sensible ones.
            if stored.gvk.kind == "CustomResourceDefinition" {
                continue;
            }
            let written = codec.encode(&space, "ns/a", &from_text).unwrap().bytes;
            assert!(written.ends_with(b"}\n"), "{at}");
            let mut expected = object(&from_text);
            if let Some(version) = &stored.storage_encoding {
                expected.set("apiVersion", format!("{}/{version}", stored.gvk.group));
            }
            assert_eq!(json::parse(&written).unwrap(), expected, "{at}");
            let (again, _) = codec.decode(&space, "ns/a", &written);
            assert_eq!(content(&again), content(&from_text), "{at}");
            let message = proto::encode_object(&stored.gvk, &stored.root, &object(&from_text));
            let (again, _) = codec.decode(&space, "ns/a", &message.into());
            assert_eq!(content(&again), content(&from_text), "{at}");
        }
    }
    assert!(n_kinds > 100, "{n_kinds}");
}

#[test]
fn upstream_decodes_every_version_that_is_stored() {
    let known: HashSet<&str> = include_str!("upstream.kinds").lines().collect();
    for kind in catalog().kinds {
        if kind.verbs.iter().any(|verb| verb == "watch") {
            let mut gvk = kind.stored.clone().unwrap_or(kind.gvk.clone());
            gvk.version = kind.storage_encoding.clone().unwrap_or(gvk.version);
            let name = format!("{} {}", gvk.api_version(), gvk.kind);
            assert!(known.contains(name.as_str()), "{name}");
        }
    }
}

#[test]
fn an_object_is_written_in_the_version_in_which_upstream_writes_its_kind() {
    let space = "admissionregistration.k8s.io/mutatingadmissionpolicybindings";
    let text = |version: &str| {
        let binding = r#"{"kind":"MutatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/VERSION","metadata":{"name":"a","annotations":{"note":"admissionregistration.k8s.io/v1"}},"spec":{"policyName":"p"}}"#;
        binding.replace("VERSION", version) + "\n"
    };
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let (draft, _) = codec().decode(space, "a", &text(version).into());
        assert_eq!(
            object(&draft)["apiVersion"].str(),
            "admissionregistration.k8s.io/v1"
        );
        let written = codec().encode(space, "a", &draft).unwrap().bytes;
        assert_eq!(String::from_utf8_lossy(&written), text("v1beta1"));
    }
}

#[test]
fn versions_that_upstream_stored_are_converted() {
    for (space, sent, expected) in [
        (
            "resource.k8s.io/resourceclaims",
            r#"{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1beta1","metadata":{"name":"a"},"spec":{"devices":{"requests":[
                {"name":"one","deviceClassName":"c","adminAccess":false,"tolerations":[{"key":"k"}]},
                {"name":"any","firstAvailable":[{"name":"x","deviceClassName":"c"}]}]}}}"#,
            r#"{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"name":"a","resourceVersion":""},"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1,"adminAccess":false,"tolerations":[{"key":"k","operator":"Equal"}]}},{"name":"any","firstAvailable":[{"name":"x","deviceClassName":"c","allocationMode":"ExactCount","count":1}]}]}},"status":{}}"#,
        ),
        (
            "resource.k8s.io/resourceslices",
            r#"{"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1beta1","metadata":{"name":"a"},"spec":{"driver":"d","pool":{"name":"p","generation":1,"resourceSliceCount":1},"nodeName":"","allNodes":false,
                "devices":[{"name":"gpu","basic":{"attributes":{"m":{"string":"x"}},"allNodes":false}}]}}"#,
            r#"{"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","metadata":{"name":"a","resourceVersion":""},"spec":{"driver":"d","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"gpu","attributes":{"m":{"string":"x"}},"allNodes":false}]}}"#,
        ),
        (
            "node.k8s.io/runtimeclasses",
            r#"{"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1alpha1","metadata":{"name":"a"},"spec":{"runtimeHandler":"runc","overhead":{"podFixed":{"cpu":"1"}}}}"#,
            r#"{"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1","metadata":{"name":"a","resourceVersion":""},"handler":"runc","overhead":{"podFixed":{"cpu":"1"}}}"#,
        ),
        (
            "rbac.authorization.k8s.io/rolebindings",
            r#"{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1alpha1","metadata":{"name":"a"},"subjects":[
                {"kind":"User","apiVersion":"rbac.authorization.k8s.io/v1alpha1","name":"*"},
                {"kind":"ServiceAccount","apiVersion":"v1","name":"s","namespace":"n"},
                {"kind":"Robot","apiVersion":"example.com/v1","name":"r"}],"roleRef":{"kind":"Role","name":"r"}}"#,
            r#"{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"a","resourceVersion":""},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"},{"kind":"ServiceAccount","name":"s","namespace":"n"},{"kind":"Robot","apiGroup":"example.com","name":"r"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}}"#,
        ),
        (
            "admissionregistration.k8s.io/validatingadmissionpolicybindings",
            r#"{"kind":"ValidatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/v1alpha1","metadata":{"name":"a"},"spec":{"policyName":"p","paramRef":{"name":"x"}}}"#,
            r#"{"kind":"ValidatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"a","resourceVersion":""},"spec":{"policyName":"p","paramRef":{"name":"x","parameterNotFoundAction":"Deny"}}}"#,
        ),
    ] {
        let (draft, _) = codec().decode(space, "a", &sent.into());
        assert_eq!(String::from_utf8_lossy(&draft.value), expected);
    }
}

#[test]
fn unknown_fields_are_dropped() {
    let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","selfLink":"/x","resourceVersion":"7","x":1},"data":{"b":"c"},"y":[]}"#;
    let (draft, _) = codec().decode("configmaps", "ns/a", &text.into());
    assert_eq!(
        String::from_utf8_lossy(&draft.value),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":""},"data":{"b":"c"}}"#
    );
}

#[tokio::test]
async fn readers_find_what_another_program_wrote() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","labels":{"b":"c"}}}"#;
        put(&rig, text.into()).await;
        let found = rig.registry.get(&maps, &key("a"), "").ok().unwrap();
        let revision = rig.registry.store().revision().to_string();
        assert_eq!(found.value()["metadata"]["resourceVersion"].str(), revision);
        for (selector, n_found) in [("b=c", 1), ("b=d", 0)] {
            let options = ListOptions {
                selection: Selection {
                    labels: LabelSelector::parse(selector).unwrap(),
                    ..Selection::default()
                },
                ..ListOptions::default()
            };
            let list = rig.list(&maps, &options).await.ok().unwrap();
            assert_eq!(list.items.len(), n_found, "{selector}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_decoded_is_an_error_for_each_reader() {
    for (bytes, expected) in [
        (
            Bytes::from(r#"{"apiVersion":"v1","kind":"ConfigMap","data":[]}"#),
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            Bytes::from(r#"{"apiVersion":"v1","kind":"Pod"}"#),
            r#"no kind "Pod" is registered for version "v1""#,
        ),
        (Bytes::from("{}"), "Object 'Kind' is missing in '{}'"),
        (
            Bytes::from("k8s\0\u{1}"),
            "proto: illegal tag 0 (wire type 1)",
        ),
    ] {
        for rig in each_store() {
            let maps = rig.config_maps();
            put(&rig, bytes.clone()).await;
            for n_errors in 1..3 {
                let error = rig.registry.get(&maps, &key("a"), "").err().unwrap();
                assert_eq!((error.code, error.message.as_str()), (500, expected));
                assert_eq!(maps.space().stats().decode_errors, n_errors);
            }
        }
    }
}

/// Stores bytes as an engine does that found them.
async fn put(rig: &Rig, bytes: Bytes) {
    let (draft, _) = codec().decode("configmaps", "ns/a", &bytes);
    let write = Write::put(rig.config_maps().space(), "ns/a", Expect::Any, draft);
    rig.registry.store().commit_one(write).await.unwrap();
}
