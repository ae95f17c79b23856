//! DefaultStorageClass and DefaultIngressClass.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::Value;

use super::Attributes;

const STORAGE: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const INGRESS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

/// Sets the default StorageClass of a new claim.
pub(super) fn admit_claim(
    attributes: &Attributes,
    claim: &mut CanonicalObject,
) -> Result<(), Status> {
    if !attributes.is_main("", "persistentvolumeclaims") || !attributes.is_create() {
        return Ok(());
    }
    // The empty class counts, too: it means no class.
    let annotations = &claim["metadata"]["annotations"];
    if annotations
        .get("volume.beta.kubernetes.io/storage-class")
        .is_some()
        || claim["spec"]["storageClassName"].as_str().is_some()
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

/// Sets the default IngressClass of a new ingress.
pub(super) fn admit_ingress(
    attributes: &Attributes,
    ingress: &mut CanonicalObject,
) -> Result<(), Status> {
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

/// The newest class that is marked as the default.
fn newest(classes: Vec<Value>, marks: &[&str]) -> Option<Value> {
    let is_default = |class: &Value| {
        marks
            .iter()
            .any(|mark| class["metadata"]["annotations"][*mark].str() == "true")
    };
    let mut defaults: Vec<Value> = classes
        .into_iter()
        .filter(is_default)
        .map(|mut class| class.remove("metadata").unwrap_or_default())
        .collect();
    defaults.sort_by(|one, other| {
        let newest = other["creationTimestamp"]
            .str()
            .cmp(one["creationTimestamp"].str());
        newest.then_with(|| one["name"].str().cmp(other["name"].str()))
    });
    defaults
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
