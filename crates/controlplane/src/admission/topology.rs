//! PodTopologyLabels: a pod gets zone and region of its node as labels.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;

use super::Attributes;

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Labels a pod that is created on a node, or a binding.
pub(super) fn admit(attributes: &Attributes, object: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is("", "pods") || !attributes.is_create() {
        return Ok(());
    }
    let node = match attributes.subresource() {
        "" => object["spec"]["nodeName"].str(),
        "binding" if object["target"]["kind"].str() == "Node" => object["target"]["name"].str(),
        _ => "",
    };
    if node.is_empty() {
        return Ok(());
    }
    let node = attributes.find("", "nodes", "", node).unwrap_or_default();
    for label in LABELS {
        if let Some(place) = node["metadata"]["labels"].get(label) {
            object
                .entry("metadata")
                .entry("labels")
                .set(label, place.clone());
        }
    }
    Ok(())
}
