//! Security contexts, host names, DNS and runtime classes of real containers.

use std::fs;

use mizzen_cri::CriClient;
use mizzen_cri::messages::ListPodSandboxRequest;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::{CONFIG_MAPS, PODS};
use mizzen_sdk::{Key, ResourceType};
use mizzen_value::value;

use super::{RealNode, container};
use crate::containerd::BUSYBOX;
use crate::fixtures::{create, events_of, get_pod, read};

const RUNTIME_CLASSES: ResourceType =
    ResourceType::cluster("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");

#[tokio::test(flavor = "multi_thread")]
async fn names_profiles_and_sysctls_reach_the_container() {
    let Some(node) = RealNode::start("real-names", 24).await else {
        return;
    };
    let profiles = node.containerd.path("node").join("seccomp");
    fs::create_dir_all(&profiles).unwrap();
    // `mkdir` fails, and all else is allowed.
    fs::write(
        profiles.join("no-mkdir.json"),
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#,
    )
    .unwrap();
    let object = "{metadata: {name: plain}, handler: runc}";
    let class = read(object);
    let client = node.cluster.dynamic_client();
    client.create(&RUNTIME_CLASSES, &class).await.unwrap();
    let own = container(
        "command: [sleep, '1000'], securityContext: {runAsNonRoot: true, seccompProfile: {type: Localhost, \
         localhostProfile: no-mkdir.json}}",
    );
    node.run(
        "web",
        &format!(
            "{own}, runtimeClassName: plain, hostname: front, subdomain: shop, setHostnameAsFQDN: true, \
             dnsPolicy: Default, dnsConfig: {{searches: [own.test], options: [{{name: ndots, value: '7'}}]}}, \
             securityContext: {{runAsUser: 1000, supplementalGroups: [4000], sysctls: [{{name: net.core.somaxconn, value: '77'}}]}}"
        ),
    )
    .await;
    node.run(
        "root",
        &container("command: [sleep, '1000'], securityContext: {runAsNonRoot: true}"),
    )
    .await;
    node.run(
        "unsafe",
        &format!(
            "{}, securityContext: {{sysctls: [{{name: kernel.msgmax, value: '1'}}]}}",
            container("")
        ),
    )
    .await;
    node.until_pod("web", "ready=True c=running").await;
    let check = "hostname; tail -n 1 /etc/hosts; grep -c own.test /etc/resolv.conf; grep -c ndots:7 /etc/resolv.conf; \
                 cat /proc/sys/net/core/somaxconn; id -G; mkdir /tmp/x || echo refused; grep -c '^proc /proc/sys proc ro' /proc/mounts";
    let (out, _, _) = node.exec("web", check, "").await;
    let pod = get_pod(&node.cluster, "web").await;
    let full = "front.shop.default.svc.cluster.local";
    let address = pod["status"]["podIP"].str();
    let expected = format!("{full}\n{address}\t{full}\tfront\n1\n1\n77\n0 4000\nrefused\n1\n");
    assert_eq!(out, expected);

    let pod = node.until_pod("root", "c=CreateContainerConfigError").await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let why = "container has runAsNonRoot and image will run as root (pod: \"root_default(";
    assert!(waiting["message"].str().starts_with(why), "{waiting:?}");
    let pod = node.until_pod("unsafe", "Failed").await;
    assert_eq!(pod["status"]["reason"].str(), "SysctlForbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_sandbox_can_have_says_why() {
    let Some(node) = RealNode::start("real-no-sandbox", 25).await else {
        return;
    };
    let object = "{metadata: {name: odd}, handler: no-such-runtime}";
    let class = read(object);
    let client = node.cluster.dynamic_client();
    client.create(&RUNTIME_CLASSES, &class).await.unwrap();
    node.run("odd", &format!("runtimeClassName: odd, {}", container("")))
        .await;
    let long = "a-subdomain-of-many-letters";
    node.run(
        "long",
        &format!(
            "hostname: a-name-of-many-letters, subdomain: {long}, setHostnameAsFQDN: true, {}",
            container("")
        ),
    )
    .await;
    for (pod, expected) in [
        ("odd", "no runtime for \"no-such-runtime\" is configured"),
        ("long", "is too long (64 characters is the max, "),
    ] {
        node.until("an Event says why", async |node| {
            let events = events_of(&node.cluster, pod).await;
            let starts = "Warning FailedCreatePodSandBox  Failed to create pod sandbox: ";
            let mut events = events.iter();
            events.any(|event| event.starts_with(starts) && event.contains(expected))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_namespaces_and_privileges_reach_the_container() {
    let Some(node) = RealNode::start("real-host", 27).await else {
        return;
    };
    create(
        &node.cluster,
        &CONFIG_MAPS,
        "{metadata: {name: words}, data: {WORD: from a map}}",
    )
    .await;
    let own = container(
        "command: [sleep, '1000'], workingDir: /tmp, tty: true, securityContext: {privileged: true}, \
         envFrom: [{configMapRef: {name: words}}]",
    );
    node.run("host", &format!("hostPID: true, hostIPC: true, {own}"))
        .await;
    let sleeps = format!(
        "{{name: other, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sleep, '4242']}}"
    );
    let both = container("command: [sleep, '1000']").replace("]}]", &format!("]}}, {sleeps}]"));
    node.run("shared", &format!("shareProcessNamespace: true, {both}"))
        .await;
    node.run("debugged", &container("command: [sleep, '4343']"))
        .await;
    node.until_pod("host", "ready=True c=running").await;
    let check = "pwd; echo $WORD; busybox readlink /proc/self/ns/pid; busybox readlink /proc/self/ns/ipc; sed -n 's/^CapEff:.//p' /proc/self/status";
    let (out, _, _) = node.exec("host", check, "").await;
    let of_host = |name: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        link.display().to_string()
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:\t"));
    let expected = format!(
        "/tmp\nfrom a map\n{}\n{}\n{}\n",
        of_host("pid"),
        of_host("ipc"),
        capabilities.unwrap()
    );
    assert_eq!(out, expected);

    node.until_pod("shared", "ready=True").await;
    let seen = "ps | grep -c '[s]leep 4242'";
    let (out, _, _) = node.exec("shared", seen, "").await;
    assert_eq!(out, "1\n");
    // The process 1 is that of the sandbox.
    let first = "tr '\\0' ' ' < /proc/1/cmdline";
    let (out, _, _) = node.exec("shared", first, "").await;
    assert_eq!(out, "sleep 2147483647 ");

    // An ephemeral container sees the processes of its target.
    node.until_pod("debugged", "c=running").await;
    let debugger = value!({
        "name": "debugger", "image": BUSYBOX, "imagePullPolicy": "Never", "targetContainerName": "c",
        "command": ["sh", "-c", "ps | grep -c '[s]leep 4343'"],
    });
    let change = value!({ "spec": { "ephemeralContainers": [debugger] } });
    let (client, key) = (
        node.cluster.dynamic_client(),
        Key::new("default", "debugged"),
    );
    client
        .patch(
            &PODS,
            &key,
            "ephemeralcontainers",
            PatchType::Strategic,
            &change,
        )
        .await
        .unwrap();
    node.until_pod("debugged", "debugger=Completed(0)").await;
    assert_eq!(node.log("debugged", "?container=debugger").await, "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_with_the_user_of_the_image_and_hosts_are_those_of_the_machine() {
    let Some(node) = RealNode::start("real-group", 144).await else {
        return;
    };
    let spec = container("command: [sleep, '1000'], securityContext: {runAsGroup: 3000}");
    let host = "hostNetwork: true, hostAliases: [{ip: 10.9.9.9, hostnames: [alias.test]}]";
    let text = format!(
        "{{metadata: {{name: web, annotations: {{io.test/own: kept}}}}, spec: {{nodeName: real-group, {host}, {spec}}}}}"
    );
    create(&node.cluster, &PODS, &text).await;
    node.until_pod("web", "ready=True c=running").await;
    let (out, err, _) = node.exec("web", "id -u; id -g; cat /etc/hosts", "").await;
    let machine = fs::read_to_string("/etc/hosts").unwrap();
    let expected = format!(
        "0\n3000\n# Kubernetes-managed hosts file (host network).\n{machine}\n# Entries added by HostAliases.\n\
         10.9.9.9\talias.test\n"
    );
    assert_eq!(out, expected, "{err}");
    let client = CriClient::connect(&node.containerd.endpoint())
        .await
        .unwrap();
    let sandboxes = client.call(ListPodSandboxRequest::default()).await.unwrap();
    assert_eq!(sandboxes.items[0].annotations["io.test/own"], "kept");
}
