//! What containers pass on by volumes: variables from files.

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
