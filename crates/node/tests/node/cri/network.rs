//! What the network of pods carries, on the bridge that the agent has configured.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mizzen_node::runtime::ContainerRuntime as _;
use mizzen_sdk::resource::{PODS, SERVICES};
use mizzen_value::{json, value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

use super::events::{MadeUpRuntime, Node};
use super::kills::Agent;
use super::{RealNode, container};
use crate::fixtures::{create, events_of};

/// The network outside: a network namespace beside that of the machine.
struct Outside {
    /// The range of pods, of which the machine forwards nothing by itself.
    pods: String,
    server: Option<Child>,
}

const NAMESPACE: &str = "mizzen-outside";
const HERE: &str = "mizzen-out0";
/// The addresses of this machine and of the server, in a network of their own.
const OWN: &str = "10.214.145.1";
const SERVER: &str = "10.214.145.2";

fn run(program: &str, words: &str) -> bool {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    output.status.success()
}

impl Outside {
    /// Serves a page there. Pods reach it only if the firewall lets them.
    fn start(pods: &str, page: &Path) -> Outside {
        let mut outside = Outside {
            pods: pods.into(),
            server: None,
        };
        outside.remove();
        for words in [
            format!("netns add {NAMESPACE}"),
            format!("link add {HERE} type veth peer name eth0 netns {NAMESPACE}"),
            format!("address add {OWN}/30 dev {HERE}"),
            format!("link set {HERE} up"),
            format!("-n {NAMESPACE} address add {SERVER}/30 dev eth0"),
            format!("-n {NAMESPACE} link set eth0 up"),
        ] {
            assert!(run("ip", &words), "ip {words}");
        }
        let rule = format!("-w -A FORWARD -s {pods} -j DROP");
        assert!(run("iptables", &rule), "iptables {rule}");
        let page = page.display();
        let words = format!("netns exec {NAMESPACE} busybox httpd -f -p 80 -h {page}");
        let server = Command::new("ip")
            .args(words.split(' '))
            .stdin(Stdio::null())
            .spawn();
        outside.server = Some(server.unwrap());
        outside
    }

    fn remove(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        while run(
            "iptables",
            &format!("-w -D FORWARD -s {} -j DROP", self.pods),
        ) {}
        run("ip", &format!("link delete {HERE}"));
        run("ip", &format!("netns delete {NAMESPACE}"));
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A process that returns UDP datagrams in the network of another one.
struct Echo(Child);

impl Echo {
    fn start(pid: u32, port: u16) -> Echo {
        let program = format!(
            "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => {port}, Proto => 'udp') or die; \
             while (1) {{ my $p = $s->recv(my $d, 100); $s->send($d, 0, $p) if defined $p }}"
        );
        let started = Command::new("nsenter")
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .args(["perl", "-e", &program])
            .stdin(Stdio::null())
            .spawn();
        Echo(started.unwrap())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that runs a command.
fn find_process(command: &[&str]) -> u32 {
    let wanted = format!("{}\0", command.join("\0"));
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.find(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        text.is_ok_and(|text| text == wanted)
    });
    found.unwrap_or_else(|| panic!("{command:?} does not run"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_each_other_and_the_outside_and_are_reached_by_udp() {
    let Some(node) = RealNode::start("real-network", 145).await else {
        return;
    };
    let site = node.containerd.path("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("page"), "outside").unwrap();
    let _outside = Outside::start("10.213.145.0/24", &site);
    let server =
        container("command: [sh, -c, 'echo inside > /tmp/page; exec httpd -f -p 80 -h /tmp']");
    node.run("server", &server).await;
    // No other process has this number.
    let command = ["sleep", "1000145"];
    let client = container(&format!(
        "command: [{}], ports: [{{containerPort: 5353, hostPort: 38053, protocol: UDP}}]",
        command.map(|word| format!("'{word}'")).join(", ")
    ));
    node.run("client", &client).await;
    let server = node.until_pod("server", "ready=True c=running").await;
    node.until_pod("client", "ready=True c=running").await;
    let address = server["status"]["podIP"].str();
    for (host, expected) in [(address, "inside\n"), (SERVER, "outside")] {
        // With a time limit, wget of busybox 1.35 crashes.
        let get =
            format!("printf 'GET /page HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {host} 80 | tail -n 1");
        node.until(&format!("{host} answers a pod"), async |node| {
            node.exec("client", &get, "").await.0 == expected
        })
        .await;
    }

    let _echo = Echo::start(find_process(&command), 5353);
    let socket = UdpSocket::bind((OWN, 0)).await.unwrap();
    socket.connect((OWN, 38053)).await.unwrap();
    node.until("the port of the host answers", async |_| {
        // A datagram may be refused while the process starts.
        let mut answer = [0; 16];
        let sent = socket.send(b"ping").await;
        let answered = timeout(Duration::from_millis(500), socket.recv(&mut answer)).await;
        sent.is_ok() && matches!(answered, Ok(Ok(4))) && answer.starts_with(b"ping")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_an_address_of_each_family() {
    // The file is there, but empty, where IPv6 is switched off.
    let addresses = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    if addresses.is_empty() {
        return;
    }
    let Some(mut node) = RealNode::start("real-dual", 147).await else {
        return;
    };
    // The agent configures one family; other networks may have both.
    let file = node.containerd.network_dir().join("10-mizzen.conflist");
    node.until("the network is configured", async |_| file.exists())
        .await;
    node.containerd.kill();
    let mut network = json::parse(&fs::read(&file).unwrap()).unwrap();
    let ipam = network.entry("plugins").list_mut()[0].entry("ipam");
    let subnets = ["10.213.147.0/24", "fd00:213:147::/64"].map(|it| value!([{ "subnet": it }]));
    ipam.set("ranges", subnets.to_vec());
    ipam.set(
        "routes",
        value!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]),
    );
    fs::write(&file, json::to_string(&network)).unwrap();
    node.until("the loss is noticed", async |node| {
        node.runtime.health().is_err()
    })
    .await;
    node.containerd.launch().await;
    node.until("the runtime is back", async |node| {
        node.runtime.health().is_ok()
    })
    .await;

    let spec = container(
        "command: [sh, -c, 'echo $IPS; grep -c web /etc/hosts; exec sleep 1000'], \
         env: [{name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]",
    );
    node.run("web", &spec).await;
    let pod = node.until_pod("web", "ready=True c=running").await;
    let status = &pod["status"];
    let all = status["podIPs"].list().iter().map(|it| it["ip"].str());
    let all: Vec<&str> = all.collect();
    assert_eq!(all, ["10.213.147.2", "fd00:213:147::2"]);
    assert_eq!(status["podIP"].str(), all[0]);
    assert_eq!(node.log("web", "").await, format!("{}\n2\n", all.join(",")));
}

/// Answers each connection with a word, where the API server would be.
async fn answer(word: &'static str, host: &str) -> String {
    let listener = TcpListener::bind((host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 64]).await;
            let _ = stream.write_all(word.as_bytes()).await;
        }
    });
    address
}

/// What a client in a pod gets at the address of the API server.
const CALL: &str =
    "echo hello | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT | tail -n 1";

async fn create_service(node: &RealNode) {
    let service =
        "{metadata: {name: kubernetes}, spec: {clusterIP: 10.0.0.1, ports: [{port: 443}]}}";
    create(&node.cluster, &SERVICES, service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_the_api_server_after_a_restart_of_the_agent() {
    let Some(mut node) = RealNode::start("real-api", 148).await else {
        return;
    };
    create_service(&node).await;
    node.api_server = Some(answer("welcome", "127.0.0.1").await);
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    node.run("web", &container("command: [sleep, '1000']"))
        .await;
    for _ in 0..2 {
        let agent = Agent::start(&node);
        node.until_pod("web", "ready=True c=running").await;
        node.until("the API server answers", async |node| {
            node.exec("web", CALL, "").await.0 == "welcome"
        })
        .await;
        agent.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_network_is_replaced_and_another_one_has_the_address_of_the_api_server() {
    let Some(mut node) = RealNode::start("real-stale", 150).await else {
        return;
    };
    create_service(&node).await;
    let dir = node.containerd.network_dir();
    let file = dir.join("10-mizzen.conflist");
    node.until("the network is configured", async |_| file.exists())
        .await;
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("10.213.150.", "10.213.151.")).unwrap();
    // No pod can dial an address of the loopback interface, but this one is of no interface.
    node.api_server = Some("10.213.150.99:6443".into());
    node.run_agent().await;
    node.until("the network is replaced", async |_| {
        fs::read_to_string(&file).unwrap() == text
    })
    .await;

    // The configuration of a user.
    fs::rename(&file, dir.join("10-own.conflist")).unwrap();
    node.run_agent().await;
    node.run("web", &container("command: [sleep, '1000']"))
        .await;
    let pod = node.until_pod("web", "ready=True c=running").await;
    let address = pod["status"]["podIP"].str();
    assert!(address.starts_with("10.213.150."), "{address}");
    let seen = "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT";
    let (out, _, _) = node.exec("web", seen, "").await;
    assert_eq!(out, "10.213.150.99:6443\n");
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_that_are_left_out_are_said() {
    let node = Node::start("dns-limits", MadeUpRuntime::default()).await;
    let pod = "{metadata: {name: web}, spec: {nodeName: dns-limits, containers: [{name: c, image: a}], \
               dnsConfig: {nameservers: [10.0.0.2, 10.0.0.3, 10.0.0.4]}}}";
    create(&node.cluster, &PODS, pod).await;
    let said = "Warning DNSConfigForming  Nameserver limits were exceeded, some nameservers have been omitted, the \
                applied nameserver line is: 10.0.0.1 10.0.0.2 10.0.0.3";
    node.until("an event says it", async |node| {
        let events = events_of(&node.cluster, "web").await;
        events.iter().any(|event| event.starts_with(said))
    })
    .await;
}
