//! DefaultTolerationSeconds: how long a pod stays on a node that is not ready or unreachable.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::value;

use super::{Attributes, admission};

/// The default toleration seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TolerationSeconds {
    /// For the taint `not-ready`.
    pub not_ready: i64,
    /// For the taint `unreachable`.
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> TolerationSeconds {
        TolerationSeconds {
            not_ready: 300,
            unreachable: 300,
        }
    }
}

/// Adds the default tolerations, unless the pod has its own.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    let TolerationSeconds {
        not_ready,
        unreachable,
    } = admission(attributes).toleration_seconds;
    let usual = [
        ("node.kubernetes.io/not-ready", not_ready),
        ("node.kubernetes.io/unreachable", unreachable),
    ];
    for (key, seconds) in usual {
        let tolerated = pod["spec"]["tolerations"].list().iter().any(|toleration| {
            let (name, effect) = (toleration["key"].str(), toleration["effect"].str());
            (name.is_empty() || name == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            let toleration = value!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds
            });
            pod.entry("spec")
                .entry("tolerations")
                .make_list()
                .push(toleration);
        }
    }
    Ok(())
}
