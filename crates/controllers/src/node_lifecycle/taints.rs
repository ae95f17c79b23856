//! Writes the taints and labels of nodes; retries on conflict.

use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::{Key, Object, write};
use mizzen_value::{Value, value};

use crate::{ControllerContext, Error};

/// Updates the taints of a node, if it exists. `change` may be called several times.
pub(super) async fn change(
    context: &ControllerContext,
    node: &str,
    change: impl Fn(&Object) -> Option<Vec<Value>>,
) -> Result<(), Error> {
    let (key, change) = (Key::cluster(node), &change);
    let write = || async {
        let Some(node) = context.api.find(&NODES, &key).await? else {
            return Ok(());
        };
        let Some(taints) = change(&node) else {
            return Ok(());
        };
        context
            .api
            .patch(&NODES, &key, "", PatchType::Merge, &patch(&node, taints))
            .await
            .map(drop)
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
