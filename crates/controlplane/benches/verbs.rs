//! Each verb in process: everything between connection and store. Claim: the cost of a write is that of one scan, one
//! canonical form and one encoding of its object.
//!
//! `cargo bench -p mizzen-controlplane --bench verbs` prints the least of many rounds of each verb in nanoseconds: for an
//! administrator, and for a service account with RBAC, flow control and an audit log. With the name of a verb and a
//! number it only executes that many requests, so that instructions can be counted:
//! `valgrind --tool=callgrind target/release/deps/verbs-… create 1000`.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Options, Server, User};
use mizzen_audit::{
    AuditLogFormat, AuditOptions, AuditPolicy, BatchOptions, Delivery, DeliveryMode, LogFile,
};
use mizzen_registry::{Registry, Store};
use mizzen_value::{Value, json, yaml};

const FLOW: &str = include_str!("../../bootstrap/data/flow.yaml");
const VERBS: [&str; 7] = [
    "create",
    "get",
    "update",
    "merge-patch",
    "strategic-patch",
    "apply",
    "delete",
];
const ROUNDS: usize = 300;
const REQUESTS: usize = 10;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let given: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    runtime.block_on(async {
        if let [verb, n] = &given[..] {
            let n = n.parse().expect("a number of requests");
            let mut client = BenchClient::new(User::master("admin"), None).await;
            client.prepare(verb, n).await;
            return client.run(verb, n).await;
        }
        let account = User::service_account("default", "robot");
        let audit = audit_options(directory.path());
        let mut plain = BenchClient::new(User::master("admin"), None).await;
        let mut audited = BenchClient::new(account, Some(audit)).await;
        println!("{:<16} {:>10} {:>16}", "", "admin", "service account");
        for verb in VERBS {
            let (one, other) = (plain.least(verb).await, audited.least(verb).await);
            println!("{verb:<16} {one:>7} ns {other:>13} ns");
        }
    });
}

/// Metadata to a file, as a production cluster has it.
fn audit_options(directory: &Path) -> AuditOptions {
    let text = "kind: Policy\napiVersion: audit.k8s.io/v1\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let batch = BatchOptions {
        buffer: 10_000,
        size: 1,
        wait: Duration::from_secs(30),
        throttle: None,
    };
    let log = LogFile {
        path: directory.join("audit.log"),
        format: AuditLogFormat::Json,
        max_age: 0,
        max_backups: 1,
        max_size: 100,
        compress: false,
        delivery: Delivery {
            mode: DeliveryMode::Blocking,
            batch,
            truncation: None,
        },
    };
    AuditOptions {
        policy: AuditPolicy::read(text.as_bytes()).expect("a valid policy"),
        log: Some(log),
        webhook: None,
    }
}

/// A user of a server in the same process.
struct BenchClient {
    server: Server,
    user: User,
    /// How many objects were created.
    n_created: usize,
    /// How many of them were deleted.
    n_deleted: usize,
    /// A different number for each change.
    turn: usize,
}

impl BenchClient {
    async fn new(user: User, audit: Option<AuditOptions>) -> BenchClient {
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            Arc::new(WallClock),
            Arc::new(SystemRandom),
        );
        let options = Options {
            audit,
            ..Options::default()
        };
        let server = mizzen_controlplane::server(registry, options);
        server.start().await;
        let mut client = BenchClient {
            server,
            user: User::master("admin"),
            n_created: 0,
            n_deleted: 0,
            turn: 0,
        };
        client.bootstrap().await;
        client.user = user;
        client
    }

    /// Flow schemas, a namespace, and a role for service accounts.
    async fn bootstrap(&mut self) {
        let data = yaml::read(FLOW.as_bytes()).expect("valid YAML").value;
        for plural in ["prioritylevelconfigurations", "flowschemas"] {
            for (name, spec) in data[plural].entries() {
                let mut object = Value::object();
                object.entry("metadata").set("name", name);
                object.set("spec", spec.clone());
                let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}");
                self.post(&path, json::to_string(&object)).await;
            }
        }
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.post(
            "/api/v1/namespaces",
            r#"{"metadata":{"name":"default"}}"#.into(),
        )
        .await;
        self.post(
            &format!("{rbac}/clusterroles"),
            r#"{"metadata":{"name":"writer"},"rules":[
                {"verbs":["get"],"apiGroups":[""],"resources":["pods"]},
                {"verbs":["*"],"apiGroups":["","apps"],"resources":["configmaps","deployments"]}]}"#
                .into(),
        )
        .await;
        self.post(
            &format!("{rbac}/clusterrolebindings"),
            r#"{"metadata":{"name":"writer"},
                "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"writer"},
                "subjects":[{"kind":"ServiceAccount","namespace":"default","name":"robot"}]}"#
                .into(),
        )
        .await;
        self.apply().await;
    }

    /// The nanoseconds of a request in the best round.
    async fn least(&mut self, verb: &str) -> u128 {
        let mut least = u128::MAX;
        for _ in 0..ROUNDS {
            self.prepare(verb, REQUESTS).await;
            let began = Instant::now();
            self.run(verb, REQUESTS).await;
            least = least.min(began.elapsed().as_nanos() / REQUESTS as u128);
        }
        least
    }

    /// Creates what a verb needs.
    async fn prepare(&mut self, verb: &str, n: usize) {
        let wanted = match verb {
            "create" => 0,
            "delete" => n,
            _ => 1,
        };
        while self.n_created - self.n_deleted < wanted {
            self.create().await;
        }
    }

    async fn run(&mut self, verb: &str, n: usize) {
        for _ in 0..n {
            self.turn += 1;
            match verb {
                "create" => self.create().await,
                "get" => drop(self.get().await),
                "update" => self.update().await,
                "merge-patch" => self.patch("application/merge-patch+json").await,
                "strategic-patch" => self.patch("application/strategic-merge-patch+json").await,
                "apply" => self.apply().await,
                "delete" => self.delete().await,
                other => panic!("no verb {other}"),
            }
        }
    }

    async fn create(&mut self) {
        let n = self.n_created;
        self.n_created += 1;
        let data = "cache.timeout.server=5f3a9c\npool.retry.limit=77aa01\n".repeat(20);
        let object = json::to_string(&mizzen_value::value!({
            "apiVersion": "v1",
            "data": { "application.properties": data, "turn": "00000000" },
            "kind": "ConfigMap",
            "metadata": {
                "labels": { "bench": "bench-1", "group": "g07" },
                "name": (format!("item-{n:07}"))
            }
        }));
        self.post(CONFIG_MAPS, object).await;
    }

    async fn get(&self) -> Bytes {
        self.call(Method::GET, &self.item(), "", Bytes::new(), 200)
            .await
    }

    /// GET and PUT.
    async fn update(&self) {
        let mut object = self.get().await.to_vec();
        let key = b"\"turn\":\"";
        let at = object
            .windows(key.len())
            .position(|window| window == key)
            .expect("a turn")
            + key.len();
        object[at..at + 8].copy_from_slice(format!("{:08}", self.turn).as_bytes());
        self.call(
            Method::PUT,
            &self.item(),
            "application/json",
            object.into(),
            200,
        )
        .await;
    }

    async fn patch(&self, media_type: &'static str) {
        let patch = format!(r#"{{"data":{{"turn":"{:08}"}}}}"#, self.turn);
        self.call(Method::PATCH, &self.item(), media_type, patch.into(), 200)
            .await;
    }

    /// Server-side apply of a Deployment.
    async fn apply(&self) {
        let turn = format!("{:08}", self.turn);
        let object = include_str!("deployment.json").replace("00000000", &turn);
        let path = format!("{DEPLOYMENTS}/web?fieldManager=bench");
        let code = if self.turn == 0 { 201 } else { 200 };
        self.call(
            Method::PATCH,
            &path,
            "application/apply-patch+yaml",
            object.into(),
            code,
        )
        .await;
    }

    async fn delete(&mut self) {
        let path = self.item();
        self.call(Method::DELETE, &path, "", Bytes::new(), 200)
            .await;
        self.n_deleted += 1;
    }

    /// The path of the oldest object.
    fn item(&self) -> String {
        format!("{CONFIG_MAPS}/item-{:07}", self.n_deleted)
    }

    async fn post(&self, path: &str, body: String) {
        self.call(Method::POST, path, "application/json", body.into(), 201)
            .await;
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        media_type: &'static str,
        body: Bytes,
        code: u16,
    ) -> Bytes {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("bench"));
        if !media_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let uri = path.parse().expect("a path");
        let user = Some(self.user.clone());
        let answer = self.server.call(user, method, uri, headers, body).await;
        let status = answer.status();
        let text = answer.into_body().collect().await.expect("a whole body");
        let text = text.to_bytes();
        assert_eq!(status, code, "{path}: {}", String::from_utf8_lossy(&text));
        text
    }
}
