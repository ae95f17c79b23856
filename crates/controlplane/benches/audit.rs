//! A GET in process, remembered and not. Claim: without a policy it costs nothing, and at the level Metadata what a line
//! costs that is written.
//!
//! The least of many rounds counts: on a busy machine that is what the work costs, and the rest is waiting.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::{Options, Server, User};
use mizzen_audit::{
    AuditLogFormat, AuditOptions, AuditPolicy, BatchOptions, Delivery, DeliveryMode, LogFile,
};
use mizzen_registry::{Registry, Store};

const ROUNDS: usize = 200;
const REQUESTS: u32 = 500;
const PATH: &str = "/version";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    runtime.block_on(async {
        let one = "{level: Metadata, omitStages: [RequestReceived]}";
        let cases = [
            ("no policy", None),
            ("a policy that remembers nothing", Some("{level: None}")),
            ("one event, to a file", Some(one)),
            ("two events, to a file", Some("{level: Metadata}")),
        ];
        for (what, rules) in cases {
            let server = server(rules.map(|rules| setup(rules, directory.path()))).await;
            println!("{what:<40} {:>6} ns", least(&server).await);
        }
    });
}

fn setup(rules: &str, directory: &Path) -> AuditOptions {
    let text = format!("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{rules}]");
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
        policy: AuditPolicy::read(text.as_bytes()).expect("a sound policy"),
        log: Some(log),
        webhook: None,
    }
}

async fn server(audit: Option<AuditOptions>) -> Server {
    let store = Store::in_memory(Default::default());
    let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
    let server = mizzen_controlplane::server(
        registry,
        Options {
            audit,
            ..Options::default()
        },
    );
    server.start().await;
    server
}

/// What a request costs in the best round, in nanoseconds.
async fn least(server: &Server) -> u128 {
    let mut least = u128::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..REQUESTS {
            let user = Some(User::master("admin"));
            let uri = Uri::from_static(PATH);
            let answer = server
                .call(user, Method::GET, uri, HeaderMap::new(), Bytes::new())
                .await;
            assert_eq!(answer.status(), 200);
        }
        least = least.min(began.elapsed().as_nanos() / u128::from(REQUESTS));
    }
    least
}
