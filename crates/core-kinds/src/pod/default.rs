//! Defaults of pods.
//!
//! Besides plain defaults this knows the places where one fact has two names (`serviceAccount`, `podIP`), and
//! values that were once accepted and are now replaced.

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::image;
use mizzen_component_helpers::pod_resources::{ResourceField, aggregate_spec, is_pod_level};
use mizzen_component_helpers::resource_names::is_huge_page;

/// Fills a whole pod.
pub(super) fn default_pod(pod: &mut Value) {
    let spec = pod.entry("spec");
    for list in ["containers", "initContainers"] {
        each(spec, list, |container| {
            // A request defaults to the limit.
            let limits = container.at("resources.limits").clone();
            for (name, limit) in limits.entries() {
                container
                    .entry("resources")
                    .entry("requests")
                    .set_default(name, limit.clone());
            }
        });
    }
    // What the pod as a whole may use follows from its containers where it is said in part only.
    let said = |spec: &Value, key: &str| spec["resources"][key].entries().next().is_some();
    if !(!said(spec, "limits") && !said(spec, "requests")) {
        let requested = spec.at("resources.requests").clone();
        for (name, limit) in aggregate_spec(spec, ResourceField::Limits) {
            if is_huge_page(&name) && requested.get(&name).is_none() {
                spec.entry("resources")
                    .entry("limits")
                    .set_default(&name, limit.to_string());
            }
        }
        if said(spec, "limits") {
            for (name, request) in aggregate_spec(spec, ResourceField::Requests) {
                if matches!(name.as_str(), "cpu" | "memory") {
                    spec.entry("resources")
                        .entry("requests")
                        .set_default(&name, request.to_string());
                }
            }
            let limits = spec.at("resources.limits").clone();
            for (name, limit) in limits.entries().filter(|(name, _)| is_pod_level(name)) {
                spec.entry("resources")
                    .entry("requests")
                    .set_default(name, limit.clone());
            }
        }
    }
    spec.set_default("enableServiceLinks", true);
    if spec["hostNetwork"].bool() {
        for list in ["containers", "initContainers"] {
            each(spec, list, |container| {
                each(container, "ports", |port| {
                    let number = port["containerPort"].clone();
                    port.set_default("hostPort", number);
                });
            });
        }
    }
    default_spec(spec);
    if spec["terminationGracePeriodSeconds"].int() < 0 {
        spec.set("terminationGracePeriodSeconds", 1);
    }
    drop_legacy_annotations(pod);
    // `podIP` is the old name of the first of `podIPs`, and wins where they differ.
    let Some(status) = pod.get_mut("status") else {
        return;
    };
    let (ip, first) = (status["podIP"].clone(), status["podIPs"][0]["ip"].clone());
    if !ip.str().is_empty() && ip != first {
        status.set("podIPs", vec![mizzen_value::value!({"ip": (ip.clone())})]);
    } else if ip.str().is_empty() && !first.is_null() {
        status.set("podIP", first);
    }
    for list in super::STATUS_LISTS {
        each(status, list, round_allocated);
    }
    round_allocated(status);
}

/// Fills a template of pods. It says less than a pod: what only a pod needs is filled when one is made.
pub fn default_template(template: &mut Value) {
    default_spec(template.entry("spec"));
    drop_legacy_annotations(template);
}

fn default_spec(spec: &mut Value) {
    spec.set_default("dnsPolicy", "ClusterFirst");
    spec.set_default("restartPolicy", "Always");
    spec.set_default("securityContext", Value::object());
    spec.set_default("terminationGracePeriodSeconds", 30);
    spec.set_default("schedulerName", "default-scheduler");
    // `serviceAccount` is the old name of `serviceAccountName`.
    let known = ["serviceAccountName", "serviceAccount"].map(|name| spec[name].clone());
    if let Some(name) = known.into_iter().find(|name| !name.is_empty()) {
        spec.set("serviceAccountName", name.clone());
        spec.set("serviceAccount", name);
    }
    each(spec, "volumes", default_volume);
    for list in super::CONTAINER_LISTS {
        each(spec, list, default_container);
    }
    round(spec.get_mut("overhead"));
    round_requirements(spec);
}

/// Kubernetes: pods had their init containers in annotations before 1.6 (pkg/apis/core/v1/conversion.go).
fn drop_legacy_annotations(object: &mut Value) {
    if let Some(Value::Map(annotations)) = object.at_mut("metadata.annotations") {
        for stage in ["alpha", "beta"] {
            annotations.remove(&format!("pod.{stage}.kubernetes.io/init-containers"));
            annotations.remove(&format!(
                "pod.{stage}.kubernetes.io/init-container-statuses"
            ));
        }
    }
}

fn default_container(container: &mut Value) {
    container.set_default(
        "imagePullPolicy",
        image::pull_policy(container["image"].str()),
    );
    container.set_default("terminationMessagePath", "/dev/termination-log");
    container.set_default("terminationMessagePolicy", "File");
    each(container, "env", |variable| {
        with(variable, "valueFrom.fieldRef", default_field_ref);
        with(variable, "valueFrom.fileKeyRef", |file| {
            file.set_default("optional", false)
        });
    });
    round_requirements(container);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, probe, |probe| {
            probe.set_default("timeoutSeconds", 1);
            probe.set_default("periodSeconds", 10);
            probe.set_default("successThreshold", 1);
            probe.set_default("failureThreshold", 3);
            with(probe, "httpGet", default_http_get);
            with(probe, "grpc", |grpc| grpc.set_default("service", ""));
        });
    }
    for moment in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        with(container, moment, default_http_get);
    }
}

fn default_field_ref(field: &mut Value) {
    field.set_default("apiVersion", "v1");
}

fn default_http_get(action: &mut Value) {
    action.set_default("path", "/");
    action.set_default("scheme", "HTTP");
}

fn default_volume(volume: &mut Value) {
    let sourceless = volume
        .entries()
        .all(|(key, value)| key == "name" || value.is_null());
    if sourceless {
        volume.set("emptyDir", Value::object());
    }
    with(volume, "image", |image| {
        image.set_default("pullPolicy", image::pull_policy(image["reference"].str()));
    });
    with(volume, "hostPath", |path| path.set_default("type", ""));
    with(volume, "azureDisk", |disk| {
        disk.set_default("readOnly", false)
    });
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        with(volume, source, |source| {
            source.set_default("defaultMode", 0o644)
        });
    }
    with(volume, "downwardAPI", default_files);
    with(volume, "projected", |projected| {
        each(projected, "sources", |source| {
            with(source, "downwardAPI", default_files);
            with(source, "serviceAccountToken", |token| {
                token.set_default("expirationSeconds", 3600)
            });
        })
    });
    with(volume, "ephemeral.volumeClaimTemplate.spec", |claim| {
        claim.set_default("volumeMode", "Filesystem");
        round_requirements(claim);
    });
}

fn default_files(source: &mut Value) {
    each(source, "items", |file| {
        with(file, "fieldRef", default_field_ref)
    });
}

fn round_allocated(status: &mut Value) {
    round(status.get_mut("allocatedResources"));
    round_requirements(status);
}

fn round_requirements(holder: &mut Value) {
    round(holder.at_mut("resources.limits"));
    round(holder.at_mut("resources.requests"));
}

/// Amounts are kept in thousandths at the finest.
pub fn round(amounts: Option<&mut Value>) {
    let Some(Value::Map(amounts)) = amounts else {
        return;
    };
    for amount in amounts.values_mut() {
        if let Some(rounded) = Quantity::parse_or_zero(amount.str()).rounded_to_milli() {
            *amount = rounded.to_string().into();
        }
    }
}

/// Does something to each item of a list, if there is one.
pub fn each(value: &mut Value, list: &str, act: impl FnMut(&mut Value)) {
    if let Some(list) = value.get_mut(list) {
        list.list_mut().iter_mut().for_each(act);
    }
}

/// Does something to what a path leads to, if it leads to something.
pub fn with(value: &mut Value, path: &str, act: impl FnOnce(&mut Value)) {
    if let Some(value) = value.at_mut(path).filter(|value| !value.is_null()) {
        act(value);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use mizzen_value::{Value, json};

    use super::{default_pod, default_template};

    #[track_caller]
    fn check(part: &str, spec: &str, expected: Expect) {
        let spec = json::parse(spec.as_bytes()).unwrap();
        let mut pod = mizzen_value::value!({"spec": spec});
        default_pod(&mut pod);
        expected.assert_eq(&json::to_string(pod["spec"].at(part)));
    }

    #[test]
    fn a_container_says_when_to_pull_and_where_to_write() {
        check(
            "containers",
            r#"{"containers":[{"image":"x:1"}]}"#,
            expect![[
                r#"[{"image":"x:1","imagePullPolicy":"IfNotPresent","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]"#
            ]],
        );
    }

    #[test]
    fn a_volume_without_a_source_is_an_empty_directory() {
        check(
            "volumes",
            r#"{"volumes":[{"name":"a"},{"name":"b","secret":{"secretName":"s"}},{"name":"c","hostPath":{"path":"/"}}]}"#,
            expect![[
                r#"[{"name":"a","emptyDir":{}},{"name":"b","secret":{"secretName":"s","defaultMode":420}},{"name":"c","hostPath":{"path":"/","type":""}}]"#
            ]],
        );
    }

    #[test]
    fn a_pod_level_limit_defaults_the_pod_level_requests() {
        check(
            "resources",
            r#"{"resources":{"limits":{"cpu":"2","memory":"1Gi"}},
                "containers":[{"resources":{"requests":{"cpu":"100m"}}},{"resources":{"requests":{"cpu":"200m"}}}]}"#,
            expect![[
                r#"{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"300m","memory":"1Gi"}}"#
            ]],
        );
    }

    #[test]
    fn one_name_of_the_service_account_gives_the_other() {
        check(
            "serviceAccountName",
            r#"{"serviceAccount":"a"}"#,
            expect![[r#""a""#]],
        );
        check(
            "serviceAccount",
            r#"{"serviceAccountName":"a","serviceAccount":"b"}"#,
            expect![[r#""a""#]],
        );
    }

    #[test]
    fn amounts_have_thousandths_at_the_finest() {
        check(
            "overhead",
            r#"{"overhead":{"cpu":"1500u","memory":"1"}}"#,
            expect![[r#"{"cpu":"2m","memory":"1"}"#]],
        );
    }

    #[test]
    fn a_template_leaves_to_the_pod_what_is_the_pods() {
        let mut template = Value::object();
        default_template(&mut template);
        let expected = expect![[
            r#"{"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","securityContext":{},"terminationGracePeriodSeconds":30,"schedulerName":"default-scheduler"}}"#
        ]];
        expected.assert_eq(&json::to_string(&template));
    }

    #[test]
    fn nothing_changes_the_second_time() {
        let mut pod =
            json::parse(br#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}"#)
                .unwrap();
        default_pod(&mut pod);
        let once = pod.clone();
        default_pod(&mut pod);
        assert_eq!(pod, once);
    }
}
