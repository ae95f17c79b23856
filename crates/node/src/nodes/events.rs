//! The Events of a node whose conditions change.
//!
//! Kubernetes: pkg/kubelet/nodestatus/setters.go and kubelet_node_status.go, `recordNodeStatusEvent`.

use mizzen_object::condition::find;
use mizzen_sdk::event::Note;
use mizzen_value::Value;

/// The Events of conditions, if they hold and if not.
const CONDITIONS: [(&str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    ),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// The Event of an agent that starts.
pub(super) fn starting() -> Note {
    Note::normal("Starting", "", "Starting kubelet.")
}

/// What has happened to a node between two statuses.
pub(super) fn changes(node: &str, before: &Value, after: &Value) -> Vec<Note> {
    let mut notes = Vec::new();
    let boot = |status: &Value| status["nodeInfo"]["bootID"].str().to_owned();
    let (old, new) = (boot(before), boot(after));
    if !old.is_empty() && old != new {
        let message = format!("Node {node} has been rebooted, boot id: {new}");
        notes.push(Note::warning("Rebooted", "", message));
    }
    for (name, on, off) in CONDITIONS {
        let status = |of: &Value| {
            let condition = find(&of["conditions"], name);
            condition.map_or(String::new(), |it| it["status"].str().to_owned())
        };
        let (old, new) = (status(before), status(after));
        // Kubernetes: a new node says of all but its readiness what holds.
        let is_first = old.is_empty() && name == "Ready";
        if old != new && !is_first {
            let event = if new == "True" { on } else { off };
            let message = format!("Node {node} status is now: {event}");
            notes.push(Note::normal(event, "", message));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn status(boot: &str, conditions: &[(&str, &str)]) -> Value {
        let conditions = conditions.iter();
        let conditions: Vec<Value> = conditions
            .map(|(name, status)| value!({ "type": (*name), "status": (*status) }))
            .collect();
        value!({ "nodeInfo": { "bootID": boot }, "conditions": conditions })
    }

    #[track_caller]
    fn check(before: &Value, after: &Value, expected: &[&str]) {
        let notes = changes("a", before, after);
        let messages: Vec<&str> = notes.iter().map(|note| note.message.as_str()).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn an_event_says_which_condition_has_changed() {
        let healthy = [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        ];
        let first = status("1", &healthy);
        check(
            &Value::Null,
            &first,
            &[
                "Node a status is now: NodeHasSufficientMemory",
                "Node a status is now: NodeHasNoDiskPressure",
                "Node a status is now: NodeHasSufficientPID",
            ],
        );
        check(&first, &first, &[]);
        let mut pressed = healthy;
        (pressed[1].1, pressed[3].1) = ("True", "False");
        let pressed = status("1", &pressed);
        check(
            &first,
            &pressed,
            &[
                "Node a status is now: NodeHasDiskPressure",
                "Node a status is now: NodeNotReady",
            ],
        );
        // The controller of nodes has written Unknown.
        let mut lost = healthy;
        lost[3].1 = "Unknown";
        check(
            &status("1", &lost),
            &status("2", &healthy),
            &[
                "Node a has been rebooted, boot id: 2",
                "Node a status is now: NodeReady",
            ],
        );
    }
}
