//! Every program against a control plane in the process of the test. It prints what README.md says.

use kube::Client;
use mizzen_testing::Cluster;

#[path = "../examples"]
#[expect(dead_code, reason = "each program has a `main`")]
mod examples {
    pub(crate) mod config;
    pub(crate) mod delta_fifo;
    pub(crate) mod discovery;
    pub(crate) mod dynamic;
    pub(crate) mod event_recorder;
    pub(crate) mod indexer;
    pub(crate) mod informer_factory;
    pub(crate) mod leader_election;
    pub(crate) mod list_and_watch;
    pub(crate) mod lister;
    pub(crate) mod metadata_only;
    pub(crate) mod patch;
    pub(crate) mod reflector;
    pub(crate) mod rest;
    pub(crate) mod typed;
    pub(crate) mod work_queue;
}

/// What README.md says a program prints: the lines after `### NAME` that are indented.
fn expected_output(program: &str) -> String {
    let readme = include_str!("../README.md");
    let heading = format!("### {program}\n");
    let (_, section) = readme
        .split_once(&heading)
        .expect("README.md has a section");
    let section = section.split("\n### ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A cluster, and a client that has the permissions of `manifests/job.yaml`.
async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster
        .apply(include_str!("../manifests/access.yaml"))
        .await;
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ];
    let client = cluster.client_as("system:serviceaccount:default:clients", &groups);
    (cluster, client)
}

/// A test for each program. It runs twice, so that it can be started again.
macro_rules! prints_what_the_readme_says {
    ($($program:ident)*) => {
        $(
            #[tokio::test]
            async fn $program() {
                let (_cluster, client) = start().await;
                for _ in 0..2 {
                    let mut output = Vec::new();
                    let run = examples::$program::run(client.clone(), &mut output);
                    let outcome = run.await;
                    let output = String::from_utf8(output).unwrap();
                    assert!(outcome.is_ok(), "{outcome:?} after\n{output}");
                    assert_eq!(output, expected_output(stringify!($program)));
                }
            }
        )*

        #[test]
        fn every_program_is_in_the_readme_and_has_a_test() {
            let tested = [$(stringify!($program)),*];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            let files = std::fs::read_dir(folder).unwrap();
            let mut programs: Vec<String> = files
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .map(|file| file.trim_end_matches(".rs").to_owned())
                .collect();
            programs.sort();
            assert_eq!(programs, tested);
            for program in tested {
                assert!(!expected_output(program).is_empty(), "{program}");
            }
        }
    };
}

prints_what_the_readme_says! {
    config delta_fifo discovery dynamic event_recorder indexer informer_factory leader_election list_and_watch lister
    metadata_only patch reflector rest typed work_queue
}
