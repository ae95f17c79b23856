//! The graph as scripts: events and their effects.
//!
//! | step | means |
//! |---|---|
//! | `+ pod a/web 2 job/run:1! fg` | the Pod `web` in namespace `a` with uid 2 is observed; the Job `run` with uid 1 owns it with blockOwnerDeletion (`!`); it is in foreground deletion (`fg`; or `orphan`, or just `going`) |
//! | `- 2` | the object with uid 2 is deleted |
//! | `? job a/run 1` | a live read of that object returned not found |
//! | `= pod 2,3` | a list of all pods has those with these uids, as they were |
//! | `x pod` | pods are not watched any more |

use std::collections::HashMap;

use mizzen_value::{Value, json};

use super::graph::{Effect, Graph};
use super::identity::ObjectIdentity;

/// A graph, and the last state of each object.
#[derive(Default)]
struct Play {
    graph: Graph,
    last: HashMap<String, Value>,
}

/// Runs the steps and compares their effects.
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
        Effect::AttemptToDelete(uid) => format!("delete {uid}"),
        Effect::AttemptToDeleteLater(uid) => format!("later {uid}"),
        Effect::AttemptToOrphan(uid) => format!("orphan {uid}"),
        Effect::InvalidOwnerNamespace { dependent, owner } => {
            format!("{} complains of {owner}", dependent.uid)
        }
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
                self.graph.on_update(&kind, &object)
            }
            ["-", uid] => self.graph.on_delete(&(*uid).into()),
            ["?", kind, place, uid] => {
                let (namespace, name) = place.split_once('/').unwrap();
                let (namespace, name, uid) = (namespace.into(), name.into(), (*uid).into());
                let kind = self.graph.kind("v1", kind);
                self.graph.on_absent(&ObjectIdentity {
                    kind,
                    namespace,
                    name,
                    uid,
                })
            }
            ["=", kind, uids] => {
                let kind = self.graph.kind("v1", kind);
                self.graph
                    .on_replace(&kind, uids.split(',').map(|uid| self.last[uid].clone()))
            }
            ["x", kind] => {
                let kind = self.graph.kind("v1", kind);
                self.graph.on_watch_stopped(&kind)
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
fn dependents_are_enqueued_when_their_owner_is_deleted() {
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
fn an_owner_that_was_never_observed_is_read() {
    let graph = check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ pod a/q 3 job/run:1", ""),
        ("? job a/run 1", "delete 2, delete 3"),
    ]);
    assert_eq!(graph.len(), 2);
}

#[test]
fn an_owner_may_be_observed_after_its_dependents() {
    let graph = check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ job a/run 1", ""),
        // A live read in another namespace does not matter once it was observed.
        ("? job b/run 1", ""),
        ("- 1", "delete 2"),
    ]);
    assert_eq!(graph.len(), 1);
}

#[test]
fn an_owner_with_another_identity_is_checked() {
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
fn an_owner_in_another_namespace_is_invalid() {
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
    // Before the owner is observed its scope is not known.
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
fn an_absent_owner_is_tried_under_its_alternate_identities() {
    check(&[
        ("+ pod a/p 2 job/run:1", "delete 1"),
        ("+ pod b/q 3 job/run:1", "delete 3"),
        ("+ pod a/r 4 job/walk:1", "delete 4"),
        ("? job a/run 1", "delete 2, later 1"),
        // In order: after job a/run comes job a/walk, then job b/run.
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
fn an_observed_object_is_not_removed_by_a_read_elsewhere() {
    let graph = check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/walk:1", "delete 2"),
        ("? job a/walk 1", "delete 2"),
        ("? job a/none 1", ""),
    ]);
    assert_eq!(graph.len(), 2);
    // Except for a live read of its own identity.
    assert_eq!(
        check(&[("+ job a/run 1", ""), ("? job a/run 1", "")]).len(),
        0
    );
}

#[test]
fn a_foreground_deletion_enqueues_dependents_once() {
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
fn a_waiting_owner_is_enqueued_when_a_dependent_drops_its_reference() {
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
fn orphaning_is_requested_once_and_first() {
    check(&[
        ("+ job a/run 1", ""),
        ("+ pod a/p 2 job/run:1", ""),
        ("+ job a/run 1 orphan", "orphan 1"),
        ("+ job a/run 1 orphan", ""),
    ]);
    check(&[("+ job a/run 1 orphan fg", "orphan 1")]);
}

#[test]
fn added_and_removed_owners_update_the_graph() {
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
fn objects_missing_from_a_list_are_deleted() {
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

fn identity_of_run() -> ObjectIdentity {
    let kind = Graph::default().kind("v1", "job");
    ObjectIdentity {
        kind,
        namespace: "a".into(),
        name: "run".into(),
        uid: "1".into(),
    }
}

#[test]
fn objects_of_a_kind_that_is_not_watched_may_still_exist() {
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
    // A pod with an owner: its entry in the map, its names, and the edge from its owner.
    let node = std::mem::size_of::<super::identity::Uid>() * 2 + super::graph::NODE_SIZE;
    let owner = std::mem::size_of::<super::observed::OwnerReference>();
    assert!(node + owner + 2 * 50 < 400, "{node} {owner}");
}
