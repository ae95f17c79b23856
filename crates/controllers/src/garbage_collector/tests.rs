//! The graph, told in scripts: what happens to an object, and what may have to be done because of it.
//!
//! | step | means |
//! |---|---|
//! | `+ pod a/web 2 job/run:1! fg` | the Pod `web` in namespace `a` with uid 2 is there; the Job `run` with uid 1 owns it, which cannot go before it (`!`); it is going and waits for its dependents (`fg`; or `orphan`, or just `going`) |
//! | `- 2` | the object with uid 2 is gone |
//! | `? job a/run 1` | somebody looked for that object, and it was not there |
//! | `= pod 2,3` | of all pods those with these uids are there, as they were |
//! | `x pod` | pods are not followed any more |

use std::collections::HashMap;

use mizzen_value::{Value, json};

use super::graph::{Effect, Graph};
use super::name::Identity;

/// A graph, and how each object looked last.
#[derive(Default)]
struct Play {
    graph: Graph,
    last: HashMap<String, Value>,
}

/// Plays steps, each with what it leads to.
#[track_caller]
fn check(script: &[(&str, &str)]) -> Graph {
    let mut play = Play::default();
    for (step, expected) in script {
        let mut effects: Vec<String> = play.step(step).iter().map(show).collect();
        effects.sort();
        assert_eq!(effects.join(", "), *expected, "{step}");
    }
    play.graph
}

fn show(effect: &Effect) -> String {
    match effect {
        Effect::TryDelete(uid) => format!("delete {uid}"),
        Effect::TryDeleteLater(uid) => format!("later {uid}"),
        Effect::TryOrphan(uid) => format!("orphan {uid}"),
        Effect::Complain { dependent, owner } => format!("{} complains of {owner}", dependent.uid),
    }
}

impl Play {
    fn step(&mut self, step: &str) -> Vec<Effect> {
        let words: Vec<&str> = step.split(' ').collect();
        match words.as_slice() {
            ["+", kind, place, uid, rest @ ..] => {
                let object = object(place, uid, rest);
                self.last.insert(uid.to_string(), object.clone());
                let kind = self.graph.kind("v1", kind);
                self.graph.see(&kind, &object)
            }
            ["-", uid] => self.graph.gone(&(*uid).into()),
            ["?", kind, place, uid] => {
                let (namespace, name) = place.split_once('/').unwrap();
                let (namespace, name, uid) = (namespace.into(), name.into(), (*uid).into());
                let kind = self.graph.kind("v1", kind);
                self.graph.absent(&Identity {
                    kind,
                    namespace,
                    name,
                    uid,
                })
            }
            ["=", kind, uids] => {
                let kind = self.graph.kind("v1", kind);
                self.graph
                    .replace(&kind, uids.split(',').map(|uid| self.last[uid].clone()))
            }
            ["x", kind] => {
                let kind = self.graph.kind("v1", kind);
                self.graph.forget(&kind)
            }
            _ => panic!("no such step: {step}"),
        }
    }
}

fn object(place: &str, uid: &str, rest: &[&str]) -> Value {
    let (namespace, name) = place.split_once('/').unwrap();
    let mut object = json::parse(b"{}").unwrap();
    let metadata = object.entry("metadata");
    metadata.set("namespace", namespace);
    metadata.set("name", name);
    metadata.set("uid", uid);
    for word in rest {
        match *word {
            "going" => {}
            "fg" => metadata
                .entry("finalizers")
                .make_list()
                .push("foregroundDeletion".into()),
            "orphan" => metadata
                .entry("finalizers")
                .make_list()
                .push("orphan".into()),
            owner => metadata
                .entry("ownerReferences")
                .make_list()
                .push(reference(owner)),
        }
        if matches!(*word, "going" | "fg" | "orphan") {
            metadata.set("deletionTimestamp", "2026-01-01T00:00:00Z");
        }
    }
    object
}

fn reference(owner: &str) -> Value {
    let (kind, rest) = owner.split_once('/').unwrap();
    let (name, uid) = rest.split_once(':').unwrap();
    let mut reference = Value::object();
    reference.set("apiVersion", "v1");
    reference.set("kind", kind);
    reference.set("name", name);
    reference.set("uid", uid.trim_end_matches('!'));
    reference.set("blockOwnerDeletion", uid.ends_with('!'));
    reference
}

#[test]
fn dependents_are_looked_at_when_their_owner_is_gone() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/run:1", ""),
        ("+ pod a/q 3 job/run:1 pod/p:2", ""),
        ("- 1", "delete 2, delete 3"),
        ("- 2", "delete 3"),
        ("- 3", ""),
        ("- 3", ""),
    ]);
}

#[test]
fn an_owner_that_was_never_seen_is_looked_up() {
    let graph = check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ pod a/q 3 job/run:1", ""),
        ("? job a/run 1", "delete 2, delete 3"),
    ]);
    assert_eq!(graph.len(), 2);
}

#[test]
fn an_owner_may_come_after_its_dependents() {
    let graph = check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ job a/run 1", ""),
        // Whoever looked before it came says so in vain if he looked elsewhere.
        ("? job b/run 1", ""),
        ("- 1", "delete 2"),
    ]);
    assert_eq!(graph.len(), 1);
}

#[test]
fn an_owner_of_another_name_is_doubted() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/walk:1", "delete 2"),
        ("+ pod a/q 3 cronjob/run:1", "delete 3"),
    ]);
    check(&[
        ("+ pod a/p 2 job/walk:1", "delete 1"),
        ("+ pod a/q 3 job/run:1", "delete 3"),
        ("+ job a/run 1", "delete 2"),
    ]);
}

#[test]
fn an_owner_in_another_namespace_is_none() {
    check(&[
        ("+ job a/run 1", ""),
        (
            "+ pod b/p 2 job/run:1",
            "2 complains of [v1/job, namespace: b, name: run, uid: 1], delete 2",
        ),
        ("- 1", "delete 2"),
    ]);
    check(&[
        ("+ pod b/p 2 job/run:1", "delete 1"),
        (
            "+ job a/run 1",
            "2 complains of [v1/job, namespace: b, name: run, uid: 1], delete 2",
        ),
    ]);
}

#[test]
fn a_cluster_scoped_object_cannot_belong_to_a_namespaced_one() {
    check(&[
        ("+ job a/run 1", ""),
        (
            "+ role /r 2 job/run:1",
            "2 complains of [v1/job, namespace: , name: run, uid: 1], delete 2",
        ),
    ]);
    // Before the owner is seen nobody knows whether it lives in a namespace.
    check(&[
        ("+ role /r 2 job/run:1", "delete 1"),
        ("+ pod a/p 3 job/run:1", "delete 3"),
        (
            "+ job a/run 1",
            "2 complains of [v1/job, namespace: , name: run, uid: 1], delete 2",
        ),
    ]);
}

#[test]
fn a_cluster_scoped_owner_may_own_anything() {
    check(&[
        ("+ node /n 1", ""),
        ("+ lease a/l 2 node/n:1", ""),
        ("+ csinode /c 3 node/n:1", ""),
        ("- 1", "delete 2, delete 3"),
    ]);
}

#[test]
fn an_absent_owner_is_looked_for_under_its_other_names() {
    check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ pod b/q 3 job/run:1", "delete 3"),
        ("+ pod a/r 4 job/walk:1", "delete 4"),
        ("? job a/run 1", "delete 2, later 1"),
        // In order: the next after job a/run is job a/walk, then job b/run.
        ("? job a/run 1", "delete 2"),
        ("? job a/walk 1", "delete 4, later 1"),
        ("? job b/run 1", "delete 3, later 1"),
        (
            "+ job b/run 1",
            "2 complains of [v1/job, namespace: a, name: run, uid: 1], 4 complains of [v1/job, namespace: a, name: walk, uid: 1], delete 2, delete 4",
        ),
        ("? job a/run 1", "delete 2"),
        ("- 1", "delete 2, delete 3, delete 4"),
    ]);
}

#[test]
fn what_was_seen_does_not_go_because_of_a_look() {
    let graph = check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/walk:1", "delete 2"),
        ("? job a/walk 1", "delete 2"),
        ("? job a/none 1", ""),
    ]);
    assert_eq!(graph.len(), 2);
    // Unless somebody looked exactly there.
    assert_eq!(
        check(&[("+ job a/run 1", ""), ("? job a/run 1", "")]).len(),
        0
    );
}

#[test]
fn a_foreground_deletion_looks_at_dependents_once() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/run:1!", ""),
        ("+ job a/run 1 fg", "delete 1, delete 2"),
        ("+ job a/run 1 fg", ""),
        ("- 2", "delete 1"),
    ]);
    check(&[("+ job a/run 1 fg", "delete 1")]);
}

#[test]
fn who_waits_is_looked_at_when_a_dependent_lets_go() {
    let begin = [
        ("+ job a/run 1 fg", "delete 1"),
        ("+ pod a/p 2 job/run:1!", ""),
    ];
    check(&[begin[0], begin[1], ("+ pod a/p 2 job/run:1", "delete 1")]);
    check(&[begin[0], begin[1], ("+ pod a/p 2", "delete 1"), ("- 2", "")]);
    let graph = check(&begin);
    assert_eq!(graph.blocking(&"1".into()).len(), 1);
    assert_eq!(graph.blocked_owners(&"2".into()), ["1".into()]);
}

#[test]
fn orphans_are_asked_for_once_and_before_all_else() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/run:1", ""),
        ("+ job a/run 1 orphan", "orphan 1"),
        ("+ job a/run 1 orphan", ""),
    ]);
    check(&[("+ job a/run 1 orphan fg", "orphan 1")]);
}

#[test]
fn new_owners_are_joined_and_old_ones_left() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ job a/walk 2", ""),
        ("+ pod a/p 3 job/run:1", ""),
        ("+ pod a/p 3 job/walk:2", ""),
        ("- 1", ""),
        ("+ pod a/p 3 job/walk:2 job/fly:4", "delete 4"),
        ("- 2", "delete 3"),
    ]);
}

#[test]
fn a_list_says_who_is_gone() {
    let graph = check(&[
        ("+ job a/run 1", ""),
        ("+ job a/walk 2", ""),
        ("+ pod a/p 3 job/run:1", ""),
        ("+ pod a/q 4 job/walk:2", ""),
        ("= job 2", "delete 3"),
        ("= job 2", ""),
    ]);
    assert_eq!(graph.len(), 3);
    assert!(graph.is_absent(&identity_of_run()));
}

fn identity_of_run() -> Identity {
    let kind = Graph::default().kind("v1", "job");
    Identity {
        kind,
        namespace: "a".into(),
        name: "run".into(),
        uid: "1".into(),
    }
}

#[test]
fn a_kind_that_nobody_follows_may_still_be_there() {
    let graph = check(&[
        ("+ job a/run 1", ""),
        ("+ job a/idle 2", ""),
        ("+ pod a/p 3 job/run:1", ""),
        ("x job", "delete 1"),
        ("- 3", ""),
        ("+ pod a/q 4 job/run:1", ""),
        ("+ job a/run 1", ""),
        ("- 1", "delete 4"),
    ]);
    assert_eq!(graph.len(), 1);
}

#[test]
fn a_node_is_small() {
    // A pod with an owner: what it takes in the map, for its names, and as a dependent.
    let node = std::mem::size_of::<super::name::Uid>() * 2 + super::graph::NODE_SIZE;
    let owner = std::mem::size_of::<super::seen::Owner>();
    assert!(node + owner + 2 * 50 < 400, "{node} {owner}");
}
