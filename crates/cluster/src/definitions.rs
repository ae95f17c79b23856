//! The CustomResourceDefinitions of a store.

use std::collections::HashMap;

use mizzen_store::Snapshot;
use mizzen_value::{Value, json};

/// The keyspace in which they are.
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The definitions of that keyspace, by the keyspace of their objects.
pub(crate) fn by_keyspace(definitions: &Snapshot) -> HashMap<String, Value> {
    let parsed = definitions.range("", None).filter_map(|record| {
        let definition = json::parse(&record.value).ok()?;
        let spec = &definition["spec"];
        let (group, plural) = (spec["group"].str(), spec["names"]["plural"].str());
        Some((format!("{group}/{plural}"), definition))
    });
    parsed.collect()
}
