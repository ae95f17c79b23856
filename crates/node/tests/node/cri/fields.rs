//! Fields of pods, as real containers see them: variables, tokens, users, cgroups, ports, and the times of probes and ends.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_node::runtime::Attach;
use mizzen_sdk::resource::SERVICE_ACCOUNTS;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, json, time};
use tokio::net::TcpStream;

use super::http_server::Site;
use super::volumes::{create_bound, only_on, with_claim};
use super::*;

/// The end of a script that runs on.
const SLEEP: &str = "exec sleep 1000";
/// The files of cgroups of versions 1 and 2.
const CPU: [&str; 2] = ["cpu.shares", "cpu.weight"];
const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// A container with a shell script.
fn one(name: &str, script: &str, more: &str) -> String {
    format!(
        "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, '{script}']{more}}}"
    )
}

/// The claims of a token.
fn claims(token: &str) -> Value {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1).unwrap());
    json::parse(&claims.unwrap()).unwrap()
}

/// For how many seconds a token is valid.
fn life(claims: &Value) -> i64 {
    claims["exp"].int() - claims["iat"].int()
}

/// A number in a cgroup below that of all pods.
fn cgroup_number(place: &str, controller: &str, files: [&str; 2]) -> i64 {
    let root = Path::new("/sys/fs/cgroup");
    let of_version_1 = root.join(controller);
    let path = match of_version_1.is_dir() {
        true => of_version_1.join("kubepods").join(place).join(files[0]),
        false => root.join("kubepods").join(place).join(files[1]),
    };
    let read = fs::read_to_string(&path);
    let number = read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    number.trim().parse().unwrap()
}

/// The ID of the first container of a pod.
fn container_id(pod: &Object) -> &str {
    let id = pod["status"]["containerStatuses"][0]["containerID"].str();
    id.split_once("://").unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_names_and_tokens_are_those_of_the_pod() {
    let Some(node) = RealNode::start("real-variables", 151).await else {
        return;
    };
    let cluster = &node.cluster;
    let words = "{metadata: {name: words}, data: {a: '1', b: '2'}}";
    create(cluster, &CONFIG_MAPS, words).await;
    let keys = "{metadata: {name: keys}, data: {t: dg==}}";
    create(cluster, &SECRETS, keys).await;
    create(cluster, &SERVICE_ACCOUNTS, "{metadata: {name: robot}}").await;
    let from = |name: &str, source: &str| format!("{{name: T_{name}, valueFrom: {{{source}}}}}");
    let field =
        |name: &str, path: &str| from(name, &format!("fieldRef: {{fieldPath: \"{path}\"}}"));
    let variables = [
        field("NAME", "metadata.name"),
        field("NAMESPACE", "metadata.namespace"),
        field("UID", "metadata.uid"),
        field("LABEL", "metadata.labels['app']"),
        field("NOTE", "metadata.annotations['note']"),
        field("NODE", "spec.nodeName"),
        field("ACCOUNT", "spec.serviceAccountName"),
        field("POD_IP", "status.podIP"),
        field("HOST_IP", "status.hostIP"),
        from(
            "CPU",
            "resourceFieldRef: {resource: limits.cpu, divisor: 1m}",
        ),
        from(
            "MEMORY",
            "resourceFieldRef: {containerName: d, resource: requests.memory, divisor: 1Mi}",
        ),
        from("KEY", "configMapKeyRef: {name: words, key: b}"),
        from("SECRET", "secretKeyRef: {name: keys, key: t}"),
        from(
            "NO_KEY",
            "configMapKeyRef: {name: words, key: none, optional: true}",
        ),
        from(
            "NO_SECRET",
            "secretKeyRef: {name: none, key: t, optional: true}",
        ),
    ];
    let all = "envFrom: [{prefix: T_WORD_, configMapRef: {name: words}}, {prefix: T_KEY_, secretRef: {name: keys}}, \
               {configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}]";
    let own = one(
        "c",
        "env; hostname; touch /data/x || echo read-only; cat /token/token",
        &format!(
            ", env: [{}], {all}, resources: {{limits: {{cpu: 250m}}}}, volumeMounts: [{{name: token, mountPath: /token}}, \
             {{name: data, mountPath: /data, readOnly: true}}]",
            variables.join(", ")
        ),
    );
    let other = one("d", "true", ", resources: {requests: {memory: 48Mi}}");
    let token = "{name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 700}}]}}";
    let pod = format!(
        "{{metadata: {{name: web, labels: {{app: shop}}, annotations: {{note: seven}}}}, spec: {{nodeName: {}, \
         restartPolicy: Never, serviceAccountName: robot, hostnameOverride: own.name.test, \
         containers: [{own}, {other}], volumes: [{token}, {{name: data, emptyDir: {{}}}}]}}}}",
        node.name
    );
    create(cluster, &PODS, &pod).await;
    let pod = node.until_pod("web", "Succeeded").await;
    let log = node.log("web", "?container=c").await;
    let mut found: Vec<&str> = log.lines().filter(|line| line.starts_with("T_")).collect();
    found.sort_unstable();
    let (uid, status) = (pod.uid(), &pod["status"]);
    let expected = format!(
        "T_ACCOUNT=robot T_CPU=250 T_HOST_IP={} T_KEY=2 T_KEY_t=v T_LABEL=shop T_MEMORY=48 T_NAME=web \
         T_NAMESPACE=default T_NODE={} T_NOTE=seven T_POD_IP={} T_SECRET=v T_UID={uid} T_WORD_a=1 T_WORD_b=2",
        status["hostIP"].str(),
        node.name,
        status["podIP"].str(),
    );
    assert_eq!(found.join(" "), expected);
    for line in ["own.name.test", "read-only"] {
        assert!(log.lines().any(|found| found == line), "{log}");
    }

    let claims = claims(log.lines().last().unwrap());
    assert_eq!(claims["sub"].str(), "system:serviceaccount:default:robot");
    assert_eq!(claims["kubernetes.io"]["pod"]["uid"].str(), uid);
    assert_eq!(life(&claims), 700);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_token_of_its_own_that_is_replaced_before_it_expires() {
    let shortest = Some(5);
    let builder = control_plane()
        .tune_server(move |options| options.server.service_accounts.max_expiration = shortest);
    let Some(node) = RealNode::start_in(builder, "real-tokens", 152).await else {
        return;
    };
    let account = "{metadata: {name: robot}}";
    create(&node.cluster, &SERVICE_ACCOUNTS, account).await;
    let own =
        container("command: [sleep, '1000'], volumeMounts: [{name: token, mountPath: /token}]");
    let token = "{name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}";
    let spec = format!("serviceAccountName: robot, {own}, volumes: [{token}]");
    node.run("other", &spec).await;
    let other = node.until_pod("other", "ready=True c=running").await;
    node.run("web", &spec).await;
    let web = node.until_pod("web", "ready=True c=running").await;
    let of_pod = async |pod: &Object| {
        let claims = claims(&node.sh(pod.name(), "cat /token/token").await);
        assert_eq!(claims["kubernetes.io"]["pod"]["uid"].str(), pod.uid());
    };
    of_pod(&other).await;
    of_pod(&web).await;
    let first = node.sh("web", "cat /token/token").await;
    let began = Instant::now();
    node.until("the token is replaced", async |node| {
        let note = format!("t{}", began.elapsed().as_millis());
        node.annotate("web", &note).await;
        node.sh("web", "cat /token/token").await != first
    })
    .await;
    let second = claims(&node.sh("web", "cat /token/token").await);
    let first = claims(&first);
    assert_eq!((life(&first), life(&second)), (5, 5));
    // Not before four fifths of its life.
    let age = second["iat"].int() - first["iat"].int();
    assert!(age >= 4, "{age}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_its_own_security_context_or_that_of_its_pod() {
    let Some(node) = RealNode::start("real-users", 153).await else {
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
    let see = "(id -u; id -g; mkdir /tmp/x && echo made; grep -c \"^proc /proc/sys proc ro\" /proc/mounts; \
               test -t 0 && echo terminal) 2> /dev/null";
    let own = one(
        "c",
        &format!("{see} > /tmp/seen; {SLEEP}"),
        ", tty: true, securityContext: {runAsUser: 1001, runAsGroup: 3001, procMount: Default, \
         seccompProfile: {type: Unconfined}}",
    );
    let plain = one("d", &format!("{see}; {SLEEP}"), "");
    let common = "securityContext: {runAsUser: 1000, runAsGroup: 3000, runAsNonRoot: true, \
                  seccompProfile: {type: Localhost, localhostProfile: no-mkdir.json}}";
    node.run("web", &format!("{common}, containers: [{own}, {plain}]"))
        .await;
    let may = one(
        "d",
        &format!("sed -n s/^CapEff:.//p /proc/self/status; {SLEEP}"),
        ", securityContext: {runAsNonRoot: false, capabilities: {add: [NET_ADMIN], drop: [CHOWN]}}",
    );
    node.run(
        "root",
        &format!(
            "securityContext: {{runAsNonRoot: true}}, containers: [{}, {may}]",
            one("c", SLEEP, "")
        ),
    )
    .await;
    let input = container("command: [sh, -c, 'cat; echo closed'], stdin: true, stdinOnce: true");
    node.run("input", &format!("restartPolicy: Never, {input}"))
        .await;
    node.until_pod("web", "ready=True c=running d=running")
        .await;
    node.until("the container has what is its own", async |node| {
        let seen = node.exec("web", "cat /tmp/seen", "").await.0;
        seen == "1001\n3001\nmade\n1\nterminal\n"
    })
    .await;
    node.until("the other one has what is the pod's", async |node| {
        node.log("web", "?container=d").await == "1000\n3000\n1\n"
    })
    .await;
    let pod = node
        .until_pod("root", "c=CreateContainerConfigError d=running")
        .await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let why = "container has runAsNonRoot and image will run as root (pod: \"root_default(";
    assert!(waiting["message"].str().starts_with(why), "{waiting:?}");
    let capabilities = async |node: &RealNode| {
        let log = node.log("root", "?container=d").await;
        u64::from_str_radix(log.trim(), 16).ok()
    };
    node.until("the capabilities are seen", async |node| {
        capabilities(node).await.is_some()
    })
    .await;
    // By their numbers: CHOWN, KILL, NET_ADMIN and SYS_ADMIN.
    let capabilities = capabilities(&node).await.unwrap();
    let has = [0, 5, 12, 21].map(|number| (capabilities >> number) & 1 == 1);
    assert_eq!(has, [false, true, true, false], "{capabilities:x}");

    let pod = node.until_pod("input", "c=running").await;
    let (stdin, typed) = mpsc::channel(1);
    stdin.send(Bytes::from_static(b"typed\n")).await.unwrap();
    drop(stdin);
    let (stdout, out) = mpsc::channel(16);
    let (stderr, err) = mpsc::channel(16);
    let attach = Attach {
        id: format!("containerd://{}", container_id(&pod)),
        tty: false,
        stdin_once: true,
    };
    let stdio = Stdio {
        stdin: Some(typed),
        stdout: Some(stdout),
        stderr: Some(stderr),
        tty: false,
        resize: None,
    };
    let attached = node.runtime.attach(attach, stdio);
    let (attached, _, _) = tokio::join!(attached, collect(out), collect(err));
    attached.unwrap();
    node.until_pod("input", "Succeeded").await;
    assert_eq!(node.log("input", "").await, "typed\nclosed\n");

    // All of a volume whose root has the group is given to the group only by one of the policies.
    let disk = node.containerd.path("disk");
    fs::create_dir(&disk).unwrap();
    chown(&disk, None, Some(2000)).unwrap();
    fs::set_permissions(&disk, Permissions::from_mode(0o2770)).unwrap();
    let file = disk.join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let local = format!("local: {{path: '{}'}}", disk.display());
    create_bound(&node, "disk", &format!("{local}, {}", only_on(node.name))).await;
    for (policy, mode) in [("OnRootMismatch", 0o600), ("Always", 0o660)] {
        let name = policy.to_ascii_lowercase();
        let spec = with_claim("[sleep, '1000']", "claimName: disk");
        let group = format!("securityContext: {{fsGroup: 2000, fsGroupChangePolicy: {policy}}}");
        node.run(&name, &format!("{spec}, {group}")).await;
        node.until_pod(&name, "ready=True c=running").await;
        assert_eq!(
            fs::metadata(&file).unwrap().mode() & 0o777,
            mode,
            "{policy}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_overhead_reach_cgroups() {
    let Some(node) = RealNode::start("real-requests", 154).await else {
        return;
    };
    let class = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: runc, \
                 overhead: {podFixed: {cpu: 100m, memory: 16Mi}}}";
    node.cluster.apply(class).await;
    let with = |more: &str| container(&format!("command: [sleep, '1000']{more}"));
    let requests = with(", resources: {requests: {cpu: 250m, memory: 512Mi}}");
    node.run("web", &requests).await;
    node.run("none", &with("")).await;
    let limits = with(", resources: {limits: {cpu: 100m, memory: 32Mi}}");
    node.run("heavy", &format!("runtimeClassName: heavy, {limits}"))
        .await;
    let web = node.until_pod("web", "ready=True c=running").await;
    let none = node.until_pod("none", "ready=True c=running").await;
    let heavy = node.until_pod("heavy", "ready=True c=running").await;
    let place = |class: &str, pod: &Object| format!("{class}pod{}", pod.uid());
    let of_container =
        |class: &str, pod: &Object| format!("{}/{}", place(class, pod), container_id(pod));

    // Shares, or the weight by one of the formulas that versions of runc have.
    let shares = cgroup_number(&of_container("burstable/", &web), "cpu", CPU);
    assert!([256, 10, 35].contains(&shares), "{shares}");
    let shares = cgroup_number(&of_container("besteffort/", &none), "cpu", CPU);
    assert!([2, 1].contains(&shares), "{shares}");

    assert_eq!(heavy["spec"]["overhead"]["memory"].str(), "16Mi");
    let limit = |place: &str| cgroup_number(place, "memory", MEMORY) >> 20;
    assert_eq!(limit(&of_container("", &heavy)), 32);
    assert_eq!(limit(&place("", &heavy)), 48);

    let object = node.cluster.object(&NODES, node.name).await;
    let memory = Quantity::parse_or_zero(object["status"]["capacity"]["memory"].str()).value();
    let burstable = (1000 - (512 << 20) * 1000 / memory).clamp(3, 999);
    // This containerd does not lower the score below its own, which is that of this process.
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let own: i64 = own.trim().parse().unwrap();
    for (pod, score) in [("web", burstable), ("none", 1000), ("heavy", -997)] {
        let found = node.sh(pod, "cat /proc/1/oom_score_adj").await;
        assert_eq!(found.trim(), score.max(own).to_string(), "{pod}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_begin_repeat_and_time_out_as_they_say() {
    let Some(node) = RealNode::start("real-probe-times", 155).await else {
        return;
    };
    let out = node.containerd.path("out");
    let note = "read up rest < /proc/uptime; echo $up >> /out/times";
    let timed = one(
        "c",
        &format!("{note}; {SLEEP}"),
        &format!(
            ", readinessProbe: {{exec: {{command: [sh, -c, '{note}']}}, initialDelaySeconds: 3, periodSeconds: 2, \
             successThreshold: 2}}, volumeMounts: [{{name: out, mountPath: /out}}]"
        ),
    );
    let volume = format!(
        "volumes: [{{name: out, hostPath: {{path: '{}', type: DirectoryOrCreate}}}}]",
        out.display()
    );
    node.run("timed", &format!("containers: [{timed}], {volume}"))
        .await;
    let slow = |name: &str, takes: u32, limit: u32| {
        let probe = format!(
            "exec: {{command: [sleep, '{takes}']}}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: {limit}"
        );
        one(name, SLEEP, &format!(", readinessProbe: {{{probe}}}"))
    };
    let both = [slow("c", 100, 2), slow("d", 2, 30)];
    node.run("slow", &format!("containers: [{}]", both.join(", ")))
        .await;
    // A server of the machine, which is not that of the pod.
    let site = Site::default();
    let http = site.http().await;
    site.set("/there", 200, "");
    let host = container(&format!(
        "command: [sleep, '1000'], startupProbe: {{tcpSocket: {{host: 127.0.0.1, port: {http}}}, periodSeconds: 1}}, \
         readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {http}, path: /there}}, periodSeconds: 1}}"
    ));
    node.run("host", &host).await;

    node.until_pod("host", "ready=True c=running").await;
    assert!(site.has_seen(&format!("/there 127.0.0.1:{http}")));
    node.until_pod("slow", "c=unready d=running").await;
    let said = "Warning Unhealthy spec.containers{c} Readiness probe failed: command timed out: \"sleep 100\" timed out \
                after 2s";
    node.until("a probe has timed out", async |node| {
        let events = events_of(&node.cluster, "slow").await;
        events.iter().any(|event| event.starts_with(said))
    })
    .await;
    node.until_pod("timed", "ready=True c=running").await;
    let times = fs::read_to_string(out.join("times")).unwrap();
    let times: Vec<f64> = times.lines().map(|time| time.parse().unwrap()).collect();
    // One success is not enough.
    let [began, first, second, ..] = times[..] else {
        panic!("{times:?}");
    };
    // By default there is no delay, and the period is ten seconds.
    assert!(first - began > 1.5, "{times:?}");
    assert!((1.0..8.0).contains(&(second - first)), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_at_its_deadline_and_containers_restart_by_their_rules() {
    let Some(node) = RealNode::start("real-ends", 156).await else {
        return;
    };
    let stubborn =
        container("command: [sh, -c, 'trap \"echo TERM\" TERM; while true; do sleep 0.1; done']");
    let times = "activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 2";
    node.run("late", &format!("{times}, {stubborn}")).await;
    let rule = |action: &str, codes: &str| {
        format!(
            ", restartPolicy: Never, restartPolicyRules: [{{action: {action}, exitCodes: {{{codes}}}}}], \
             volumeMounts: [{{name: data, mountPath: /data}}]"
        )
    };
    let volume = "restartPolicy: Never, terminationGracePeriodSeconds: 1, volumes: [{name: data, emptyDir: {}}]";
    let again = one(
        "c",
        "if [ -e /data/x ]; then echo -n why > /tmp/end; exit 1; fi; touch /data/x; exit 42",
        &format!(
            "{}, terminationMessagePath: /tmp/end",
            rule("Restart", "operator: NotIn, values: [1]")
        ),
    );
    node.run("again", &format!("{volume}, containers: [{again}]"))
        .await;
    let first = one(
        "a",
        "if [ -e /data/x ]; then exec sleep 1000; fi; until [ -e /data/b ]; do sleep 0.1; done; touch /data/x; exit 42",
        &rule("RestartAllContainers", "operator: In, values: [42]"),
    );
    let other = one(
        "b",
        &format!("touch /data/b; {SLEEP}"),
        ", volumeMounts: [{name: data, mountPath: /data}]",
    );
    node.run("all", &format!("{volume}, containers: [{first}, {other}]"))
        .await;

    let pod = node
        .until_pod("again", "Failed ready=False c=Error(1)+1")
        .await;
    let status = &pod["status"]["containerStatuses"][0];
    let last = &status["lastState"]["terminated"]["exitCode"];
    let message = &status["state"]["terminated"]["message"];
    assert_eq!((last.int(), message.str()), (42, "why"));
    node.until_pod("all", "Running ready=True a=running+1 b=running+1")
        .await;

    // It ignores SIGTERM, and is killed when its grace period is over.
    let pod = node
        .until_pod("late", "Failed ready=False c=Error(137)")
        .await;
    let status = &pod["status"];
    assert_eq!(status["reason"].str(), "DeadlineExceeded");
    let end = &status["containerStatuses"][0]["state"]["terminated"]["finishedAt"];
    let second = |text: &Value| time::to_unix(text.str()).unwrap();
    let lived = second(end) - second(&status["startTime"]);
    assert!((6..25).contains(&lived), "{lived}");
    assert_eq!(node.log("late", "").await, "TERM\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_of_one_address_and_an_image_is_pulled_each_time() {
    let Some(node) = RealNode::start("real-addresses", 157).await else {
        return;
    };
    let server = container(
        "command: [httpd, -f, -p, '80', -h, /tmp], ports: [{containerPort: 80, hostPort: 38121, hostIP: 127.0.0.1}]",
    );
    node.run("web", &server).await;
    let image = "127.0.0.1:1/here:1";
    node.containerd.import(&[image]);
    for policy in ["IfNotPresent", "Always"] {
        let name = policy.to_ascii_lowercase();
        let spec =
            format!("containers: [{{name: c, image: '{image}', imagePullPolicy: {policy}}}]");
        node.run(&name, &spec).await;
    }
    node.until_pod("web", "ready=True c=running").await;
    let connect = async |address: &str| TcpStream::connect((address, 38121)).await.is_ok();
    node.until("the port is open", async |_| connect("127.0.0.1").await)
        .await;
    // Another address of the machine, and that of the bridge.
    for address in ["127.0.0.2", "10.213.157.1"] {
        assert!(!connect(address).await, "{address}");
    }

    // The image is on the node, but nothing listens at the port of its registry.
    node.until_pod("ifnotpresent", "ready=True c=running").await;
    node.until_pod("always", "c=ErrImagePull").await;
    let events = events_of(&node.cluster, "always").await;
    let pulling = format!("Normal Pulling spec.containers{{c}} Pulling image {image:?}");
    assert!(
        events.iter().any(|event| event.starts_with(&pulling)),
        "{events:#?}"
    );
}
