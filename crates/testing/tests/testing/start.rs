//! Starting, reading, applying, forking.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use mizzen_testing::{Builder, Cluster, assert_events, assert_status};

pub(crate) const WEB: &str = include_str!("web.yaml");

#[tokio::test]
async fn a_deployment_gets_three_running_pods() {
    let cluster = Cluster::start().await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    assert_status!(cluster, Deployment, "web", {"replicas": 3, "readyReplicas": 3});
    let pods = cluster.list::<Pod>().await;
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        let name = pod.metadata.name.as_deref().unwrap();
        assert_status!(cluster, Pod, name, {"phase": "Running"});
        assert_events!(cluster, name, ["Scheduled", "Pulled", "Created", "Started"]);
    }
    let set = &cluster.list::<ReplicaSet>().await[0];
    let set = set.metadata.name.as_deref().unwrap();
    assert_events!(cluster, set, ["SuccessfulCreate"]);
}

#[tokio::test]
async fn the_test_has_a_client_of_kube() {
    let cluster = Cluster::start().await;
    let configs: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let config = ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    configs
        .create(&PostParams::default(), &config)
        .await
        .unwrap();
    assert!(cluster.find::<ConfigMap>("settings").await.is_some());
    let error = configs
        .create(&PostParams::default(), &config)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
}

#[tokio::test]
async fn a_user_has_the_permissions_of_roles() {
    let cluster = Cluster::start().await;
    let jane = cluster.client_as("jane", &["readers"]);
    let pods: Api<Pod> = Api::default_namespaced(jane);
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    let expected = r#"pods is forbidden: User "jane" cannot list resource "pods""#;
    assert!(error.to_string().contains(expected), "{error}");
    cluster
        .apply(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: readers}, roleRef: \
             {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: Group, name: \
             readers, apiGroup: rbac.authorization.k8s.io}]}",
        )
        .await;
    cluster.settle().await;
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        0
    );
}

const CRON_TABS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {n: {type: integer}}}}}}
---
apiVersion: example.com/v1
kind: CronTab
metadata: {name: one}
spec: {n: 1}
";

#[tokio::test]
async fn custom_objects_are_applied_with_their_definition() {
    let cluster = Cluster::start().await;
    cluster.apply(CRON_TABS).await;
    let error = cluster
        .try_apply(
            "{apiVersion: example.com/v1, kind: CronTab, metadata: {name: two}, spec: {n: many}}",
        )
        .await
        .unwrap_err();
    let expected = "CronTab default/two: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    let error = cluster
        .try_apply("{apiVersion: example.com/v1, kind: Cron, metadata: {name: two}}")
        .await
        .unwrap_err();
    let expected = r#"the server has no kind "Cron" in "example.com/v1""#;
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_objects() {
    let cluster = Cluster::start().await;
    cluster
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n\
             {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}",
        )
        .await;
    cluster.settle().await;
    assert!(
        cluster
            .find::<ServiceAccount>("shop/default")
            .await
            .is_some()
    );
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces
        .delete("shop", &Default::default())
        .await
        .unwrap();
    cluster
        .until("the namespace is gone", async || {
            cluster.find::<Namespace>("shop").await.is_none()
        })
        .await;
    assert!(cluster.find::<ConfigMap>("shop/settings").await.is_none());
}

#[tokio::test]
async fn a_cluster_starts_before_any_time_passes() {
    let cluster = Cluster::start().await;
    for step in cluster.steps() {
        assert!(step.at.is_zero(), "a write was retried: {step}");
    }
}

#[tokio::test]
async fn without_controllers_nothing_happens() {
    let cluster = Cluster::builder()
        .controllers([""; 0])
        .scheduler(false)
        .nodes(0)
        .start()
        .await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    assert!(cluster.list::<ReplicaSet>().await.is_empty());
    cluster
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
        .await;
}

#[tokio::test]
async fn chosen_controllers_run_alone() {
    let cluster = Cluster::builder()
        .controllers(["deployment-controller"])
        .nodes(0)
        .start()
        .await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1);
    assert!(cluster.list::<Pod>().await.is_empty());
}

#[tokio::test]
#[should_panic(
    expected = "there is no controller \"deployments\"; there are bootstrap-signer-controller, "
)]
async fn an_unknown_controller_is_rejected_with_those_that_exist() {
    Cluster::builder()
        .controllers(["deployments"])
        .start()
        .await;
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let cluster = Cluster::start().await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    let fork = cluster.fork().await;
    let pods: Api<Pod> = Api::default_namespaced(fork.client());
    let first = fork.list::<Pod>().await.remove(0).metadata.name.unwrap();
    pods.delete(&first, &Default::default()).await.unwrap();
    fork.advance(std::time::Duration::from_secs(60)).await;
    assert!(fork.find::<Pod>(&first).await.is_none());
    assert_status!(fork, Deployment, "web", {"readyReplicas": 3});
    assert!(cluster.find::<Pod>(&first).await.is_some());
}

#[tokio::test]
async fn the_steps_say_who_wrote_what() {
    let cluster = Cluster::start().await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    let steps: Vec<String> = cluster
        .steps()
        .into_iter()
        .filter(|step| step.object.starts_with("deployments/"))
        .map(|step| format!("{} {}", step.actor, step.what))
        .collect();
    assert_eq!(steps[0], "test created");
    assert!(steps[1].starts_with("deployment-controller "), "{steps:?}");
    assert!(steps.last().unwrap().contains("readyReplicas"), "{steps:?}");
    let history = cluster.history::<Deployment>("web").await;
    assert!(history.len() >= 3, "{}", history.len());
}

/// Each in a runtime of its own, on a few threads.
#[test]
fn a_hundred_clusters_run_side_by_side() {
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let mut clusters = Vec::new();
                    for _ in 0..10 {
                        let cluster = Cluster::start().await;
                        cluster.apply(WEB).await;
                        clusters.push(cluster);
                    }
                    for cluster in clusters {
                        cluster.settle().await;
                        assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
                    }
                });
            });
        }
    });
}

#[tokio::test]
async fn a_cluster_without_bootstrap_objects_has_namespaces_and_runs() {
    let jobs = Cluster::builder()
        .server_only()
        .without_bootstrap()
        .controllers(["job-controller"]);
    let cluster = jobs.start().await;
    assert_eq!(cluster.list::<Namespace>().await.len(), 4);
    assert_eq!(cluster.list::<ClusterRole>().await.len(), 0);
    let pods = "{spec: {restartPolicy: Never, containers: [{name: j, image: i}]}}";
    let job = format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{template: {pods}}}}}"
    );
    cluster.create(&job).await;
    cluster.settle().await;
    assert_eq!(cluster.list::<Pod>().await.len(), 1);
    // A fork has the same permissions.
    let fork = cluster.fork().await;
    fork.create(&job.replace("name: j}", "name: k}")).await;
    fork.settle().await;
    assert_eq!(fork.list::<Pod>().await.len(), 2);
}

#[tokio::test]
async fn components_start_later_and_with_other_options() {
    let cluster = Cluster::builder().server_only().start().await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
    cluster.create(pod).await;
    cluster.settle().await;
    assert_eq!(cluster.list::<Node>().await.len(), 0);
    let larger = |builder: Builder| {
        let builder = builder.controllers(["node-lifecycle-controller"]);
        let builder = builder.scheduler(true).nodes(1);
        let builder = builder.tune_nodes(|options| options.capacity.set("cpu", "16"));
        builder.tune_nodes(|options| options.capacity.set("memory", "1Gi"))
    };
    cluster.restart_with(larger).await;
    cluster.settle().await;
    assert_status!(cluster, Pod, "p", {"phase": "Running"});
    assert_status!(cluster, Node, "node-0", {"capacity": {"cpu": "16", "memory": "1Gi"}});
    assert!(
        cluster
            .metrics()
            .contains("scheduler_schedule_attempts_total")
    );
}
