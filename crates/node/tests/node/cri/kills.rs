//! The agent is killed while pods start, run and stop. No container is lost, none is doubled, and every pod ends as its
//! specification says.
//!
//! An agent has a runtime of tokio of its own, and its end is that of the runtime: all its tasks end where they wait, in
//! the middle of their calls. `MIZZEN_AGENT_KILLS` sets the number of kills.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mizzen_node::Options;
use mizzen_sdk::resource::PODS;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::RealNode;
use crate::containerd::BUSYBOX;
use crate::fixtures::{delete_pod, get_pod, show};

/// The number of kills without the variable.
const KILLS: usize = 2;
/// The most batches of pods.
const BATCHES: usize = 20;
/// The longest life of an agent, in milliseconds.
const LONGEST: u64 = 2500;

/// Numbers that look random, and repeat with their seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// An agent that can be killed.
pub(super) struct Agent(Runtime);

impl Agent {
    pub(super) fn start(node: &RealNode) -> Agent {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (client, name) = (node.cluster.client(), node.name);
        let cri = node.cri_options();
        runtime.spawn(async move {
            let cri = mizzen_node::cri::CriRuntime::connect(cri).await.unwrap();
            mizzen_node::run(Options::cri(client, name, cri)).await;
        });
        Agent(runtime)
    }

    pub(super) async fn kill(self) {
        let ending = move || self.0.shutdown_timeout(Duration::from_secs(10));
        tokio::task::spawn_blocking(ending).await.unwrap();
    }
}

/// The pods of one batch. Each appends lines to a file of its name, so that what ran twice is seen.
struct Batch {
    out: PathBuf,
    n: usize,
}

impl Batch {
    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.n)
    }

    fn lines(&self, kind: &str) -> String {
        let text = fs::read_to_string(self.out.join(self.name(kind))).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    async fn create(&self, node: &RealNode) {
        let one = |name: &str, script: &str| {
            format!(
                "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, '{script}'], \
                 volumeMounts: [{{name: out, mountPath: /out}}]}}"
            )
        };
        let volume = format!(
            "terminationGracePeriodSeconds: 20, volumes: [{{name: out, hostPath: {{path: '{}'}}}}]",
            self.out.display()
        );
        let file = |kind: &str| format!("/out/{}", self.name(kind));
        let (job, retry, init, stop) = (file("job"), file("retry"), file("init"), file("stop"));
        let job = one("c", &format!("echo job >> {job}; sleep 1"));
        let again = format!("echo run >> {retry}; sleep 0.3; test $(wc -l < {retry}) = 2");
        let retry = one("c", &again);
        let first = one("first", &format!("echo first >> {init}; sleep 0.3"));
        let last = one("c", &format!("echo last >> {init}"));
        let stop = one(
            "c",
            &format!(
                "trap \"echo stopped >> {stop}; exit 0\" TERM; echo started >> {stop}; while true; do sleep 0.1; done"
            ),
        );
        for (kind, spec) in [
            ("job", format!("restartPolicy: Never, containers: [{job}]")),
            (
                "retry",
                format!("restartPolicy: OnFailure, containers: [{retry}]"),
            ),
            (
                "init",
                format!("restartPolicy: Never, initContainers: [{first}], containers: [{last}]"),
            ),
            ("stop", format!("containers: [{stop}]")),
        ] {
            // Half of them have addresses of their own.
            let host_network = matches!(kind, "retry" | "init");
            let spec = format!("{spec}, hostNetwork: {host_network}, {volume}");
            node.run(&self.name(kind), &spec).await;
        }
    }

    /// Deletes the pod that never ends by itself.
    async fn stop(&self, node: &RealNode) {
        delete_pod(&node.cluster, &self.name("stop"), None).await;
    }

    /// Checks the ends of the pods. No start is interrupted: the runtime finishes it without the agent.
    async fn check(&self, node: &RealNode) {
        for (kind, lines, state) in [
            ("job", "job", "Succeeded ready=False c=Completed(0)"),
            (
                "init",
                "first last",
                "Succeeded ready=False first=Completed(0) c=Completed(0)",
            ),
        ] {
            let name = self.name(kind);
            node.until(&format!("{name} has ended"), async |node| {
                let pod = show(&get_pod(&node.cluster, &name).await);
                pod.starts_with("Succeeded") || pod.starts_with("Failed")
            })
            .await;
            let pod = show(&get_pod(&node.cluster, &name).await);
            assert_eq!(
                (pod.as_str(), self.lines(kind).as_str()),
                (state, lines),
                "{name}"
            );
        }
        let pod = node.until_pod(&self.name("retry"), "Succeeded").await;
        assert_eq!(self.lines("retry"), "run run", "{}", show(&pod));
        node.until("the stopped pod is gone", async |node| {
            let key = format!("default/{}", self.name("stop"));
            node.cluster.find_object(&PODS, &key).await.is_none()
        })
        .await;
        let stopped = self.lines("stop");
        assert!(stopped.matches("stopped").count() <= 1, "{stopped}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_loses_and_doubles_no_container() {
    let Some(node) = RealNode::start("real-kills", 26).await else {
        return;
    };
    let spec = super::container("command: [sleep, '100000']");
    node.run("stays", &format!("hostNetwork: true, {spec}"))
        .await;
    node.until_pod("stays", "ready=True c=running").await;
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    let n_kills = std::env::var("MIZZEN_AGENT_KILLS");
    let n_kills: usize = n_kills.map_or(KILLS, |text| text.parse().unwrap());
    let seed = mizzen_sdk::clock::wall_clock()().as_nanosecond();
    println!("seed {seed}");
    let mut dice = Dice(seed as u64);
    let out = node.containerd.path("out");
    fs::create_dir(&out).unwrap();

    let every = n_kills.div_ceil(BATCHES).max(1);
    let mut batches: Vec<Batch> = Vec::new();
    for kill in 0..n_kills {
        let agent = Agent::start(&node);
        if kill % every == 0 {
            if let Some(last) = batches.last() {
                last.stop(&node).await;
            }
            let batch = Batch {
                out: out.clone(),
                n: batches.len(),
            };
            batch.create(&node).await;
            batches.push(batch);
        }
        sleep(Duration::from_millis(dice.below(LONGEST))).await;
        agent.kill().await;
    }
    let agent = Agent::start(&node);
    let last = batches.last().unwrap();
    node.until_pod(&last.name("stop"), "c=running").await;
    last.stop(&node).await;
    for batch in &batches {
        batch.check(&node).await;
    }
    let stays = node.until_pod("stays", "ready=True c=running").await;
    assert_eq!(show(&stays), show(&get_pod(&node.cluster, "stays").await));
    assert!(!show(&stays).contains('+'), "{}", show(&stays));
    // Per batch three sandboxes are left, and with the dead instance of the retried one up to five containers.
    let n = batches.len();
    node.until("nothing else is left", async |node| {
        let (n_sandboxes, n_containers) = node.count().await;
        n_sandboxes == 3 * n + 1 && n_containers <= 5 * n + 1
    })
    .await;
    println!("{n_kills} kills of the agent, {} pods", 4 * n + 1);
    agent.kill().await;
}
