//! Encrypted records of upstream are decoded, ours look as upstream's, and stale and unreadable ones are found out.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_registry::{Key, Registry, Resource, StorageCodec, Store, StoreOptions};
use mizzen_store::{Expect, Write};
use mizzen_value::json;

use crate::kms::tests::test_plugin::TestPlugin;
use crate::tests::{file, keyed, start};

use super::*;

const SECRET: &str = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"default"},"type":"Opaque"}"#;

fn plain() -> Arc<dyn Codec> {
    let kinds = mizzen_kinds::catalog();
    Arc::new(StorageCodec::new("/registry", kinds.stored_kinds()))
}

/// A codec that encrypts secrets and deployments by these providers.
async fn codec(providers: &str) -> EncryptedCodec {
    let text = file(&[("secrets, deployments.apps", providers)]);
    EncryptedCodec::new(plain(), start(&text).await.unwrap())
}

fn draft() -> Draft {
    plain().decode("secrets", "default/db", &SECRET.into()).0
}

/// What a reader of the draft gets: its object, or the error with its code and reason.
async fn read(draft: Draft) -> Result<String, (u16, String, String)> {
    let store = Store::in_memory(StoreOptions::default());
    let mut kinds = mizzen_kinds::catalog().kinds.into_iter();
    let kind = kinds.find(|kind| kind.gvk.kind == "Secret").unwrap();
    let secrets = Resource::new(&store, kind, None);
    let write = Write::put(secrets.space(), "default/db", Expect::Any, draft);
    store.commit_one(write).await.unwrap();
    let clock = Arc::new(mizzen_apiserver::clock::WallClock);
    let random = Arc::new(mizzen_apiserver::clock::SystemRandom);
    let registry = Registry::new(store, clock, random);
    match registry.get(&secrets, &Key::new("default", "db"), "") {
        Ok(object) => Ok(object.value()["metadata"]["name"].str().to_string()),
        Err(error) => Err((error.code, error.reason.to_string(), error.message.clone())),
    }
}

#[tokio::test]
async fn records_of_upstream_are_decoded() {
    let lines = include_str!("upstream.records").lines();
    let mut n_decoded = 0;
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [path, form, method, value] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let bytes: Bytes = BASE64_STANDARD.decode(value).unwrap().into();
        let n_key = ["", "aescbc", "aesgcm", "secretbox"]
            .iter()
            .position(|known| *known == method)
            .unwrap();
        let codec = codec(&keyed(method, n_key as u8)).await;
        let (space, name) = match path.contains("secrets") {
            true => ("secrets", "db"),
            false => ("apps/deployments", "web"),
        };
        let key = path.strip_prefix(&codec.prefix(space)).unwrap();
        let (draft, mark) = codec.decode(space, key, &bytes);
        let object = json::parse(&draft.value).unwrap();
        assert_eq!(
            object["metadata"]["name"].str(),
            name,
            "{path} {form} {method}"
        );
        assert_eq!(mark, codec.mark(space), "{path} {form} {method}");

        // Only AES-GCM authenticates the key.
        let (draft, _) = codec.decode(space, "default/other", &bytes);
        assert_eq!(draft.stamp.is_none(), method == "aesgcm", "{path} {method}");
        n_decoded += 1;
    }
    assert_eq!(n_decoded, 12);
}

#[tokio::test]
async fn a_record_is_encrypted_for_its_etcd_key() {
    let codec = codec(&keyed("aesgcm", 2)).await;
    let encoded = codec.encode("secrets", "default/db", &draft()).unwrap();
    assert!(encoded.bytes.starts_with(b"k8s:enc:aesgcm:v1:key2:"));
    assert_eq!(encoded.mark, codec.mark("secrets"));
    let rules = codec.encryption.rules();
    let path = b"/registry/secrets/default/db";
    let (plain_text, _) = rules.decrypt("secrets", path, &encoded.bytes).unwrap();
    let expected = plain().encode("secrets", "default/db", &draft()).unwrap();
    assert_eq!(plain_text, expected.bytes);
    let (decoded, mark) = codec.decode("secrets", "default/db", &encoded.bytes);
    assert_eq!((decoded.value, mark), (draft().value, encoded.mark));
}

#[tokio::test]
async fn what_no_rule_names_is_plain_text() {
    let codec = codec(&keyed("aesgcm", 2)).await;
    let text = SECRET
        .replace("Secret", "ConfigMap")
        .replace(r#","type":"Opaque""#, "");
    let (draft, mark) = codec.decode("configmaps", "default/db", &text.clone().into());
    assert_eq!(mark, KeyMark::PLAIN);
    let encoded = codec.encode("configmaps", "default/db", &draft).unwrap();
    assert_eq!(encoded.bytes, text + "\n");
    assert_eq!(
        (encoded.mark, codec.mark("configmaps")),
        (KeyMark::PLAIN, KeyMark::PLAIN)
    );
}

#[tokio::test]
async fn records_of_later_providers_are_read_and_stale() {
    let old = codec(&keyed("aescbc", 1)).await;
    let old = old.encode("secrets", "default/db", &draft()).unwrap();
    for (providers, bytes) in [
        (
            format!("{}, {}", keyed("aesgcm", 2), keyed("aescbc", 1)),
            &old.bytes,
        ),
        (
            format!("{{identity: {{}}}}, {}", keyed("aescbc", 1)),
            &old.bytes,
        ),
        (
            format!("{}, {{identity: {{}}}}", keyed("aesgcm", 2)),
            &SECRET.into(),
        ),
    ] {
        let codec = codec(&providers).await;
        let (decoded, mark) = codec.decode("secrets", "default/db", bytes);
        assert_eq!(read(decoded).await.as_deref(), Ok("db"), "{providers}");
        assert_ne!(mark, codec.mark("secrets"), "{providers}");
        let encoded = codec.encode("secrets", "default/db", &draft()).unwrap();
        let (_, mark) = codec.decode("secrets", "default/db", &encoded.bytes);
        assert_eq!(mark, codec.mark("secrets"), "{providers}");
    }
}

#[tokio::test]
async fn what_cannot_be_decrypted_is_an_error_for_its_readers() {
    let encrypted = codec(&keyed("aesgcm", 1)).await;
    let encrypted = encrypted.encode("secrets", "default/db", &draft()).unwrap();
    let no_rules = EncryptedCodec::new(
        plain(),
        start(&file(&[("configmaps", "{identity: {}}")]))
            .await
            .unwrap(),
    );
    for (codec, bytes, expected) in [
        (
            codec(&keyed("aesgcm", 2)).await,
            &encrypted.bytes,
            "no matching key was found for the provided AES transformer",
        ),
        (
            codec(&keyed("secretbox", 3)).await,
            &encrypted.bytes,
            "no matching prefix found",
        ),
        (
            codec("{identity: {}}").await,
            &encrypted.bytes,
            "no matching prefix found",
        ),
        (
            no_rules,
            &encrypted.bytes,
            "identity transformer tried to read encrypted data",
        ),
        (
            codec(&keyed("aesgcm", 2)).await,
            &SECRET.into(),
            "no matching prefix found",
        ),
    ] {
        let (draft, mark) = codec.decode("secrets", "default/db", bytes);
        assert_eq!(mark, codec.mark("secrets"));
        let expected = format!("Internal error occurred: {expected}");
        assert_eq!(
            read(draft).await,
            Err((500, "InternalError".into(), expected))
        );
    }
}

#[tokio::test]
async fn bitmaps_of_ports_are_encrypted_as_services_are() {
    let text = file(&[("services", &keyed("aesgcm", 2))]);
    let kinds = mizzen_kinds::catalog();
    let plain = StorageCodec::new("/registry", kinds.stored_kinds())
        .with_keyspace("ranges", &mizzen_kinds::range_allocation());
    let codec = EncryptedCodec::new(Arc::new(plain), start(&text).await.unwrap());
    let bytes = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"AAAB"}"#;
    let draft = codec
        .plain
        .decode("ranges", "servicenodeports", &bytes.into());
    let encoded = codec
        .encode("ranges", "servicenodeports", &draft.0)
        .unwrap();
    let rules = codec.encryption.rules();
    let path = b"/registry/ranges/servicenodeports";
    let (decrypted, mark) = rules.decrypt("services", path, &encoded.bytes).unwrap();
    assert_eq!(decrypted, format!("{bytes}\n").into_bytes());
    assert_eq!(mark, codec.mark("ranges"));
    let (again, mark) = codec.decode("ranges", "servicenodeports", &encoded.bytes);
    assert_eq!((again.value, mark), (draft.0.value, codec.mark("services")));
}

#[tokio::test]
async fn a_record_of_upstream_is_decrypted_by_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = TestPlugin::start(&dir.path().join("socket"));
    let socket = plugin.socket.display();
    let kms = format!("{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{socket}'}}}}");
    let codec = Arc::new(codec(&kms).await);
    let line = include_str!("../kms/upstream.vector").lines().nth(1);
    let (path, value) = line.unwrap().split_once(' ').unwrap();
    let key = path.strip_prefix(&codec.prefix("secrets")).unwrap();
    let bytes: Bytes = BASE64_STANDARD.decode(value).unwrap().into();
    let decoding = codec.clone();
    let (draft, mark) =
        tokio::task::spawn_blocking(move || decoding.decode("secrets", key, &bytes))
            .await
            .unwrap();
    let object = json::parse(&draft.value).unwrap();
    assert_eq!(object["metadata"]["name"].str(), "test");
    assert_eq!(mark, codec.mark("secrets"));
}
