//! Pod life cycle on a node.

use mizzen_sdk::Key;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::PODS;
use mizzen_value::value;

use crate::cluster::{Cluster, show};

const WEB: &str = "containers: [{name: web, image: web}]";

#[tokio::test(start_paused = true)]
async fn pod_becomes_ready() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
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
        cluster.told("web").await,
        [
            "Normal Pulled spec.containers{web} Container image \"web\" already present on machine x1",
            "Normal Created spec.containers{web} Container created x1",
            "Normal Started spec.containers{web} Container started x1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pod_becomes_ready_with_two_writes() {
    let cluster = Cluster::with(1).await;
    let made = cluster.run_pod("web", "", WEB).await;
    cluster.pass_millis(3).await;
    let creating = cluster.pod("web").await;
    assert_eq!(show(&creating), "Pending ready=False web=ContainerCreating");
    cluster.pass(5).await;
    let running = cluster.pod("web").await;
    let version = |pod: &mizzen_sdk::Object| pod.version().parse::<u64>().unwrap();
    assert!(version(&made) < version(&creating) && version(&creating) < version(&running));
    cluster.pass(3600).await;
    assert_eq!(cluster.pod("web").await.version(), running.version());
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_removed_after_its_containers() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"run, stop 5s\"", WEB)
        .await;
    cluster.pass(1).await;
    cluster.delete_pod("web", None).await;
    cluster.pass(4).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
    cluster.pass(2).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "web"))
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_first_and_sidecars_stay() {
    let cluster = Cluster::with(1).await;
    let spec = "initContainers: [{name: one, image: i}, {name: side, image: s, restartPolicy: Always}], \
                containers: [{name: web, image: w}]";
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"one: run 2s, exit\"", spec)
        .await;
    cluster.pass(1).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Pending ready=False one=unready side=PodInitializing web=PodInitializing"
    );
    cluster.pass(2).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True one=Completed(0) side=running web=running"
    );
    let told = cluster.told("web").await;
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
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"run 1s, exit 1\"", WEB)
        .await;
    let mut seen = Vec::new();
    for seconds in [2, 1, 10, 1] {
        cluster.pass(seconds).await;
        seen.push(show(&cluster.pod("web").await));
    }
    let backing_off = "Running ready=False web=CrashLoopBackOff";
    let expected = [
        "Running ready=True web=running+1".to_string(),
        format!("{backing_off}+1"),
        "Running ready=True web=running+2".to_string(),
        format!("{backing_off}+2"),
    ];
    assert_eq!(seen, expected);
    let told = cluster.told("web").await;
    assert!(told.iter().any(|told| told.starts_with("Warning BackOff spec.containers{web} Back-off restarting failed container web in pod web_default(")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn completed_pod_remains() {
    let cluster = Cluster::with(1).await;
    let spec = format!("restartPolicy: Never, {WEB}");
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"run 3s, exit\"", &spec)
        .await;
    cluster.pass(10).await;
    let pod = cluster.pod("web").await;
    assert_eq!(show(&pod), "Succeeded ready=False web=Completed(0)");
    assert!(!pod["status"]["podIP"].str().is_empty());
    cluster.pass(3600).await;
    assert_eq!(cluster.pod("web").await.version(), pod.version());
    cluster.delete_pod("web", None).await;
    cluster.pass(1).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "web"))
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn job_pod_completes_by_itself() {
    let cluster = Cluster::with(1).await;
    let text = format!(
        "{{metadata: {{name: work, ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}}]}}, \
         spec: {{nodeName: node-0, restartPolicy: Never, {WEB}}}}}"
    );
    cluster
        .create("/api/v1/namespaces/default/pods", &text)
        .await;
    cluster.pass(2).await;
    assert_eq!(
        show(&cluster.pod("work").await),
        "Succeeded ready=False web=Completed(0)"
    );
}

#[tokio::test(start_paused = true)]
async fn liveness_failure_restarts_the_container() {
    let cluster = Cluster::with(1).await;
    let spec = "containers: [{name: web, image: web, livenessProbe: {periodSeconds: 2, failureThreshold: 2, tcpSocket: {port: 80}}}]";
    cluster
        .run_pod(
            "web",
            "mizzen.dev/simulate: \"unhealthy 5s then run\"",
            spec,
        )
        .await;
    cluster.pass(12).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running+1"
    );
    let told = cluster.told("web").await;
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
        cluster.pod("web").await["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"]
            .int(),
        143
    );
}

#[tokio::test(start_paused = true)]
async fn container_is_killed_after_the_grace_period() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"stop never\"", WEB)
        .await;
    cluster.pass(1).await;
    cluster.delete_pod("web", Some(10)).await;
    cluster.pass(9).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
    cluster.pass(2).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "web"))
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn pod_with_finalizer_keeps_its_final_status() {
    let cluster = Cluster::with(1).await;
    let text = format!(
        "{{metadata: {{name: web, finalizers: [acme.com/hold]}}, spec: {{nodeName: node-0, {WEB}}}}}"
    );
    cluster
        .create("/api/v1/namespaces/default/pods", &text)
        .await;
    cluster.pass(1).await;
    cluster.delete_pod("web", None).await;
    cluster.pass(5).await;
    let pod = cluster.pod("web").await;
    assert_eq!(show(&pod), "Failed ready=False web=Error(143)");
    cluster.pass(600).await;
    assert_eq!(cluster.pod("web").await.version(), pod.version());
}

#[tokio::test(start_paused = true)]
async fn pod_beyond_capacity_is_rejected() {
    let cluster = Cluster::with(1).await;
    let spec = "containers: [{name: web, image: web, resources: {requests: {cpu: \"5\"}}}]";
    cluster.run_pod("first", "", spec).await;
    cluster.pass(1).await;
    cluster.run_pod("second", "", spec).await;
    cluster.pass(1).await;
    let pod = cluster.pod("second").await;
    let status = &pod["status"];
    assert_eq!(
        (status["phase"].str(), status["reason"].str()),
        ("Failed", "OutOfcpu")
    );
    let why = "Node didn't have enough resource: cpu, requested: 5000, used: 5000, capacity: 8000";
    assert_eq!(status["message"].str(), format!("Pod was rejected: {why}"));
    assert_eq!(
        cluster.told("second").await,
        [format!("Warning OutOfcpu  {why} x1")]
    );
    cluster.delete_pod("first", None).await;
    cluster.pass(1).await;
    cluster.run_pod("third", "", spec).await;
    cluster.pass(1).await;
    assert_eq!(
        show(&cluster.pod("third").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn resized_pod_counts_with_its_new_resources() {
    let cluster = Cluster::with(1).await;
    let spec = |cpu: i64| {
        format!(
            "containers: [{{name: web, image: web, resources: {{requests: {{cpu: \"{cpu}\"}}}}}}]"
        )
    };
    cluster.run_pod("first", "", &spec(5)).await;
    cluster.pass(1).await;
    // The node has eight CPUs. A pod that shrinks frees some, a pod that grows takes some.
    for (size, other, expected) in [
        ("2", "a", "Running"),
        ("4", "b", "Failed"),
        ("3", "c", "Running"),
    ] {
        let resources = value!({"requests": {"cpu": size}});
        let change = value!({"spec": {"containers": [{"name": "web", "resources": resources}]}});
        let key = Key::new("default", "first");
        cluster
            .api
            .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
            .await
            .unwrap();
        cluster.pass(1).await;
        cluster.run_pod(other, "", &spec(5)).await;
        cluster.pass(1).await;
        let phase = cluster.pod(other).await["status"]["phase"].clone();
        assert_eq!(phase.str(), expected, "beside {size}");
        cluster.delete_pod(other, Some(0)).await;
        cluster.pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_script_fails_the_pod() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"web: rdy 1s\"", WEB)
        .await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
    assert_eq!(
        (pod["status"]["phase"].str(), pod["status"]["reason"].str()),
        ("Failed", "InvalidSimulation")
    );
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/simulate: \"rdy\" is not a stage"),
        "{message}"
    );
    assert!(cluster.told("web").await[0].starts_with("Warning InvalidSimulation"));
}

#[tokio::test(start_paused = true)]
async fn invalid_usage_annotation_fails_the_pod() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod("web", "mizzen.dev/usage: 'cpu=lots'", WEB)
        .await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
    assert_eq!(pod["status"]["reason"].str(), "InvalidSimulation");
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/usage: \"lots\" is not an amount such as 250m or 64Mi"),
        "{message}"
    );
    assert!(cluster.told("web").await[0].starts_with("Warning InvalidSimulation"));
}

#[tokio::test(start_paused = true)]
async fn log_annotation_of_unknown_container_fails_the_pod() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod(
            "web",
            "mizzen.dev/logs.web: hello, mizzen.dev/logs.wbe: hello",
            WEB,
        )
        .await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
    assert_eq!(pod["status"]["reason"].str(), "InvalidSimulation");
    let message = pod["status"]["message"].str();
    assert!(
        message.contains("mizzen.dev/logs: the pod has no container \"wbe\""),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_survive_an_agent_restart() {
    let mut cluster = Cluster::with(1).await;
    cluster
        .run_pod(
            "web",
            "mizzen.dev/simulate: \"run 20s, exit 1 then run\"",
            WEB,
        )
        .await;
    cluster.pass(1).await;
    let before = cluster.pod("web").await;
    cluster.start(1, |_| {});
    cluster.pass(1).await;
    let after = cluster.pod("web").await;
    assert_eq!(
        (after.version(), show(&after).as_str()),
        (before.version(), "Running ready=True web=running")
    );
    cluster.pass(20).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running+1"
    );
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_while_the_agent_is_down_is_removed() {
    let mut cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(1).await;
    cluster.stop();
    cluster.delete_pod("web", None).await;
    cluster.pass(60).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "web"))
            .await
            .is_some()
    );
    cluster.start(1, |_| {});
    cluster.pass(5).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "web"))
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn pod_ips_are_unique_and_in_the_pod_cidr() {
    let cluster = Cluster::with(1).await;
    let range =
        mizzen_value::value!({ "spec": { "podCIDR": "10.7.3.0/24", "podCIDRs": ["10.7.3.0/24"] } });
    let node = Key::cluster("node-0");
    cluster
        .api
        .patch(
            &mizzen_sdk::resource::NODES,
            &node,
            "",
            mizzen_sdk::dynamic::PatchType::Merge,
            &range,
        )
        .await
        .unwrap();
    cluster.pass_millis(100).await;
    for name in ["a", "b"] {
        cluster.run_pod(name, "", WEB).await;
    }
    cluster
        .run_pod("host", "", &format!("hostNetwork: true, {WEB}"))
        .await;
    cluster.pass(1).await;
    let mut addresses = Vec::new();
    for name in ["a", "b", "host"] {
        addresses.push(cluster.pod(name).await["status"]["podIP"].str().to_string());
    }
    assert_eq!(addresses, ["10.7.3.2", "10.7.3.3", "127.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn recreated_pod_starts_anew() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(1).await;
    cluster.delete_pod("web", Some(0)).await;
    cluster
        .run_pod("web", "mizzen.dev/simulate: \"ready 5s\"", WEB)
        .await;
    cluster.pass(1).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=False web=unready"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_nodes_are_ignored() {
    let cluster = Cluster::with(2).await;
    let text = format!("{{metadata: {{name: web}}, spec: {{nodeName: elsewhere, {WEB}}}}}");
    let made = cluster
        .create("/api/v1/namespaces/default/pods", &text)
        .await;
    cluster.pass(60).await;
    assert_eq!(cluster.pod("web").await.version(), made.version());
}

#[tokio::test(start_paused = true)]
async fn many_pods_become_ready_on_many_nodes() {
    let cluster = Cluster::with(10).await;
    for number in 0..100 {
        let text = format!(
            "{{metadata: {{name: p{number}}}, spec: {{nodeName: node-{}, {WEB}}}}}",
            number % 10
        );
        cluster
            .create("/api/v1/namespaces/default/pods", &text)
            .await;
    }
    cluster.pass(10).await;
    let pods = cluster.list(&PODS).await;
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
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(5).await;
    let before = cluster.pod("web").await;
    let change = crate::cluster::read("{spec: {containers: [{name: web, image: 'web:2'}]}}");
    let key = Key::new("default", "web");
    cluster
        .api
        .patch(
            &PODS,
            &key,
            "",
            mizzen_sdk::dynamic::PatchType::Strategic,
            &change,
        )
        .await
        .unwrap();
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
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
        cluster.told("web").await[1..],
        [
            "Normal Created spec.containers{web} Container created x2",
            "Normal Started spec.containers{web} Container started x2",
            "Normal Killing spec.containers{web} Container web definition changed, will be restarted x1",
            "Normal Pulled spec.containers{web} Container image \"web:2\" already present on machine x1",
        ]
    );
}
