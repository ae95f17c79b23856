//! Pod indexes that several controllers share.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::cache::{DecodeError, Entry};
use mizzen_sdk::informer::Informer;
use mizzen_value::Value;
pub(crate) use mizzen_workloads::pod_index::{add_node_index, indexed_nodes, pods_on_node};

const CLAIM: &str = "volume claim";

/// Indexes pods by PersistentVolumeClaim.
pub(crate) fn add_claim_index(pods: &Informer<Object>) {
    let claims = |pod: &Object| {
        let names = claim_names(pod);
        names
            .map(|name| format!("{}/{name}", pod.namespace()))
            .collect()
    };
    let by_claim = move |entry: &Entry<Object>| match may_claim(entry.text()) {
        true => entry.object().map(|pod| claims(&pod)).unwrap_or_default(),
        false => Vec::new(),
    };
    pods.add_index(CLAIM, Arc::new(by_claim));
}

/// The pods that use a claim, given as `namespace/name`.
pub(crate) fn pods_using_claim(
    pods: &Informer<Object>,
    claim: &str,
) -> Result<Vec<Arc<Object>>, DecodeError> {
    pods.lister()
        .by_index(CLAIM, claim)
        .unwrap_or(Ok(Vec::new()))
}

/// Whether a pod's JSON may contain a claim.
pub(crate) fn may_claim(text: &[u8]) -> bool {
    contains_bytes(text, b"\"persistentVolumeClaim\"") || contains_bytes(text, b"\"ephemeral\"")
}

/// Whether a text contains a word; avoids decoding most objects.
pub(crate) fn contains_bytes(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

/// The names of the claims of a pod.
pub(crate) fn claim_names(pod: &Object) -> impl Iterator<Item = String> {
    pod["spec"]["volumes"]
        .list()
        .iter()
        .filter_map(|volume| claim_name(pod, volume))
}

/// The name of the claim of a pod's volume, if it has one.
pub(crate) fn claim_name(pod: &Object, volume: &Value) -> Option<String> {
    match (&volume["persistentVolumeClaim"], &volume["ephemeral"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, _) => Some(format!("{}-{}", pod.name(), volume["name"].str())),
        (claim, _) => Some(claim["claimName"].str().into()),
    }
}
