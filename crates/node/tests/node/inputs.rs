//! Inputs of containers: the environment at each start, and volumes that follow their objects.

use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::CONFIG_MAPS;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::cluster::{Cluster, read, show};

const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Changes the value `k` of the ConfigMap `x`.
async fn set(cluster: &Cluster, value: &str) {
    let change = read(&format!("{{data: {{k: {value:?}}}}}"));
    cluster
        .api
        .patch(
            &CONFIG_MAPS,
            &Key::new("default", "x"),
            "",
            PatchType::Merge,
            &change,
        )
        .await
        .unwrap();
}

async fn cluster_with(value: &str) -> Cluster {
    let cluster = Cluster::with(1).await;
    cluster
        .create(
            CONFIG_MAPS_PATH,
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
    cluster.run_pod("web", "", &spec).await;
    cluster.pass(30).await;
    // A running container keeps its environment.
    set(&cluster, "4").await;
    cluster.pass(32).await;
    let pod = cluster.pod("web").await;
    assert_eq!(
        (show(&pod).as_str(), last_code(&pod).int()),
        ("Running ready=True web=running+1", 3)
    );
    cluster.pass(75).await;
    let pod = cluster.pod("web").await;
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
    cluster.run_pod("web", "", &spec).await;
    cluster.pass(30).await;
    cluster
        .api
        .delete(&CONFIG_MAPS, &Key::new("default", "x"), &Default::default())
        .await
        .unwrap();
    cluster.pass(32).await;
    let pod = cluster.pod("web").await;
    let shown = "Running ready=False web=CreateContainerConfigError";
    assert_eq!((show(&pod).as_str(), last_code(&pod).int()), (shown, 3));
    cluster
        .create(CONFIG_MAPS_PATH, "{metadata: {name: x}, data: {k: '5'}}")
        .await;
    cluster.pass(11).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running+1"
    );
}

const WAITS: &str = "restartPolicy: Never, volumes: [{name: v, configMap: {name: x}}], containers: [{name: web, image: web, \
                     volumeMounts: [{name: v, mountPath: /v}], \
                     command: [sh, -c, 'until [ $(cat /v/k) = go ]; do sleep 1; done; exit 7']}]";

#[tokio::test(start_paused = true)]
async fn volume_files_follow_their_object_within_a_minute() {
    let cluster = cluster_with("stay").await;
    cluster.run_pod("web", "", WAITS).await;
    cluster.pass(600).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
    set(&cluster, "go").await;
    cluster.pass(62).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Failed ready=False web=Error(7)"
    );
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_updates_volume_files() {
    let mut cluster = cluster_with("stay").await;
    cluster.run_pod("web", "", WAITS).await;
    cluster.pass(100).await;
    cluster.start(1, |_| {});
    cluster.pass(100).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
    set(&cluster, "go").await;
    cluster.pass(62).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Failed ready=False web=Error(7)"
    );
}

#[tokio::test(start_paused = true)]
async fn pod_waiting_for_a_file_can_be_deleted() {
    let mut cluster = cluster_with("stay").await;
    cluster.run_pod("web", "", WAITS).await;
    cluster.pass(10).await;
    cluster.delete_pod("web", Some(30)).await;
    cluster.start(1, |_| {});
    cluster.pass(5).await;
    assert!(
        cluster
            .find(&mizzen_sdk::resource::PODS, &Key::new("default", "web"))
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn downward_api_files_follow_labels_and_variables_do_not() {
    let cluster = Cluster::with(1).await;
    let field = "fieldRef: {fieldPath: \"metadata.labels['x']\"}";
    let spec = format!(
        "restartPolicy: Never, volumes: [{{name: v, downwardAPI: {{items: [{{path: x, {field}}}]}}}}], \
         containers: [{{name: web, image: web, env: [{{name: X, valueFrom: {{{field}}}}}], \
         volumeMounts: [{{name: v, mountPath: /v}}], \
         command: [sh, -c, 'until [ \"$(cat /v/x)\" = 9 ]; do sleep 1; done; exit 1$X']}}]"
    );
    cluster.run_pod("web", "", &spec).await;
    cluster.pass(100).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
    let change = read("{metadata: {labels: {x: '9'}}}");
    let key = Key::new("default", "web");
    cluster
        .api
        .patch(
            &mizzen_sdk::resource::PODS,
            &key,
            "",
            PatchType::Merge,
            &change,
        )
        .await
        .unwrap();
    cluster.pass(3).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Failed ready=False web=Error(1)"
    );
}

#[tokio::test(start_paused = true)]
async fn service_links_set_environment_variables() {
    let cluster = Cluster::with(1).await;
    let services = "/api/v1/namespaces/default/services";
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
        cluster
            .create(services, &service(name, address, port))
            .await;
    }
    cluster.pass(1).await;
    let spec = |links: &str, test: &str| {
        format!(
            "restartPolicy: Never, {links} containers: [{{name: web, image: web, \
             env: [{{name: URL, value: \"x$(MY_DB_PORT)\"}}], command: [sh, -c, '{test} && exit 5; exit 6']}}]"
        )
    };
    let db = "[ $KUBERNETES_SERVICE_HOST:$MY_DB_SERVICE_PORT:$URL = 10.0.0.1:5432:xtcp://10.0.0.7:5432 ]";
    let alone = "[ \"$KUBERNETES_PORT_443_TCP:$MY_DB_SERVICE_HOST:$URL\" = \"tcp://10.0.0.1:443::x$\"\"(MY_DB_PORT)\" ]";
    let none = "[ -z \"$HEADLESS_SERVICE_HOST$LATER_SERVICE_HOST\" ]";
    cluster.run_pod("linked", "", &spec("", db)).await;
    cluster
        .run_pod("alone", "", &spec("enableServiceLinks: false,", alone))
        .await;
    let later = format!("sleep 60; {none}");
    cluster.run_pod("later", "", &spec("", &later)).await;
    cluster.pass(30).await;
    // A running container keeps its environment.
    cluster
        .create(services, &service("later", "10.0.0.8", 80))
        .await;
    cluster.pass(60).await;
    for name in ["linked", "alone", "later"] {
        assert_eq!(
            show(&cluster.pod(name).await),
            "Failed ready=False web=Error(5)",
            "{name}"
        );
    }
    cluster.run_pod("next", "", &spec("", none)).await;
    cluster.pass(30).await;
    assert_eq!(
        show(&cluster.pod("next").await),
        "Failed ready=False web=Error(6)"
    );
}
