//! Encryption at rest: keys and KMS plug-ins that are added and removed.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use mizzen_etcd::messages::RangeRequest;

use crate::client::Client;
use crate::crash;
use crate::etcd_server::{Cluster, Options, installed};
use crate::linearizable::servers::Servers;
use crate::plugin::TestPlugin;
use crate::process::{Home, Process};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PIZZAS: &str = "/apis/example.com/v1/namespaces/default/pizzas";
/// The data of a secret, which must not be readable.
const HUSH: &str = "hush-hush-hush-hush";

/// A data directory whose servers use `encryption.yaml`.
fn home(providers: &str) -> Home {
    let home = Home::on_disk()
        .with("--encryption-provider-config")
        .with("encryption.yaml");
    say(&home, providers);
    home
}

/// Configures these providers for secrets and pizzas.
fn say(home: &Home, providers: &str) {
    say_of(home, "secrets, pizzas.example.com", providers);
}

fn say_of(home: &Home, resources: &str, providers: &str) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: \
         [{resources}]\n  providers: [{providers}]\n"
    );
    fs::write(home.path().join("encryption.yaml"), text).unwrap();
}

fn aes(byte: u8) -> String {
    let secret = BASE64_STANDARD.encode([byte; 32]);
    format!("{{aescbc: {{keys: [{{name: key{byte}, secret: {secret}}}]}}}}")
}

const IDENTITY: &str = "{identity: {}}";

/// Whether `text` is in any file of the data directory, plain or in base64.
fn can_read(home: &Home, text: &str) -> bool {
    let encoded = BASE64_STANDARD.encode(text);
    let encoded = encoded.trim_end_matches('=');
    // The last character of base64 depends on the following bytes.
    files(&home.data_dir()).iter().any(|bytes| {
        contains(bytes, text.as_bytes())
            || contains(bytes, &encoded.as_bytes()[..encoded.len() - 1])
    })
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let paths = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![fs::read(path).unwrap_or_default()]
            }
        })
        .collect()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

async fn define_pizzas(client: &Client) {
    let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":
        "pizzas.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"pizzas","kind":"Pizza"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
        "x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    client
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition,
        )
        .await
        .expect(201);
}

async fn write_all(client: &Client) {
    let secret = format!(
        r#"{{"metadata":{{"name":"s","labels":{{"l":"{HUSH}"}}}},"data":{{"word":"{}"}}}}"#,
        BASE64_STANDARD.encode(HUSH)
    );
    client.post(SECRETS, secret).await.expect(201);
    let pizza = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Pizza","metadata":{{"name":"p"}},"sauce":"{HUSH}"}}"#
    );
    client.post(PIZZAS, pizza).await.expect(201);
}

/// All objects are there.
async fn check_all(client: &Client) {
    let secret = client.get(&format!("{SECRETS}/s")).await.expect(200).json();
    assert_eq!(secret["data"]["word"], BASE64_STANDARD.encode(HUSH));
    let selected = client
        .get(&format!("{SECRETS}?labelSelector=l%3D{HUSH}"))
        .await
        .expect(200)
        .json();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        client.get(&format!("{PIZZAS}/p")).await.expect(200).json()["sauce"],
        HUSH
    );
}

/// Rewrites all encrypted objects unchanged; returns the number of new versions.
async fn rewrite(client: &Client) -> usize {
    let mut n_written = 0;
    for path in [SECRETS, PIZZAS] {
        let list = client.get(path).await.expect(200).json();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let body = serde_json::to_vec(item).unwrap();
            let after = client
                .call("PUT", &format!("{path}/{name}"), body)
                .await
                .expect(200)
                .json();
            n_written += usize::from(
                after["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"],
            );
        }
    }
    n_written
}

/// Writes enough for a compaction of the log.
async fn fold(home: &Home, client: &Client) {
    let has_base = || {
        let mut names = fs::read_dir(home.data_dir())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        names.any(|path| {
            path.extension()
                .is_some_and(|extension| extension == "base")
        })
    };
    for n in 0.. {
        if has_base() {
            return;
        }
        let name = format!("{SECRETS}/filler-{}", n % 4);
        let text = format!(
            r#"{{"metadata":{{"name":"filler-{}"}},"stringData":{{"n":"{n}{}"}}}}"#,
            n % 4,
            "x".repeat(500_000)
        );
        if client.call("PUT", &name, text.clone()).await.status == 404 {
            client.post(SECRETS, text).await.expect(201);
        }
    }
}

async fn start(home: &Home) -> (Process, Client) {
    let process = home.start().await;
    let client = process.admin().await;
    (process, client)
}

#[tokio::test]
async fn an_encryption_key_is_replaced_and_nothing_is_in_plain_text() {
    let home = home(&aes(1));
    let (process, client) = start(&home).await;
    define_pizzas(&client).await;
    write_all(&client).await;
    assert_eq!(
        rewrite(&client).await,
        0,
        "what is current is not written again"
    );
    assert!(!can_read(&home, HUSH), "before the log is folded");
    fold(&home, &client).await;
    assert!(!can_read(&home, HUSH), "after it");
    process.stop().await;
    assert!(
        files(&home.data_dir())
            .iter()
            .any(|bytes| contains(bytes, b"k8s:enc:aescbc:v1:key1:"))
    );

    say(&home, &format!("{}, {}", aes(2), aes(1)));
    let (process, client) = start(&home).await;
    check_all(&client).await;
    assert_eq!(
        rewrite(&client).await,
        6,
        "four fillers, a secret and a pizza"
    );
    assert_eq!(rewrite(&client).await, 0);
    process.kill().await;

    say(&home, &aes(2));
    let (process, client) = start(&home).await;
    check_all(&client).await;
    assert!(!can_read(&home, HUSH));
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_with_encryption() {
    let home = home(IDENTITY);
    say_of(&home, "'*.*'", &aes(1).replace("aescbc", "secretbox"));
    crash::check_kills(Servers::start(vec![home]).await, crash::N_ROUNDS).await;
}

#[tokio::test]
async fn without_its_key_the_server_fails_to_start_and_names_the_record() {
    let home = home(&aes(1));
    let (process, client) = start(&home).await;
    define_pizzas(&client).await;
    write_all(&client).await;
    process.stop().await;
    let check = |output: std::process::Output, why: &str| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    say(&home, &aes(2));
    let why = "pizzas default/p cannot be opened: no matching key was found for the provided AES transformer";
    check(home.fail_to_start(0).await, why);
    let same_name = aes(2).replace("key2", "key1");
    say(&home, &same_name);
    check(
        home.fail_to_start(0).await,
        "pizzas default/p cannot be opened",
    );
    say(&home, IDENTITY);
    check(
        home.fail_to_start(0).await,
        "pizzas default/p cannot be opened: no matching prefix found",
    );
    say(&home, &aes(1));
    let (process, client) = start(&home).await;
    check_all(&client).await;
    process.stop().await;
}

#[tokio::test]
async fn plain_text_is_encrypted_and_can_be_decrypted_again() {
    let home = home(IDENTITY);
    let (process, client) = start(&home).await;
    define_pizzas(&client).await;
    write_all(&client).await;
    assert!(can_read(&home, HUSH), "nothing is encrypted yet");
    process.stop().await;

    say(&home, &aes(1));
    let refused = home.fail_to_start(0).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("cannot be opened: no matching prefix found"),
        "{said}"
    );

    say(&home, &format!("{}, {IDENTITY}", aes(1)));
    let (process, client) = start(&home).await;
    assert_eq!(rewrite(&client).await, 2);
    // Files are compacted in the background, after a write.
    for n in 0.. {
        if !can_read(&home, HUSH) {
            break;
        }
        let body = format!(r#"{{"metadata":{{"annotations":{{"n":"{n}"}}}}}}"#);
        client
            .call("PATCH", "/api/v1/namespaces/default", body)
            .await
            .expect(200);
    }
    process.stop().await;

    say(&home, &format!("{IDENTITY}, {}", aes(1)));
    let (process, client) = start(&home).await;
    check_all(&client).await;
    assert_eq!(rewrite(&client).await, 2);
    process.stop().await;
    say(&home, IDENTITY);
    let (process, client) = start(&home).await;
    check_all(&client).await;
    assert!(can_read(&home, HUSH));
    process.stop().await;
}

#[tokio::test]
async fn the_error_names_an_invalid_file_and_field() {
    let home = home("{aescbc: {keys: [{name: a, secret: AAAA}]}}");
    let refused = home.fail_to_start(0).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    let field = "encryption.yaml: resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\"";
    assert!(said.contains(field), "{said}");
}

fn kms(home: &Home) -> String {
    let socket = home.path().join("kms.sock");
    format!(
        "{{kms: {{apiVersion: v2, name: vault, timeout: 1s, endpoint: 'unix://{}'}}}}",
        socket.display()
    )
}

#[tokio::test]
async fn records_are_encrypted_with_a_kms_plugin() {
    let home = home(IDENTITY);
    let plugin = TestPlugin::start(&home.path().join("kms.sock"));
    say(&home, &kms(&home));
    let (process, client) = start(&home).await;
    client.get("/readyz/kms-providers").await.expect(200);
    client.get("/livez/kms-providers").await.expect(404);
    define_pizzas(&client).await;
    write_all(&client).await;
    assert!(!can_read(&home, HUSH));
    process.stop().await;
    assert!(
        files(&home.data_dir())
            .iter()
            .any(|bytes| contains(bytes, b"k8s:enc:kms:v2:vault:"))
    );

    plugin.set(|state| state.key_id = "key-2".into());
    let (process, client) = start(&home).await;
    check_all(&client).await;
    assert_eq!(
        plugin.n_calls()[2],
        1,
        "one seed was decrypted, whatever it had encrypted"
    );
    assert_eq!(rewrite(&client).await, 2, "the plug-in has another key");
    assert_eq!(rewrite(&client).await, 0);
    process.stop().await;

    drop(plugin);
    let refused = home.fail_to_start(0).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("pizzas default/p cannot be opened: failed to decrypt DEK, error: rpc error"),
        "{said}"
    );
}

#[tokio::test]
async fn without_its_kms_plugin_nothing_is_written_in_plain_text() {
    let home = home(IDENTITY);
    say(&home, &kms(&home));
    let (process, client) = start(&home).await;
    let unwell = client.get("/readyz/kms-providers").await.expect(500);
    assert!(
        unwell
            .text()
            .contains("kms-provider-0: failed to perform status section"),
        "{}",
        unwell.text()
    );
    client.get("/readyz").await.expect(500);
    client.get("/livez").await.expect(200);
    let refused = client
        .post(SECRETS, r#"{"metadata":{"name":"s"}}"#)
        .await
        .expect(500)
        .json();
    assert_eq!(
        refused["message"],
        "Internal error occurred: got unexpected nil transformer"
    );
    client
        .post(
            "/api/v1/namespaces/default/configmaps",
            r#"{"metadata":{"name":"c"}}"#,
        )
        .await
        .expect(201);
    let _plugin = TestPlugin::start(&home.path().join("kms.sock"));
    while client.get("/readyz").await.status != 200 {
        tokio::task::yield_now().await;
    }
    define_pizzas(&client).await;
    write_all(&client).await;
    check_all(&client).await;
    process.stop().await;
}

/// The values of all keys in etcd whose objects are encrypted, and whether any value has the secret text.
async fn values_in_etcd(etcd: &Cluster) -> (Vec<Bytes>, bool) {
    let request = RangeRequest {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        ..RangeRequest::default()
    };
    let kvs = etcd.client().range(request).await.unwrap().kvs;
    let encoded = BASE64_STANDARD.encode(HUSH);
    let encoded = &encoded.trim_end_matches('=').as_bytes()[..encoded.len() - 5];
    let can_read = kvs
        .iter()
        .any(|kv| contains(&kv.value, HUSH.as_bytes()) || contains(&kv.value, encoded));
    let is_encrypted =
        |key: &[u8]| contains(key, b"/secrets/default/") || contains(key, b"/pizzas/default/");
    let encrypted = kvs.into_iter().filter(|kv| is_encrypted(&kv.key));
    (encrypted.map(|kv| kv.value).collect(), can_read)
}

/// All encrypted objects in etcd begin with this prefix.
async fn check_prefix(etcd: &Cluster, prefix: &str) {
    let (values, can_read) = values_in_etcd(etcd).await;
    assert_eq!(values.len(), 2, "a secret and a pizza");
    assert!(!can_read, "plain text is in etcd");
    for value in values {
        let head = String::from_utf8_lossy(&value[..value.len().min(40)]);
        assert!(value.starts_with(prefix.as_bytes()), "{head}");
    }
}

#[tokio::test]
async fn in_etcd_a_key_is_replaced_as_well() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = home(&aes(1)).with("--etcd-servers").with(etcd.endpoint(0));
        let (process, client) = start(&home).await;
        define_pizzas(&client).await;
        write_all(&client).await;
        check_prefix(&etcd, "k8s:enc:aescbc:v1:key1:").await;
        process.stop().await;

        // Another key of the same provider, then another provider: what is read is written again, once.
        let secretbox = aes(3).replace("aescbc", "secretbox");
        let mut previous = aes(1);
        for (next, prefix) in [
            (aes(2), "k8s:enc:aescbc:v1:key2:"),
            (secretbox, "k8s:enc:secretbox:v1:key3:"),
        ] {
            say(&home, &format!("{next}, {previous}"));
            let (process, client) = start(&home).await;
            check_all(&client).await;
            assert_eq!(rewrite(&client).await, 2, "a secret and a pizza");
            assert_eq!(rewrite(&client).await, 0);
            check_prefix(&etcd, prefix).await;
            process.stop().await;

            say(&home, &next);
            let (process, client) = start(&home).await;
            check_all(&client).await;
            process.stop().await;
            previous = next;
        }
    }
}

#[tokio::test]
async fn in_etcd_an_object_whose_key_is_missing_is_an_error_that_says_so() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = home(&aes(1)).with("--etcd-servers").with(etcd.endpoint(0));
        let (process, client) = start(&home).await;
        define_pizzas(&client).await;
        write_all(&client).await;
        process.stop().await;

        // Kubernetes: such a server starts, and serves what it can decrypt.
        for (providers, why) in [
            (
                aes(2),
                "no matching key was found for the provided AES transformer",
            ),
            (IDENTITY.into(), "no matching prefix found"),
        ] {
            say(&home, &providers);
            let (process, client) = start(&home).await;
            for path in [SECRETS, PIZZAS] {
                let own = if path == SECRETS { "s" } else { "p" };
                for path in [path.to_owned(), format!("{path}/{own}")] {
                    let failed = client.get(&path).await.expect(500).json();
                    let message = failed["message"].as_str().unwrap();
                    assert_eq!(failed["reason"], "InternalError", "{message}");
                    assert!(message.contains(why), "{path}: {message}");
                }
            }
            let config_maps = "/api/v1/namespaces/default/configmaps";
            client.get(config_maps).await.expect(200);
            // Nothing was overwritten.
            check_prefix(&etcd, "k8s:enc:aescbc:v1:key1:").await;
            process.stop().await;
        }
        say(&home, &aes(1));
        let (process, client) = start(&home).await;
        check_all(&client).await;
        process.stop().await;
    }
}
