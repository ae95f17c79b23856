//! Inputs of containers: the environment at each start, and volumes that follow their objects.

use mizzen_sdk::Object;
use mizzen_sdk::resource::{CONFIG_MAPS, PODS, SERVICES};
use mizzen_testing::Cluster;
use mizzen_value::Value;

use crate::fixtures::{create, delete_pod, get_pod, pass, run_pod, show, start};

/// Changes the value `k` of the ConfigMap `x`.
async fn set(cluster: &Cluster, value: &str) {
    let change = format!("{{data: {{k: {value:?}}}}}");
    cluster.patch(&CONFIG_MAPS, "default/x", "", &change).await;
}

async fn cluster_with(value: &str) -> Cluster {
    let cluster = start(1).await;
    create(
        &cluster,
        &CONFIG_MAPS,
        &format!("{{metadata: {{name: x}}, data: {{k: {value:?}}}}}"),
    )
    .await;
    cluster
}

/// The exit code of the last termination state.
fn last_code(pod: &Object) -> &Value {
    &pod["status"]["containerStatuses"].list()[0]["lastState"]["terminated"]["exitCode"]
}

#[tokio::test(start_paused = true)]
async fn restart_reads_the_environment_again() {
    let cluster = cluster_with("3").await;
    let env = "env: [{name: CODE, valueFrom: {configMapKeyRef: {name: x, key: k}}}]";
    let spec = format!(
        "containers: [{{name: web, image: web, {env}, command: [sh, -c, 'sleep 60; exit $CODE']}}]"
    );
    run_pod(&cluster, "web", "", &spec).await;
    pass(&cluster, 30).await;
    // A running container keeps its environment.
    set(&cluster, "4").await;
    pass(&cluster, 32).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(
        (show(&pod).as_str(), last_code(&pod).int()),
        ("Running ready=True web=running+1", 3)
    );
    pass(&cluster, 75).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(
        (show(&pod).as_str(), last_code(&pod).int()),
        ("Running ready=True web=running+2", 4)
    );
}

#[tokio::test(start_paused = true)]
async fn missing_environment_blocks_a_restart() {
    let cluster = cluster_with("3").await;
    let env = "envFrom: [{configMapRef: {name: x}}]";
    let spec = format!(
        "containers: [{{name: web, image: web, {env}, command: [sh, -c, 'sleep 60; exit $k']}}]"
    );
    run_pod(&cluster, "web", "", &spec).await;
    pass(&cluster, 30).await;
    cluster.delete(&CONFIG_MAPS, "default/x").await;
    pass(&cluster, 32).await;
    let pod = get_pod(&cluster, "web").await;
    let shown = "Running ready=False web=CreateContainerConfigError";
    assert_eq!((show(&pod).as_str(), last_code(&pod).int()), (shown, 3));
    create(
        &cluster,
        &CONFIG_MAPS,
        "{metadata: {name: x}, data: {k: '5'}}",
    )
    .await;
    pass(&cluster, 11).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running+1"
    );
}

const WAITS: &str = "restartPolicy: Never, volumes: [{name: v, configMap: {name: x}}], containers: [{name: web, image: web, \
                     volumeMounts: [{name: v, mountPath: /v}], \
                     command: [sh, -c, 'until [ $(cat /v/k) = go ]; do sleep 1; done; exit 7']}]";

#[tokio::test(start_paused = true)]
async fn volume_files_follow_their_object_within_a_minute() {
    let cluster = cluster_with("stay").await;
    run_pod(&cluster, "web", "", WAITS).await;
    pass(&cluster, 600).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
    set(&cluster, "go").await;
    pass(&cluster, 62).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Failed ready=False web=Error(7)"
    );
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_updates_volume_files() {
    let cluster = cluster_with("stay").await;
    run_pod(&cluster, "web", "", WAITS).await;
    pass(&cluster, 100).await;
    cluster.restart_with(|builder| builder.nodes(1)).await;
    pass(&cluster, 100).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
    set(&cluster, "go").await;
    pass(&cluster, 62).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Failed ready=False web=Error(7)"
    );
}

#[tokio::test(start_paused = true)]
async fn pod_waiting_for_a_file_can_be_deleted() {
    let cluster = cluster_with("stay").await;
    run_pod(&cluster, "web", "", WAITS).await;
    pass(&cluster, 10).await;
    delete_pod(&cluster, "web", Some(30)).await;
    cluster.restart_with(|builder| builder.nodes(1)).await;
    pass(&cluster, 5).await;
    assert!(cluster.find_object(&PODS, "default/web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn downward_api_files_follow_labels_and_variables_do_not() {
    let cluster = start(1).await;
    let field = "fieldRef: {fieldPath: \"metadata.labels['x']\"}";
    let spec = format!(
        "restartPolicy: Never, volumes: [{{name: v, downwardAPI: {{items: [{{path: x, {field}}}]}}}}], \
         containers: [{{name: web, image: web, env: [{{name: X, valueFrom: {{{field}}}}}], \
         volumeMounts: [{{name: v, mountPath: /v}}], \
         command: [sh, -c, 'until [ \"$(cat /v/x)\" = 9 ]; do sleep 1; done; exit 1$X']}}]"
    );
    run_pod(&cluster, "web", "", &spec).await;
    pass(&cluster, 100).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
    let change = "{metadata: {labels: {x: '9'}}}";
    cluster.patch(&PODS, "default/web", "", change).await;
    pass(&cluster, 3).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Failed ready=False web=Error(1)"
    );
}

#[tokio::test(start_paused = true)]
async fn service_links_set_environment_variables() {
    let cluster = start(1).await;
    let service = |name: &str, address: &str, port: u16| {
        format!(
            "{{metadata: {{name: {name}}}, spec: {{clusterIP: {address:?}, ports: [{{port: {port}}}]}}}}"
        )
    };
    for (name, address, port) in [
        ("kubernetes", "10.0.0.1", 443),
        ("my-db", "10.0.0.7", 5432),
        ("headless", "None", 80),
    ] {
        create(&cluster, &SERVICES, &service(name, address, port)).await;
    }
    pass(&cluster, 1).await;
    let spec = |links: &str, test: &str| {
        format!(
            "restartPolicy: Never, {links} containers: [{{name: web, image: web, \
             env: [{{name: URL, value: \"x$(MY_DB_PORT)\"}}], command: [sh, -c, '{test} && exit 5; exit 6']}}]"
        )
    };
    let db = "[ $KUBERNETES_SERVICE_HOST:$MY_DB_SERVICE_PORT:$URL = 10.0.0.1:5432:xtcp://10.0.0.7:5432 ]";
    let alone = "[ \"$KUBERNETES_PORT_443_TCP:$MY_DB_SERVICE_HOST:$URL\" = \"tcp://10.0.0.1:443::x$\"\"(MY_DB_PORT)\" ]";
    let none = "[ -z \"$HEADLESS_SERVICE_HOST$LATER_SERVICE_HOST\" ]";
    run_pod(&cluster, "linked", "", &spec("", db)).await;
    run_pod(
        &cluster,
        "alone",
        "",
        &spec("enableServiceLinks: false,", alone),
    )
    .await;
    let later = format!("sleep 60; {none}");
    run_pod(&cluster, "later", "", &spec("", &later)).await;
    pass(&cluster, 30).await;
    // A running container keeps its environment.
    create(&cluster, &SERVICES, &service("later", "10.0.0.8", 80)).await;
    pass(&cluster, 60).await;
    for name in ["linked", "alone", "later"] {
        assert_eq!(
            show(&get_pod(&cluster, name).await),
            "Failed ready=False web=Error(5)",
            "{name}"
        );
    }
    run_pod(&cluster, "next", "", &spec("", none)).await;
    pass(&cluster, 30).await;
    assert_eq!(
        show(&get_pod(&cluster, "next").await),
        "Failed ready=False web=Error(6)"
    );
}
