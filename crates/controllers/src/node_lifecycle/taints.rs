//! Writes the taints and labels of nodes; retries on conflict.

use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::{Key, Object, write};
use mizzen_value::{Value, value};

use crate::{ControllerContext, Error};

/// Updates the taints of a node, if it exists. `change` may be called several times.
///
/// The first attempt starts from the cached node, unless nothing is to be changed there; the resourceVersion detects a
/// stale cache. Kubernetes: the first attempt reads the watch cache (controller/controller_utils.go).
pub(super) async fn change(
    context: &ControllerContext,
    nodes: &Informer<Object>,
    node: &str,
    change: impl Fn(&Object) -> Option<Vec<Value>>,
) -> Result<(), Error> {
    let (key, change) = (Key::cluster(node), &change);
    let mut cached = nodes.lister().by_key(&key)?.and_then(|node| {
        let taints = change(&node)?;
        Some(patch(&node, taints))
    });
    let write = || {
        let (known, key) = (cached.take(), &key);
        async move {
            let patch = match known {
                Some(patch) => patch,
                None => {
                    let Some(node) = context.api.find(&NODES, key).await? else {
                        return Ok(());
                    };
                    let Some(taints) = change(&node) else {
                        return Ok(());
                    };
                    patch(&node, taints)
                }
            };
            context
                .api
                .patch(&NODES, key, "", PatchType::Merge, &patch)
                .await
                .map(drop)
        }
    };
    Ok(write::retry(write).await?)
}

/// With the resourceVersion as a precondition: taints are replaced as a whole.
fn patch(node: &Object, taints: Vec<Value>) -> Value {
    let taints = if taints.is_empty() {
        Value::Null
    } else {
        Value::List(taints)
    };
    value!({"metadata": {"resourceVersion": (node.version())}, "spec": {"taints": taints}})
}
