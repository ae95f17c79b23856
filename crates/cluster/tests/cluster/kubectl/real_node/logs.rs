//! `kubectl logs` with its options.

use super::super::text;
use super::start;
use crate::containerd::PrivateContainerd;

#[tokio::test]
async fn logs_are_selected_followed_and_labelled() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-logs", 222).await else {
        return;
    };
    kubectl.run("create -f real-logs.yaml").await;
    // The container `again` has ended once.
    let restarts =
        "get pod two -o jsonpath={.status.containerStatuses[?(@.name==\"again\")].restartCount}";
    kubectl.until(restarts, |restarts| restarts == "1").await;
    kubectl
        .run("wait pod two --for=condition=Ready --timeout=60s")
        .await;
    let log = async |options: &str| kubectl.run(&format!("logs {options}")).await;
    let whole = "one\ntwo\nthree\n";
    kubectl.until("logs two -c lines", |log| log == whole).await;
    assert_eq!(
        log("two").await,
        whole,
        "the first container is the default"
    );
    assert_eq!(log("two -c lines --tail=2").await, "two\nthree\n");
    assert_eq!(log("two -c lines --tail=0").await, "");
    assert_eq!(log("two -c lines --limit-bytes=5").await, "one\nt");
    assert_eq!(log("two -c again").await, "second\n");
    assert_eq!(log("two -c again --previous").await, "first\n");
    assert_eq!(log("two -c first").await, "init\n");
    let refused = kubectl.refused("logs two -c lines --previous").await;
    assert!(
        refused.contains("previous terminated container \"lines\" in pod \"two\" not found"),
        "{refused}"
    );
    let refused = kubectl.refused("logs two -c none").await;
    assert!(
        refused.contains("container none is not valid for pod two"),
        "{refused}"
    );

    // The lines have their times: the last one was written two seconds after the others.
    let timed = log("two -c lines --timestamps").await;
    let times: Vec<&str> = timed
        .lines()
        .map(|line| line.split_once(' ').unwrap().0)
        .collect();
    assert_eq!(times.len(), 3, "{timed}");
    assert!(times.is_sorted() && times[2].ends_with('Z'), "{timed}");
    let since = format!("two -c lines --since-time={}", times[2]);
    assert_eq!(log(&since).await, "three\n");
    assert_eq!(log("two -c lines --since=1h").await, whole);

    let all = log("two --all-containers --prefix").await;
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable();
    let expected = [
        "[pod/two/again] second",
        "[pod/two/first] init",
        "[pod/two/lines] one",
        "[pod/two/lines] three",
        "[pod/two/lines] two",
    ];
    assert_eq!(lines, expected);
    let labelled = log("-l app=two --all-containers --prefix --tail=1").await;
    assert!(labelled.contains("[pod/two/lines] three"), "{labelled}");

    // A log is followed until its container has ended.
    let mut follow = kubectl.command("logs -f follow");
    follow.stdout(std::process::Stdio::piped());
    let following = follow.spawn().unwrap();
    kubectl
        .until("logs follow", |log| log.lines().count() > 2)
        .await;
    kubectl.sh("follow", "touch /tmp/end").await;
    let output = following.wait_with_output();
    let output = tokio::time::timeout(crate::process::STEP_TIMEOUT, output).await;
    let output = output.expect("the log ends in time").unwrap();
    let followed = text(&output.stdout);
    assert!(
        output.status.success() && followed.ends_with("\nend\n"),
        "{followed}"
    );
    assert_eq!(log("follow").await, followed);
}
