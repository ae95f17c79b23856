//! Which pods matter here? Indexes of pods that several loops share.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, IndexFunction, by_field};
use mizzen_sdk::informer::Informer;
use mizzen_value::Value;

const NODE: &str = "spec.nodeName";
const CLAIM: &str = "volume claim";

/// Lets pods be found by their node.
pub(crate) fn add_node(pods: &Informer<Object>) {
    pods.add_index(NODE, by_field(NODE));
}

/// The pods on a node.
pub(crate) fn on_node(
    pods: &Informer<Object>,
    node: &str,
) -> Result<Vec<Arc<Object>>, DecodeError> {
    pods.lister().by_index(NODE, node).unwrap_or(Ok(Vec::new()))
}

/// The nodes that pods are on, whether they are there or not.
pub(crate) fn nodes(pods: &Informer<Object>) -> Vec<String> {
    let snapshot = pods.store().snapshot();
    let nodes = snapshot.index_values(NODE).into_iter().flatten();
    nodes
        .filter(|node| !node.is_empty())
        .map(String::from)
        .collect()
}

/// Lets pods be found by the volume claims that they use.
pub(crate) fn add_claim(pods: &Informer<Object>) {
    pods.add_index(CLAIM, by_claim());
}

/// The pods that use a claim, which is `namespace/name`.
pub(crate) fn of_claim(
    pods: &Informer<Object>,
    claim: &str,
) -> Result<Vec<Arc<Object>>, DecodeError> {
    pods.lister()
        .by_index(CLAIM, claim)
        .unwrap_or(Ok(Vec::new()))
}

fn by_claim() -> IndexFunction<Object> {
    Arc::new(|entry| {
        if !may_claim(entry.text()) {
            return Vec::new();
        }
        let claims = |pod: &Object| {
            claims(pod)
                .map(|name| format!("{}/{name}", pod.namespace()))
                .collect()
        };
        entry.object().map(|pod| claims(&pod)).unwrap_or_default()
    })
}

/// Whether a pod of this text may use a claim.
pub(crate) fn may_claim(text: &[u8]) -> bool {
    says(text, b"\"persistentVolumeClaim\"") || says(text, b"\"ephemeral\"")
}

/// Whether a text has a word somewhere; whoever looks for something rare need not read the rest.
pub(crate) fn says(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

/// The names of the claims that a pod uses, in its namespace.
pub(crate) fn claims(pod: &Object) -> impl Iterator<Item = String> {
    pod["spec"]["volumes"]
        .list()
        .iter()
        .filter_map(|volume| claim_name(pod, volume))
}

/// The name of the claim behind a volume of a pod, if there is one.
pub(crate) fn claim_name(pod: &Object, volume: &Value) -> Option<String> {
    match (&volume["persistentVolumeClaim"], &volume["ephemeral"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, _) => Some(format!("{}-{}", pod.name(), volume["name"].str())),
        (claim, _) => Some(claim["claimName"].str().into()),
    }
}
