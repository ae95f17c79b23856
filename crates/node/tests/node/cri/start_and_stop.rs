//! When containers start and stop: in order, in a new sandbox, and of pods that the API has no more.
//!
//! Containers append lines to a file of the machine, so that their order is seen.

use std::fs;

use mizzen_cri::CriClient;
use mizzen_cri::messages::{
    ListPodSandboxRequest, PodSandboxState, RemovePodSandboxRequest, StopPodSandboxRequest,
};
use mizzen_object::condition::is_true;
use mizzen_sdk::resource::PODS;

use super::RealNode;
use crate::containerd::BUSYBOX;
use crate::fixtures::{delete_pod, events_of, get_pod, show};

/// A container with a shell script, beside the file.
fn one(name: &str, script: &str, more: &str) -> String {
    format!(
        "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, '{script}'], \
         volumeMounts: [{{name: out, mountPath: /out}}]{more}}}"
    )
}

/// A hook that appends a line.
fn hook(name: &str, script: &str) -> String {
    format!(", lifecycle: {{{name}: {{exec: {{command: [sh, -c, '{script}']}}}}}}")
}

/// A script that ends when it is asked to, with a line.
fn until_stopped(name: &str, pause: u32) -> String {
    format!(
        "trap \"sleep {pause}; echo {name} >> /out/log; exit 0\" TERM; while true; do sleep 0.1; done"
    )
}

impl RealNode {
    /// The volume `out` of a pod.
    fn out(&self, pod: &str) -> String {
        let dir = self.containerd.path("out").join(pod);
        fs::create_dir_all(&dir).unwrap();
        format!(
            "volumes: [{{name: out, hostPath: {{path: '{}'}}}}]",
            dir.display()
        )
    }

    /// The lines of a pod.
    fn lines(&self, pod: &str) -> String {
        let file = self.containerd.path("out").join(pod).join("log");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Stops and removes the sandbox of a pod behind the agent's back.
    async fn remove_sandbox(&self, pod: &str) {
        let client = CriClient::connect(&self.containerd.endpoint())
            .await
            .unwrap();
        let listed = client.call(ListPodSandboxRequest::default()).await.unwrap();
        // The runtime may also have one that it could not start.
        let mut sandboxes = listed.items.into_iter();
        let sandbox = sandboxes.find(|it| {
            let is_own = it.metadata.as_ref().is_some_and(|it| it.name == pod);
            is_own && it.state() == PodSandboxState::Ready
        });
        let pod_sandbox_id = sandbox.unwrap().id;
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
        };
        client.call(stop).await.unwrap();
        client
            .call(RemovePodSandboxRequest { pod_sandbox_id })
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_sandbox_has_another_address_and_runs_init_containers_again() {
    let Some(node) = RealNode::start("real-again", 61).await else {
        return;
    };
    let containers = |init: &str, main: &str| {
        let (init, main) = (one("first", init, ""), one("c", main, ""));
        format!("initContainers: [{init}], containers: [{main}]")
    };
    let spec = containers(
        "echo first >> /out/log",
        "echo main >> /out/log; exec sleep 1000",
    );
    let more = format!("terminationGracePeriodSeconds: 2, {}", node.out("web"));
    node.run("web", &format!("{spec}, {more}")).await;
    let never = containers("true", "exec sleep 1000");
    let more = format!(
        "restartPolicy: Never, terminationGracePeriodSeconds: 2, {}",
        node.out("never")
    );
    node.run("never", &format!("{never}, {more}")).await;
    let before = node.until_pod("web", "Running ready=True").await;
    let address = before["status"]["podIP"].str();
    assert!(address.starts_with("10.213.61."), "{address}");

    node.remove_sandbox("web").await;
    let after = node
        .until_pod("web", "Running ready=True first=Completed(0)+1 c=running+")
        .await;
    assert_eq!(node.lines("web"), "first main first main");
    let status = &after["status"];
    let new = status["podIP"].str();
    assert!(new.starts_with("10.213.61.") && new != address, "{new}");
    let addresses: Vec<&str> = status["podIPs"]
        .list()
        .iter()
        .map(|it| it["ip"].str())
        .collect();
    assert_eq!(addresses, [new]);
    assert!(is_true(&status["conditions"], "PodReadyToStartContainers"));
    let changed =
        "Normal SandboxChanged  Pod sandbox changed, it will be killed and re-created. x1";
    node.until("the change is recorded", async |node| {
        events_of(&node.cluster, "web")
            .await
            .iter()
            .any(|event| event == changed)
    })
    .await;

    // A pod that never restarts ends with its sandbox, and gets no other.
    node.until_pod("never", "Running ready=True").await;
    node.remove_sandbox("never").await;
    node.until_pod("never", "Failed").await;
    node.until("there is one sandbox", async |node| {
        node.count().await.0 == 1
    })
    .await;
    let events = events_of(&node.cluster, "never").await;
    assert!(
        !events.iter().any(|event| event.contains("SandboxChanged")),
        "{events:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_starts_after_the_hook_of_the_one_before() {
    let Some(node) = RealNode::start("real-order", 62).await else {
        return;
    };
    let started = hook("postStart", "sleep 1; echo hook >> /out/log");
    let containers = [
        one("a", "echo a >> /out/log; exec sleep 1000", &started),
        one("b", "echo b >> /out/log; exec sleep 1000", ""),
    ];
    let more = format!("terminationGracePeriodSeconds: 2, {}", node.out("web"));
    node.run(
        "web",
        &format!("containers: [{}], {more}", containers.join(", ")),
    )
    .await;
    node.until_pod("web", "Running ready=True").await;
    assert_eq!(node.lines("web"), "a hook b");
    // A container that cannot start does not hold the next one.
    let none = "{name: a, image: 'mizzen.test/none:1', imagePullPolicy: Never}";
    let next = one("b", "exec sleep 1000", "");
    node.run(
        "next",
        &format!("containers: [{none}, {next}], {}", node.out("next")),
    )
    .await;
    node.until_pod("next", "a=ErrImageNeverPull b=running")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_stopped_as_any_other_when_its_post_start_hook_fails_or_is_cut_off() {
    let Some(node) = RealNode::start("real-cut-off", 149).await else {
        return;
    };
    let run = async |pod: &str, post_start: &str, script: &str, more: &str| {
        let hooks = format!(
            ", lifecycle: {{postStart: {{exec: {{command: [{post_start}]}}}}, \
             preStop: {{exec: {{command: [sh, -c, 'echo hook >> /out/log']}}}}}}"
        );
        let spec = one("c", script, &hooks);
        let more = format!("restartPolicy: Never, {more}, {}", node.out(pod));
        node.run(pod, &format!("containers: [{spec}], {more}"))
            .await;
    };
    let script = until_stopped("stopped", 0);
    let deadline = "activeDeadlineSeconds: 4, terminationGracePeriodSeconds: 600";
    run("late", "sleep, '1000'", &script, deadline).await;
    let usual = "terminationGracePeriodSeconds: 600";
    // The trap must be there before it is stopped.
    let fails = "sh, -c, 'sleep 2; exit 1'";
    run("fails", fails, &script, usual).await;
    let deaf = "trap \"\" TERM; while true; do sleep 0.1; done";
    run("deaf", fails, deaf, usual).await;
    for (pod, ended) in [("late", "Failed"), ("fails", "Succeeded")] {
        node.until_pod(pod, &format!("{ended} ready=False c=Completed(0)"))
            .await;
        assert_eq!(node.lines(pod), "hook stopped", "{pod}");
    }
    // The grace period of the deletion is shorter than that of the failed hook.
    node.until("the hook runs", async |node| node.lines("deaf") == "hook")
        .await;
    delete_pod(&node.cluster, "deaf", Some(1)).await;
    node.until("the pod is gone", async |node| {
        node.cluster
            .find_object(&PODS, "default/deaf")
            .await
            .is_none()
    })
    .await;
    assert_eq!(node.lines("deaf"), "hook");
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_stop_last_and_run_their_hooks_first() {
    let Some(node) = RealNode::start("real-sidecars", 63).await else {
        return;
    };
    let side = |name: &str| {
        let stopping = hook("preStop", &format!("echo hook-{name} >> /out/log"));
        let script = until_stopped(name, 0);
        one(name, &script, &format!("{stopping}, restartPolicy: Always"))
    };
    let spec = format!(
        "initContainers: [{}, {}], containers: [{}]",
        side("one"),
        side("two"),
        one("c", &until_stopped("main", 2), "")
    );
    let more = format!("terminationGracePeriodSeconds: 60, {}", node.out("web"));
    node.run("web", &format!("{spec}, {more}")).await;
    node.until_pod("web", "Running ready=True").await;
    delete_pod(&node.cluster, "web", None).await;
    node.until("the pod is gone", async |node| {
        node.cluster.objects(&PODS, "").await.is_empty()
    })
    .await;
    let lines = node.lines("web");
    let hooks: Vec<&str> = lines.split(' ').take(2).collect();
    assert!(
        hooks.contains(&"hook-one") && hooks.contains(&"hook-two"),
        "{lines}"
    );
    assert!(lines.ends_with(" main two one"), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_deletion_shortens_the_grace_period_and_not_the_hook() {
    let Some(node) = RealNode::start("real-shorter", 65).await else {
        return;
    };
    // One hook ends within the second grace period, the other never does.
    let pods = [
        ("ends", "sleep 2; echo hook >> /out/log"),
        ("hangs", "sleep 1000"),
    ];
    for (pod, rest) in pods {
        let stopping = hook("preStop", &format!("echo begun >> /out/log; {rest}"));
        let spec = one("c", &until_stopped("stopped", 0), &stopping);
        let more = format!("terminationGracePeriodSeconds: 600, {}", node.out(pod));
        node.run(pod, &format!("containers: [{spec}], {more}"))
            .await;
    }
    for (pod, grace) in [("ends", 30), ("hangs", 2)] {
        node.until_pod(pod, "Running ready=True").await;
        delete_pod(&node.cluster, pod, None).await;
        node.until("the hook runs", async |node| node.lines(pod) == "begun")
            .await;
        delete_pod(&node.cluster, pod, Some(grace)).await;
    }
    node.until("the pods are gone", async |node| {
        node.cluster.objects(&PODS, "").await.is_empty()
    })
    .await;
    assert_eq!(node.lines("ends"), "begun hook stopped");
    assert_eq!(node.lines("hangs"), "begun stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_by_force_gets_its_hook_and_sigterm() {
    let Some(mut node) = RealNode::start("real-force", 64).await else {
        return;
    };
    let stopping = hook("preStop", "echo hook >> /out/log");
    let spec = format!(
        "containers: [{}]",
        one("c", &until_stopped("stopped", 0), &stopping)
    );
    let more = format!("terminationGracePeriodSeconds: 60, {}", node.out("web"));
    node.run("web", &format!("{spec}, {more}")).await;
    node.until_pod("web", "Running ready=True").await;
    delete_pod(&node.cluster, "web", Some(0)).await;
    // Another pod may have its name at once.
    let more = format!("terminationGracePeriodSeconds: 2, {}", node.out("again"));
    let again = one("c", "exec sleep 1000", "");
    node.run("web", &format!("containers: [{again}], {more}"))
        .await;
    node.until("the container was stopped", async |node| {
        node.lines("web") == "hook stopped"
    })
    .await;
    node.until_pod("web", "Running ready=True").await;
    node.until("the old sandbox is removed", async |node| {
        node.count().await == (1, 1)
    })
    .await;
    let events = events_of(&node.cluster, "web").await;
    let killing = "Normal Killing spec.containers{c} Stopping container c x1";
    assert!(events.iter().any(|event| event == killing), "{events:#?}");

    // Without its specification it has two seconds, and no hook.
    let spec = format!(
        "containers: [{}]",
        one("c", &until_stopped("stopped", 0), &stopping)
    );
    let more = format!("terminationGracePeriodSeconds: 60, {}", node.out("orphan"));
    node.run("orphan", &format!("{spec}, {more}")).await;
    node.until_pod("orphan", "Running ready=True").await;
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    delete_pod(&node.cluster, "orphan", Some(0)).await;
    node.run_agent().await;
    node.until("the orphan is removed", async |node| {
        node.count().await == (1, 1)
    })
    .await;
    assert_eq!(node.lines("orphan"), "stopped");
    let web = get_pod(&node.cluster, "web").await;
    assert!(show(&web).contains("c=running"), "{}", show(&web));
}
