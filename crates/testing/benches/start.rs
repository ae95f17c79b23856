//! A control plane in a test. Claims: all loops and a node start in under 10 ms; from nothing to the status of a custom
//! object that a controller has written takes under 30 ms; a hundred clusters run in parallel in under 2 s and 1 GB; a year
//! of a CronJob passes in about a second; a fork does not copy objects.
//!
//! A table of medians and not divan's: the first start in a process and the memory of a hundred clusters are measured once.

#![expect(
    clippy::disallowed_methods,
    reason = "real time is what is measured here"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, GroupVersionKind};
use kube::core::ApiResource;
use kube::{Api, Client, CustomResource, CustomResourceExt as _, ResourceExt as _};
use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
use mizzen_sdk::write;
use mizzen_testing::{Builder, Cluster, Explore};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

const N_RUNS: usize = 60;

fn main() {
    // `cargo test --benches` runs this, too; it has nothing to check.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let first = time(|| drop(run(start)));
    println!(
        "{:<64} {:>8.1} ms",
        "the first start in a process",
        millis(first)
    );
    report("API server alone", || run(start_bare));
    report("start: all loops, scheduler and a node", || run(start));
    report("start, definition, object, reconcile, status seen", || {
        run(reconcile_once)
    });
    report("a Deployment of 3 pods, start to settled", || run(deploy));
    report_fork(0);
    report_fork(10_000);
    let year = time(|| drop(run(cron_job_year)));
    println!(
        "{:<64} {:>8.1} ms",
        "a year of a daily CronJob, its controller alone",
        millis(year)
    );
    report_parallel("a reconciled custom object", reconcile_once);
    report_parallel("3 running pods", deploy);
    report_exploration(100);
}

fn time(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs a test on virtual time. What it returns is dropped within the runtime, and is not timed.
fn run<T>(test: impl AsyncFnOnce() -> T) -> (T, Runtime) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_all()
        .build()
        .expect("a runtime can be started");
    (runtime.block_on(test()), runtime)
}

/// Prints the median and the 95th percentile.
fn report<T>(what: &str, mut work: impl FnMut() -> (T, Runtime)) {
    let mut times: Vec<Duration> = (0..N_RUNS)
        .map(|_| {
            let began = Instant::now();
            let (cluster, runtime) = work();
            let time = began.elapsed();
            runtime.block_on(async { drop(cluster) });
            time
        })
        .collect();
    times.sort();
    let (p50, p95) = (times[N_RUNS / 2], times[N_RUNS * 95 / 100]);
    println!(
        "{what:<64} {:>8.1} ms   p95 {:.1} ms",
        millis(p50),
        millis(p95)
    );
}

async fn start() -> Cluster {
    Cluster::start().await
}

fn bare() -> Builder {
    Cluster::builder()
        .controllers([""; 0])
        .scheduler(false)
        .nodes(0)
}

async fn start_bare() -> Cluster {
    bare().start().await
}

/// A greeting, to which the controller replies in its status.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    derive = "PartialEq"
)]
struct GreetingSpec {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct GreetingStatus {
    text: String,
}

async fn greet(greeting: Arc<Greeting>, context: Context) -> Result<Action, Error> {
    let text = format!("hello {}", greeting.spec.name);
    if greeting
        .status
        .as_ref()
        .is_none_or(|status| status.text != text)
    {
        let greetings: Api<Greeting> = Api::default_namespaced(context.client());
        let status = Some(GreetingStatus { text });
        let write = |greeting: &mut Greeting| greeting.status = status.clone();
        write::update_status(&greetings, &greeting.name_any(), write).await?;
    }
    Ok(Action::done())
}

async fn reconcile_once() -> Cluster {
    let cluster = Cluster::start().await;
    let definition = serde_json::to_string(&Greeting::crd()).expect("a definition is JSON");
    cluster.apply(&definition).await;
    cluster.run("greeter", |client: Client| {
        let context = Context::new(client).named("greeter");
        let controller = Controller::for_kind(&context, typed::<Greeting>());
        controller
            .reconcile_objects(greet)
            .run(std::future::pending())
    });
    cluster
        .apply("{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hello}, spec: {name: world}}")
        .await;
    let is_greeted = |greeting: &Greeting| greeting.status.is_some();
    cluster.until_object("hello", is_greeted).await;
    cluster
}

const WEB: &str = include_str!("../tests/testing/web.yaml");

async fn deploy() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.apply(WEB).await;
    cluster.settle().await;
    cluster
}

fn report_fork(n_objects: usize) {
    let (cluster, runtime) = run(async || {
        let cluster = bare().start().await;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let configs: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
        for n in 0..n_objects {
            let config = DynamicObject::new(&format!("config-{n}"), &kind);
            let created = configs.create(&Default::default(), &config).await;
            created.expect("a ConfigMap can be created");
        }
        cluster
    });
    let mut times: Vec<Duration> = (0..N_RUNS)
        .map(|_| {
            runtime.block_on(async {
                let began = Instant::now();
                let fork = cluster.fork().await;
                let time = began.elapsed();
                drop(fork);
                time
            })
        })
        .collect();
    times.sort();
    let what = format!("fork of an API server with {n_objects} ConfigMaps");
    println!("{what:<64} {:>8.1} ms", millis(times[N_RUNS / 2]));
    runtime.block_on(async { drop(cluster) });
}

async fn cron_job_year() -> Cluster {
    let builder = Cluster::builder().controllers(["cronjob-controller"]);
    let cluster = builder.scheduler(false).nodes(0).start().await;
    let daily = "{apiVersion: batch/v1, kind: CronJob, metadata: {name: daily}, spec: {schedule: '@daily', \
        concurrencyPolicy: Replace, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, \
        containers: [{name: c, image: i}]}}}}}}";
    cluster.apply(daily).await;
    cluster.advance(Duration::from_secs(365 * 24 * 3600)).await;
    let steps = cluster.steps();
    let jobs = steps.iter().filter(|step| step.object.starts_with("jobs/"));
    assert_eq!(jobs.filter(|step| step.what == "created").count(), 365);
    cluster
}

/// A hundred clusters that exist at the same time, on a thread per core.
fn report_parallel(what: &str, scenario: impl AsyncFn() -> Cluster + Sync) {
    const N_CLUSTERS: usize = 100;
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let before = resident_megabytes();
    let barrier = std::sync::Barrier::new(n_threads + 1);
    let mut resident = 0;
    let took = std::thread::scope(|scope| {
        let began = Instant::now();
        for idx in 0..n_threads {
            let (barrier, scenario) = (&barrier, &scenario);
            scope.spawn(move || {
                let n_own = (idx..N_CLUSTERS).step_by(n_threads).count();
                let (clusters, runtime) = run(async || {
                    let mut clusters = Vec::new();
                    for _ in 0..n_own {
                        clusters.push(scenario().await);
                    }
                    clusters
                });
                barrier.wait();
                barrier.wait();
                runtime.block_on(async { drop(clusters) });
            });
        }
        barrier.wait();
        let took = began.elapsed();
        resident = resident_megabytes();
        barrier.wait();
        took
    });
    let what = format!("{N_CLUSTERS} clusters at once, each with {what}");
    println!(
        "{what:<64} {:>8.1} ms   {resident} MB resident, {before} MB before",
        millis(took)
    );
}

/// VmRSS of this process; 0 where there is no procfs.
fn resident_megabytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// A rollout of a Deployment with faults.
fn report_exploration(n_seeds: u64) {
    let took = time(|| {
        let explore = Explore::new(Cluster::builder().nodes(2)).seeds(0..n_seeds);
        explore.run(async |cluster: &Cluster| {
            cluster.apply(WEB).await;
            // Without the first rollout the end has one ReplicaSet less.
            let rolled_out = async || {
                let path = "/apis/apps/v1/namespaces/default/deployments/web";
                let (_, web) = cluster.server().ask("GET", path, None).await;
                web["status"]["readyReplicas"].int() == 3
            };
            cluster
                .until("the Deployment is rolled out", rolled_out)
                .await;
            cluster.apply(&WEB.replace("web:1", "web:2")).await;
            cluster.advance(Duration::from_secs(15)).await;
        });
    });
    let what = format!("exploration of a rollout, {n_seeds} seeds");
    println!("{what:<64} {:>8.1} ms", millis(took));
}
