//! The components that `MIZZEN_ENVTEST_LOOPS` and `mizzen apiserver --loops` name: what envtest never had.

use std::sync::Arc;

use mizzen_node::STREAMING_IDLE_TIMEOUT;

use crate::command::{capacity, default_pod_range, parse_controller};
use crate::compose::{ControlPlane, EnabledControllers};
use crate::simulated_nodes::SimulatedNodes;

/// The environment variable.
const VARIABLE: &str = "MIZZEN_ENVTEST_LOOPS";

/// The components beside the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loops {
    controllers: EnabledControllers,
    has_scheduler: bool,
    n_nodes: u32,
}

impl Loops {
    /// Those of the environment; none if the variable is not set or empty.
    pub(super) fn from_env() -> Result<Option<Loops>, String> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => Loops::parse(&text)
                .map(Some)
                .map_err(|why| format!("{VARIABLE}: {why}")),
            _ => Ok(None),
        }
    }

    /// Parses a list of names.
    pub(crate) fn parse(text: &str) -> Result<Loops, String> {
        let (mut names, mut has_scheduler, mut n_nodes) = (Vec::new(), false, 0);
        for name in text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            match name.split_once('=') {
                None if name == "all" => {
                    return Ok(Loops {
                        controllers: EnabledControllers::All,
                        has_scheduler: true,
                        n_nodes: 1,
                    });
                }
                None if name == "gc" => names.push("garbage-collector-controller".into()),
                None if name == "scheduler" => has_scheduler = true,
                None if name == "nodes" => n_nodes = 1,
                Some(("nodes", number)) => {
                    n_nodes = number
                        .parse()
                        .map_err(|_| format!("{name}: {number} is not a number of nodes"))?;
                }
                _ => {
                    let name = parse_controller(name).map_err(|why| {
                        format!("{name}: {why}; besides them gc, scheduler, nodes, nodes=N and all")
                    })?;
                    names.push(name);
                }
            }
        }
        Ok(Loops {
            controllers: EnabledControllers::Named(names),
            has_scheduler,
            n_nodes,
        })
    }

    /// The control plane with these components.
    pub(crate) fn control_plane(self) -> ControlPlane {
        ControlPlane {
            nodes: SimulatedNodes {
                n: self.n_nodes as usize,
                capacity: capacity("").expect("the default capacity is valid"),
                streaming_idle_timeout: STREAMING_IDLE_TIMEOUT,
            },
            real_node: None,
            pod_ranges: vec![default_pod_range(self.n_nodes)],
            load_balancer_ranges: Vec::new(),
            controllers: self.controllers,
            scheduler: self.has_scheduler.then(Arc::default),
            serves_metrics: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, controllers: &[&str], has_scheduler: bool, n_nodes: u32) {
        let names = controllers.iter().map(|name| name.to_string()).collect();
        let expected = Loops {
            controllers: EnabledControllers::Named(names),
            has_scheduler,
            n_nodes,
        };
        assert_eq!(Loops::parse(text), Ok(expected));
    }

    #[test]
    fn components_are_named_as_upstream_names_them() {
        check("gc", &["garbage-collector-controller"], false, 0);
        check(
            "namespace, deployment,replicaset-controller",
            &[
                "namespace-controller",
                "deployment-controller",
                "replicaset-controller",
            ],
            false,
            0,
        );
        check("scheduler,nodes", &[], true, 1);
        check("nodes=3", &[], false, 3);
    }

    #[test]
    fn all_components_run_with_one_node() {
        let all = Loops::parse("gc,all").unwrap();
        assert_eq!(all.controllers, EnabledControllers::All);
        assert!(all.has_scheduler && all.n_nodes == 1);
    }

    #[test]
    fn unknown_components_are_rejected_with_the_known_ones() {
        let error = Loops::parse("deploymints").unwrap_err();
        assert!(error.starts_with("deploymints: ") && error.contains("deployment-controller"));
        assert!(
            Loops::parse("nodes=many")
                .unwrap_err()
                .contains("many is not a number")
        );
    }
}
