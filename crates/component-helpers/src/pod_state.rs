//! State of a pod: the predicates that every component uses.
//!
//! Kubernetes: pkg/api/v1/pod/util.go.

use mizzen_object::condition;
use mizzen_value::Value;

use crate::qos::qos_class;

/// The lists of containers, in the order in which upstream visits them.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether the containers of a pod have ended for good, well or not.
pub fn is_terminal(pod: &Value) -> bool {
    is_terminal_phase(pod["status"]["phase"].str())
}

/// Whether a phase is one that a pod does not leave.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether a pod says that it is ready to serve.
pub fn is_ready(pod: &Value) -> bool {
    condition::is_true(&pod["status"]["conditions"], "Ready")
}

/// Whether an init container is a sidecar: it starts before the containers and runs beside them.
pub fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"].str() == "Always"
}

/// The quality of service of a pod: as its status has it, or as its spec implies. Kubernetes: `GetPodQOS`.
pub fn quality_of_service(pod: &Value) -> &str {
    match pod["status"]["qosClass"].str() {
        "" => qos_class(&pod["spec"]),
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn two_phases_are_terminal() {
        for (phase, expected) in [
            ("", false),
            ("Pending", false),
            ("Running", false),
            ("Unknown", false),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            let pod = read(&format!(r#"{{"status":{{"phase":"{phase}"}}}}"#));
            assert_eq!(is_terminal(&pod), expected, "{phase}");
        }
        assert!(!is_terminal(&Value::Null));
    }

    #[test]
    fn the_quality_of_service_is_that_of_the_status_or_follows_from_the_spec() {
        let some = r#"{"resources":{"requests":{"cpu":"1"}}}"#;
        let cases = [
            (r#"{"spec":{"containers":[{}]}}"#.to_owned(), "BestEffort"),
            (
                format!(r#"{{"spec":{{"containers":[{some}]}}}}"#),
                "Burstable",
            ),
            (
                format!(
                    r#"{{"spec":{{"containers":[{some}]}},"status":{{"qosClass":"Guaranteed"}}}}"#
                ),
                "Guaranteed",
            ),
            // What the pod names as a whole is all that counts.
            (
                format!(
                    r#"{{"spec":{{"resources":{{"requests":{{"hugepages-2Mi":"4Mi"}}}},"containers":[{some}]}}}}"#
                ),
                "BestEffort",
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(quality_of_service(&read(&pod)), expected, "{pod}");
        }
    }
}
