//! What a namespace may have, and that nobody gets more.

use std::time::Duration;

use mizzen_controlplane::{Admission, LimitedResource, Options};
use mizzen_value::Value;
use tokio::task::JoinSet;

use crate::rig::{CONFIG_MAPS, Reply, Rig};

const N_WRITERS: usize = 64;
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Makes a quota and says, as its controller would, that nothing is used yet.
async fn limit(rig: &Rig, spec: &str, used: &str) {
    rig.post(
        QUOTAS,
        &format!(r#"{{"metadata":{{"name":"q"}},"spec":{spec}}}"#),
    )
    .await
    .expect(201);
    let hard = mizzen_value::json::parse(spec.as_bytes()).unwrap();
    let hard = mizzen_value::json::to_string(&hard["hard"]);
    let status = format!(r#"{{"status":{{"hard":{hard},"used":{used}}}}}"#);
    rig.patch(&format!("{QUOTAS}/q/status"), &status)
        .await
        .expect(200);
}

async fn used(rig: &Rig, name: &str) -> String {
    let quota = rig.get(&format!("{QUOTAS}/q")).await.expect(200);
    quota.body["status"]["used"][name].str().to_owned()
}

async fn make(rig: &Rig, name: &str) -> Reply {
    rig.post(
        CONFIG_MAPS,
        &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#),
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creates_never_exceed_the_quota() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"count/configmaps":"20"}}"#,
        r#"{"count/configmaps":"0"}"#,
    )
    .await;
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move { make(&rig, &format!("c{number}")).await });
    }
    let replies = writers.join_all().await;
    assert_eq!(
        replies.iter().filter(|reply| reply.status == 201).count(),
        20
    );
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status != 201).collect();
    let why = "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=20, limited: count/configmaps=20";
    assert!(
        refused
            .iter()
            .all(|reply| reply.status == 403 && reply.message().ends_with(why)),
        "{refused:?}"
    );
    assert_eq!(used(&rig, "count/configmaps").await, "20");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_of_a_failed_write_is_returned() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"configmaps":"64"}}"#,
        r#"{"configmaps":"0"}"#,
    )
    .await;
    let mut writers = JoinSet::new();
    for _ in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move { make(&rig, "same").await.status });
    }
    let mut statuses = writers.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
    assert_eq!(used(&rig, "configmaps").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancelled_create_leaves_the_usage_correct() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"configmaps":"1000"}}"#,
        r#"{"configmaps":"0"}"#,
    )
    .await;
    for round in 0..N_WRITERS {
        let other = rig.clone();
        let writer = tokio::spawn(async move { make(&other, &format!("c{round}")).await.status });
        for _ in 0..round % 16 {
            tokio::task::yield_now().await;
        }
        writer.abort();
        let _ = writer.await;
    }
    let in_order = async {
        loop {
            let stored = rig.get(CONFIG_MAPS).await.names().len();
            if used(&rig, "configmaps").await == stored.to_string() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), in_order)
        .await
        .expect("what is counted is what is stored");
}

#[tokio::test]
async fn a_dry_run_is_checked_but_charges_nothing() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"configmaps":"1"}}"#,
        r#"{"configmaps":"0"}"#,
    )
    .await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    rig.post(&dry, r#"{"metadata":{"name":"a"}}"#)
        .await
        .expect(201);
    assert_eq!(used(&rig, "configmaps").await, "0");
    make(&rig, "a").await.expect(201);
    rig.post(&dry, r#"{"metadata":{"name":"b"}}"#)
        .await
        .expect(403);
    assert_eq!(used(&rig, "configmaps").await, "1");
}

#[tokio::test]
async fn a_create_that_one_quota_rejects_charges_no_other() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"configmaps":"5"}}"#,
        r#"{"configmaps":"0"}"#,
    )
    .await;
    rig.post(
        QUOTAS,
        r#"{"metadata":{"name":"r"},"spec":{"hard":{"configmaps":"0"}}}"#,
    )
    .await
    .expect(201);
    let status = r#"{"status":{"hard":{"configmaps":"0"},"used":{"configmaps":"0"}}}"#;
    rig.patch(&format!("{QUOTAS}/r/status"), status)
        .await
        .expect(200);
    make(&rig, "a").await.expect(403);
    assert_eq!(used(&rig, "configmaps").await, "0");
}

#[tokio::test]
async fn a_quota_is_enforced_once_its_status_has_limits() {
    let rig = Rig::new().await;
    rig.post(
        QUOTAS,
        r#"{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"0"}}}"#,
    )
    .await
    .expect(201);
    make(&rig, "a").await.expect(201);
    rig.patch(
        &format!("{QUOTAS}/q/status"),
        r#"{"status":{"hard":{"configmaps":"0"}}}"#,
    )
    .await
    .expect(200);
    let refused = make(&rig, "b").await.expect(403);
    assert_eq!(
        refused.message(),
        r#"configmaps "b" is forbidden: status unknown for quota: q, resources: configmaps"#
    );
}

fn pod(name: &str, resources: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i","resources":{resources}}}]}}}}"#
    )
}

#[tokio::test]
async fn pods_must_have_the_requests_that_a_quota_limits() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"requests.cpu":"1","pods":"5"}}"#,
        r#"{"requests.cpu":"0","pods":"0"}"#,
    )
    .await;
    let refused = rig.post(PODS, &pod("p", "{}")).await.expect(403);
    assert_eq!(
        refused.message(),
        r#"pods "p" is forbidden: failed quota: q: must specify requests.cpu for: c"#
    );
    rig.post(PODS, &pod("p", r#"{"requests":{"cpu":"600m"}}"#))
        .await
        .expect(201);
    let refused = rig
        .post(PODS, &pod("r", r#"{"requests":{"cpu":"500m"}}"#))
        .await
        .expect(403);
    let why = "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1";
    assert!(refused.message().ends_with(why), "{}", refused.message());
    assert_eq!(
        (used(&rig, "pods").await, used(&rig, "requests.cpu").await),
        ("1".into(), "600m".into())
    );
}

#[tokio::test]
async fn a_scoped_quota_counts_only_matching_objects() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"pods":"0"},"scopes":["BestEffort"]}"#,
        r#"{"pods":"0"}"#,
    )
    .await;
    rig.post(PODS, &pod("p", "{}")).await.expect(403);
    rig.post(PODS, &pod("p", r#"{"limits":{"cpu":"1"}}"#))
        .await
        .expect(201);
    assert_eq!(used(&rig, "pods").await, "0");
}

#[tokio::test]
async fn an_update_charges_only_the_difference() {
    let rig = Rig::new().await;
    let none = r#"{"services":"0","services.nodeports":"0"}"#;
    limit(
        &rig,
        r#"{"hard":{"services":"1","services.nodeports":"1"}}"#,
        none,
    )
    .await;
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"name":"a","port":80},{"name":"b","port":81}]}}"#;
    rig.post(SERVICES, service).await.expect(201);
    let both = rig
        .patch(&format!("{SERVICES}/s"), r#"{"spec":{"type":"NodePort"}}"#)
        .await
        .expect(403);
    let why = "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
    assert!(both.message().ends_with(why), "{}", both.message());
    let one = r#"{"spec":{"type":"NodePort","ports":[{"name":"a","port":80}]}}"#;
    rig.patch(&format!("{SERVICES}/s"), one).await.expect(200);
    assert_eq!(
        (
            used(&rig, "services").await,
            used(&rig, "services.nodeports").await
        ),
        ("1".into(), "1".into())
    );
}

#[tokio::test]
async fn a_limited_resource_needs_a_quota() {
    let limited = LimitedResource {
        resource: "pods".into(),
        containing: vec!["requests.cpu".into()],
        scopes: vec![mizzen_value::value!({ "scopeName": "PriorityClass", "operator": "Exists" })],
        ..LimitedResource::default()
    };
    let admission = Admission {
        limited_resources: vec![limited],
        ..Admission::default()
    };
    let rig = Rig::with(Options {
        admission,
        ..Options::default()
    })
    .await;
    rig.post(PODS, &pod("p", "{}")).await.expect(201);
    let refused = rig
        .post(PODS, &pod("r", r#"{"requests":{"cpu":"1"}}"#))
        .await
        .expect(403);
    let why = r#"pods "r" is forbidden: insufficient quota to consume: requests.cpu"#;
    assert_eq!(refused.message(), why);
    limit(
        &rig,
        r#"{"hard":{"requests.cpu":"2"}}"#,
        r#"{"requests.cpu":"0"}"#,
    )
    .await;
    rig.post(PODS, &pod("r", r#"{"requests":{"cpu":"1"}}"#))
        .await
        .expect(201);
}

#[tokio::test]
async fn the_server_updates_the_used_amounts() {
    let rig = Rig::new().await;
    limit(
        &rig,
        r#"{"hard":{"configmaps":"1"}}"#,
        r#"{"configmaps":"0"}"#,
    )
    .await;
    make(&rig, "a").await.expect(201);
    let quota = rig.get(&format!("{QUOTAS}/q")).await.expect(200);
    let entries = quota.body["metadata"]["managedFields"].list();
    let own = |entry: &Value| {
        entry["manager"].str() == "kube-apiserver" && entry["subresource"].str() == "status"
    };
    assert!(entries.iter().any(own), "{entries:?}");
}
