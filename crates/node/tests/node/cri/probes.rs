//! Probes and hooks of real containers.

use std::time::Duration;

use tokio::time::Instant;

use super::http_server::Site;
use super::{RealNode, container};
use crate::containerd::BUSYBOX;
use crate::fixtures::{delete_pod, events_of, get_pod, read};

/// A container on which the test has an eye: its name, what it runs, and further fields.
fn named(name: &str, command: &str, more: &str) -> String {
    format!(
        "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, '{command}'], {more}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_speak_https_and_grpc_follow_redirects_and_wait_for_startup() {
    let Some(node) = RealNode::start("real-probes", 21).await else {
        return;
    };
    let site = Site::default();
    let (http, https, grpc) = (site.http().await, site.https().await, site.grpc().await);
    site.set("/away", 302, "http://other.test/");
    site.set("/first", 302, "second?x=y");
    site.set("/second", 503, "");
    site.set("/live", 200, "");
    site.set("ready", 1, "");
    site.set("live", 1, "");
    let every = "periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 5";
    let forever = "exec sleep 1000";
    let web = named(
        "web",
        forever,
        &format!(
            "startupProbe: {{httpGet: {{path: /started, port: {http}}}, periodSeconds: 1, failureThreshold: 100}}, \
             readinessProbe: {{httpGet: {{path: /first, port: {https}, scheme: HTTPS, httpHeaders: [{{name: Host, value: a.test}}, \
             {{name: X-Probe, value: mine}}]}}, {every}}}, \
             livenessProbe: {{httpGet: {{path: /live, port: {http}}}, {every}}}"
        ),
    );
    // It ignores SIGTERM, so that it lives for the grace period of its probe and not for that of its pod.
    let health = named(
        "health",
        "trap true TERM; while true; do sleep 1; done",
        &format!(
            "readinessProbe: {{grpc: {{port: {grpc}, service: ready}}, {every}}}, \
             livenessProbe: {{grpc: {{port: {grpc}, service: live}}, {every}, terminationGracePeriodSeconds: 2}}"
        ),
    );
    let away = named(
        "away",
        forever,
        &format!("readinessProbe: {{httpGet: {{path: /away, port: {http}}}, {every}}}"),
    );
    node.run(
        "web",
        &format!("hostNetwork: true, terminationGracePeriodSeconds: 60, containers: [{web}, {health}, {away}]"),
    )
    .await;
    node.until_pod("web", "away=running health=running web=starting")
        .await;
    node.until("the startup probe fails", async |_| {
        site.has_seen(&format!("/started 127.0.0.1:{http}"))
    })
    .await;
    assert!(!site.has_seen(&format!("/live 127.0.0.1:{http}")));
    assert!(!site.has_seen("/first a.test mine"));

    site.set("/started", 200, "");
    node.until_pod("web", "web=unready").await;
    node.until("the redirect is followed", async |_| {
        site.has_seen("/second a.test mine")
    })
    .await;
    site.set("/second", 200, "");
    node.until_pod(
        "web",
        "Running ready=True away=running health=running web=running",
    )
    .await;

    let began = Instant::now();
    site.set("live", 2, "");
    node.until("the probe fails", async |node| {
        let events = events_of(&node.cluster, "web").await;
        events
            .iter()
            .any(|event| event.contains("Liveness probe failed"))
    })
    .await;
    site.set("live", 1, "");
    node.until_pod("web", "health=running+1 web=running").await;
    assert!(began.elapsed() < Duration::from_secs(30));
    let events = events_of(&node.cluster, "web").await;
    let metrics = node.kubelet("/metrics/probes").await;
    let pod = get_pod(&node.cluster, "web").await;
    for (container, probe, result) in [
        ("web", "Startup", "failed"),
        ("web", "Startup", "successful"),
        ("health", "Liveness", "failed"),
        ("away", "Readiness", "successful"),
    ] {
        let series = format!(
            "prober_probe_total{{container=\"{container}\",namespace=\"default\",pod=\"web\",pod_uid=\"{}\",\
             probe_type=\"{probe}\",result=\"{result}\"}} ",
            pod.uid()
        );
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    let durations = "prober_probe_duration_seconds_count{container=\"web\",namespace=\"default\",pod=\"web\",probe_type=\"Startup\"} ";
    assert!(metrics.contains(durations), "{metrics}");
    let configuration = read(&node.kubelet("/configz").await);
    let endpoint = &configuration["kubeletconfig"]["containerRuntimeEndpoint"];
    assert_eq!(endpoint.str(), node.containerd.endpoint());
    for expected in [
        "Warning Unhealthy spec.containers{web} Startup probe failed: HTTP probe failed with statuscode: 404",
        "Warning Unhealthy spec.containers{web} Readiness probe failed: HTTP probe failed with statuscode: 503",
        "Warning Unhealthy spec.containers{health} Liveness probe failed: service unhealthy (responded with \"NOT_SERVING\")",
        "Warning ProbeWarning spec.containers{away} Readiness probe warning: Probe terminated redirects, Response body: text",
    ] {
        assert!(
            events.iter().any(|event| event.starts_with(expected)),
            "{expected}: {events:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_call_urls_and_sleep_and_a_failed_post_start_ends_the_container() {
    let Some(node) = RealNode::start("real-hooks", 22).await else {
        return;
    };
    let site = Site::default();
    let http = site.http().await;
    // A server without TLS is called without it. No hook depends on the status of the response.
    let hooks = format!(
        "lifecycle: {{postStart: {{httpGet: {{path: /begin, port: {http}, scheme: HTTPS}}}}, \
         preStop: {{httpGet: {{path: /end, port: {http}}}}}}}"
    );
    let spec = container(&format!(
        "command: [sh, -c, 'trap \"exit 0\" TERM; sleep 1000 & wait'], {hooks}"
    ));
    node.run("web", &format!("hostNetwork: true, {spec}")).await;
    let sleeps = "command: [sh, -c, 'trap \"exit 0\" TERM; sleep 1000 & wait'], \
                  lifecycle: {postStart: {sleep: {seconds: 1}}, preStop: {sleep: {seconds: 2}}}";
    node.run("sleeps", &container(sleeps)).await;
    let broken = "command: [sleep, '1000'], lifecycle: {postStart: {exec: {command: ['false']}}}";
    node.run(
        "broken",
        &format!("terminationGracePeriodSeconds: 2, {}", container(broken)),
    )
    .await;
    let endless = "command: [sh, -c, 'trap \"exit 0\" TERM; sleep 1000 & wait'], \
                   lifecycle: {postStart: {sleep: {seconds: 500}}}";
    node.run(
        "endless",
        &format!("terminationGracePeriodSeconds: 600, {}", container(endless)),
    )
    .await;
    node.until_pod("web", "ready=True c=running").await;
    let seen = |path: &str| site.has_seen(&format!("{path} 127.0.0.1:{http}"));
    assert!(seen("/begin") && !seen("/end"));
    node.until_pod("sleeps", "ready=True c=running").await;
    let began = Instant::now();
    delete_pod(&node.cluster, "web", None).await;
    delete_pod(&node.cluster, "sleeps", None).await;
    node.until("the preStop hook sleeps", async |node| {
        node.cluster
            .find_object(&mizzen_sdk::resource::PODS, "default/sleeps")
            .await
            .is_none()
    })
    .await;
    assert!(began.elapsed() > Duration::from_secs(2) && seen("/end"));

    // The container of a failed hook is killed and starts again; a pod that is deleted does not wait for its hook.
    node.until_pod("broken", "c=CrashLoopBackOff").await;
    let events = events_of(&node.cluster, "broken").await;
    for expected in [
        "Warning FailedPostStartHook spec.containers{c} PostStartHook failed",
        "Normal Killing spec.containers{c} FailedPostStartHook",
    ] {
        assert!(
            events.iter().any(|event| event.starts_with(expected)),
            "{expected}: {events:#?}"
        );
    }
    delete_pod(&node.cluster, "endless", None).await;
    delete_pod(&node.cluster, "broken", None).await;
    node.until("the runtime is empty", async |node| {
        node.count().await == (0, 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_program_is_missing_has_no_result() {
    let Some(node) = RealNode::start("real-no-program", 143).await else {
        return;
    };
    let probe = |program: &str| {
        format!("{{exec: {{command: [{program}]}}, periodSeconds: 1, failureThreshold: 1}}")
    };
    let spec = container(&format!(
        "command: [sleep, '1000'], livenessProbe: {}, readinessProbe: {}",
        probe("/no/such/program"),
        probe("'true'")
    ));
    node.run("web", &spec).await;
    node.until("the probe has errored more than once", async |node| {
        let events = events_of(&node.cluster, "web").await;
        let errored = "Liveness probe errored and resulted in unknown state: rpc error: code = ";
        let errored = events.iter().filter(|event| event.contains(errored));
        let counts = errored.filter_map(|event| event.rsplit(" x").next()?.parse::<u64>().ok());
        counts.sum::<u64>() > 1
    })
    .await;
    node.until_pod("web", "Running ready=True c=running").await;
    let pod = get_pod(&node.cluster, "web").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"].int(), 0);
    let events = events_of(&node.cluster, "web").await;
    assert!(!events.iter().any(|event| event.contains("probe failed")));
}
