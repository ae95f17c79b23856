//! The webhooks against an API server in the process of the test.

use backup_webhook::{register, v1, v2};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use mizzen_apiserver::User;
use mizzen_sdk::convert::check_round_trip;
use mizzen_sdk::webhook::Endpoint;
use tokio::net::TcpListener;

struct Rig {
    old: Api<v1::Backup>,
    new: Api<v2::Backup>,
}

/// An API server with the webhooks.
async fn start() -> Rig {
    let server = mizzen_controlplane::in_memory().await;
    let client = Client::new(server.in_process(User::master("alice"), "test"), "default");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::Url(format!("https://{}", listener.local_addr().unwrap()));
    let webhooks = register(client.clone(), "default", endpoint).await.unwrap();
    tokio::spawn(webhooks.serve(listener, std::future::pending()));
    Rig {
        old: Api::namespaced(client.clone(), "default"),
        new: Api::namespaced(client, "default"),
    }
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

impl Rig {
    async fn create(&self, backup: &v1::Backup) -> Result<v1::Backup, Error> {
        self.old.create(&PostParams::default(), backup).await
    }
}

#[tokio::test]
async fn a_backup_gets_its_defaults_and_is_read_in_both_versions() {
    let rig = start().await;
    let made = rig.create(&backup("nightly", None, None)).await.unwrap();
    assert_eq!(made.spec.schedule.as_deref(), Some("0 3 * * *"));
    assert_eq!(made.spec.keep_days, Some(30));
    let hub = rig.new.get("nightly").await.unwrap();
    assert_eq!(hub.spec.claim, "data");
    assert_eq!(hub.spec.retention, Some(v2::Retention { days: 30 }));
}

#[tokio::test]
async fn an_invalid_backup_is_rejected_with_all_violations() {
    let rig = start().await;
    let error = rig
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
    let mut made = rig.create(&backup("good", None, None)).await.unwrap();
    made.spec.volume = "other".into();
    let error = rig
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

#[test]
fn no_version_loses_anything() {
    check_round_trip::<v1::Backup, v2::Backup>();
}
