//! What containers pass on by volumes: variables from files, and mounts.

use std::fs;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{RealNode, container};
use crate::containerd::BUSYBOX;
use crate::fixtures::events_of;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_variables_from_a_file_that_another_has_written() {
    let Some(node) = RealNode::start("real-env-files", 71).await else {
        return;
    };
    let variable = |name: &str, key: &str| {
        format!(
            "{{name: {name}, valueFrom: {{fileKeyRef: {{volumeName: v, path: dir/a.env, key: {key}}}}}}}"
        )
    };
    let pod = |variables: &[String]| {
        let write = format!(
            "initContainers: [{{name: writer, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, \
             \"mkdir /v/dir; echo \\\"A='one'\\\" > /v/dir/a.env; printf \\\"B='two\\\\nlines' # b\\\\n\\\" >> /v/dir/a.env\"], \
             volumeMounts: [{{name: v, mountPath: /v}}]}}]"
        );
        let own = container(&format!(
            "command: [sh, -c, 'echo \"$A|$B|$C|${{D-none}}\"'], env: [{}]",
            variables.join(", ")
        ));
        format!("restartPolicy: Never, {write}, {own}, volumes: [{{name: v, emptyDir: {{}}}}]")
    };
    let whole = [
        variable("A", "A"),
        variable("B", "B"),
        "{name: C, value: $(A)-$(B)}".into(),
        variable("D", "NONE, optional: true"),
    ];
    node.run("web", &pod(&whole)).await;
    let missing = [variable("A", "NONE")];
    node.run("missing", &pod(&missing)).await;
    let no_file = [variable("A", "A, optional: true").replace("a.env", "b.env")];
    node.run("no-file", &pod(&no_file)).await;
    node.until_pod("web", "Succeeded").await;
    let log = node.log("web", "?container=c").await;
    assert_eq!(log, "one|two\nlines|one-two\nlines|none\n");

    for (name, expected) in [
        (
            "missing",
            "environment variable key \"NONE\" not found in file \"",
        ),
        ("no-file", "couldn't parse env file"),
    ] {
        let pod = node.until_pod(name, "c=CreateContainerConfigError").await;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let message = waiting["message"].str();
        assert!(message.starts_with(expected), "{message}");
        let events = events_of(&node.cluster, name).await;
        let said = format!("Error: {expected}");
        assert!(
            events.iter().any(|event| event.contains(&said)),
            "{events:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_propagate_as_a_container_asks() {
    let Some(node) = RealNode::start("real-mounts", 72).await else {
        return;
    };
    // Only mounts of a shared mount propagate.
    let shared = node.containerd.path("shared");
    fs::create_dir(&shared).unwrap();
    let none = None::<&str>;
    let tmpfs = |path: &std::path::Path| {
        fs::create_dir_all(path).unwrap();
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    };
    tmpfs(&shared);
    mount(none, &shared, none, MsFlags::MS_SHARED, none).unwrap();
    fs::create_dir(shared.join("down")).unwrap();
    fs::create_dir(shared.join("up")).unwrap();
    let run = async |name: &str, propagation: &str| {
        let own = container(&format!(
            "command: [sleep, '1000'], securityContext: {{privileged: true}}, \
             volumeMounts: [{{name: v, mountPath: /v, mountPropagation: {propagation}}}]"
        ));
        let volume = format!(
            "volumes: [{{name: v, hostPath: {{path: '{}'}}}}]",
            shared.display()
        );
        node.run(name, &format!("{own}, {volume}")).await;
        node.until_pod(name, "ready=True c=running").await;
    };
    run("both", "Bidirectional").await;
    run("to", "HostToContainer").await;
    run("none", "None").await;

    // A mount of the machine, and one of a container.
    tmpfs(&shared.join("down"));
    let (_, err, code) = node
        .exec("both", "mount -t tmpfs tmpfs /v/up; touch /v/up/file", "")
        .await;
    assert_eq!(code, 0, "{err}");
    assert!(shared.join("up/file").exists());
    for (name, seen) in [
        ("both", "/v/down\n/v/up\n"),
        ("to", "/v/down\n/v/up\n"),
        ("none", ""),
    ] {
        let mounts =
            "while read a place b; do case $place in /v/*) echo $place;; esac; done < /proc/mounts";
        let (out, _, _) = node.exec(name, mounts, "").await;
        let mut lines: Vec<&str> = out.split_inclusive('\n').collect();
        lines.sort_unstable();
        assert_eq!(lines.concat(), seen, "{name}");
    }
    // One of a container with `HostToContainer` stays in it.
    let make = "mkdir /v/own; mount -t tmpfs tmpfs /v/own; touch /v/own/file; ls /v/own";
    let (out, err, _) = node.exec("to", make, "").await;
    assert_eq!(out, "file\n", "{err}");
    assert!(!shared.join("own/file").exists());
    for place in ["up", "down"] {
        umount2(&shared.join(place), MntFlags::MNT_DETACH).unwrap();
    }
}
