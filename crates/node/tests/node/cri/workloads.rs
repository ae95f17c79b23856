//! What containers use and are given, as a program of ours sees it: CPU time, memory, ports of the machine, signals, files.

use std::fs;
use std::net::Ipv4Addr;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_sdk::resource::SERVICE_ACCOUNTS;
use mizzen_value::Value;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::*;
use crate::containerd::WORKLOAD;

/// A container that runs a command of the workload.
fn one(name: &str, arguments: &str, more: &str) -> String {
    format!(
        "{{name: {name}, image: '{WORKLOAD}', imagePullPolicy: Never, command: [workload], args: [{arguments}]{more}}}"
    )
}

async fn start(name: &'static str, n: u8) -> Option<RealNode> {
    let node = RealNode::start(name, n).await?;
    node.containerd.import_workload();
    Some(node)
}

/// What a server sends back.
async fn send(port: u16, text: &str) -> String {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    connection.write_all(text.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The answer to a datagram; empty if there is none.
async fn send_datagram(port: u16, text: &str) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = (Ipv4Addr::LOCALHOST, port);
    socket.send_to(text.as_bytes(), to).await.unwrap();
    let mut answer = [0; 100];
    let received = timeout(Duration::from_secs(1), socket.recv_from(&mut answer)).await;
    let length = match received {
        Ok(Ok((length, _))) => length,
        _ => 0,
    };
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_and_memory_are_measured_and_limited() {
    let Some(node) = start("real-usage", 34).await else {
        return;
    };
    // It would use a whole core.
    let busy = one(
        "busy",
        "cpu, '1000'",
        ", resources: {limits: {cpu: 100m, memory: 32Mi}}",
    );
    let large = one("large", "memory, '40'", "");
    let spec = format!("terminationGracePeriodSeconds: 1, containers: [{busy}, {large}]");
    node.run("web", &spec).await;
    let figure = |pod: &Value, container: usize, path: [&str; 2]| {
        let figures = &pod["containers"][container];
        figures[path[0]][path[1]].int()
    };
    let (rate, used) = (["cpu", "usageNanoCores"], ["memory", "workingSetBytes"]);
    node.until("what is used is measured", async |node| {
        let pod = node.figures("web").await;
        let (cpu, memory) = (figure(&pod, 0, rate), figure(&pod, 1, used));
        (50_000_000..150_000_000).contains(&cpu) && (40 << 20..56 << 20).contains(&memory)
    })
    .await;
    let pod = node.figures("web").await;
    assert!(figure(&pod, 1, rate) < 20_000_000, "{pod:?}");
    assert!(figure(&pod, 0, used) < 32 << 20, "{pod:?}");
    assert!(
        pod["memory"]["workingSetBytes"].int() >= 40 << 20,
        "{pod:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_the_machine_and_signals_reach_containers() {
    let Some(node) = start("real-ports", 35).await else {
        return;
    };
    let port = |own: u16, of_host: u16, protocol: &str| {
        format!(
            ", ports: [{{containerPort: {own}, hostPort: {of_host}, hostIP: 127.0.0.1, protocol: {protocol}}}]"
        )
    };
    let servers = [
        one("c", "http, '80'", &port(80, 38111, "TCP")),
        one("tcp", "tcp, '81'", &port(81, 38112, "TCP")),
        one("udp", "udp, '81'", &port(81, 38113, "UDP")),
    ];
    let servers = servers.join(", ");
    let spec = format!("terminationGracePeriodSeconds: 1, containers: [{servers}]");
    node.run("servers", &spec).await;
    let out = node.containerd.path("out");
    let recorder = one(
        "c",
        "signals, /out/signals",
        ", volumeMounts: [{name: out, mountPath: /out}]",
    );
    let volume = format!(
        "volumes: [{{name: out, hostPath: {{path: '{}', type: DirectoryOrCreate}}}}]",
        out.display()
    );
    node.run("signals", &format!("containers: [{recorder}], {volume}"))
        .await;
    node.until_pod("servers", "ready=True").await;
    node.until_pod("signals", "ready=True").await;

    node.until("the servers listen", async |_| {
        send_datagram(38113, "ping").await == "ping"
    })
    .await;
    assert_eq!(send(38112, "echo").await, "echo");
    let answer = send(38111, "GET /path HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nGET /path HTTP/1.0"), "{answer}");

    let signals = || fs::read_to_string(out.join("signals")).unwrap_or_default();
    node.until("signals are recorded", async |_| signals() == "ready\n")
        .await;
    let (_, err, code) = node.exec("signals", "kill -USR1 1", "").await;
    assert_eq!((err.as_str(), code), ("", 0));
    node.until("the signal is seen", async |_| signals() == "ready\nUSR1\n")
        .await;
    // A pod that is deleted gets SIGTERM, and no other signal if it ends by it.
    delete_pod(&node.cluster, "signals", None).await;
    node.until("the pod has ended", async |node| {
        let key = "default/signals";
        node.cluster.find_object(&PODS, key).await.is_none()
    })
    .await;
    assert_eq!(signals(), "ready\nUSR1\nTERM\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_the_paths_and_modes_of_their_items() {
    let Some(node) = start("real-items", 36).await else {
        return;
    };
    let cluster = &node.cluster;
    let object = |data: &str| format!("{{metadata: {{name: input}}, data: {{{data}}}}}");
    create(cluster, &CONFIG_MAPS, &object("a: '1', b: '2'")).await;
    create(cluster, &SECRETS, &object("s: Mw==, t: NA==")).await;
    let account = "{metadata: {name: default}}";
    create(cluster, &SERVICE_ACCOUNTS, account).await;
    let mounts = ["config", "secret", "none", "info", "all"]
        .map(|name| format!("{{name: {name}, mountPath: /{name}}}"));
    let reader = one(
        "c",
        "files, /config/x/a, /secret/s, /info/cpu, /all/a, /all/s, /all/name, /etc/resolv.conf, /all/token",
        &format!(
            ", resources: {{limits: {{cpu: 250m, memory: 32Mi}}}}, volumeMounts: [{}]",
            mounts.join(", ")
        ),
    );
    let volumes = "volumes: [{name: config, configMap: {name: input, items: [{key: a, path: x/a, mode: 0400}]}}, \
                   {name: secret, secret: {secretName: input, items: [{key: s, path: s}], defaultMode: 0440}}, \
                   {name: none, configMap: {name: none, optional: true}}, \
                   {name: info, downwardAPI: {defaultMode: 0444, items: [{path: cpu, mode: 0600, resourceFieldRef: \
                   {containerName: c, resource: limits.cpu, divisor: 1m}}]}}, \
                   {name: all, projected: {defaultMode: 0444, sources: [\
                   {configMap: {name: input, items: [{key: b, path: a, mode: 0640}]}}, \
                   {secret: {name: input, items: [{key: t, path: s}]}}, {secret: {name: none, optional: true}}, \
                   {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, \
                   {serviceAccountToken: {path: token, audience: vault, expirationSeconds: 700}}]}}]";
    let dns = "dnsPolicy: None, dnsConfig: {nameservers: [10.9.9.9], searches: [own.test], \
               options: [{name: ndots, value: '3'}, {name: rotate}]}";
    node.run(
        "web",
        &format!("restartPolicy: Never, serviceAccountName: default, containers: [{reader}], {volumes}, {dns}"),
    )
    .await;
    node.until_pod("web", "Succeeded").await;
    let expected = [
        r#"/config/x/a 400 0 0 "1""#,
        r#"/secret/s 440 0 0 "3""#,
        r#"/info/cpu 600 0 0 "250""#,
        r#"/all/a 640 0 0 "2""#,
        r#"/all/s 444 0 0 "4""#,
        r#"/all/name 444 0 0 "web""#,
        r#"/etc/resolv.conf 644 0 0 "search own.test\nnameserver 10.9.9.9\noptions ndots:3 rotate\n""#,
    ];
    let log = node.log("web", "").await;
    let lines: Vec<&str> = log.lines().collect();
    let (token, files) = lines.split_last().unwrap();
    assert_eq!(files, expected);
    assert!(token.starts_with("/all/token 444 0 0 \"ey"), "{token}");
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap());
    let claims = String::from_utf8(claims.unwrap()).unwrap();
    assert!(claims.contains(r#""aud":["vault"]"#), "{claims}");
}
