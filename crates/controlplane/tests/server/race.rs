//! Writers who meet at one object.

use tokio::task::JoinSet;

use crate::rig::{CONFIG_MAPS, Rig};

const N_WRITERS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_all_succeed() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move {
            let body = format!(r#"{{"data":{{"k{number}":"v"}}}}"#);
            rig.patch(&format!("{CONFIG_MAPS}/a"), &body)
                .await
                .expect(200);
        });
    }
    writers.join_all().await;
    let object = rig.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(object.body["data"].entries().count(), N_WRITERS + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn updates_without_a_resource_version_all_succeed() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move {
            let body = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{number}"}}}}"#);
            rig.put(&format!("{CONFIG_MAPS}/a"), &body)
                .await
                .expect(200)
                .version()
        });
    }
    let mut versions = writers.join_all().await;
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), N_WRITERS, "each is a version of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_the_updates_of_one_resource_version_succeeds() {
    let rig = Rig::new().await;
    let version = rig.make("a", "").await.version();
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move {
            let body = format!(
                r#"{{"metadata":{{"name":"a","resourceVersion":"{version}"}},"data":{{"k":"{number}"}}}}"#
            );
            rig.put(&format!("{CONFIG_MAPS}/a"), &body).await.status
        });
    }
    let mut statuses = writers.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_the_creates_of_one_name_succeeds() {
    let rig = Rig::new().await;
    let mut writers = JoinSet::new();
    for _ in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move {
            rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"}}"#)
                .await
                .status
        });
    }
    let mut statuses = writers.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn generated_addresses_are_allocated_once() {
    let rig = Rig::new().await;
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let rig = rig.clone();
        writers.spawn(async move {
            let body = format!(r#"{{"metadata":{{"name":"s{number}"}},"spec":{{"type":"NodePort","ports":[{{"port":80}}]}}}}"#);
            let made = rig.post("/api/v1/namespaces/default/services", &body).await.expect(201);
            let port = made.body["spec"]["ports"].list()[0]["nodePort"].int();
            format!("{} {port}", made.body.at("spec.clusterIP").str())
        });
    }
    let given = writers.join_all().await;
    let distinct = |part: usize| {
        let mut parts: Vec<_> = given
            .iter()
            .map(|both| both.split(' ').nth(part).unwrap())
            .collect();
        parts.sort_unstable();
        parts.dedup();
        parts.len()
    };
    assert_eq!(
        (distinct(0), distinct(1)),
        (N_WRITERS, N_WRITERS),
        "{given:?}"
    );
}
