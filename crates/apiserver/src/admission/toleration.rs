//! How long a pod stays on a node that is lost.

use mizzen_object::{Status, Value, value};

use super::Attributes;

/// How long a pod stays on a node that is not ready or not reachable, in seconds.
const TOLERATED: i64 = 300;

/// Lets a pod stay for a while, unless it says itself for how long.
pub(super) fn admit(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = pod["spec"]["tolerations"].list().iter().any(|toleration| {
            let (name, effect) = (toleration["key"].str(), toleration["effect"].str());
            (name.is_empty() || name == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            let toleration = value!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED
            });
            pod.entry("spec").entry("tolerations").make_list().push(toleration);
        }
    }
    Ok(())
}
