//! Which class is a claim or an ingress of that names none?

use mizzen_object::Status;
use mizzen_value::Value;

use super::Attributes;

const STORAGE: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const INGRESS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

/// Gives a new claim the default class of storage.
pub(super) fn admit_claim(attributes: &Attributes, claim: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "persistentvolumeclaims")
        || !attributes.is_create()
        || has_class(claim)
    {
        return Ok(());
    }
    if let Some(name) = newest(
        attributes.all("storage.k8s.io", "storageclasses", "")?,
        &STORAGE,
    ) {
        claim.entry("spec").set("storageClassName", name);
    }
    Ok(())
}

/// Gives a new ingress the default class of ingresses.
pub(super) fn admit_ingress(attributes: &Attributes, ingress: &mut Value) -> Result<(), Status> {
    const GROUP: &str = "networking.k8s.io";
    if !attributes.is_main(GROUP, "ingresses") || !attributes.is_create() {
        return Ok(());
    }
    let annotations = &ingress["metadata"]["annotations"];
    if ingress["spec"]["ingressClassName"].as_str().is_some()
        || annotations.get("kubernetes.io/ingress.class").is_some()
    {
        return Ok(());
    }
    if let Some(name) = newest(attributes.all(GROUP, "ingressclasses", "")?, &INGRESS) {
        ingress.entry("spec").set("ingressClassName", name);
    }
    Ok(())
}

/// Whether a claim says of which class it is. The empty one is one too: no class at all.
fn has_class(claim: &Value) -> bool {
    let annotations = &claim["metadata"]["annotations"];
    annotations
        .get("volume.beta.kubernetes.io/storage-class")
        .is_some()
        || claim["spec"]["storageClassName"].as_str().is_some()
}

/// The name of the default class: the newest of those that want to be it.
fn newest(classes: Vec<Value>, marks: &[&str]) -> Option<Value> {
    let wants = |class: &Value| {
        marks
            .iter()
            .any(|mark| class["metadata"]["annotations"][*mark].str() == "true")
    };
    let mut wanting: Vec<Value> = classes
        .into_iter()
        .filter(wants)
        .map(|mut class| class.remove("metadata").unwrap_or_default())
        .collect();
    wanting.sort_by(|one, other| {
        let newest = other["creationTimestamp"]
            .str()
            .cmp(one["creationTimestamp"].str());
        newest.then_with(|| one["name"].str().cmp(other["name"].str()))
    });
    wanting
        .into_iter()
        .next()
        .map(|metadata| metadata["name"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check(classes: &[(&str, &str, &str)], expected: Option<&str>) {
        let class = |(name, made, is_default): &(&str, &str, &str)| {
            value!({ "metadata": { "name": (*name), "creationTimestamp": (*made), "annotations": {
                "ingressclass.kubernetes.io/is-default-class": (*is_default) } } })
        };
        let found = newest(classes.iter().map(class).collect(), &INGRESS);
        assert_eq!(found.as_ref().map(Value::str), expected);
    }

    #[test]
    fn the_newest_of_several_defaults_counts() {
        check(&[("a", "2026-01-01T00:00:00Z", "no")], None);
        check(
            &[
                ("a", "2026-01-01T00:00:00Z", "true"),
                ("b", "2026-01-02T00:00:00Z", "true"),
            ],
            Some("b"),
        );
        check(
            &[
                ("b", "2026-01-01T00:00:00Z", "true"),
                ("a", "2026-01-01T00:00:00Z", "true"),
            ],
            Some("a"),
        );
    }
}
