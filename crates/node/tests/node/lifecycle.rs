//! Pod life cycle on a node.

use std::time::Duration;

use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_testing::Builder;
use mizzen_value::value;

use crate::fixtures::{create, delete_pod, events_of, get_pod, pass, read, run_pod, show, start};

const WEB: &str = "containers: [{name: web, image: web}]";

#[tokio::test(start_paused = true)]
async fn pod_becomes_ready() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "", WEB).await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(show(&pod), "Running ready=True web=running");
    assert!(!pod["status"]["podIP"].str().is_empty());
    assert_eq!(pod["status"]["hostIP"].str(), "127.0.0.1");
    let types: Vec<&str> = pod["status"]["conditions"]
        .list()
        .iter()
        .map(|condition| condition["type"].str())
        .collect();
    assert_eq!(
        types,
        [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled"
        ]
    );
    assert_eq!(
        events_of(&cluster, "web").await,
        [
            "Normal Pulled spec.containers{web} Container image \"web\" already present on machine and can be accessed by the pod x1",
            "Normal Created spec.containers{web} Container created x1",
            "Normal Started spec.containers{web} Container started x1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pod_becomes_ready_with_two_writes() {
    let cluster = start(1).await;
    let made = run_pod(&cluster, "web", "", WEB).await;
    cluster.advance(Duration::from_millis(3)).await;
    let creating = get_pod(&cluster, "web").await;
    assert_eq!(show(&creating), "Pending ready=False web=ContainerCreating");
    pass(&cluster, 5).await;
    let running = get_pod(&cluster, "web").await;
    let version = |pod: &mizzen_sdk::Object| pod.version().parse::<u64>().unwrap();
    assert!(version(&made) < version(&creating) && version(&creating) < version(&running));
    pass(&cluster, 3600).await;
    assert_eq!(get_pod(&cluster, "web").await.version(), running.version());
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_removed_after_its_containers() {
    let cluster = start(1).await;
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"run, stop 5s\"",
        WEB,
    )
    .await;
    pass(&cluster, 1).await;
    delete_pod(&cluster, "web", None).await;
    pass(&cluster, 4).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
    pass(&cluster, 2).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_first_and_sidecars_stay() {
    let cluster = start(1).await;
    let spec = "initContainers: [{name: one, image: i}, {name: side, image: s, restartPolicy: Always}], \
                containers: [{name: web, image: w}]";
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"one: run 2s, exit\"",
        spec,
    )
    .await;
    pass(&cluster, 1).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Pending ready=False one=unready side=PodInitializing web=PodInitializing"
    );
    pass(&cluster, 2).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True one=Completed(0) side=running web=running"
    );
    let told = events_of(&cluster, "web").await;
    let started: Vec<&str> = told
        .iter()
        .filter(|told| told.contains("Started"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        started,
        [
            "Normal Started spec.initContainers{one} Container started x1",
            "Normal Started spec.initContainers{side} Container started x1",
            "Normal Started spec.containers{web} Container started x1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn crash_loop_back_off() {
    let cluster = start(1).await;
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"run 1s, exit 1\"",
        WEB,
    )
    .await;
    let mut seen = Vec::new();
    for seconds in [2, 1, 10, 1] {
        pass(&cluster, seconds).await;
        seen.push(show(&get_pod(&cluster, "web").await));
    }
    let backing_off = "Running ready=False web=CrashLoopBackOff";
    let expected = [
        "Running ready=True web=running+1".to_string(),
        format!("{backing_off}+1"),
        "Running ready=True web=running+2".to_string(),
        format!("{backing_off}+2"),
    ];
    assert_eq!(seen, expected);
    let told = events_of(&cluster, "web").await;
    assert!(told.iter().any(|told| told.starts_with("Warning BackOff spec.containers{web} Back-off restarting failed container web in pod web_default(")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn completed_pod_remains() {
    let cluster = start(1).await;
    let spec = format!("restartPolicy: Never, {WEB}");
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"run 3s, exit\"",
        &spec,
    )
    .await;
    pass(&cluster, 10).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(show(&pod), "Succeeded ready=False web=Completed(0)");
    assert!(!pod["status"]["podIP"].str().is_empty());
    pass(&cluster, 3600).await;
    assert_eq!(get_pod(&cluster, "web").await.version(), pod.version());
    delete_pod(&cluster, "web", None).await;
    pass(&cluster, 1).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn job_pod_completes_by_itself() {
    let cluster = start(1).await;
    let text = format!(
        "{{metadata: {{name: work, ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}}]}}, \
         spec: {{nodeName: node-0, restartPolicy: Never, {WEB}}}}}"
    );
    create(&cluster, &PODS, &text).await;
    pass(&cluster, 2).await;
    assert_eq!(
        show(&get_pod(&cluster, "work").await),
        "Succeeded ready=False web=Completed(0)"
    );
}

#[tokio::test(start_paused = true)]
async fn liveness_failure_restarts_the_container() {
    let cluster = start(1).await;
    let spec = "containers: [{name: web, image: web, livenessProbe: {periodSeconds: 2, failureThreshold: 2, tcpSocket: {port: 80}}}]";
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"unhealthy 5s then run\"",
        spec,
    )
    .await;
    pass(&cluster, 12).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running+1"
    );
    let told = events_of(&cluster, "web").await;
    let has = |wanted: &str| told.iter().any(|told| told.starts_with(wanted));
    assert!(
        has("Warning Unhealthy spec.containers{web} Liveness probe failed: dial tcp "),
        "{told:?}"
    );
    assert!(
        has(
            "Normal Killing spec.containers{web} Container web failed liveness probe, will be restarted"
        ),
        "{told:?}"
    );
    assert_eq!(
        get_pod(&cluster, "web").await["status"]["containerStatuses"][0]["lastState"]["terminated"]
            ["exitCode"]
            .int(),
        143
    );
}

#[tokio::test(start_paused = true)]
async fn container_is_killed_after_the_grace_period() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "mizzen.dev/simulate: \"stop never\"", WEB).await;
    pass(&cluster, 1).await;
    delete_pod(&cluster, "web", Some(10)).await;
    pass(&cluster, 9).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
    pass(&cluster, 2).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn pod_with_finalizer_keeps_its_final_status() {
    let cluster = start(1).await;
    let text = format!(
        "{{metadata: {{name: web, finalizers: [acme.com/hold]}}, spec: {{nodeName: node-0, {WEB}}}}}"
    );
    create(&cluster, &PODS, &text).await;
    pass(&cluster, 1).await;
    delete_pod(&cluster, "web", None).await;
    pass(&cluster, 5).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(show(&pod), "Failed ready=False web=Error(143)");
    pass(&cluster, 600).await;
    assert_eq!(get_pod(&cluster, "web").await.version(), pod.version());
}

#[tokio::test(start_paused = true)]
async fn pod_beyond_capacity_is_rejected() {
    let cluster = start(1).await;
    let spec = "containers: [{name: web, image: web, resources: {requests: {cpu: \"5\"}}}]";
    run_pod(&cluster, "first", "", spec).await;
    pass(&cluster, 1).await;
    run_pod(&cluster, "second", "", spec).await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "second").await;
    let status = &pod["status"];
    assert_eq!(
        (status["phase"].str(), status["reason"].str()),
        ("Failed", "OutOfcpu")
    );
    let why = "Node didn't have enough resource: cpu, requested: 5000, used: 5000, capacity: 8000";
    assert_eq!(status["message"].str(), format!("Pod was rejected: {why}"));
    assert_eq!(
        events_of(&cluster, "second").await,
        [format!("Warning OutOfcpu  {why} x1")]
    );
    delete_pod(&cluster, "first", None).await;
    pass(&cluster, 1).await;
    run_pod(&cluster, "third", "", spec).await;
    pass(&cluster, 1).await;
    assert_eq!(
        show(&get_pod(&cluster, "third").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn resized_pod_counts_with_its_new_resources() {
    let cluster = start(1).await;
    let spec = |cpu: i64| {
        format!(
            "containers: [{{name: web, image: web, resources: {{requests: {{cpu: \"{cpu}\"}}}}}}]"
        )
    };
    run_pod(&cluster, "first", "", &spec(5)).await;
    pass(&cluster, 1).await;
    // The node has eight CPUs. A pod that shrinks frees some, a pod that grows takes some.
    for (size, other, expected) in [
        ("2", "a", "Running"),
        ("4", "b", "Failed"),
        ("3", "c", "Running"),
    ] {
        let resources = value!({"requests": {"cpu": size}});
        let change = value!({"spec": {"containers": [{"name": "web", "resources": resources}]}});
        let key = "default/first".parse().unwrap();
        cluster
            .dynamic_client()
            .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
            .await
            .unwrap();
        pass(&cluster, 1).await;
        run_pod(&cluster, other, "", &spec(5)).await;
        pass(&cluster, 1).await;
        let phase = get_pod(&cluster, other).await["status"]["phase"].clone();
        assert_eq!(phase.str(), expected, "beside {size}");
        delete_pod(&cluster, other, Some(0)).await;
        pass(&cluster, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_script_fails_the_pod() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "mizzen.dev/simulate: \"web: rdy 1s\"", WEB).await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(
        (pod["status"]["phase"].str(), pod["status"]["reason"].str()),
        ("Failed", "InvalidSimulation")
    );
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/simulate: \"rdy\" is not a stage"),
        "{message}"
    );
    assert!(events_of(&cluster, "web").await[0].starts_with("Warning InvalidSimulation"));
}

#[tokio::test(start_paused = true)]
async fn invalid_usage_annotation_fails_the_pod() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "mizzen.dev/usage: 'cpu=lots'", WEB).await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(pod["status"]["reason"].str(), "InvalidSimulation");
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/usage: \"lots\" is not an amount such as 250m or 64Mi"),
        "{message}"
    );
    assert!(events_of(&cluster, "web").await[0].starts_with("Warning InvalidSimulation"));
}

#[tokio::test(start_paused = true)]
async fn log_annotation_of_unknown_container_fails_the_pod() {
    let cluster = start(1).await;
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/logs.web: hello, mizzen.dev/logs.wbe: hello",
        WEB,
    )
    .await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(pod["status"]["reason"].str(), "InvalidSimulation");
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/logs: the pod has no container \"wbe\""),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_survive_an_agent_restart() {
    let cluster = start(1).await;
    run_pod(
        &cluster,
        "web",
        "mizzen.dev/simulate: \"run 20s, exit 1 then run\"",
        WEB,
    )
    .await;
    pass(&cluster, 1).await;
    let before = get_pod(&cluster, "web").await;
    cluster.restart_with(|builder| builder.nodes(1)).await;
    pass(&cluster, 1).await;
    let after = get_pod(&cluster, "web").await;
    assert_eq!(
        (after.version(), show(&after).as_str()),
        (before.version(), "Running ready=True web=running")
    );
    pass(&cluster, 20).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running+1"
    );
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_while_the_agent_is_down_is_removed() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "", WEB).await;
    pass(&cluster, 1).await;
    cluster.restart_with(Builder::server_only).await;
    delete_pod(&cluster, "web", None).await;
    pass(&cluster, 60).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_some());
    cluster.restart_with(|builder| builder.nodes(1)).await;
    pass(&cluster, 5).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn pod_ips_are_unique_and_in_the_pod_cidr() {
    let cluster = start(1).await;
    let range = "{spec: {podCIDR: 10.7.3.0/24, podCIDRs: [10.7.3.0/24]}}";
    cluster.patch(&NODES, "node-0", "", range).await;
    cluster.advance(Duration::from_millis(100)).await;
    for name in ["a", "b"] {
        run_pod(&cluster, name, "", WEB).await;
    }
    run_pod(&cluster, "host", "", &format!("hostNetwork: true, {WEB}")).await;
    pass(&cluster, 1).await;
    let mut addresses = Vec::new();
    for name in ["a", "b", "host"] {
        addresses.push(
            get_pod(&cluster, name).await["status"]["podIP"]
                .str()
                .to_string(),
        );
    }
    assert_eq!(addresses, ["10.7.3.2", "10.7.3.3", "127.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn recreated_pod_starts_anew() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "", WEB).await;
    pass(&cluster, 1).await;
    delete_pod(&cluster, "web", Some(0)).await;
    run_pod(&cluster, "web", "mizzen.dev/simulate: \"ready 5s\"", WEB).await;
    pass(&cluster, 1).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=False web=unready"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_nodes_are_ignored() {
    let cluster = start(2).await;
    let text = format!("{{metadata: {{name: web}}, spec: {{nodeName: elsewhere, {WEB}}}}}");
    let made = create(&cluster, &PODS, &text).await;
    pass(&cluster, 60).await;
    assert_eq!(get_pod(&cluster, "web").await.version(), made.version());
}

#[tokio::test(start_paused = true)]
async fn many_pods_become_ready_on_many_nodes() {
    let cluster = start(10).await;
    for number in 0..100 {
        let text = format!(
            "{{metadata: {{name: p{number}}}, spec: {{nodeName: node-{}, {WEB}}}}}",
            number % 10
        );
        create(&cluster, &PODS, &text).await;
    }
    pass(&cluster, 10).await;
    let pods = cluster.objects(&PODS, "").await;
    let ready = pods
        .iter()
        .filter(|pod| show(pod) == "Running ready=True web=running")
        .count();
    assert_eq!((pods.len(), ready), (100, 100));
    let mut addresses: Vec<&str> = pods
        .iter()
        .map(|pod| pod["status"]["podIP"].str())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn image_change_restarts_the_container() {
    let cluster = start(1).await;
    run_pod(&cluster, "web", "", WEB).await;
    pass(&cluster, 5).await;
    let before = get_pod(&cluster, "web").await;
    let change = read("{spec: {containers: [{name: web, image: 'web:2'}]}}");
    let key = "default/web".parse().unwrap();
    cluster
        .dynamic_client()
        .patch(
            &PODS,
            &key,
            "",
            mizzen_sdk::dynamic::PatchType::Strategic,
            &change,
        )
        .await
        .unwrap();
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(show(&pod), "Running ready=True web=running+1");
    let (before, after) = (
        &before["status"]["containerStatuses"][0],
        &pod["status"]["containerStatuses"][0],
    );
    assert_eq!(after["image"].str(), "web:2");
    assert_ne!(after["imageID"], before["imageID"]);
    assert_ne!(after["containerID"], before["containerID"]);
    assert_eq!(
        after["lastState"]["terminated"]["containerID"],
        before["containerID"]
    );
    assert_eq!(pod["status"]["observedGeneration"].int(), 2);
    assert_eq!(
        events_of(&cluster, "web").await[1..],
        [
            "Normal Created spec.containers{web} Container created x2",
            "Normal Started spec.containers{web} Container started x2",
            "Normal Killing spec.containers{web} Container web definition changed, will be restarted x1",
            "Normal Pulled spec.containers{web} Container image \"web:2\" already present on machine and can be accessed by the pod x1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_deferred_until_the_node_has_room() {
    let cluster = start(1).await;
    let spec = |cpu: &str| {
        format!("containers: [{{name: web, image: web, resources: {{requests: {{cpu: {cpu}}}}}}}]")
    };
    run_pod(&cluster, "web", "", &spec("'3'")).await;
    run_pod(&cluster, "other", "", &spec("'4'")).await;
    pass(&cluster, 1).await;
    let client = cluster.dynamic_client();
    let containers = value!([{ "name": "web", "resources": { "requests": { "cpu": "6" } } }]);
    let change = value!({ "spec": { "containers": containers } });
    let key = mizzen_sdk::Key::new("default", "web");
    let patched = client
        .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
        .await;
    patched.unwrap();
    pass(&cluster, 1).await;
    let shown = async || {
        let pod = get_pod(&cluster, "web").await;
        let mut conditions = pod["status"]["conditions"].list().iter();
        let pending = conditions.find(|it| it["type"].str() == "PodResizePending");
        let pending = pending.map_or_else(String::new, |it| {
            format!("{}: {}", it["reason"].str(), it["message"].str())
        });
        let status = &pod["status"]["containerStatuses"][0];
        let allocated = status["allocatedResources"]["cpu"].str().to_owned();
        (
            allocated,
            status["resources"]["requests"]["cpu"].str().to_owned(),
            pending,
        )
    };
    let why = "Deferred: Node didn't have enough resource: cpu, requested: 6000, used: 4000, capacity: 8000";
    let expected = ["3", "3", why].map(String::from);
    assert_eq!(shown().await, expected.into());
    delete_pod(&cluster, "other", Some(0)).await;
    pass(&cluster, 15).await;
    let expected = ["6", "6", ""].map(String::from);
    assert_eq!(shown().await, expected.into());
    let events = events_of(&cluster, "web").await;
    let resources =
        r#"{"containers":[{"name":"web","resources":{"requests":{"cpu":"6"}}}],"generation":2"#;
    let (_, why) = why.split_once(": ").unwrap();
    for expected in [
        format!(
            "Warning ResizeDeferred  Pod resize Deferred: {resources},\"error\":\"{why}\"}} x1"
        ),
        format!("Normal ResizeStarted  Pod resize started: {resources}}} x1"),
        format!("Normal ResizeCompleted  Pod resize completed: {resources}}} x1"),
    ] {
        assert!(events.contains(&expected), "{expected}: {events:#?}");
    }
    assert!(show(&get_pod(&cluster, "web").await).starts_with("Running ready=True web=running"));
}
