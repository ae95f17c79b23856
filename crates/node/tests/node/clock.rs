//! Jumps of the wall clock by an hour while pods run and between two agents.

use mizzen_sdk::Key;
use mizzen_sdk::resource::{EVENTS, LEASES, PODS};

use crate::cluster::{Cluster, show};

const WEB: &str = "containers: [{name: web, image: web}]";
const HOUR: i64 = 3600;

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_across_clock_steps() {
    let cluster = Cluster::with(3).await;
    let mut offset = 0;
    cluster.pass_millis(500).await;
    for (n, step) in [(1, -HOUR), (2, HOUR), (3, HOUR), (4, -HOUR), (5, -HOUR)] {
        cluster.clock.step(step);
        offset += step;
        cluster.pass(15).await;
        for node in 0..3 {
            let lease = cluster
                .get(
                    &LEASES,
                    &Key::new("kube-node-lease", format!("node-{node}")),
                )
                .await;
            let renewed = Cluster::second(&lease["spec"]["renewTime"]) - offset;
            let now = 1 + 15 * n;
            assert!(
                (now - 10..=now).contains(&renewed),
                "node-{node}: renewed at {renewed}, it is {now}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clock_step_leaves_running_pods_alone() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(5).await;
    let before = cluster.pod("web").await;
    assert_eq!(show(&before), "Running ready=True web=running");
    for step in [-HOUR, 2 * HOUR, -HOUR] {
        cluster.clock.step(step);
        cluster.pass(120).await;
        assert_eq!(cluster.pod("web").await.version(), before.version());
    }
}

#[tokio::test(start_paused = true)]
async fn container_durations_ignore_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = Cluster::with(1).await;
        cluster
            .run_pod(
                "job",
                "mizzen.dev/simulate: \"run 30s, exit\"",
                &format!("restartPolicy: Never, {WEB}"),
            )
            .await;
        cluster.pass(10).await;
        cluster.clock.step(step);
        cluster.pass(19).await;
        assert_eq!(
            show(&cluster.pod("job").await),
            "Running ready=True web=running",
            "{step}"
        );
        cluster.pass(2).await;
        let pod = cluster.pod("job").await;
        assert_eq!(
            show(&pod),
            "Succeeded ready=False web=Completed(0)",
            "{step}"
        );
        let conditions = pod["status"]["conditions"].list();
        let ready = conditions
            .iter()
            .find(|condition| condition["type"].str() == "Ready")
            .unwrap();
        let changed = Cluster::second(&ready["lastTransitionTime"]) - step;
        assert!(
            (30..=31).contains(&changed),
            "objects have the time of day: {changed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn back_off_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = Cluster::with(1).await;
        cluster
            .run_pod("web", "mizzen.dev/simulate: \"2x exit 1 then run\"", WEB)
            .await;
        cluster.pass(3).await;
        assert_eq!(
            show(&cluster.pod("web").await),
            "Running ready=False web=CrashLoopBackOff+1",
            "{step}"
        );
        cluster.clock.step(step);
        cluster.pass(5).await;
        assert_eq!(
            show(&cluster.pod("web").await),
            "Running ready=False web=CrashLoopBackOff+1",
            "{step}"
        );
        cluster.pass(5).await;
        assert_eq!(
            show(&cluster.pod("web").await),
            "Running ready=True web=running+2",
            "{step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn active_deadline_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = Cluster::with(1).await;
        cluster
            .run_pod("web", "", &format!("activeDeadlineSeconds: 60, {WEB}"))
            .await;
        cluster.pass(10).await;
        cluster.clock.step(step);
        cluster.pass(45).await;
        assert_eq!(
            show(&cluster.pod("web").await),
            "Running ready=True web=running",
            "{step}"
        );
        cluster.pass(10).await;
        assert_eq!(
            cluster.pod("web").await["status"]["reason"].str(),
            "DeadlineExceeded",
            "{step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn grace_period_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = Cluster::with(1).await;
        cluster
            .run_pod("web", "mizzen.dev/simulate: \"run, stop never\"", WEB)
            .await;
        cluster.pass(1).await;
        cluster.delete_pod("web", Some(30)).await;
        cluster.pass(10).await;
        cluster.clock.step(step);
        // An update of the pod triggers a sync.
        let label = mizzen_value::value!({ "metadata": { "labels": { "seen": "yes" } } });
        let key = Key::new("default", "web");
        cluster
            .api
            .patch(
                &PODS,
                &key,
                "",
                mizzen_sdk::dynamic::PatchType::Merge,
                &label,
            )
            .await
            .unwrap();
        cluster.pass(18).await;
        assert_eq!(
            show(&cluster.pod("web").await),
            "Running ready=True web=running",
            "{step}"
        );
        cluster.pass(4).await;
        assert!(cluster.find(&PODS, &key).await.is_none(), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn pod_survives_an_agent_restart_with_another_clock() {
    for step in [-HOUR, -24 * HOUR, HOUR] {
        let mut cluster = Cluster::with(1).await;
        let probes = "readinessProbe: {httpGet: {port: 80}, periodSeconds: 5}, \
                      livenessProbe: {httpGet: {port: 80}, periodSeconds: 5}";
        let spec = format!("containers: [{{name: web, image: web, {probes}}}]");
        cluster.run_pod("web", "", &spec).await;
        cluster
            .run_pod("job", "mizzen.dev/simulate: \"run 2h, exit\"", WEB)
            .await;
        cluster.pass(30).await;
        let before = [cluster.pod("web").await, cluster.pod("job").await];
        cluster.stop();
        cluster.clock.step(step);
        cluster.start(1, |_| {});
        for _ in 0..6 {
            cluster.pass(20).await;
            for pod in &before {
                let after = cluster.pod(pod.name()).await;
                assert_eq!(
                    show(&after),
                    "Running ready=True web=running",
                    "{} {step}",
                    pod.name()
                );
                assert_eq!(after["status"], pod["status"], "{} {step}", pod.name());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_after_a_clock_step_have_the_wall_time() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("early", "", WEB).await;
    cluster.pass(5).await;
    cluster.clock.step(-HOUR);
    cluster.run_pod("late", "", WEB).await;
    cluster.pass(5).await;
    let events = cluster.list(&EVENTS).await;
    let mut late = events
        .iter()
        .filter(|event| event["involvedObject"]["name"].str() == "late");
    assert!(late.clone().count() >= 3);
    assert!(
        late.all(|event| (-HOUR..-HOUR + 20).contains(&Cluster::second(&event["lastTimestamp"])))
    );
}
