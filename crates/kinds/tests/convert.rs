//! Old versions lose nothing on their way to storage and back, nor do stored objects on their way to an old version
//! and back.

mod generate;

use std::sync::LazyLock;

use mizzen_kinds::{KindCatalog, catalog, legacy_catalog, legacy_kinds};
use mizzen_object::schema::{canonical, canonical_stored};
use mizzen_object::{Kind, Violations};
use mizzen_value::{Value, json};

use generate::{object, scatter, seeds};

static CATALOG: LazyLock<KindCatalog> = LazyLock::new(legacy_catalog);

/// Every removed version with the kind as which it is kept.
fn pairs() -> impl Iterator<Item = (&'static Kind, &'static Kind)> {
    let stored = |old: &Kind| {
        CATALOG
            .kinds
            .iter()
            .find(|kind| Some(&kind.gvk) == old.stored.as_ref())
    };
    let old = &CATALOG.kinds[catalog().kinds.len()..];
    old.iter()
        .map(move |old| (old, stored(old).expect("it is kept as a kind that exists")))
}

fn to_stored(old: &Kind, hub: &Kind, mut object: Value) -> Value {
    old.hooks.to_stored(&mut object);
    canonical_stored(&hub.root, &mut object);
    object
}

fn from_stored(old: &Kind, mut object: Value) -> Value {
    old.hooks.from_stored(&mut object);
    canonical(&old.root, &mut object);
    object
}

fn default(kind: &Kind, object: &mut Value) {
    mizzen_object::default::apply(&kind.root, object);
    kind.hooks.default(object);
    canonical(&kind.root, object);
}

#[test]
fn an_old_version_comes_back_as_it_was() {
    for seed in seeds(150) {
        for (old, hub) in pairs() {
            let mut sent = object(&old.root, scatter(seed, 1), scatter(seed, 2));
            make_sense(&mut sent);
            mend_topology(&mut sent);
            default(old, &mut sent);
            canonical_stored(&old.root, &mut sent);
            let mut violations = Violations::default();
            old.hooks.validate_unconverted(&sent, &mut violations);
            assert!(violations.is_empty(), "{seed} {}: {violations:?}", old.gvk);
            let back = from_stored(old, to_stored(old, hub, sent.clone()));
            assert_eq!(
                json::to_string(&back),
                json::to_string(&sent),
                "seed {seed}: {}",
                old.gvk
            );
        }
    }
}

#[test]
fn a_stored_object_comes_back_from_an_old_version() {
    for seed in seeds(150) {
        for (old, hub) in pairs() {
            let mut kept = object(&hub.root, scatter(seed, 3), scatter(seed, 4));
            make_sense(&mut kept);
            if old.gvk.version == "v2beta1" {
                mend_metrics(&mut kept);
            }
            default(hub, &mut kept);
            canonical_stored(&hub.root, &mut kept);
            let back = to_stored(old, hub, from_stored(old, kept.clone()));
            assert_eq!(
                json::to_string(&back),
                json::to_string(&kept),
                "seed {seed}: {}",
                hub.gvk
            );
        }
    }
}

#[test]
fn every_removed_version_is_stored_as_one_that_is_left() {
    let mut versions: Vec<String> = pairs()
        .map(|(old, _)| old.gvk.api_version().to_string())
        .collect();
    assert_eq!(versions.len(), legacy_kinds().len());
    versions.dedup();
    let expected = expect_test::expect![[r#"
        admissionregistration.k8s.io/v1beta1
        apiextensions.k8s.io/v1beta1
        apiregistration.k8s.io/v1beta1
        apps/v1beta1
        apps/v1beta2
        authentication.k8s.io/v1beta1
        authorization.k8s.io/v1beta1
        autoscaling/v2beta1
        autoscaling/v2beta2
        batch/v1beta1
        certificates.k8s.io/v1beta1
        coordination.k8s.io/v1beta1
        discovery.k8s.io/v1beta1
        events.k8s.io/v1beta1
        extensions/v1beta1
        flowcontrol.apiserver.k8s.io/v1beta1
        flowcontrol.apiserver.k8s.io/v1beta2
        flowcontrol.apiserver.k8s.io/v1beta3
        networking.k8s.io/v1beta1
        node.k8s.io/v1beta1
        policy/v1beta1
        rbac.authorization.k8s.io/v1beta1
        scheduling.k8s.io/v1beta1
        storage.k8s.io/v1beta1"#]];
    expected.assert_eq(&versions.join("\n"));
    assert!(pairs().all(|(old, hub)| hub.stored.is_none() && old.deprecated.is_some()));
}

#[test]
fn what_is_a_field_in_one_version_is_an_annotation_in_the_other() {
    let annotated = |kind: &str, old: &str, annotations: &str| {
        let (old_kind, hub) = pairs()
            .find(|(old, _)| format!("{} {}", old.gvk.api_version(), old.gvk.kind) == kind)
            .expect("a kind");
        let parse = |text: &str| json::parse(text.as_bytes()).expect("it is JSON");
        let mut sent = parse(old);
        canonical(&old_kind.root, &mut sent);
        let stored = to_stored(old_kind, hub, sent.clone());
        assert_eq!(
            stored["metadata"]["annotations"],
            parse(annotations),
            "{kind}"
        );
        assert_eq!(
            json::to_string(&from_stored(old_kind, stored)),
            json::to_string(&sent),
            "{kind}"
        );
    };
    for version in ["apps/v1beta1", "extensions/v1beta1"] {
        let kind = format!("{version} Deployment");
        let rollback = r#"{"deprecated.deployment.rollback.to":"3"}"#;
        annotated(&kind, r#"{"spec":{"rollbackTo":{"revision":3}}}"#, rollback);
        annotated(&kind, r#"{"spec":{}}"#, "null");
    }
    let generation = r#"{"deprecated.daemonset.template.generation":"7"}"#;
    annotated(
        "extensions/v1beta1 DaemonSet",
        r#"{"spec":{"templateGeneration":7}}"#,
        generation,
    );
}

/// Mends what no server accepts and no other version could say.
fn make_sense(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        mend_definition(spec);
    }
    // apps/v1 does not tell a generation of zero from none.
    if object.at("status.observedGeneration").int() == 0 {
        object.entry("status").remove("observedGeneration");
    }
    // No server accepts an empty list of policies, which one version would not show.
    for direction in ["scaleUp", "scaleDown"] {
        let rules = object
            .at_mut("spec.behavior")
            .and_then(|behavior| behavior.get_mut(direction));
        if let Some(rules) = rules.filter(|rules| rules["policies"].is_empty()) {
            rules.remove("policies");
        }
    }
    mend_backends(object);
}

/// A definition has versions, and what they have stands above them or in them.
fn mend_definition(spec: &mut Value) {
    if spec.get("names").is_none() && spec.get("versions").is_none() {
        return;
    }
    let above = [
        "validation",
        "subresources",
        "additionalPrinterColumns",
        "selectableFields",
    ];
    let has_any = above.iter().any(|name| spec.get(name).is_some());
    let mut version = spec["versions"][0].clone();
    version.set("name", "v1");
    let mut versions = vec![version];
    versions.extend(spec["versions"].list().iter().skip(1).cloned());
    for (index, version) in versions.iter_mut().enumerate() {
        if has_any || index > 0 {
            for name in [
                "schema",
                "subresources",
                "additionalPrinterColumns",
                "selectableFields",
            ] {
                version.remove(name);
            }
        }
    }
    if !has_any && versions.len() == 1 {
        versions.push(mizzen_value::value!({"name": "v2"}));
    }
    spec.set("versions", versions);
    if spec.get("version").is_some() {
        spec.set("version", "v1");
    }
    let has_client = !spec.at("conversion.webhook.clientConfig").is_null();
    if let Some(conversion) = spec.get_mut("conversion").filter(|_| !has_client) {
        conversion.remove("webhook");
    }
}

/// v1beta1's topology has the node's name, too.
fn mend_topology(slice: &mut Value) {
    for endpoint in slice
        .get_mut("endpoints")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        if let Some(node) = endpoint["nodeName"].as_str().map(String::from) {
            endpoint
                .entry("topology")
                .set("kubernetes.io/hostname", node);
        }
    }
}

/// v2beta1 has other fields for each source, and no types of targets: what it cannot say is not there, and what it
/// always says is.
fn mend_metrics(autoscaler: &mut Value) {
    let metrics = |autoscaler: &mut Value, path: &str, holder: &str| {
        for metric in autoscaler
            .at_mut(path)
            .into_iter()
            .flat_map(Value::list_mut)
        {
            for source in [
                "object",
                "pods",
                "resource",
                "containerResource",
                "external",
            ] {
                if let Some(found) = metric.get_mut(source) {
                    mend_amounts(source, holder, found.entry(holder));
                }
            }
        }
    };
    metrics(autoscaler, "spec.metrics", "target");
    metrics(autoscaler, "status.currentMetrics", "current");
}

fn mend_amounts(source: &str, holder: &str, amounts: &mut Value) {
    let is_target = holder == "target";
    let (value, average, utilization) = match source {
        "object" | "external" => (true, true, false),
        "pods" => (false, true, false),
        _ => (false, true, true),
    };
    for (name, is_there) in [
        ("value", value),
        ("averageValue", average),
        ("averageUtilization", utilization),
    ] {
        if !is_there {
            amounts.remove(name);
        }
    }
    let by_average = amounts.get("averageValue").is_some();
    match (is_target, source) {
        (true, "pods") | (false, "pods" | "resource" | "containerResource") => {
            amounts.set_default("averageValue", "1");
        }
        (false, _) => amounts.set_default("value", "1"),
        (true, "object") if by_average => drop(amounts.remove("value")),
        (true, "object") => amounts.set_default("value", "1"),
        _ => {}
    }
    let target_type = match source {
        "object" if by_average => "AverageValue",
        "object" => "Value",
        "external" if amounts.get("value").is_some() => "Value",
        "resource" | "containerResource" if amounts.get("averageUtilization").is_some() => {
            "Utilization"
        }
        _ => "AverageValue",
    };
    if is_target {
        amounts.set("type", target_type);
    }
}

/// A backend's service has a name, and its port a name or a number.
fn mend_backends(value: &mut Value) {
    if let Value::List(items) = value {
        items.iter_mut().for_each(mend_backends);
    }
    let Value::Map(map) = value else { return };
    if map
        .get("servicePort")
        .is_some_and(|port| port.as_str() == Some(""))
    {
        map.insert("servicePort", 80);
    }
    if let Some(service) = map
        .get_mut("service")
        .filter(|service| service.get("port").is_some())
    {
        if service["name"].is_empty() {
            service.set("name", "a");
        }
        if !service["port"]["name"].is_empty() {
            service.entry("port").remove("number");
        }
    }
    map.values_mut().for_each(mend_backends);
}
