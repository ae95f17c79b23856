//! Exploration: does a scenario end the same, whatever faults occur?

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::builder::Builder;
use crate::diff::line_diff;
use crate::faults::{FaultRates, FaultSource, Injection};
use crate::steps::Step;
use crate::{Cluster, picture};

/// How long a cluster may take to converge after the faults.
const REST: Duration = Duration::from_secs(900);
/// How long the state must stay as it was without faults.
const LOOK: Duration = Duration::from_secs(60);
/// How many runs may be spent on shrinking a schedule.
const MAX_SHRINK_RUNS: usize = 60;
/// How many lines a story has, at most.
const MAX_STORY: usize = 200;
/// How many of them come before the first fault.
const MAX_PROLOGUE: usize = 20;
/// The stack of a thread, for deeply nested futures of debug builds.
const STACK: usize = 16 * 1024 * 1024;

/// Plays a scenario once without faults, and then with different faults for every seed. When the faults are over, watches
/// that could lose events end with 410, and nothing is restarted. When the cluster has come to rest, its state must be that
/// of the first run.
///
/// A failing schedule is shrunk: faults are left out as long as the scenario still fails. What remains is printed as a story,
/// with the seed that plays it again.
///
/// `MIZZEN_SEED=17` plays one seed; `MIZZEN_SEEDS=1000` that many.
///
/// ```
/// use std::time::Duration;
/// use mizzen_testing::{Cluster, Explore};
///
/// # const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
/// # let n_seeds = 2;
/// Explore::new(Cluster::builder().nodes(2)).seeds(0..n_seeds).run(async |cluster: &Cluster| {
///     cluster.apply(POD).await;
///     cluster.advance(Duration::from_secs(15)).await;
/// });
/// ```
#[derive(Clone)]
pub struct Explore {
    builder: Builder,
    seeds: Range<u64>,
    rates: FaultRates,
    n_threads: usize,
}

/// What was explored.
///
/// ```
/// use mizzen_testing::{Cluster, Explore, FaultRates};
///
/// let bare = Cluster::builder().controllers([""; 0]).scheduler(false).nodes(0);
/// let explored = Explore::new(bare).seeds(0..3).faults(FaultRates::none()).run(async |_: &Cluster| {});
/// assert_eq!((explored.n_seeds, explored.n_faults), (3, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// The number of seeds.
    pub n_seeds: u64,
    /// The number of faults that were injected.
    pub n_faults: u64,
}

/// A schedule that fails.
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, Client};
/// use mizzen_testing::{Cluster, Explore, Fault, FaultRates};
///
/// /// Writes once and never again.
/// async fn hasty(client: Client) {
///     let configs: Api<ConfigMap> = Api::default_namespaced(client);
///     let config = serde_json::from_str(r#"{"metadata":{"name":"hello"}}"#).unwrap();
///     let _ = configs.create(&Default::default(), &config).await;
/// }
///
/// let bare = Cluster::builder().controllers([""; 0]).scheduler(false).nodes(0);
/// let rates = FaultRates { unavailable: 50, ..FaultRates::none() };
/// let found = Explore::new(bare).faults(rates).check(async |cluster: &Cluster| {
///     cluster.run("hasty", hasty);
///     cluster.advance(Duration::from_secs(1)).await;
/// });
/// let finding = found.unwrap_err();
/// assert_eq!(finding.faults[0].fault, Fault::Unavailable);
/// assert!(finding.story().contains("hasty: POST configmaps #1 gets 503, not applied"));
/// ```
#[derive(Debug, Clone)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// How many faults the seed injects.
    pub n_faults: usize,
    /// The faults that are enough to fail.
    pub faults: Vec<Injection>,
    /// How the end differs, or how the scenario panicked.
    pub difference: String,
    /// Who did what.
    pub steps: Vec<Step>,
}

/// The end of one run.
struct Played {
    /// The state; or the message of a panic.
    end: Result<String, String>,
    injected: Vec<Injection>,
    steps: Vec<Step>,
}

thread_local! {
    /// Whether clusters of this thread are silent when the scenario panics: the story has their steps.
    static IS_EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread explores.
pub(crate) fn is_exploring() -> bool {
    IS_EXPLORING.get()
}

impl Explore {
    /// Explores with clusters that are set up like this: 20 seeds, the default faults, all cores.
    ///
    /// ```
    /// use mizzen_testing::{Cluster, Explore};
    ///
    /// let explore = Explore::new(Cluster::builder().controllers(["job-controller"]));
    /// # drop(explore);
    /// ```
    pub fn new(builder: Builder) -> Explore {
        Explore {
            builder,
            seeds: 0..20,
            rates: FaultRates::default(),
            n_threads: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The seeds.
    ///
    /// ```
    /// use mizzen_testing::{Cluster, Explore};
    ///
    /// let explore = Explore::new(Cluster::builder()).seeds(100..200);
    /// # drop(explore);
    /// ```
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Explore {
        self.seeds = seeds;
        self
    }

    /// How often faults occur.
    ///
    /// ```
    /// use mizzen_testing::{Cluster, Explore, FaultRates};
    ///
    /// let explore = Explore::new(Cluster::builder()).faults(FaultRates { kill: 20, ..FaultRates::none() });
    /// # drop(explore);
    /// ```
    #[must_use]
    pub fn faults(mut self, rates: FaultRates) -> Explore {
        self.rates = rates;
        self
    }

    /// The number of threads.
    ///
    /// ```
    /// use mizzen_testing::{Cluster, Explore};
    ///
    /// let explore = Explore::new(Cluster::builder()).threads(1);
    /// # drop(explore);
    /// ```
    #[must_use]
    pub fn threads(mut self, n: usize) -> Explore {
        self.n_threads = n.max(1);
        self
    }

    /// Plays the scenario with every seed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mizzen_testing::{Cluster, Explore};
    ///
    /// # const JOB: &str = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: j, image: i}]}}}}";
    /// let explored = Explore::new(Cluster::builder()).seeds(0..2).run(async |cluster: &Cluster| {
    ///     cluster.apply(JOB).await;
    ///     cluster.advance(Duration::from_secs(10)).await;
    /// });
    /// assert_eq!(explored.n_seeds, 2);
    /// ```
    ///
    /// # Panics
    /// If the end of a run differs, or the scenario panics, with the story.
    pub fn run(self, scenario: impl AsyncFn(&Cluster) + Sync) -> Explored {
        match self.check(scenario) {
            Ok(explored) => explored,
            Err(finding) => panic!("{}", finding.story()),
        }
    }

    /// Plays the scenario until a seed fails, and returns the smallest one that does.
    ///
    /// ```
    /// use mizzen_testing::{Cluster, Explore, FaultRates};
    ///
    /// let bare = Cluster::builder().controllers([""; 0]).scheduler(false).nodes(0);
    /// let found = Explore::new(bare).seeds(0..2).check(async |cluster: &Cluster| {
    ///     cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
    /// });
    /// assert!(found.is_ok());
    /// ```
    ///
    /// # Panics
    /// If the scenario panics without faults.
    pub fn check(mut self, scenario: impl AsyncFn(&Cluster) + Sync) -> Result<Explored, Finding> {
        let from_env = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        if let Some(seed) = from_env("MIZZEN_SEED") {
            self.seeds = seed..seed + 1;
        } else if let Some(n) = from_env("MIZZEN_SEEDS") {
            self.seeds = self.seeds.start..self.seeds.start + n;
        }
        let peace = self.on_thread(|| self.play(&scenario, 0, None));
        let expected = match peace.end {
            Ok(state) => state,
            Err(message) => panic!("the scenario fails without faults: {message}"),
        };
        let (next, n_faults) = (AtomicU64::new(self.seeds.start), AtomicU64::new(0));
        let failed: Mutex<Option<(u64, Played)>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..self.n_threads {
                let work = || {
                    IS_EXPLORING.set(true);
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        // The smallest seed that fails is found, however many threads there are.
                        let is_smallest = |failed: &Option<(u64, Played)>| {
                            failed.as_ref().is_none_or(|(one, _)| seed < *one)
                        };
                        if seed >= self.seeds.end || !is_smallest(&failed.lock()) {
                            return;
                        }
                        let rates = self.rates;
                        let source = FaultSource::Random { seed, rates };
                        let played = self.play(&scenario, seed, Some((source, &expected)));
                        n_faults.fetch_add(played.injected.len() as u64, Ordering::Relaxed);
                        let mut failed = failed.lock();
                        if !played.ends_as(&expected) && is_smallest(&failed) {
                            *failed = Some((seed, played));
                        }
                    }
                };
                let spawned = thread::Builder::new()
                    .stack_size(STACK)
                    .spawn_scoped(scope, work);
                spawned.expect("a thread can be started");
            }
        });
        match failed.into_inner() {
            None => Ok(Explored {
                n_seeds: self.seeds.end - self.seeds.start,
                n_faults: n_faults.into_inner(),
            }),
            Some((seed, played)) => {
                Err(self.on_thread(|| self.shrink(&scenario, seed, played, &expected)))
            }
        }
    }

    /// Plays a scenario that has a bug: a seed must fail, and its [story](Finding::story) must name the steps at which the
    /// controller goes wrong. For tests of scenarios: one that finds no planted bug proves nothing.
    ///
    /// A step is found in a line of the story that has all its words, in their order; a word may be a part of a longer one,
    /// as `web-` is of a generated name. The steps are found in the order of `steps`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, Client};
    /// use mizzen_testing::{Cluster, Explore};
    ///
    /// /// Creates two objects. Started again, it ends at the first one, which exists.
    /// async fn forgetful(client: Client) {
    ///     let configs: Api<ConfigMap> = Api::default_namespaced(client);
    ///     for name in ["first", "second"] {
    ///         let config = serde_json::from_str(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).unwrap();
    ///         if configs.create(&Default::default(), &config).await.is_err() {
    ///             return;
    ///         }
    ///     }
    /// }
    ///
    /// let bare = Cluster::builder().server_only();
    /// let finding = Explore::new(bare).seeds(0..100).expect_finding(
    ///     async |cluster: &Cluster| {
    ///         cluster.run("forgetful", forgetful);
    ///         cluster.advance(Duration::from_secs(1)).await;
    ///     },
    ///     &["- ConfigMap default/second", "forgetful FAULT POST configmaps"],
    /// );
    /// assert_eq!(finding.faults.len(), 1);
    /// ```
    ///
    /// # Panics
    /// If no seed fails, and if the story lacks a step.
    #[track_caller]
    pub fn expect_finding(
        self,
        scenario: impl AsyncFn(&Cluster) + Sync,
        steps: &[&str],
    ) -> Finding {
        let finding = match self.check(scenario) {
            Err(finding) => finding,
            Ok(Explored { n_seeds, n_faults }) => panic!(
                "no bug was found: with {n_seeds} seeds and {n_faults} faults the scenario ended as without faults"
            ),
        };
        let story = finding.story();
        let mut lines = story.lines();
        for (idx, step) in steps.iter().enumerate() {
            let is_named = lines.any(|line| {
                let mut rest = line;
                step.split_whitespace().all(|word| match rest.find(word) {
                    Some(at) => {
                        rest = &rest[at + word.len()..];
                        true
                    }
                    None => false,
                })
            });
            let before = match idx {
                0 => String::new(),
                idx => format!(" after {:?}", steps[idx - 1]),
            };
            assert!(
                is_named,
                "the story does not name {step:?}{before}:\n{story}"
            );
        }
        finding
    }

    /// Runs on a thread with a large stack, and returns what it returns.
    fn on_thread<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let work = || {
                IS_EXPLORING.set(true);
                work()
            };
            let spawned = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, work);
            let joined = spawned.expect("a thread can be started").join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Leaves out faults as long as the scenario fails.
    fn shrink(
        &self,
        scenario: &impl AsyncFn(&Cluster),
        seed: u64,
        first: Played,
        expected: &str,
    ) -> Finding {
        let n_faults = first.injected.len();
        let replay = |faults: &[Injection]| {
            let source = FaultSource::planned(faults.iter().cloned());
            let played = self.play(scenario, seed, Some((source, expected)));
            (!played.ends_as(expected)).then_some(played)
        };
        let (mut best, mut n_runs) = (first, 0);
        let mut chunk = n_faults.div_ceil(2).max(1);
        loop {
            let (mut at, mut is_smaller) = (0, false);
            while at < best.injected.len() && n_runs < MAX_SHRINK_RUNS {
                let mut fewer = best.injected.clone();
                fewer.drain(at..(at + chunk).min(fewer.len()));
                n_runs += 1;
                match replay(&fewer) {
                    Some(played) => (best, is_smaller) = (played, true),
                    None => at += chunk,
                }
            }
            if n_runs >= MAX_SHRINK_RUNS || chunk == 1 && !is_smaller {
                break;
            }
            chunk = (chunk / 2).max(1);
        }
        Finding {
            seed,
            n_faults,
            difference: best.difference(expected),
            faults: best.injected,
            steps: best.steps,
        }
    }

    /// Plays the scenario: without faults, or with faults until the state is the expected one.
    fn play(
        &self,
        scenario: &impl AsyncFn(&Cluster),
        seed: u64,
        trouble: Option<(FaultSource, &str)>,
    ) -> Played {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be started");
        let mut builder = self.builder.clone().seed(seed);
        if let Some((source, _)) = &trouble {
            builder.faults = source.clone();
        }
        let cluster = runtime.block_on(builder.start());
        let end = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let known = picture::uids(&cluster).await;
                cluster.set_faults(trouble.is_some());
                scenario(&cluster).await;
                cluster.set_faults(false);
                match &trouble {
                    None => sleep(REST).await,
                    Some((_, expected)) => {
                        let mut n_equal = 0;
                        for _ in 0..REST.as_secs() / LOOK.as_secs() {
                            sleep(LOOK).await;
                            let is_equal = picture::draw(&cluster, &known).await == **expected;
                            n_equal = if is_equal { n_equal + 1 } else { 0 };
                            if n_equal == 2 {
                                break;
                            }
                        }
                    }
                }
                picture::draw(&cluster, &known).await
            })
        }));
        let (injected, steps) = (cluster.injected(), cluster.steps());
        // Tasks are dropped within their runtime.
        runtime.block_on(async move { drop(cluster) });
        Played {
            end: end.map_err(|panic| panic_message(&*panic)),
            injected,
            steps,
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the scenario panicked").to_owned()
}

impl Played {
    fn ends_as(&self, expected: &str) -> bool {
        self.end.as_deref() == Ok(expected)
    }

    fn difference(&self, expected: &str) -> String {
        match &self.end {
            Ok(found) => format!(
                "the end differs (- without faults, + with faults):\n{}",
                line_diff(expected, found)
            ),
            Err(message) => format!("the scenario failed: {message}\n"),
        }
    }
}

impl Finding {
    /// The failure for people: what differs, the faults that are enough, who did what, and how to play it again.
    ///
    /// ```
    /// use mizzen_testing::{Fault, Finding, Injection, Site};
    ///
    /// let site = Site { actor: "at".into(), request: "POST pods".into(), nth: 1 };
    /// let finding = Finding {
    ///     seed: 17,
    ///     n_faults: 5,
    ///     faults: vec![Injection { site, fault: Fault::Kill }],
    ///     difference: "the end differs:\n- Pod default/party-pod of party\n".into(),
    ///     steps: Vec::new(),
    /// };
    /// let story = finding.story();
    /// assert!(story.contains("1 of 5 faults are enough:\n  at: POST pods #1 is applied, and the component is killed"));
    /// assert!(story.ends_with("play it again with MIZZEN_SEED=17"));
    /// ```
    pub fn story(&self) -> String {
        let Finding {
            seed,
            n_faults,
            faults,
            difference,
            steps,
        } = self;
        let told: Vec<String> = faults.iter().map(|fault| format!("  {fault}\n")).collect();
        let told = told.concat();
        // A long story begins shortly before the first fault.
        let first_fault = steps.iter().position(Step::is_fault).unwrap_or(0);
        let from = match steps.len() {
            0..=MAX_STORY => 0,
            _ => first_fault.saturating_sub(MAX_PROLOGUE),
        };
        let earlier = match from {
            0 => String::new(),
            n => format!("after {n} steps\n"),
        };
        let lines: String = steps[from..]
            .iter()
            .take(MAX_STORY)
            .map(|step| format!("{step}\n"))
            .collect();
        let later = match steps.len().saturating_sub(from + MAX_STORY) {
            0 => String::new(),
            n => format!("and {n} more steps\n"),
        };
        format!(
            "seed {seed}: {difference}{} of {n_faults} faults are enough:\n{told}the story:\n{earlier}{lines}{later}\
             play it again with MIZZEN_SEED={seed}",
            faults.len()
        )
    }
}
