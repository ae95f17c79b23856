//! A plug-in that answers, hangs, goes away, comes back and changes its key. Time is paused.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_apiserver::seams::{SystemRandom, WallClock};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::*;
use test_plugin::Plugin;

#[path = "test_plugin.rs"]
mod test_plugin;

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

    fn plugin(&self) -> Plugin {
        Plugin::start(&self.dir.path().join("socket"))
    }

    fn seal(&self) -> Result<Vec<u8>, String> {
        let sealed = self
            .kms
            .seal(PATH, b"plain")
            .map_err(|error| error.to_string())?;
        Ok(sealed
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
    let world = World {
        random: Arc::new(SystemRandom),
        clock: Arc::new(WallClock),
        marks: Arc::default(),
        changes: Arc::default(),
        counts: Arc::default(),
        runtime: Handle::current(),
    };
    Arc::new(Kms::new(&options, world))
}

/// Opens as a store does: on a thread that may block.
async fn open(kms: &Arc<Kms>, sealed: &[u8]) -> Result<String, String> {
    let (kms, sealed) = (kms.clone(), sealed.to_vec());
    let opened = tokio::task::spawn_blocking(move || kms.open(PATH, &sealed))
        .await
        .unwrap();
    opened
        .map(|(plain, _)| String::from_utf8(plain).unwrap())
        .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sealed_is_opened_by_the_next_server_with_one_question() {
    let case = Case::new();
    let plugin = case.plugin();
    keep_asking(&case.kms).await;
    let (one, two) = (case.seal().unwrap(), case.seal().unwrap());
    assert_eq!(plugin.n_calls(), [1, 1, 0], "sealing asks nobody");
    let next = kms(&plugin.socket);
    assert_eq!(open(&next, &one).await.unwrap(), "plain");
    assert_eq!(open(&next, &two).await.unwrap(), "plain");
    assert_eq!(plugin.n_calls(), [1, 1, 1]);
    assert!(open(&next, &one[..one.len() - 1]).await.is_err());
    let metrics = |kms: &Kms| {
        let mut families = mizzen_metrics::Families::default();
        kms.world.counts.collect(&mut families);
        families.to_string()
    };
    let key = format!(
        "apiserver_id_hash=\"\",key_id_hash=\"{}\",provider_name=\"test\"",
        service::hash("key-1")
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
async fn what_upstream_wrote_opens() {
    let case = Case::new();
    let _plugin = case.plugin();
    let line = include_str!("upstream.vector").lines().nth(1).unwrap();
    let (path, value) = line.split_once(' ').unwrap();
    assert_eq!(path.as_bytes(), PATH);
    let value = BASE64_STANDARD.decode(value).unwrap();
    let sealed = value.strip_prefix(b"k8s:enc:kms:v2:vault:").unwrap();
    let object = open(&case.kms, sealed).await.unwrap();
    assert!(object.contains(r#""name":"test""#), "{object}");
}

#[tokio::test(start_paused = true)]
async fn without_a_plugin_nothing_is_sealed_until_it_comes() {
    let case = Case::new();
    keep_asking(&case.kms).await;
    assert_eq!(case.seal().unwrap_err(), "got unexpected nil transformer");
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
    case.seal().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_holds_nobody_longer_than_its_timeout() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.hangs = true);
    let before = Instant::now();
    case.kms.check().await.unwrap_err();
    assert!(before.elapsed() < TIMEOUT + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_goes_away_leaves_three_minutes_for_writing() {
    let case = Case::new();
    let plugin = case.plugin();
    keep_asking(&case.kms).await;
    let sealed = case.seal().unwrap();
    drop(plugin);
    let plugin = case.plugin();
    sleep(Duration::from_secs(300)).await;
    case.kms.check().await.unwrap();
    case.seal().expect("it was only restarted");
    drop(plugin);
    sleep(Duration::from_secs(100)).await;
    case.kms.check().await.unwrap_err();
    case.seal().unwrap();
    sleep(Duration::from_secs(90)).await;
    let refused = case.seal().unwrap_err();
    assert!(
        refused.starts_with("encryptedDEKSource with keyID hash \"sha256:"),
        "{refused}"
    );
    assert!(refused.contains("expired at"), "{refused}");
    assert_eq!(
        case.kms.open(PATH, &sealed).unwrap().0,
        b"plain",
        "what was opened stays open"
    );

    let _plugin = case.plugin();
    sleep(Duration::from_secs(15)).await;
    case.seal().unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_key_means_another_seed() {
    let case = Case::new();
    let plugin = case.plugin();
    keep_asking(&case.kms).await;
    let (old, mark) = (case.seal().unwrap(), case.kms.mark());
    sleep(Duration::from_secs(200)).await;
    assert_eq!(
        plugin.n_calls()[1],
        1,
        "as long as the key stays, so does the seed"
    );
    plugin.set(|state| state.key_id = "key-2".into());
    sleep(Duration::from_secs(61)).await;
    assert_eq!(plugin.n_calls()[1], 2);
    assert_ne!(case.kms.mark(), mark);
    let new = case.seal().unwrap();
    assert!(new.windows(5).any(|window| window == b"key-2"));
    assert_eq!(
        case.kms.open(PATH, &old).unwrap(),
        (b"plain".to_vec(), mark),
        "it is stale, and opens"
    );
    assert_eq!(case.kms.open(PATH, &new).unwrap().1, case.kms.mark());
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let case = Case::new();
    let cipher: Arc<dyn Cipher> =
        Arc::new(Derived::from_seed(&[1; 32], &case.kms.world.random).unwrap());
    for n in 0..=MAX_OPENED {
        let (kind, sealed, annotations) = (1, n.to_be_bytes().to_vec(), Default::default());
        case.kms.remember(
            Source {
                kind,
                sealed,
                key_id: "key".into(),
                annotations,
            },
            (cipher.clone(), Arc::default()),
        );
    }
    assert_eq!(case.kms.opened.lock().len(), 1);
}

/// What is wrong once a plug-in that was well answers so.
async fn check_unwell(change: impl FnOnce(&mut plugin::State), expected: &str) {
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
    case.seal().expect("the old seed is good for a while");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_unwell_is_told_why() {
    check_unwell(
        |state| state.health = "tired".into(),
        "got unexpected healthz status: tired",
    )
    .await;
    check_unwell(
        |state| state.version = "v3".into(),
        "expected KMSv2 API version v2, got v3",
    )
    .await;
    check_unwell(
        |state| state.version = "v2beta1".into(),
        "KMSv2 API version should not change after the initial status response version v2, got v2beta1",
    )
    .await;
    check_unwell(
        |state| state.key_id = "".into(),
        "got invalid KMSv2 KeyID hash \"\": keyID is empty",
    )
    .await;
    let long = "k".repeat(1025);
    let expected = format!(
        "got invalid KMSv2 KeyID hash \"{}\": keyID is 1025 bytes, which exceeds the max size of 1024",
        service::hash(&long)
    );
    check_unwell(|state| state.key_id = long, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_must_seal_with_the_key_that_it_names() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.seals_with = Some("key-9".into()));
    let problem = case.kms.check().await.unwrap_err();
    assert!(
        problem.contains("failed to rotate DEK: statusKeyIDHash="),
        "{problem}"
    );
    assert!(case.seal().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_plugin_does_not_know_opens_nothing() {
    let case = Case::new();
    let plugin = case.plugin();
    plugin.set(|state| state.key_id = "other-1".into());
    keep_asking(&case.kms).await;
    let refused = open(&kms(&plugin.socket), &case.seal().unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        "failed to decrypt DEK, error: rpc error: code = FailedPrecondition desc = that is no key of mine"
    );
}
