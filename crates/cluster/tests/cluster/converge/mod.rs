//! Does the cluster converge to the same state, whatever faults occur?
//!
//! Each scenario runs once without faults, and then for every seed while watch events are dropped, watches are cut or
//! rejected, applied writes get an error, and components are killed. `MIZZEN_SEED=n` plays one seed, `MIZZEN_SEEDS=1000`
//! more of them.

mod clock;
mod etcd;
mod lives;
mod scenario;
mod walk;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use mizzen_testing::{Builder, Cluster, Explore, FaultRates};

use scenario::Scenario;

/// The number of seeds of each scenario.
const SEEDS: u64 = 6;

/// Two nodes, and a little time for them to register.
async fn cluster() -> Cluster {
    let cluster = Cluster::builder().nodes(2).seed(1).start().await;
    pass(&cluster, 5).await;
    cluster
}

async fn pass(cluster: &Cluster, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).await;
}

/// Whether a pod is ready.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

#[track_caller]
fn check(scenario: &Scenario) {
    explore(Cluster::builder(), SEEDS, scenario);
}

#[track_caller]
fn explore(builder: Builder, n_seeds: u64, scenario: &Scenario) {
    let faults = FaultRates {
        expired: 20,
        cut_watch: 100,
        drop_event: 30,
        lost_answer: 10,
        restart_all: 10,
        ..FaultRates::none()
    };
    Explore::new(builder.nodes(2))
        .seeds(0..n_seeds)
        .faults(faults)
        .run(async |cluster: &Cluster| {
            for step in scenario.0 {
                step.perform(cluster).await;
                pass(cluster, step.seconds).await;
            }
        });
}

#[test]
fn a_deployment_is_rolled_out_updated_and_scaled() {
    check(&scenario::DEPLOYMENT);
}

#[test]
fn a_stateful_set_is_updated_and_scaled() {
    check(&scenario::STATEFUL_SET);
}

#[test]
fn a_daemon_set_is_updated() {
    check(&scenario::DAEMON_SET);
}

#[test]
fn a_job_counts_to_four() {
    check(&scenario::JOB);
}

#[test]
fn owners_are_deleted_with_dependents_or_without() {
    check(&scenario::OWNERS);
}

#[test]
fn a_namespace_is_deleted_with_its_content() {
    check(&scenario::NAMESPACE);
}

#[test]
fn a_quota_admits_three_of_five() {
    check(&scenario::QUOTA);
}

#[test]
fn a_stateful_set_keeps_its_volumes() {
    check(&scenario::VOLUMES);
}

#[test]
fn a_cron_job_runs_every_minute_until_it_is_suspended() {
    check(&scenario::CRON_JOB);
}

#[test]
fn an_autoscaler_follows_the_load() {
    check(&scenario::AUTOSCALER);
}

#[test]
fn a_service_selects_other_pods() {
    check(&scenario::SERVICE);
}

#[test]
fn a_budget_lets_pods_be_evicted_one_by_one() {
    check(&scenario::BUDGET);
}
