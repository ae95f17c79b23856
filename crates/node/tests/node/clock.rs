//! Jumps of the wall clock by an hour while pods run and between two agents.

use std::time::Duration;

use mizzen_sdk::resource::{EVENTS, LEASES, PODS};
use mizzen_testing::Builder;

use crate::fixtures::{delete_pod, get_pod, pass, run_pod, second, show, start};

const WEB: &str = "containers: [{name: web, image: web}]";
const HOUR: i64 = 3600;

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_across_clock_steps() {
    let cluster = start(3).await;
    let mut offset = 0;
    cluster.advance(Duration::from_millis(500)).await;
    for (n, step) in [(1, -HOUR), (2, HOUR), (3, HOUR), (4, -HOUR), (5, -HOUR)] {
        cluster.clock().step(step);
        offset += step;
        pass(&cluster, 15).await;
        for node in 0..3 {
            let lease = cluster
                .object(&LEASES, &format!("kube-node-lease/node-{node}"))
                .await;
            let renewed = second(&lease["spec"]["renewTime"]) - offset;
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
    let cluster = start(1).await;
    run_pod(&cluster, "web", "", WEB).await;
    pass(&cluster, 5).await;
    let before = get_pod(&cluster, "web").await;
    assert_eq!(show(&before), "Running ready=True web=running");
    for step in [-HOUR, 2 * HOUR, -HOUR] {
        cluster.clock().step(step);
        pass(&cluster, 120).await;
        assert_eq!(get_pod(&cluster, "web").await.version(), before.version());
    }
}

#[tokio::test(start_paused = true)]
async fn container_durations_ignore_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = start(1).await;
        run_pod(
            &cluster,
            "job",
            "mizzen.dev/simulate: \"run 30s, exit\"",
            &format!("restartPolicy: Never, {WEB}"),
        )
        .await;
        pass(&cluster, 10).await;
        cluster.clock().step(step);
        pass(&cluster, 19).await;
        assert_eq!(
            show(&get_pod(&cluster, "job").await),
            "Running ready=True web=running",
            "{step}"
        );
        pass(&cluster, 2).await;
        let pod = get_pod(&cluster, "job").await;
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
        let changed = second(&ready["lastTransitionTime"]) - step;
        assert!(
            (30..=31).contains(&changed),
            "objects have the time of day: {changed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn back_off_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = start(1).await;
        run_pod(
            &cluster,
            "web",
            "mizzen.dev/simulate: \"2x exit 1 then run\"",
            WEB,
        )
        .await;
        pass(&cluster, 3).await;
        assert_eq!(
            show(&get_pod(&cluster, "web").await),
            "Running ready=False web=CrashLoopBackOff+1",
            "{step}"
        );
        cluster.clock().step(step);
        pass(&cluster, 5).await;
        assert_eq!(
            show(&get_pod(&cluster, "web").await),
            "Running ready=False web=CrashLoopBackOff+1",
            "{step}"
        );
        pass(&cluster, 5).await;
        assert_eq!(
            show(&get_pod(&cluster, "web").await),
            "Running ready=True web=running+2",
            "{step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn active_deadline_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = start(1).await;
        run_pod(
            &cluster,
            "web",
            "",
            &format!("activeDeadlineSeconds: 60, {WEB}"),
        )
        .await;
        pass(&cluster, 10).await;
        cluster.clock().step(step);
        pass(&cluster, 45).await;
        assert_eq!(
            show(&get_pod(&cluster, "web").await),
            "Running ready=True web=running",
            "{step}"
        );
        pass(&cluster, 10).await;
        assert_eq!(
            get_pod(&cluster, "web").await["status"]["reason"].str(),
            "DeadlineExceeded",
            "{step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn grace_period_ignores_clock_steps() {
    for step in [-HOUR, HOUR] {
        let cluster = start(1).await;
        run_pod(
            &cluster,
            "web",
            "mizzen.dev/simulate: \"run, stop never\"",
            WEB,
        )
        .await;
        pass(&cluster, 1).await;
        delete_pod(&cluster, "web", Some(30)).await;
        pass(&cluster, 10).await;
        cluster.clock().step(step);
        // An update of the pod triggers a sync.
        let (key, label) = ("default/web", "{metadata: {labels: {seen: 'yes'}}}");
        cluster.patch(&PODS, key, "", label).await;
        pass(&cluster, 18).await;
        assert_eq!(
            show(&get_pod(&cluster, "web").await),
            "Running ready=True web=running",
            "{step}"
        );
        pass(&cluster, 4).await;
        assert!(cluster.find_object(&PODS, key).await.is_none(), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn pod_survives_an_agent_restart_with_another_clock() {
    for step in [-HOUR, -24 * HOUR, HOUR] {
        let cluster = start(1).await;
        let probes = "readinessProbe: {httpGet: {port: 80}, periodSeconds: 5}, \
                      livenessProbe: {httpGet: {port: 80}, periodSeconds: 5}";
        let spec = format!("containers: [{{name: web, image: web, {probes}}}]");
        run_pod(&cluster, "web", "", &spec).await;
        run_pod(
            &cluster,
            "job",
            "mizzen.dev/simulate: \"run 2h, exit\"",
            WEB,
        )
        .await;
        pass(&cluster, 30).await;
        let before = [
            get_pod(&cluster, "web").await,
            get_pod(&cluster, "job").await,
        ];
        cluster.restart_with(Builder::server_only).await;
        cluster.clock().step(step);
        cluster.restart_with(|builder| builder.nodes(1)).await;
        for _ in 0..6 {
            pass(&cluster, 20).await;
            for pod in &before {
                let after = get_pod(&cluster, pod.name()).await;
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
    let cluster = start(1).await;
    run_pod(&cluster, "early", "", WEB).await;
    pass(&cluster, 5).await;
    cluster.clock().step(-HOUR);
    run_pod(&cluster, "late", "", WEB).await;
    pass(&cluster, 5).await;
    let events = cluster.objects(&EVENTS, "").await;
    let mut late = events
        .iter()
        .filter(|event| event["involvedObject"]["name"].str() == "late");
    assert!(late.clone().count() >= 3);
    assert!(late.all(|event| (-HOUR..-HOUR + 20).contains(&second(&event["lastTimestamp"]))));
}
