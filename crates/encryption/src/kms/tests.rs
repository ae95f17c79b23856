//! A plug-in that responds, hangs, stops, restarts and changes its key. Time is paused.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::*;
use test_plugin::TestPlugin;

#[path = "test_plugin.rs"]
pub(crate) mod test_plugin;

const PATH: &[u8] = b"/registry/secrets/default/test";
const TIMEOUT: Duration = Duration::from_secs(3);

struct Case {
    dir: TempDir,
    kms: Arc<Kms>,
}

impl Case {
    fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let kms = kms(&dir.path().join("socket"));
        Case { dir, kms }
    }

    fn plugin(&self) -> TestPlugin {
        TestPlugin::start(&self.dir.path().join("socket"))
    }

    fn encrypt(&self) -> Result<Vec<u8>, String> {
        let encrypted = self
            .kms
            .encrypt(PATH, b"plain")
            .map_err(|error| error.to_string())?;
        Ok(encrypted
            .bytes
            .strip_prefix(b"k8s:enc:kms:v2:test:")
            .unwrap()
            .to_vec())
    }
}

fn kms(socket: &Path) -> Arc<Kms> {
    let socket = socket.to_str().unwrap().to_string();
    let options = KmsOptions {
        name: "test".into(),
        socket,
        timeout: TIMEOUT,
    };
    let context = EncryptionContext {
        random: Arc::new(SystemRandom),
        clock: Arc::new(WallClock),
        marks: Arc::default(),
        changes: Arc::default(),
        metrics: Arc::default(),
        runtime: Handle::current(),
    };
    Arc::new(Kms::new(&options, context))
}

/// Decrypts as a store does: on a thread that may block.
async fn decrypt(kms: &Arc<Kms>, encrypted: &[u8]) -> Result<String, String> {
    let (kms, encrypted) = (kms.clone(), encrypted.to_vec());
    let decrypted = tokio::task::spawn_blocking(move || kms.decrypt(PATH, &encrypted))
        .await
        .unwrap();
    decrypted
        .map(|(plain, _)| String::from_utf8(plain).unwrap())
        .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_decrypts_with_one_call_of_the_plugin() {
    let case = Case::new();
    let plugin = case.plugin();
    start_probing(&case.kms).await;
    let (one, two) = (case.encrypt().unwrap(), case.encrypt().unwrap());
    assert_eq!(
        plugin.n_calls(),
        [1, 1, 0],
        "encrypting does not call the plug-in"
    );
    let next = kms(&plugin.socket);
    assert_eq!(decrypt(&next, &one).await.unwrap(), "plain");
    assert_eq!(decrypt(&next, &two).await.unwrap(), "plain");
    assert_eq!(plugin.n_calls(), [1, 1, 1]);
    assert!(decrypt(&next, &one[..one.len() - 1]).await.is_err());
    let metrics = |kms: &Kms| {
        let mut families = mizzen_metrics::Families::default();
        kms.context.metrics.collect(&mut families);
        families.to_string()
    };
    let key = format!(
        "apiserver_id_hash=\"\",key_id_hash=\"{}\",provider_name=\"test\"",
        service::key_id_hash("key-1")
    );
    let check = |metrics: &str, line: String| {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}")
    };
    let (first, second) = (metrics(&case.kms), metrics(&next));
    let used = "apiserver_envelope_encryption_key_id_hash_total";
    check(
        &first,
        format!("{used}{{{key},transformation_type=\"to_storage\"}} 2\n"),
    );
    check(
        &second,
        format!("{used}{{{key},transformation_type=\"from_storage\"}} 2\n"),
    );
    check(
        &second,
        "apiserver_storage_envelope_transformation_cache_misses_total 1\n".into(),
    );
    check(
        &second,
        "dek_source_cache_size{provider_name=\"test\"} 1\n".into(),
    );
    let method = "method_name=\"/v2.KeyManagementService/Encrypt\"";
    check(
        &first,
        format!("_count{{grpc_status_code=\"OK\",{method},provider_name=\"test\"}} 1\n"),
    );
    check(
        &first,
        "apiserver_storage_data_key_generation_duration_seconds_count 1\n".into(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_upstream_is_decrypted() {
    let case = Case::new();
    let _plugin = case.plugin();
    let line = include_str!("upstream.vector").lines().nth(1).unwrap();
    let (path, value) = line.split_once(' ').unwrap();
    assert_eq!(path.as_bytes(), PATH);
    let value = BASE64_STANDARD.decode(value).unwrap();
    let encrypted = value.strip_prefix(b"k8s:enc:kms:v2:vault:").unwrap();
    let object = decrypt(&case.kms, encrypted).await.unwrap();
    assert!(object.contains(r#""name":"test""#), "{object}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_encrypted_before_the_plugin_responds() {
    let case = Case::new();
    start_probing(&case.kms).await;
    assert_eq!(
        case.encrypt().unwrap_err(),
        "got unexpected nil transformer"
    );
    assert_eq!(case.kms.mark(), Marks::UNKNOWN);
    let problem = case.kms.check().await.unwrap_err();
    assert!(
        problem.starts_with(
            "failed to perform status section of the healthz check for KMS Provider test, error: rpc error: code = \
             DeadlineExceeded"
        ),
        "{problem}"
    );
    let _plugin = case.plugin();
    sleep(Duration::from_secs(15)).await;
    case.kms.check().await.unwrap();
    case.encrypt().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_fails_after_its_timeout() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.hangs = true);
    let before = Instant::now();
    case.kms.check().await.unwrap_err();
    assert!(before.elapsed() < TIMEOUT + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn writes_are_rejected_three_minutes_after_the_plugin_stopped() {
    let case = Case::new();
    let plugin = case.plugin();
    start_probing(&case.kms).await;
    let encrypted = case.encrypt().unwrap();
    drop(plugin);
    let plugin = case.plugin();
    sleep(Duration::from_secs(300)).await;
    case.kms.check().await.unwrap();
    case.encrypt().expect("it was only restarted");
    drop(plugin);
    sleep(Duration::from_secs(100)).await;
    case.kms.check().await.unwrap_err();
    case.encrypt().unwrap();
    sleep(Duration::from_secs(90)).await;
    let error = case.encrypt().unwrap_err();
    assert!(
        error.starts_with("encryptedDEKSource with keyID hash \"sha256:"),
        "{error}"
    );
    assert!(error.contains("expired at"), "{error}");
    assert_eq!(
        case.kms.decrypt(PATH, &encrypted).unwrap().0,
        b"plain",
        "cached seeds still decrypt"
    );

    let _plugin = case.plugin();
    sleep(Duration::from_secs(15)).await;
    case.encrypt().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_key_of_the_plugin_causes_a_new_seed() {
    let case = Case::new();
    let plugin = case.plugin();
    start_probing(&case.kms).await;
    let (old, mark) = (case.encrypt().unwrap(), case.kms.mark());
    sleep(Duration::from_secs(200)).await;
    assert_eq!(
        plugin.n_calls()[1],
        1,
        "the seed is kept as long as the key"
    );
    plugin.set(|state| state.key_id = "key-2".into());
    sleep(Duration::from_secs(61)).await;
    assert_eq!(plugin.n_calls()[1], 2);
    assert_ne!(case.kms.mark(), mark);
    let new = case.encrypt().unwrap();
    assert!(new.windows(5).any(|window| window == b"key-2"));
    assert_eq!(
        case.kms.decrypt(PATH, &old).unwrap(),
        (b"plain".to_vec(), mark),
        "it is stale, and decrypted"
    );
    assert_eq!(case.kms.decrypt(PATH, &new).unwrap().1, case.kms.mark());
}

#[tokio::test]
async fn the_cache_of_seeds_is_bounded() {
    let case = Case::new();
    let cipher: Arc<dyn Cipher> =
        Arc::new(Derived::from_seed(&[1; 32], &case.kms.context.random).unwrap());
    for n in 0..=MAX_CACHED {
        let (kind, encrypted, annotations) = (1, n.to_be_bytes().to_vec(), Default::default());
        case.kms.cache_dek(
            DekSource {
                kind,
                encrypted,
                key_id: "key".into(),
                annotations,
            },
            (cipher.clone(), Arc::default()),
        );
    }
    assert_eq!(case.kms.cache.lock().len(), 1);
}

/// Checks the problem of a healthy plug-in after a change.
async fn check_unhealthy(change: impl FnOnce(&mut test_plugin::TestPluginState), expected: &str) {
    let case = Case::new();
    let plugin = case.plugin();
    case.kms.check().await.unwrap();
    plugin.set(change);
    sleep(Duration::from_secs(21)).await;
    let problem = case.kms.check().await.unwrap_err();
    assert_eq!(
        problem,
        format!("kmsv2 Provider test is not healthy, error: {expected}")
    );
    case.encrypt().expect("the old seed encrypts for a while");
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_plugin_has_a_reason() {
    check_unhealthy(
        |state| state.health = "tired".into(),
        "got unexpected healthz status: tired",
    )
    .await;
    check_unhealthy(
        |state| state.version = "v3".into(),
        "expected KMSv2 API version v2, got v3",
    )
    .await;
    check_unhealthy(
        |state| state.version = "v2beta1".into(),
        "KMSv2 API version should not change after the initial status response version v2, got v2beta1",
    )
    .await;
    check_unhealthy(
        |state| state.key_id = "".into(),
        "got invalid KMSv2 KeyID hash \"\": keyID is empty",
    )
    .await;
    let long = "k".repeat(1025);
    let expected = format!(
        "got invalid KMSv2 KeyID hash \"{}\": keyID is 1025 bytes, which exceeds the max size of 1024",
        service::key_id_hash(&long)
    );
    check_unhealthy(|state| state.key_id = long, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_must_encrypt_with_the_key_of_its_status() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.encrypt_key_id = Some("key-9".into()));
    let problem = case.kms.check().await.unwrap_err();
    assert!(
        problem.contains("failed to rotate DEK: statusKeyIDHash="),
        "{problem}"
    );
    assert!(case.encrypt().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_plugin_does_not_have_decrypts_nothing() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.key_id = "other-1".into());
    start_probing(&case.kms).await;
    let error = decrypt(&kms(&plugin.socket), &case.encrypt().unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        "failed to decrypt DEK, error: rpc error: code = FailedPrecondition desc = that is no key of mine"
    );
}
