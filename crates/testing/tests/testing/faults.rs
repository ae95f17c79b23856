//! Faults and exploration.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use mizzen_testing::{Cluster, Explore, Fault, FaultRates, assert_status};

use super::start::WEB;

#[tokio::test]
async fn a_controller_that_is_killed_after_a_write_does_not_repeat_it() {
    let cluster = Cluster::start().await;
    cluster.inject("deployment-controller", "POST replicasets", 1, Fault::Kill);
    cluster.apply(WEB).await;
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!(cluster.injected().len(), 1);
    assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1);
    assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
}

/// Its writes are of several resources, and each of them can be its last one.
#[tokio::test]
async fn a_controller_survives_its_death_after_each_of_its_writes() {
    const N_WRITES: u32 = 4;
    let mut killed_at = Vec::new();
    for nth in 1..=N_WRITES {
        let cluster = Cluster::start().await;
        cluster.inject("deployment-controller", "WRITE", nth, Fault::Kill);
        cluster.apply(WEB).await;
        cluster.advance(Duration::from_secs(30)).await;
        let injected = cluster.injected();
        assert_eq!(injected.len(), 1, "{nth}: {}", cluster.last_steps(30));
        let expected =
            format!("deployment-controller: WRITE #{nth} is applied, and the component is killed");
        assert_eq!(injected[0].to_string(), expected);
        let steps = cluster.steps();
        let fault = steps.iter().find(|step| step.object == "FAULT").unwrap();
        killed_at.push(fault.what.clone());
        assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1, "{nth}");
        assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
    }
    let is_at = |request: &str| killed_at.iter().any(|what| what.contains(request));
    assert!(is_at("(POST replicasets web-"), "{killed_at:?}");
    assert!(is_at("deployments/status web)"), "{killed_at:?}");
}

#[tokio::test]
async fn every_fault_of_a_request_is_survived() {
    for fault in [
        Fault::Conflict,
        Fault::Unavailable,
        Fault::LostAnswer { code: 500 },
        Fault::Slow { millis: 2_000 },
    ] {
        let cluster = Cluster::start().await;
        cluster.inject("replicaset-controller", "POST pods", 2, fault);
        cluster.apply(WEB).await;
        cluster.advance(Duration::from_secs(120)).await;
        assert_eq!(cluster.injected().len(), 1, "{fault}");
        assert_eq!(cluster.list::<Pod>().await.len(), 3, "{fault}");
        assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
    }
}

/// Creates a copy of every ConfigMap with the key `copy`.
async fn copier(client: Client, is_careless: bool) {
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    loop {
        let listed = configs.list(&Default::default()).await;
        let listed = listed.map(|list| list.items).unwrap_or_default();
        for config in &listed {
            let name = config.metadata.name.as_deref().unwrap_or_default();
            let mut data = config.data.iter().flatten();
            let prefix = format!("{name}-copy");
            let is_copy = |other: &ConfigMap| {
                let name = other.metadata.name.as_deref();
                name.is_some_and(|name| name.starts_with(&prefix))
            };
            if data.any(|(key, _)| key == "copy") && !listed.iter().any(is_copy) {
                create_copy(&configs, prefix, is_careless).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A careless author retries at once, and under another name: an error after the write leaves two copies.
async fn create_copy(configs: &Api<ConfigMap>, name: String, is_careless: bool) {
    let mut copy = ConfigMap::default();
    match is_careless {
        true => copy.metadata.generate_name = Some(format!("{name}-")),
        false => copy.metadata.name = Some(name),
    }
    while configs.create(&PostParams::default(), &copy).await.is_err() && is_careless {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn copy_three(cluster: &Cluster, is_careless: bool) {
    cluster.run("copier", move |client| copier(client, is_careless));
    for name in ["a", "b", "c"] {
        let text = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{copy: ''}}}}"
        );
        cluster.apply(&text).await;
        cluster.advance(Duration::from_secs(5)).await;
    }
}

fn bare() -> mizzen_testing::Builder {
    Cluster::builder()
        .controllers([""; 0])
        .scheduler(false)
        .nodes(0)
}

#[test]
fn exploration_passes_a_program_that_survives_faults() {
    let explored = Explore::new(bare())
        .seeds(0..30)
        .run(async |cluster: &Cluster| copy_three(cluster, false).await);
    assert!(explored.n_faults > explored.n_seeds, "{explored:?}");
}

#[test]
fn exploration_finds_a_program_that_creates_twice_and_tells_how() {
    let finding = Explore::new(bare()).seeds(0..100).expect_finding(
        async |cluster: &Cluster| copy_three(cluster, true).await,
        &["+ ConfigMap default/", "copier FAULT POST configmaps"],
    );
    let story = finding.story();
    assert_eq!(finding.faults.len(), 1, "{story}");
    let fault = &finding.faults[0];
    assert!(matches!(fault.fault, Fault::LostAnswer { .. }), "{story}");
    assert_eq!(fault.site.request, "POST configmaps", "{story}");
    assert!(story.contains("play it again with MIZZEN_SEED="), "{story}");
}

#[test]
#[should_panic(
    expected = r#"the story does not name "copier DELETE configmaps" after "copier FAULT POST configmaps":"#
)]
fn a_story_without_an_expected_step_is_shown() {
    Explore::new(bare()).seeds(0..100).expect_finding(
        async |cluster: &Cluster| copy_three(cluster, true).await,
        &["copier FAULT POST configmaps", "copier DELETE configmaps"],
    );
}

#[test]
#[should_panic(expected = "no bug was found: with 2 seeds and 0 faults")]
fn a_planted_bug_that_is_not_found_is_reported() {
    let explore = Explore::new(bare()).seeds(0..2).faults(FaultRates::none());
    explore.expect_finding(
        async |cluster: &Cluster| copy_three(cluster, true).await,
        &[],
    );
}

#[test]
fn the_smallest_seed_is_found_with_any_number_of_threads() {
    let seeds = [1, 4].map(|n_threads| {
        let explore = Explore::new(bare()).seeds(0..100).threads(n_threads);
        let found = explore.check(async |cluster: &Cluster| copy_three(cluster, true).await);
        found.unwrap_err().seed
    });
    assert_eq!(seeds[0], seeds[1]);
}

#[test]
fn a_deployment_survives_exploration() {
    Explore::new(Cluster::builder().nodes(2))
        .seeds(0..3)
        .run(async |cluster: &Cluster| {
            cluster.apply(WEB).await;
            // Without the first rollout the end has one ReplicaSet less.
            let is_ready = |web: &Deployment| {
                let status = web.status.as_ref();
                status.and_then(|status| status.ready_replicas) == Some(3)
            };
            cluster.until_object("web", is_ready).await;
            cluster.apply(&WEB.replace("web:1", "web:2")).await;
            cluster.advance(Duration::from_secs(20)).await;
        });
}

#[test]
fn lost_nodes_and_clock_steps_are_faults_of_the_cluster() {
    let rates = FaultRates {
        clock_step: 5,
        lose_nodes: 5,
        ..FaultRates::none()
    };
    let explored = Explore::new(Cluster::builder())
        .seeds(0..3)
        .faults(rates)
        .run(async |cluster: &Cluster| {
            cluster.apply(WEB).await;
            cluster.advance(Duration::from_secs(60)).await;
        });
    assert!(explored.n_faults > 0, "{explored:?}");
}
