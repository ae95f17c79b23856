//! exec, attach, port-forward and proxy, over both protocols of kubectl.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Kubectl, text};
use crate::process::{Home, STEP_TIMEOUT};

/// A control plane with a running pod that serves HTTP and counts, and its Service.
async fn start() -> Option<Kubectl> {
    let kubectl = Kubectl::start_in(Home::in_memory().whole()).await?;
    kubectl.run("create -f streams.yaml").await;
    kubectl
        .run("wait pod web --for=condition=Ready --timeout=60s")
        .await;
    kubectl
        .run("wait pod plain --for=condition=Ready --timeout=60s")
        .await;
    Some(kubectl)
}

/// The minor version of kubectl since which it can speak WebSocket.
const WEBSOCKETS_SINCE: u32 = 31;

impl Kubectl {
    /// Whether streams go over WebSocket, once for each protocol that this kubectl speaks. An older one would ignore the
    /// variables of [`Kubectl::over`] and speak SPDY.
    pub(super) fn transports(&self) -> Vec<bool> {
        if self.minor_version >= WEBSOCKETS_SINCE {
            return vec![true, false];
        }
        eprintln!(
            "SKIPPED: kubectl 1.{} speaks no WebSocket, which it does since 1.{WEBSOCKETS_SINCE}",
            self.minor_version
        );
        vec![false]
    }

    /// A command over WebSocket, which new clients prefer, or over SPDY, the only protocol of old ones.
    pub(super) fn over(&self, websocket: bool, arguments: &[&str]) -> Command {
        let mut command = self.command("");
        command.args(arguments);
        for variable in [
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS",
            "KUBECTL_PORT_FORWARD_WEBSOCKETS",
        ] {
            command.env(variable, websocket.to_string());
        }
        command
    }

    /// Forwards a free port to one of `target`, until the process ends. Returns that port, too.
    pub(super) async fn forward(&self, websocket: bool, target: &str, to: &str) -> (Child, String) {
        let ports = format!(":{to}");
        let arguments = ["port-forward", "--address=127.0.0.1", target, &ports];
        let mut command = self.over(websocket, &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, lines.next_line()).await;
        let line = line.expect("forwarding in time").unwrap().unwrap();
        let port = line.split_once("127.0.0.1:").unwrap().1;
        let port = port.split(' ').next().unwrap().to_owned();
        // It writes a line for each connection.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        (child, port)
    }

    /// The exit code and both outputs of a command that is given `input`.
    pub(super) async fn talk(
        &self,
        websocket: bool,
        arguments: &[&str],
        input: &str,
    ) -> (i32, String, String) {
        let mut command = self.over(websocket, arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = timeout(STEP_TIMEOUT, child.wait_with_output())
            .await
            .expect("kubectl ends in time")
            .unwrap();
        (
            output.status.code().unwrap_or(-1),
            text(&output.stdout),
            text(&output.stderr),
        )
    }
}

#[tokio::test]
async fn a_command_runs_in_a_container_with_its_output_input_and_exit_code() {
    let Some(kubectl) = start().await else { return };
    for websocket in kubectl.transports() {
        let exec = async |arguments: &[&str], input: &str| {
            let all = [&["exec", "web", "-c", "web"], arguments].concat();
            kubectl.talk(websocket, &all, input).await
        };
        let (code, stdout, stderr) = exec(&["--", "echo", "hello", "a  b"], "").await;
        assert_eq!(
            (code, stdout.as_str(), stderr.as_str()),
            (0, "hello a  b\n", "")
        );
        let script = "echo $GREETING; echo oops >&2; sleep 0.2; exit 7";
        let (code, stdout, stderr) = exec(&["--", "sh", "-c", script], "").await;
        assert_eq!((code, stdout.as_str()), (7, "good morning\n"));
        assert!(
            stderr.contains("oops\n") && stderr.contains("exit code 7"),
            "{stderr}"
        );
        let (code, stdout, _) = exec(&["-i", "--", "cat"], &"0123456789\n".repeat(20_000)).await;
        assert_eq!((code, stdout.len()), (0, 220_000));
        let (code, stdout, _) = exec(
            &["-i", "--", "sh"],
            "X=3\nfor i in 1 2; do\necho $i$X\ndone\nexit 5\n",
        )
        .await;
        assert_eq!((code, stdout.as_str()), (5, "13\n23\n"));
        let (code, _, stderr) = exec(&["--", "nginx", "-t"], "").await;
        assert_eq!(code, 1);
        let runc = "OCI runtime exec failed: exec failed: unable to start container process: exec: \"nginx\": \
                    executable file not found in $PATH";
        assert!(stderr.contains(runc), "{stderr}");
        let (code, _, stderr) = kubectl
            .talk(websocket, &["exec", "done", "--", "true"], "")
            .await;
        assert_eq!(code, 1);
        assert!(
            stderr.contains("container not found (\"done\")") || stderr.contains("completed pod"),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn an_attached_client_gets_output_until_the_container_ends() {
    let Some(kubectl) = start().await else { return };
    for websocket in kubectl.transports() {
        let pod = match websocket {
            true => "counter-a",
            false => "counter-b",
        };
        let script = "for i in 1 2 3 4 5 6; do sleep 1; echo tick; done";
        kubectl
            .talk(
                websocket,
                &[
                    "run",
                    pod,
                    "--image=i",
                    "--restart=Never",
                    "--",
                    "sh",
                    "-c",
                    script,
                ],
                "",
            )
            .await;
        kubectl
            .run(&format!(
                "wait pod {pod} --for=condition=Ready --timeout=60s"
            ))
            .await;
        let (code, stdout, stderr) = kubectl.talk(websocket, &["attach", pod], "").await;
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.starts_with("tick\n") && stdout.ends_with("tick\n"),
            "{stdout:?}"
        );
    }
}

/// The answer to a request over HTTP.
pub(super) async fn fetch(port: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer))
        .await
        .expect("an answer in time");
    read.map(|_| answer).unwrap_or_default()
}

#[tokio::test]
async fn a_port_of_a_pod_is_forwarded() {
    let Some(kubectl) = start().await else { return };
    for websocket in kubectl.transports() {
        let (mut child, port) = kubectl.forward(websocket, "pod/web", "8080").await;
        for _ in 0..3 {
            assert!(
                fetch(&port, "/").await.ends_with("\r\n\r\nhello"),
                "websocket: {websocket}"
            );
        }
        assert!(fetch(&port, "/sick").await.starts_with("HTTP/1.1 503 "));
        child.kill().await.unwrap();
        let (mut child, port) = kubectl.forward(websocket, "pod/web", "9999").await;
        assert_eq!(fetch(&port, "/").await, "");
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, errors.next_line())
            .await
            .expect("an error in time")
            .unwrap()
            .unwrap();
        assert!(
            line.contains("9999") && line.contains("connection refused"),
            "{line}"
        );
        child.kill().await.unwrap();
    }
}

#[tokio::test]
async fn pods_and_services_are_proxied() {
    let Some(kubectl) = start().await else { return };
    let below = "/api/v1/namespaces/default";
    assert_eq!(
        kubectl
            .run(&format!("get --raw {below}/pods/web/proxy/"))
            .await,
        "hello"
    );
    assert_eq!(
        kubectl
            .run(&format!("get --raw {below}/pods/web:8080/proxy/page?x=y"))
            .await,
        "a page"
    );
    let refused = kubectl
        .refused(&format!("get --raw {below}/pods/plain:80/proxy/"))
        .await;
    assert!(
        refused.contains("error trying to reach service: dial tcp 10."),
        "{refused}"
    );
    assert!(refused.contains("connect: connection refused"), "{refused}");
    let client = kubectl.process.admin().await;
    let posted = client
        .call(
            "POST",
            &format!("{below}/pods/web/proxy/page"),
            "x".repeat(100_000),
        )
        .await;
    assert_eq!(posted.expect(200).text(), "a page");
    let sick = client
        .get(&format!("{below}/pods/web/proxy/sick"))
        .await
        .expect(503);
    assert_eq!(sick.text(), "not yet");
    // The endpoints of a Service follow its pods.
    let path = format!("{below}/endpoints?watch=true&fieldSelector=metadata.name=web");
    let mut events = client.watch(&path).await;
    while !events.next().await.expect("the watch goes on")["object"]["subsets"].is_array() {}
    let found = client
        .get(&format!("{below}/services/web:http/proxy/"))
        .await
        .expect(200);
    assert_eq!(found.text(), "hello");
}
