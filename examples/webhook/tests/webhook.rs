//! The webhooks in a control plane in the process of the test: without a port, and once over TLS with certificates of
//! their own.

use backup_webhook::{register, server, v1, v2};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use mizzen_sdk::convert::check_round_trip;
use mizzen_sdk::webhook::Endpoint;
use mizzen_testing::{Cluster, Fault};
use tokio::net::TcpListener;

struct Backups {
    old: Api<v1::Backup>,
    new: Api<v2::Backup>,
}

impl Backups {
    fn new(client: Client) -> Backups {
        Backups {
            old: Api::namespaced(client.clone(), "default"),
            new: Api::namespaced(client, "default"),
        }
    }
}

/// A control plane that calls the webhooks in process.
async fn start() -> (Cluster, Backups) {
    let cluster = Cluster::builder().server_only().start().await;
    let endpoint = Endpoint::service("default", "backup-webhook");
    register(cluster.client(), "default", endpoint)
        .await
        .unwrap();
    let server = server().unwrap();
    cluster.serve_webhooks("backup-webhook.default.svc", move |request| {
        let server = server.clone();
        async move { server.handle(request).await }
    });
    let backups = Backups::new(cluster.client());
    (cluster, backups)
}

fn backup(name: &str, schedule: Option<&str>, days: Option<u32>) -> v1::Backup {
    v1::Backup::new(
        name,
        v1::BackupSpec {
            volume: "data".into(),
            schedule: schedule.map(Into::into),
            keep_days: days,
        },
    )
}

impl Backups {
    async fn create(&self, backup: &v1::Backup) -> Result<v1::Backup, Error> {
        self.old.create(&PostParams::default(), backup).await
    }
}

#[tokio::test]
async fn a_backup_gets_its_defaults_and_is_read_in_both_versions() {
    let (_cluster, backups) = start().await;
    let made = backups
        .create(&backup("nightly", None, None))
        .await
        .unwrap();
    assert_eq!(made.spec.schedule.as_deref(), Some("0 3 * * *"));
    assert_eq!(made.spec.keep_days, Some(30));
    let hub = backups.new.get("nightly").await.unwrap();
    assert_eq!(hub.spec.claim, "data");
    assert_eq!(hub.spec.retention, Some(v2::Retention { days: 30 }));
}

#[tokio::test]
async fn an_invalid_backup_is_rejected_with_all_violations() {
    let (_cluster, backups) = start().await;
    let error = backups
        .create(&backup("bad", Some("daily"), Some(0)))
        .await
        .unwrap_err();
    let Error::Api(status) = error else {
        panic!("{error}");
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(
        status
            .message
            .contains("spec.schedule: Invalid value: \"daily\": must have five fields"),
        "{}",
        status.message
    );
    assert!(
        status
            .message
            .contains("spec.retention.days: Invalid value: 0"),
        "{}",
        status.message
    );
    let mut made = backups.create(&backup("good", None, None)).await.unwrap();
    made.spec.volume = "other".into();
    let error = backups
        .old
        .replace("good", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("spec.claim: Forbidden: field is immutable"),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_is_created_while_the_webhooks_are_down() {
    let (cluster, backups) = start().await;
    let site = "WEBHOOK backup-webhook.default.svc/validate/backups.example.com";
    cluster.inject("apiserver", site, 1, Fault::DeadWebhook);
    let nightly = backup("nightly", None, None);
    let error = backups.create(&nightly).await.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert!(backups.old.get_opt("nightly").await.unwrap().is_none());
    backups.create(&nightly).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_trusts_certificates_of_the_webhooks() {
    let cluster = Cluster::builder().server_only().start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let webhooks = register(cluster.client(), "default", endpoint)
        .await
        .unwrap();
    tokio::spawn(webhooks.serve(listener, std::future::pending()));
    let backups = Backups::new(cluster.client());
    let made = backups
        .create(&backup("nightly", None, None))
        .await
        .unwrap();
    assert_eq!(made.spec.keep_days, Some(30));
    let hub = backups.new.get("nightly").await.unwrap();
    assert_eq!(hub.spec.retention, Some(v2::Retention { days: 30 }));
}

#[test]
fn no_version_loses_anything() {
    check_round_trip::<v1::Backup, v2::Backup>();
}
