//! Objects in upstream's form: what upstream wrote is read, and what is written upstream can read.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use mizzen_kinds::{legacy_catalog, range_allocation};
use mizzen_object::round_trip::arbitrary;
use mizzen_object::select::LabelSelector;
use mizzen_object::{Kind, default, proto, schema};
use mizzen_registry::{Codec, ListOptions, Selection, StorageCodec};
use mizzen_store::{Draft, Expect, KeyMark, Write};
use mizzen_value::{Value, json};

use crate::rig::{Rig, each_store, key};

fn codec() -> StorageCodec {
    let endpoints = kind("v1", "Endpoints");
    StorageCodec::new("/registry", legacy_catalog().stored_kinds())
        .with_keyspace("masterleases", &endpoints)
        .with_keyspace("ranges", &range_allocation())
}

fn kind(api_version: &str, name: &str) -> Kind {
    let mut kinds = legacy_catalog().kinds.into_iter();
    let is_it = |kind: &Kind| kind.gvk.api_version() == api_version && kind.gvk.kind == name;
    kinds.find(is_it).unwrap()
}

/// Every keyspace of a kind that is kept, by its prefix.
fn spaces(codec: &StorageCodec) -> BTreeMap<String, String> {
    let kinds = legacy_catalog().kinds.into_iter();
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
    for (kind, stored) in legacy_catalog().stored_kinds() {
        let is_kept = kind.verbs.iter().any(|verb| verb == "watch");
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

            let written = codec.encode(&space, "ns/a", &from_text).unwrap().bytes;
            assert!(written.ends_with(b"}\n"), "{at}");
            assert_eq!(json::parse(&written).unwrap(), object(&from_text), "{at}");
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
    for (kind, stored) in legacy_catalog().stored_kinds() {
        if kind.verbs.iter().any(|verb| verb == "watch") {
            let name = format!("{} {}", stored.gvk.api_version(), stored.gvk.kind);
            assert!(known.contains(name.as_str()), "{name}");
        }
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
