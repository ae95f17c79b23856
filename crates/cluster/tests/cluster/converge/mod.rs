//! Does the cluster converge to the same state, whatever faults occur?
//!
//! Each scenario runs once without faults. Then, for every seed, it runs again while watch events are dropped, watches are cut or
//! rejected, applied writes get an error, and components are killed and restarted. When the faults end, the
//! state must be that of the first run. `MIZZEN_SEED=n` runs one seed and prints the writes.

mod clock;
mod faults;
mod lives;
mod picture;
mod scenario;
mod walk;
mod world;

use std::time::Duration;

use faults::SeededRandom;
use scenario::{SCENARIOS, Scenario};
use world::World;

/// How long the cluster may take to converge.
const REST: Duration = Duration::from_secs(900);
/// How long the state must be unchanged.
const LOOK: Duration = Duration::from_secs(60);

/// The number of seeds, a part of them in each test. `MIZZEN_SEEDS=1000` runs more.
const SEEDS: u64 = 120;

async fn in_peace(scenario: &Scenario) -> String {
    let mut world = World::new(SeededRandom::new(0)).await;
    world.start().await;
    for step in scenario.steps {
        world.perform(step).await;
        world.pass(Duration::from_secs(step.seconds)).await;
    }
    world.pass(REST).await;
    world.picture().await
}

/// The state when it was `expected` twice, or after the timeout.
async fn in_trouble(scenario: &Scenario, seed: u64, expected: &str) -> String {
    let mut world = World::new(SeededRandom::new(seed)).await;
    world.start().await;
    world.trouble(true);
    for step in scenario.steps {
        world.perform(step).await;
        world.suffer(step.seconds).await;
    }
    world.trouble(false);
    world.start().await;
    let mut n_equal = 0;
    for _ in 0..REST.as_secs() / LOOK.as_secs() {
        world.pass(LOOK).await;
        n_equal = if world.picture().await == expected {
            n_equal + 1
        } else {
            0
        };
        if n_equal == 2 {
            break;
        }
    }
    if std::env::var_os("MIZZEN_SEED").is_some() {
        for write in world.writes() {
            println!(
                "{} {} {} {}",
                write.at, write.actor, write.method, write.path
            );
        }
    }
    world.picture().await
}

/// Runs every `n_parts`th seed, beginning with `part`; each runs one of the scenarios.
fn check(part: u64, n_parts: u64) {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    // Each part has its own scenarios.
    let mut peaceful: [Option<String>; SCENARIOS.len()] = [const { None }; SCENARIOS.len()];
    let one: Option<u64> = std::env::var("MIZZEN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let all = std::env::var("MIZZEN_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SEEDS);
    let all = one.map_or(all, |one| all.max(one + 1));
    let seeds = (part..all)
        .step_by(n_parts as usize)
        .filter(|seed| one.is_none_or(|one| one == *seed));
    let mut different = Vec::new();
    for seed in seeds {
        let at = seed as usize % SCENARIOS.len();
        let scenario = &SCENARIOS[at];
        let expected = peaceful[at].get_or_insert_with(|| runtime().block_on(in_peace(scenario)));
        let found = runtime().block_on(in_trouble(scenario, seed, expected));
        if found != *expected {
            println!(
                "{:?}, MIZZEN_SEED={seed}: in peace\n{expected}in trouble\n{found}",
                scenario.name
            );
            different.push(seed);
        }
    }
    assert!(
        different.is_empty(),
        "the world ended up different for seeds {different:?}"
    );
}

#[test]
fn with_faults_the_cluster_converges_to_the_same_state_first_part() {
    check(0, 4);
}

#[test]
fn with_faults_the_cluster_converges_to_the_same_state_second_part() {
    check(1, 4);
}

#[test]
fn with_faults_the_cluster_converges_to_the_same_state_third_part() {
    check(2, 4);
}

#[test]
fn with_faults_the_cluster_converges_to_the_same_state_fourth_part() {
    check(3, 4);
}

/// Ensures that the compared states are not empty.
#[test]
fn without_faults_the_cluster_converges() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let picture = runtime.block_on(in_peace(&SCENARIOS[0]));
    let ready = picture
        .lines()
        .filter(|line| line.starts_with("Pod ") && line.contains("Running ready"));
    assert_eq!(ready.count(), 2, "{picture}");
}
