//! Configuration files: validation, rules and reload.

use std::time::Duration;

use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_metrics::Families;
use tempfile::TempDir;

use super::*;

/// The key whose bytes are all `byte`, in base64.
fn key(byte: u8, length: usize) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(vec![byte; length])
}

/// A provider with one key, named after its byte.
pub(crate) fn keyed(method: &str, byte: u8) -> String {
    format!(
        "{{{method}: {{keys: [{{name: key{byte}, secret: {}}}]}}}}",
        key(byte, 32)
    )
}

/// A file of entries: resources and providers.
pub(crate) fn file(entries: &[(&str, &str)]) -> String {
    let entries = entries.iter().map(|(resources, providers)| {
        format!("- resources: [{resources}]\n  providers: [{providers}]\n")
    });
    let entries: String = entries.collect();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{entries}"
    )
}

pub(crate) async fn start(text: &str) -> Result<Arc<Encryption>, EncryptionConfigurationError> {
    start_at(&PathBuf::from("a file"), text).await
}

async fn start_at(
    file: &std::path::Path,
    text: &str,
) -> Result<Arc<Encryption>, EncryptionConfigurationError> {
    let (clock, random) = (Arc::new(WallClock), Arc::new(SystemRandom));
    Encryption::start(file.into(), text.as_bytes(), clock, random).await
}

/// The first bytes of a record that is written now; empty if it is not encrypted.
fn written(encryption: &Encryption, space: &str) -> String {
    let encrypted = encryption.encrypt(space, "default/a", b"plain").unwrap();
    let text = encrypted.map(|encrypted| {
        String::from_utf8_lossy(&encrypted.bytes[..24.min(encrypted.bytes.len())]).into_owned()
    });
    text.unwrap_or_default()
}

#[track_caller]
fn check_rejected(text: &str, expected: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = runtime.block_on(start(text)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn another_kind_is_rejected() {
    check_rejected(
        "kind: Nonsense\napiVersion: v1\n",
        "no kind \"Nonsense\" is registered for version \"v1\" in scheme \
         \"pkg/server/options/encryptionconfig/config.go:142\"",
    );
    check_rejected(
        "kind: Nonsense\n",
        "Object 'apiVersion' is missing in 'kind: Nonsense\n'",
    );
}

#[test]
fn unknown_fields_are_rejected() {
    let text = file(&[("secrets", "{aescbc: {keyz: []}}")]);
    check_rejected(
        &text,
        r#"strict decoding error: unknown field "resources[0].providers[0].aescbc.keyz""#,
    );
}

#[test]
fn resources_and_providers_are_required() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    check_rejected(
        head,
        "resources: Required value: at least one resources is required",
    );
    check_rejected(
        &file(&[("", "")]),
        "[resources[0].resources: Required value: at least one resources[0].resources is required, \
         resources[0].providers: Required value: at least one resources[0].providers is required]",
    );
}

#[test]
fn invalid_resources_are_rejected() {
    let check = |resources: &str, expected: &str| {
        check_rejected(
            &file(&[(resources, "{identity: {}}")]),
            &format!("resources[0].resources{expected}"),
        );
    };
    check(
        "Secrets",
        r#"[0]: Invalid value: "Secrets": resource name should not contain capital letters"#,
    );
    check(
        "'*'",
        r#"[0]: Invalid value: "*": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"#,
    );
    check(
        "serviceipallocations",
        r#"[0]: Invalid value: "serviceipallocations": resources which do not have REST API/s cannot be encrypted"#,
    );
    check(
        "events.events.k8s.io",
        r#"[0]: Invalid value: "events.events.k8s.io": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"#,
    );
    check(
        "ingresses.extensions",
        r#"[0]: Invalid value: "ingresses.extensions": 'extensions' group has been removed and cannot be used for encryption"#,
    );
    check(
        "secrets.*",
        r#"[0]: Invalid value: "secrets.*": encrypting the same resource across groups is not supported"#,
    );
    check(
        "secrets, secrets",
        r#": Invalid value: ["secrets","secrets"]: the same resource cannot be specified multiple times"#,
    );
    let overlap = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as \
                   they will be masked";
    check(
        "secrets, '*.'",
        &format!(r#": Invalid value: ["secrets","*."]: {overlap}"#),
    );
    check(
        "'*.*', pods",
        &format!(r#": Invalid value: ["*.*","pods"]: {overlap}"#),
    );
    check(
        "'*.apps', deployments.apps",
        &format!(r#": Invalid value: ["*.apps","deployments.apps"]: {overlap}"#),
    );
}

#[test]
fn resources_masked_by_an_earlier_entry_are_rejected() {
    let identity = "{identity: {}}";
    check_rejected(
        &file(&[("'*.'", identity), ("secrets", identity)]),
        r#"resource "secrets" is masked by earlier rule "*.""#,
    );
    check_rejected(
        &file(&[("'*.*'", identity), ("'*.apps'", identity)]),
        r#"resource "*.apps" is masked by earlier rule "*.*""#,
    );
}

#[test]
fn invalid_providers_are_rejected() {
    let check = |provider: &str, expected: &str| {
        check_rejected(
            &file(&[("secrets", provider)]),
            &format!("resources[0].providers[0]{expected}"),
        );
    };
    check(
        "{}",
        r#": Invalid value: {"AESGCM":null,"AESCBC":null,"Secretbox":null,"Identity":null,"KMS":null}: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"#,
    );
    check(
        "{aescbc: {}}",
        ".aescbc.keys: Required value: at least one keys is required",
    );
    check(
        "{aesgcm: {keys: [{name: a, secret: '!'}]}}",
        r#".aesgcm.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded"#,
    );
    check(
        "{aesgcm: {keys: [{name: a, secret: AAAA}]}}",
        r#".aesgcm.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 3, expected one of [16 24 32]"#,
    );
    check(
        &format!(
            "{{secretbox: {{keys: [{{name: a, secret: {}}}]}}}}",
            key(1, 16)
        ),
        r#".secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]"#,
    );
    check_rejected(
        &file(&[("secrets", "{aescbc: {keys: [{secret: ''}]}}")]),
        "[resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key, \
         resources[0].providers[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key]",
    );
}

#[test]
fn invalid_plugins_are_rejected() {
    let check = |kms: &str, expected: &str| {
        let text = file(&[("secrets", &format!("{{kms: {{{kms}}}}}"))]);
        check_rejected(&text, expected);
    };
    let at = |expected: &str| format!("resources[0].providers[0].kms.{expected}");
    check(
        "apiVersion: v2, endpoint: 'unix:///s'",
        &at("name: Required value: name is a mandatory field for a provider"),
    );
    check(
        "apiVersion: v2, name: 'a:b', endpoint: 'unix:///s'",
        &at(r#"name: Invalid value: "a:b": invalid KMS provider name a:b, must not contain ':'"#),
    );
    check(
        "apiVersion: v2, name: a",
        &at(r#"endpoint: Invalid value: "": endpoint is a mandatory field for a kms"#),
    );
    check(
        "apiVersion: v2, name: a, endpoint: 'http://s'",
        &at(
            r#"endpoint: Invalid value: "http://s": unsupported scheme "http" for KMS provider, only unix is supported"#,
        ),
    );
    check(
        "apiVersion: v2, name: a, endpoint: 'unix:///s', timeout: -1s",
        &at(r#"timeout: Invalid value: "-1s": timeout should be a positive value"#),
    );
    check(
        "apiVersion: v2, name: a, endpoint: 'unix:///s', cachesize: 5",
        &at("cachesize: Invalid value: 5: cachesize is not supported in v2"),
    );
    check(
        "apiVersion: v3, name: a, endpoint: 'unix:///s'",
        &at(
            r#"apiVersion: Invalid value: "v3": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"#,
        ),
    );
    check(
        "name: a, endpoint: 'unix:///s'",
        "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.",
    );
}

#[test]
fn names_of_plugins_are_unique() {
    let kms = "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///s'}}";
    check_rejected(
        &file(&[("secrets", kms), ("configmaps", kms)]),
        "resources[1].providers[0].kms.name: Invalid value: \"a\": duplicate KMS provider name a, names must be unique",
    );
}

#[test]
fn an_endpoint_names_a_socket() {
    let check = |endpoint: &str, expected: &str| {
        let kms =
            format!("{{kms: {{apiVersion: v2, name: a, timeout: 5s, endpoint: '{endpoint}'}}}}");
        let configuration =
            configuration::EncryptionConfiguration::parse(file(&[("secrets", &kms)]).as_bytes())
                .unwrap();
        let configuration::ProviderConfiguration::Kms(options) =
            &configuration.entries[0].providers[0]
        else {
            panic!()
        };
        assert_eq!(
            (options.socket.as_str(), options.timeout),
            (expected, Duration::from_secs(5))
        );
    };
    check("unix:///run/kms.sock", "/run/kms.sock");
    check("unix:/run/kms.sock", "/run/kms.sock");
    check("unix:///@kms", "@kms");
}

#[tokio::test]
async fn the_most_specific_entry_applies() {
    let text = file(&[
        ("events", "{identity: {}}"),
        ("secrets, pizzas.example.com", &keyed("aescbc", 1)),
        ("'*.apps'", &keyed("aesgcm", 2)),
        ("'*.*'", &keyed("secretbox", 3)),
    ]);
    let encryption = start(&text).await.unwrap();
    let check = |space: &str, expected: &str| {
        let written = written(&encryption, space);
        assert!(
            written.starts_with(expected) && (!expected.is_empty() || written.is_empty()),
            "{space}: {written}"
        );
    };
    check("events", "");
    check("secrets", "k8s:enc:aescbc:v1:key1:");
    check("example.com/pizzas", "k8s:enc:aescbc:v1:key1:");
    check("apps/deployments", "k8s:enc:aesgcm:v1:key2:");
    check("pods", "k8s:enc:secretbox:v1:key");
    check("example.com/others", "k8s:enc:secretbox:v1:key");
}

#[tokio::test]
async fn the_first_provider_writes_and_all_read() {
    let old = start(&file(&[("secrets", &keyed("aescbc", 1))]))
        .await
        .unwrap();
    let both = file(&[(
        "secrets",
        &format!(
            "{}, {}, {{identity: {{}}}}",
            keyed("aesgcm", 2),
            keyed("aescbc", 1)
        ),
    )]);
    let both = start(&both).await.unwrap();
    let new = start(&file(&[("secrets", &keyed("aesgcm", 2))]))
        .await
        .unwrap();

    let encrypted = old
        .encrypt("secrets", "default/a", b"plain")
        .unwrap()
        .unwrap();
    let (plain, mark) = both
        .decrypt("secrets", "default/a", &encrypted.bytes)
        .unwrap();
    assert_eq!(plain, b"plain");
    assert_ne!(mark, both.mark("secrets"), "it is stale");
    assert!(
        !both.is_current("secrets", Some(&encrypted.bytes)) && !both.is_current("secrets", None)
    );
    assert!(both.allow_plain_text("secrets").is_ok());

    let encrypted = both
        .encrypt("secrets", "default/a", b"plain")
        .unwrap()
        .unwrap();
    assert_eq!(encrypted.mark, both.mark("secrets"));
    assert!(both.is_current("secrets", Some(&encrypted.bytes)));
    assert_eq!(
        new.decrypt("secrets", "default/a", &encrypted.bytes)
            .unwrap()
            .0,
        b"plain"
    );
    assert_eq!(
        new.allow_plain_text("secrets").unwrap_err().to_string(),
        "no matching prefix found"
    );
    assert!(
        new.allow_plain_text("pods").is_ok(),
        "pods are not configured"
    );
}

#[tokio::test]
async fn encryptions_and_decryptions_are_counted() {
    let entry = format!("{}, {}", keyed("aesgcm", 2), keyed("aescbc", 1));
    let encryption = start(&file(&[("secrets, deployments.apps", &entry)]))
        .await
        .unwrap();
    let encrypted = encryption
        .encrypt("secrets", "default/a", b"plain")
        .unwrap()
        .unwrap();
    encryption
        .encrypt("apps/deployments", "default/a", b"plain")
        .unwrap();
    encryption
        .decrypt("secrets", "default/a", &encrypted.bytes)
        .unwrap();
    encryption
        .decrypt("secrets", "default/b", &encrypted.bytes)
        .unwrap_err();
    encryption
        .decrypt("secrets", "default/a", b"k8s:enc:secretbox:v1:key:x")
        .unwrap_err();
    let out = Families::of(&[&*encryption]).to_string();
    for (resource, status, way, prefix) in [
        ("secrets", "OK", "to_storage", "k8s:enc:aesgcm:v1:"),
        ("deployments.apps", "OK", "to_storage", "k8s:enc:aesgcm:v1:"),
        ("secrets", "OK", "from_storage", "k8s:enc:aesgcm:v1:"),
        (
            "secrets",
            "unknown-non-grpc",
            "from_storage",
            "k8s:enc:aesgcm:v1:",
        ),
        ("secrets", "unknown-non-grpc", "from_storage", "unknown"),
    ] {
        let labels =
            format!("resource=\"{resource}\",status=\"{status}\",transformation_type=\"{way}\"");
        let line = format!("_operations_total{{{labels},transformer_prefix=\"{prefix}\"}} 1\n");
        assert!(out.contains(&line), "{line} is not in\n{out}");
    }
    let took = "_seconds_count{transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:aesgcm:v1:\"} 2\n";
    assert!(out.contains(took), "{out}");
    assert!(
        out.contains("apiserver_encryption_config_controller_last_config_info{"),
        "{out}"
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_decrypted_is_an_error_with_its_reason() {
    let one = start(&file(&[("secrets", &keyed("aesgcm", 1))]))
        .await
        .unwrap();
    let encrypted = one
        .encrypt("secrets", "default/a", b"plain")
        .unwrap()
        .unwrap()
        .bytes;
    let check = |encryption: &Encryption, key: &str, expected: &str| {
        let error = encryption.decrypt("secrets", key, &encrypted).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&one, "default/b", "cipher: message authentication failed");
    let other = start(&file(&[("secrets", &keyed("aesgcm", 2))]))
        .await
        .unwrap();
    check(
        &other,
        "default/a",
        "no matching key was found for the provided AES transformer",
    );
    let other = start(&file(&[("secrets", &keyed("secretbox", 2))]))
        .await
        .unwrap();
    check(&other, "default/a", "no matching prefix found");
    let wrong = keyed("aesgcm", 2).replace("key2", "key1");
    let other = start(&file(&[("secrets", &wrong)])).await.unwrap();
    check(&other, "default/a", "cipher: message authentication failed");
    let other = start(&file(&[("configmaps", &wrong)])).await.unwrap();
    check(
        &other,
        "default/a",
        "identity transformer tried to read encrypted data",
    );
}

#[tokio::test]
async fn two_keys_with_one_name_have_different_marks() {
    let renamed = keyed("aesgcm", 2).replace("key2", "key1");
    let old = start(&file(&[("secrets", &keyed("aesgcm", 1))]))
        .await
        .unwrap();
    let both = start(&file(&[(
        "secrets",
        &format!("{renamed}, {}", keyed("aesgcm", 1)),
    )]))
    .await
    .unwrap();
    let encrypted = old
        .encrypt("secrets", "default/a", b"plain")
        .unwrap()
        .unwrap();
    let (plain, mark) = both
        .decrypt("secrets", "default/a", &encrypted.bytes)
        .unwrap();
    assert_eq!(plain, b"plain");
    assert_ne!(mark, both.mark("secrets"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_reloaded_if_it_is_valid() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("encryption.yaml");
    let first = file(&[("secrets", &keyed("aescbc", 1))]);
    std::fs::write(&path, &first).unwrap();
    let encryption = start_at(&path, &first).await.unwrap();
    let task = tokio::spawn(encryption.clone().reload_on_change());
    let (generation, mark) = (encryption.generation(), encryption.mark("secrets"));

    std::fs::write(&path, file(&[("secrets", &keyed("aescbc", 2))])).unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(written(&encryption, "secrets").starts_with("k8s:enc:aescbc:v1:key2:"));
    assert_ne!(encryption.mark("secrets"), mark);
    assert_ne!(encryption.generation(), generation);

    let generation = encryption.generation();
    let missing = dir.path().join("missing");
    let kms = format!(
        "{{kms: {{apiVersion: v2, name: a, endpoint: 'unix://{}'}}}}",
        missing.display()
    );
    for bad in ["nonsense".to_string(), file(&[("secrets", &kms)])] {
        std::fs::write(&path, bad).unwrap();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(written(&encryption, "secrets").starts_with("k8s:enc:aescbc:v1:key2:"));
    }
    assert_eq!(encryption.generation(), generation);
    std::fs::write(&path, &first).unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(encryption.mark("secrets"), mark, "it is the old key again");
    let out = Families::of(&[&*encryption]).to_string();
    let reloads =
        "encryption_config_controller_automatic_reloads_total{apiserver_id_hash=\"\",status=";
    assert!(
        out.contains(&format!("{reloads}\"success\"}} 2\n")),
        "{out}"
    );
    assert!(out.contains(&format!("{reloads}\"failure\"}}")), "{out}");
    task.abort();
}
