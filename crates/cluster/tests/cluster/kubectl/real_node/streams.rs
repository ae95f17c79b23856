//! `kubectl exec`, `attach`, `run -i`, `cp` and `port-forward` with a real container, over both protocols.

use std::fs;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::super::stream::fetch;
use super::start;
use super::terminal::Terminal;
use crate::containerd::{BUSYBOX, PrivateContainerd};
use crate::process::STEP_TIMEOUT;

#[tokio::test]
async fn commands_terminals_and_input_reach_a_container() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-streams", 224).await else {
        return;
    };
    kubectl.run_pods("real-pod.yaml", &["real"]).await;
    kubectl.run("create -f real-shells.yaml").await;
    let waits = "get pod no-image -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl
        .until(waits, |reason| reason == "ErrImageNeverPull")
        .await;
    for websocket in kubectl.transports() {
        let exec = async |arguments: &[&str], input: &str| {
            let all = [&["exec"], arguments].concat();
            kubectl.talk(websocket, &all, input).await
        };
        for (script, expected) in [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137)] {
            let (code, _, stderr) = exec(&["real", "--", "sh", "-c", script], "").await;
            assert_eq!(code, expected, "{script}: {stderr}");
        }
        let (code, _, stderr) = exec(&["real", "--", "nginx", "-t"], "").await;
        let unknown = "exec: \"nginx\": executable file not found in $PATH";
        assert!(code == 1 && stderr.contains(unknown), "{code}: {stderr}");
        let (code, _, stderr) = exec(&["real", "-c", "none", "--", "true"], "").await;
        let unknown = "container none is not valid for pod real";
        assert!(code == 1 && stderr.contains(unknown), "{code}: {stderr}");
        let (code, _, stderr) = exec(&["no-image", "--", "true"], "").await;
        let unknown = "container not found (\"c\")";
        assert!(code == 1 && stderr.contains(unknown), "{code}: {stderr}");
        // No pod of a Deployment runs.
        let limit = "--pod-running-timeout=1s";
        let (code, _, stderr) = exec(&[limit, "deploy/none", "--", "true"], "").await;
        assert!(
            code == 1 && stderr.contains("timed out"),
            "{code}: {stderr}"
        );
        let lines = "0123456789\n".repeat(20_000);
        let (code, stdout, stderr) = exec(&["-i", "real", "--", "cat"], &lines).await;
        assert_eq!((code, stdout == lines), (0, true), "{stderr}");

        let terminal = ["exec", "-it", "real", "--", "sh"];
        let mut terminal = Terminal::start(&kubectl, websocket, &terminal);
        terminal.ask("stty size", "24 80").await;
        terminal.resize(40, 100).await;
        terminal.ask("stty size", "40 100").await;
        // Control-C ends the command, and not the shell.
        terminal.ask("echo be''gins; sleep 1000", "begins").await;
        terminal.enter("\x03");
        terminal.ask("echo still-$((1+1))", "still-2").await;
        terminal.enter("exit 5\n");
        assert_eq!(terminal.ended().await, Some(5));

        let shell = format!("shell-{websocket}");
        let ready = format!("wait pod {shell} --for=condition=Ready --timeout=60s");
        kubectl.run(&ready).await;
        let mut terminal = Terminal::start(&kubectl, websocket, &["attach", "-it", &shell]);
        terminal.ask("echo $((6*7))", "42").await;
        terminal.resize(30, 90).await;
        terminal.ask("stty size", "30 90").await;
        terminal.enter("exit\n");
        assert_eq!(terminal.ended().await, Some(0));
        let phase = format!("get pod {shell} -o jsonpath={{.status.phase}}");
        kubectl.until(&phase, |phase| phase == "Succeeded").await;

        // The input of a container with `stdinOnce` ends with that of its first client.
        let (once, image) = (format!("once-{websocket}"), format!("--image={BUSYBOX}"));
        let run = [
            "run",
            &once,
            &image,
            "-i",
            "--restart=Never",
            "--",
            "sh",
            "-c",
            "cat; echo closed",
        ];
        let (code, stdout, stderr) = kubectl.talk(websocket, &run, "typed\n").await;
        assert_eq!((code, stdout.as_str()), (0, "typed\nclosed\n"), "{stderr}");
        let field = format!("get pod {once} -o jsonpath={{.spec.containers[0].stdinOnce}}");
        assert_eq!(kubectl.run(&field).await, "true");
    }
}

/// The files below a directory, with their content.
fn tree(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let name = path.strip_prefix(dir).unwrap().display().to_string();
                    files.push((name, fs::read(&path).unwrap()));
                }
            }
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn files_are_copied_and_ports_forwarded() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-ports", 225).await else {
        return;
    };
    kubectl.run_pods("real-web.yaml", &["web"]).await;
    let home = kubectl.home.path();
    let source = home.join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("text"), "some text\n").unwrap();
    fs::write(source.join("a/empty"), "").unwrap();
    let bytes: Vec<u8> = (0..500_000_u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect();
    fs::write(source.join("a/b/bytes"), bytes).unwrap();
    fs::write(source.join("a/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("a/run"), fs::Permissions::from_mode(0o755)).unwrap();
    for websocket in kubectl.transports() {
        let (inside, back) = (format!("/tmp/in-{websocket}"), format!("back-{websocket}"));
        let back = home.join(back);
        let (source, back) = (source.to_str().unwrap(), back.to_str().unwrap());
        for copy in [
            ["cp", source, &format!("web:{inside}"), "--container=c"],
            [
                "cp",
                &format!("default/web:{inside}"),
                back,
                "--container=c",
            ],
        ] {
            let (code, stdout, stderr) = kubectl.talk(websocket, &copy, "").await;
            assert_eq!(code, 0, "{copy:?}: {stdout}{stderr}");
        }
        assert!(tree(back.as_ref()) == tree(source.as_ref()));
        // kubectl keeps permissions on the way in only.
        let modes = format!("test -x {inside}/a/run && ! test -x {inside}/text");
        kubectl.sh("web", &modes).await;
        let file = home.join(format!("file-{websocket}"));
        let copy = ["cp", &format!("web:{inside}/text"), file.to_str().unwrap()];
        let (code, stdout, stderr) = kubectl.talk(websocket, &copy, "").await;
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "some text\n");

        for target in ["pod/web", "service/web"] {
            let remote = if target == "pod/web" { "8080" } else { "80" };
            let (mut child, port) = kubectl.forward(websocket, target, remote).await;
            for _ in 0..3 {
                let answer = fetch(&port, "/index.html").await;
                assert!(answer.ends_with("\r\n\r\npage\n"), "{target}: {answer}");
            }
            let both = [fetch(&port, "/"), fetch(&port, "/none")];
            let answers = futures_util::future::join_all(both).await;
            assert!(answers[0].ends_with("page\n"), "{answers:?}");
            assert!(answers[1].starts_with("HTTP/1.1 404 "), "{answers:?}");
            child.kill().await.unwrap();
        }
        let (mut child, port) = kubectl.forward(websocket, "pod/web", "9999").await;
        assert_eq!(fetch(&port, "/").await, "");
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, errors.next_line()).await;
        let line = line.expect("an error in time").unwrap().unwrap();
        let refused = "dial tcp4 127.0.0.1:9999: connect: connection refused";
        assert!(line.contains(refused), "{line}");
        child.kill().await.unwrap();
    }
}
