//! What holds an object that is being deleted, and what only pretends to change something.

use crate::rig::{CONFIG_MAPS, Rig};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn finalizers_keep_an_object_until_they_are_removed() {
    let rig = Rig::new().await;
    let path = format!("{CONFIG_MAPS}/a");
    rig.post(
        CONFIG_MAPS,
        r#"{"metadata":{"name":"a","finalizers":["x.io/one","x.io/two"]}}"#,
    )
    .await
    .expect(201);
    let mut events = rig.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(events.next_name().await, "ADDED a");
    let held = rig.delete(&path, "").await.expect(200);
    assert!(!held.body.at("metadata.deletionTimestamp").str().is_empty());
    assert_eq!(events.next_name().await, "MODIFIED a");
    rig.delete(&path, "").await.expect(200);
    let refused = r#"{"metadata":{"finalizers":["x.io/one","x.io/two","x.io/three"]}}"#;
    rig.patch(&path, refused).await.expect(422);
    rig.patch(&path, r#"{"metadata":{"finalizers":["x.io/two"]}}"#)
        .await
        .expect(200);
    assert_eq!(events.next_name().await, "MODIFIED a");
    rig.patch(&path, r#"{"metadata":{"finalizers":null}}"#)
        .await
        .expect(200);
    assert_eq!(events.next_name().await, "DELETED a");
    rig.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_running_pod_gets_a_grace_period_and_an_unscheduled_one_does_not() {
    let rig = Rig::new().await;
    let pod = |name: &str, node: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}","containers":[{{"name":"c","image":"i"}}]}}}}"#
        )
    };
    rig.post(PODS, &pod("waiting", "")).await.expect(201);
    rig.delete(&format!("{PODS}/waiting"), "").await.expect(200);
    rig.get(&format!("{PODS}/waiting")).await.expect(404);

    let path = format!("{PODS}/running");
    rig.post(PODS, &pod("running", "node")).await.expect(201);
    let going = rig.delete(&path, "").await.expect(200);
    assert_eq!(
        going.body.at("metadata.deletionGracePeriodSeconds").int(),
        30
    );
    let sooner = rig
        .delete(
            &path,
            r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":5}"#,
        )
        .await;
    assert_eq!(
        sooner
            .expect(200)
            .body
            .at("metadata.deletionGracePeriodSeconds")
            .int(),
        5
    );
    rig.delete(&format!("{path}?gracePeriodSeconds=0"), "")
        .await
        .expect(200);
    rig.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_precondition_that_does_not_hold_is_a_conflict() {
    let rig = Rig::new().await;
    let made = rig.make("a", "").await;
    let path = format!("{CONFIG_MAPS}/a");
    rig.delete(&path, r#"{"preconditions":{"uid":"other"}}"#)
        .await
        .expect(409);
    rig.delete(&path, r#"{"preconditions":{"resourceVersion":"1"}}"#)
        .await
        .expect(409);
    let uid = made.body.at("metadata.uid").str();
    rig.delete(&path, &format!(r#"{{"preconditions":{{"uid":"{uid}"}}}}"#))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let rig = Rig::new().await;
    rig.make("a", "old").await;
    let before = rig.get(CONFIG_MAPS).await;
    let path = format!("{CONFIG_MAPS}/a?dryRun=All");
    rig.post(
        &format!("{CONFIG_MAPS}?dryRun=All"),
        r#"{"metadata":{"name":"b"}}"#,
    )
    .await
    .expect(201);
    rig.post(
        &format!("{CONFIG_MAPS}?dryRun=All"),
        r#"{"metadata":{"name":"a"}}"#,
    )
    .await
    .expect(409);
    rig.put(&path, r#"{"metadata":{"name":"a"},"data":{"text":"new"}}"#)
        .await
        .expect(200);
    let patched = rig
        .patch(&path, r#"{"data":{"text":"new"}}"#)
        .await
        .expect(200);
    assert_eq!(patched.body.at("data.text").str(), "new");
    rig.delete(&path, "").await.expect(200);
    rig.delete(&format!("{CONFIG_MAPS}?dryRun=All"), "")
        .await
        .expect(200);
    rig.post(
        &format!("{CONFIG_MAPS}?dryRun=Some"),
        r#"{"metadata":{"name":"b"}}"#,
    )
    .await
    .expect(422);
    assert_eq!(rig.get(CONFIG_MAPS).await.body, before.body);
}

#[tokio::test]
async fn a_collection_is_deleted_by_its_selector() {
    let rig = Rig::new().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let body = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}}}}"#);
        rig.post(CONFIG_MAPS, &body).await.expect(201);
    }
    rig.delete(&format!("{CONFIG_MAPS}?labelSelector=l%3Dx"), "")
        .await
        .expect(200);
    assert_eq!(rig.get(CONFIG_MAPS).await.names(), ["b"]);
}
