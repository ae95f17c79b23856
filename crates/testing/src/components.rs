//! The processes of a cluster besides the API server. Each is killed by dropping it.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use kube::Client;
use mizzen_apiserver::User;
use mizzen_apiserver::clock::SettableClock;
use mizzen_authentication::issue_token;
use mizzen_bootstrap::pki::Authority;
use mizzen_bootstrap::token_key::TokenKey;
use mizzen_bootstrap::users;
use mizzen_controllers as controllers;
use mizzen_node as node;
use mizzen_scheduler as scheduler;
use mizzen_sdk::clock;
use mizzen_sdk::metrics::{Collector as _, Families};
use mizzen_value::clock::Clock;
use tokio::task::JoinSet;

use crate::builder::{Builder, ChosenControllers};
use crate::random::SeededRandom;
use crate::transport::{Network, Process};

/// The certificate authority of all clusters of the process. Making a key takes longer than starting a server.
pub(crate) static AUTHORITY: LazyLock<Arc<Authority>> =
    LazyLock::new(|| Arc::new(Authority::in_memory().expect("a key can be made")));

/// The key of service account tokens of all clusters of the process.
pub(crate) static TOKEN_KEY: LazyLock<Arc<TokenKey>> =
    LazyLock::new(|| Arc::new(TokenKey::in_memory().expect("a key can be made")));

/// A program of the test; it is started again when it was killed.
pub(crate) type Program =
    Arc<dyn Fn(Client) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What components are started with.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) network: Network,
    pub(crate) clock: SettableClock,
    pub(crate) random: SeededRandom,
}

/// The running processes.
#[derive(Default)]
pub(crate) struct Components {
    controllers: Option<controllers::Handle>,
    scheduler: Option<scheduler::Handle>,
    nodes: Option<JoinSet<()>>,
    programs: Vec<(Arc<str>, Program, Option<JoinSet<()>>)>,
}

impl Components {
    /// Programs are started again; none runs.
    pub(crate) fn with_programs(programs: Vec<(Arc<str>, Program)>) -> Components {
        let stopped = |(name, program)| (name, program, None);
        Components {
            programs: programs.into_iter().map(stopped).collect(),
            ..Components::default()
        }
    }

    /// The programs of the test.
    pub(crate) fn programs(&self) -> Vec<(Arc<str>, Program)> {
        let all = self.programs.iter();
        all.map(|(name, program, _)| (name.clone(), program.clone()))
            .collect()
    }

    /// The processes that a cluster has.
    pub(crate) fn processes(&self, builder: &Builder) -> Vec<Process> {
        let has_controllers = builder.controllers != ChosenControllers::Named(Vec::new());
        let own = [
            (has_controllers, Process::Controllers),
            (builder.has_scheduler, Process::Scheduler),
            (builder.n_nodes > 0, Process::Nodes),
        ];
        let own = own.into_iter().filter(|(runs, _)| *runs);
        let programs = self.programs.iter();
        own.map(|(_, process)| process)
            .chain(programs.map(|(name, ..)| Process::Program(name.clone())))
            .collect()
    }

    pub(crate) fn kill(&mut self, process: &Process) {
        match process {
            Process::Controllers => self.controllers = None,
            Process::Scheduler => self.scheduler = None,
            Process::Nodes => self.nodes = None,
            Process::Program(name) => {
                let mut programs = self.programs.iter_mut();
                if let Some((.., task)) = programs.find(|(own, ..)| own == name) {
                    *task = None;
                }
            }
        }
    }

    /// Kills a process and starts it with empty caches.
    pub(crate) fn start(&mut self, process: &Process, builder: &Builder, env: &Environment) {
        self.kill(process);
        match process {
            Process::Controllers => self.controllers = Some(start_controllers(builder, env)),
            Process::Scheduler => self.scheduler = Some(start_scheduler(builder, env)),
            Process::Nodes => self.nodes = Some(start_nodes(builder, env)),
            Process::Program(name) => {
                let client = env.program_client(name);
                let mut programs = self.programs.iter_mut();
                if let Some((_, program, task)) = programs.find(|(own, ..)| own == name) {
                    *task = Some(JoinSet::from_iter([program(client)]));
                }
            }
        }
    }

    /// Adds a program, or replaces the one of the same name.
    pub(crate) fn add_program(&mut self, name: Arc<str>, program: Program) {
        self.remove_program(&name);
        self.programs.push((name, program, None));
    }

    /// Kills a program for good.
    pub(crate) fn remove_program(&mut self, name: &str) {
        self.programs.retain(|(own, ..)| **own != *name);
    }

    /// Starts the processes that a cluster has, and waits until the informers of controllers and scheduler have synced.
    pub(crate) async fn start_all(&mut self, builder: &Builder, env: &Environment) {
        for process in self.processes(builder) {
            self.start(&process, builder, env);
        }
        if let Some(controllers) = &self.controllers {
            controllers.synced().await;
        }
        if let Some(scheduler) = &self.scheduler {
            scheduler.synced().await;
        }
    }

    /// The metrics of controllers and scheduler.
    pub(crate) fn metrics(&self) -> Families {
        let mut families = Families::default();
        if let Some(controllers) = &self.controllers {
            controllers.collect(&mut families);
        }
        if let Some(scheduler) = &self.scheduler {
            scheduler.collect(&mut families);
        }
        families
    }
}

/// The wall clock as a process reads it. On virtual time many things happen at the same instant, and Events are named by
/// the time: each process reads the clock a little later than the one before.
struct ProcessClock {
    clock: SettableClock,
    nanos: u32,
}

impl Clock for ProcessClock {
    fn now(&self) -> (i64, u32) {
        let (seconds, nanos) = self.clock.now();
        let nanos = nanos + self.nanos;
        (
            seconds + i64::from(nanos / 1_000_000_000),
            nanos % 1_000_000_000,
        )
    }
}

impl Environment {
    /// The clock of a process.
    fn clock(&self, process: &Process) -> clock::Clock {
        let nanos = match process {
            Process::Controllers => 100_000,
            Process::Scheduler => 200_000,
            Process::Nodes => 300_000,
            Process::Program(_) => 400_000,
        };
        let clock = self.clock.clone();
        clock::following(ProcessClock { clock, nanos })
    }

    fn program_client(&self, name: &Arc<str>) -> Client {
        let process = Process::Program(name.clone());
        self.network
            .component_client(User::master(name), name, process)
    }
}

fn start_controllers(builder: &Builder, env: &Environment) -> controllers::Handle {
    let network = env.network.clone();
    let clients: controllers::Clients = Arc::new(move |name| {
        let actor = match name {
            "" | "events" => "controller-manager",
            name => name,
        };
        network.component_client(users::controller(name), actor, Process::Controllers)
    });
    let mut options = controllers::Options {
        clock: env.clock(&Process::Controllers),
        rng: env.random.rng(),
        root_ca: Some(AUTHORITY.certificate.clone()),
        sign_token: Some(Arc::new(|claims| issue_token(&**TOKEN_KEY, claims))),
        authority: Some(AUTHORITY.clone()),
        ..controllers::Options::new(clients)
    };
    if let ChosenControllers::Named(names) = &builder.controllers {
        options.controllers = names.clone();
    }
    (builder.tune_controllers)(&mut options);
    controllers::start(options)
}

fn start_scheduler(builder: &Builder, env: &Environment) -> scheduler::Handle {
    let client = env
        .network
        .component_client(users::scheduler(), "scheduler", Process::Scheduler);
    let mut options = scheduler::Options {
        clock: env.clock(&Process::Scheduler),
        rng: env.random.rng(),
        host: "mizzen-testing".into(),
        ..scheduler::Options::new(client)
    };
    (builder.tune_scheduler)(&mut options);
    scheduler::start(options).expect("the configuration of the scheduler is valid")
}

fn start_nodes(builder: &Builder, env: &Environment) -> JoinSet<()> {
    let client = |user| {
        env.network
            .component_client(user, "kubelet", Process::Nodes)
    };
    let mut options = node::Options::simulated(client(users::node_agent()), builder.n_nodes);
    let network = env.network.clone();
    options.client_of =
        Arc::new(move |name| network.component_client(User::node(name), "kubelet", Process::Nodes));
    options.clock = env.clock(&Process::Nodes);
    (builder.tune_nodes)(&mut options);
    JoinSet::from_iter([node::run(options)])
}
