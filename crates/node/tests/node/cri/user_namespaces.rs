//! Pods with users of their own, on a runtime that is made up.

use mizzen_cri::messages::{IdMapping, NamespaceMode, NamespaceOption, UserNamespace};
use mizzen_sdk::resource::PODS;

use super::events::{MadeUpRuntime, Node};
use crate::fixtures::{create, get_pod, show};

/// A namespace of 65536 users.
fn namespace(first: u32) -> UserNamespace {
    let mapping = IdMapping {
        host_id: first,
        container_id: 0,
        length: 65_536,
    };
    UserNamespace {
        mode: NamespaceMode::Pod as i32,
        uids: vec![mapping],
        gids: vec![mapping],
    }
}

async fn run(node: &Node, name: &str, host_users: bool, context: &str) {
    let pod = format!(
        "{{metadata: {{name: {name}}}, spec: {{nodeName: users, hostUsers: {host_users}, \
         volumes: [{{name: data, emptyDir: {{}}}}], \
         containers: [{{name: c, image: a, imagePullPolicy: IfNotPresent, securityContext: {{{context}}}, \
         volumeMounts: [{{name: data, mountPath: /data}}]}}]}}}}"
    );
    create(&node.cluster, &PODS, &pod).await;
    node.until(&format!("{name} runs"), async |node| {
        show(&get_pod(&node.cluster, name).await).contains("ready=True c=running")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_have_users_of_their_own_where_the_runtime_can() {
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().has_user_namespaces = true;
    let node = Node::start("users", runtime).await;
    run(&node, "one", false, "procMount: Unmasked").await;
    run(&node, "other", false, "").await;
    run(&node, "host", true, "").await;
    let state = node.runtime.0.lock();
    let users = |options: &Option<NamespaceOption>| {
        let options = options.clone().unwrap_or_default();
        options.userns_options.unwrap_or_default()
    };
    let of_host = UserNamespace {
        mode: NamespaceMode::Node as i32,
        ..UserNamespace::default()
    };
    let expected = [namespace(65_536), namespace(131_072), of_host];
    assert_eq!(state.sandbox_configs.len(), expected.len());
    for (config, expected) in state.sandbox_configs.iter().zip(&expected) {
        let context = config.linux.clone().unwrap().security_context.unwrap();
        assert_eq!(users(&context.namespace_options), *expected);
    }
    assert_eq!(state.container_configs.len(), expected.len());
    for (config, expected) in state.container_configs.iter().zip(&expected) {
        let context = config.linux.clone().unwrap().security_context.unwrap();
        assert_eq!(users(&context.namespace_options), *expected);
        assert!(!config.mounts.is_empty());
        for mount in &config.mounts {
            assert_eq!(mount.uid_mappings, expected.uids, "{mount:?}");
            assert_eq!(mount.gid_mappings, expected.gids, "{mount:?}");
        }
    }
    let masked = state.container_configs.iter().map(|config| {
        let context = config.linux.clone().unwrap().security_context.unwrap();
        !context.masked_paths.is_empty()
    });
    assert_eq!(masked.collect::<Vec<bool>>(), [false, true, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_users_of_its_own_is_refused_where_the_runtime_cannot() {
    let node = Node::start("no-users", MadeUpRuntime::default()).await;
    let pod = "{metadata: {name: web}, spec: {nodeName: no-users, hostUsers: false, \
               containers: [{name: c, image: a, imagePullPolicy: IfNotPresent}]}}";
    create(&node.cluster, &PODS, pod).await;
    node.until_pod("Failed").await;
    let pod = get_pod(&node.cluster, "web").await;
    let status = &pod["status"];
    assert_eq!(
        (status["reason"].str(), status["message"].str()),
        (
            "UnsupportedPodSpec",
            "Pod was rejected: spec.hostUsers: user namespaces are not supported by this node"
        )
    );
}
