//! Scenarios: the actions of users, and when they happen.

/// A scenario.
pub(super) struct Scenario {
    pub name: &'static str,
    pub steps: &'static [Step],
}

/// An action of the user, and the pause after it.
pub(super) struct Step {
    pub action: Action,
    pub seconds: u64,
}

pub(super) enum Action {
    /// Objects in YAML.
    Apply(&'static str),
    /// Waits until there are this many objects at a path.
    Await { path: &'static str, n: usize },
    /// Deletes an object, with its dependents or without.
    Delete {
        path: &'static str,
        propagation: &'static str,
    },
    /// Evicts the pods at a path, one after the other, each until it is allowed.
    Evict(&'static str),
}

const fn apply(text: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Apply(text),
        seconds,
    }
}

const fn delete(path: &'static str, propagation: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Delete { path, propagation },
        seconds,
    }
}

const fn wait(path: &'static str, n: usize) -> Step {
    Step {
        action: Action::Await { path, n },
        seconds: 0,
    }
}

const fn evict(path: &'static str, seconds: u64) -> Step {
    Step {
        action: Action::Evict(path),
        seconds,
    }
}

pub(super) static SCENARIOS: [Scenario; 12] = [
    Scenario {
        name: "a deployment is rolled out, updated and scaled",
        steps: &[
            apply(include_str!("web.yaml"), 15),
            apply(include_str!("web-v2.yaml"), 15),
            apply(
                "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {replicas: 2, \
                 selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: \
                 [{name: web, image: 'web:2'}]}}}}",
                10,
            ),
        ],
    },
    Scenario {
        name: "a stateful set is updated and scaled",
        steps: &[
            apply(include_str!("store.yaml"), 20),
            apply(include_str!("store-v2.yaml"), 20),
        ],
    },
    Scenario {
        name: "a daemon set is updated",
        steps: &[
            apply(include_str!("agent.yaml"), 15),
            apply(include_str!("agent-v2.yaml"), 15),
        ],
    },
    Scenario {
        name: "a job counts to four",
        steps: &[apply(include_str!("count.yaml"), 40)],
    },
    Scenario {
        name: "owners go, and dependents with them or not",
        steps: &[
            apply(include_str!("web.yaml"), 10),
            delete(
                "/apis/apps/v1/namespaces/default/deployments/web",
                "Foreground",
                10,
            ),
            apply(include_str!("store.yaml"), 10),
            delete(
                "/apis/apps/v1/namespaces/default/statefulsets/store",
                "Background",
                5,
            ),
            apply(include_str!("agent.yaml"), 10),
            wait(
                "/api/v1/namespaces/default/pods?labelSelector=app%3Dagent&fieldSelector=status.phase%3DRunning",
                2,
            ),
            delete(
                "/apis/apps/v1/namespaces/default/daemonsets/agent",
                "Orphan",
                10,
            ),
        ],
    },
    Scenario {
        name: "a namespace goes with all that is in it",
        steps: &[
            apply(include_str!("shop.yaml"), 15),
            delete("/api/v1/namespaces/shop", "Background", 15),
        ],
    },
    Scenario {
        name: "a quota lets in three of five",
        steps: &[
            apply(include_str!("quota.yaml"), 5),
            apply(include_str!("many.yaml"), 20),
        ],
    },
    Scenario {
        name: "a stateful set keeps its volumes",
        steps: &[
            apply(include_str!("disks.yaml"), 30),
            apply(
                "{apiVersion: v1, kind: Pod, metadata: {name: reader, namespace: default}, spec: {containers: [{name: \
                 reader, image: 'reader:1'}], volumes: [{name: data, persistentVolumeClaim: {claimName: data-ledger-0}}]}}",
                15,
            ),
        ],
    },
    Scenario {
        name: "a cron job runs every minute until it is told to rest",
        steps: &[
            apply(include_str!("often.yaml"), 205),
            apply(include_str!("often-resting.yaml"), 10),
        ],
    },
    Scenario {
        name: "an autoscaler follows the load",
        steps: &[
            apply(include_str!("load.yaml"), 20),
            apply(include_str!("metrics.yaml"), 60),
        ],
    },
    Scenario {
        name: "a service turns to other pods",
        steps: &[
            apply(include_str!("doors.yaml"), 15),
            apply(
                "{apiVersion: v1, kind: Service, metadata: {name: door, namespace: default}, spec: {selector: {colour: \
                 blue}, ports: [{port: 80}]}}",
                10,
            ),
        ],
    },
    Scenario {
        name: "a budget lets pods go one by one",
        steps: &[
            apply(include_str!("guarded.yaml"), 15),
            wait(
                "/api/v1/namespaces/default/pods?labelSelector=app%3Dguarded&fieldSelector=status.phase%3DRunning",
                3,
            ),
            evict(
                "/api/v1/namespaces/default/pods?labelSelector=app%3Dguarded",
                15,
            ),
        ],
    },
];
