//! Old charts: one manifest of every kind in a version that Kubernetes has removed.

use super::{Kubectl, text};
use crate::process::Home;

/// Resource, group, name, a field of the old version and its value, the same in the new version.
const OBJECTS: [[&str; 5]; 12] = [
    [
        "ingresses",
        "networking.k8s.io",
        "shop",
        "{.spec.rules[0].http.paths[0].backend.servicePort} {.spec.backend.serviceName}=80 fallback",
        "{.spec.rules[0].http.paths[0].backend.service.port.number} {.spec.defaultBackend.service.name}=80 fallback",
    ],
    [
        "ingressclasses",
        "networking.k8s.io",
        "old",
        "{.spec.parameters.scope}=Cluster",
        "{.spec.parameters.scope}=Cluster",
    ],
    ["cronjobs", "batch", "tidy", "{.spec.concurrencyPolicy}=Allow", "{.spec.concurrencyPolicy}=Allow"],
    [
        "poddisruptionbudgets",
        "policy",
        "nobody",
        "{.spec.selector}={}",
        "{.spec.selector.matchExpressions[0].operator}=Exists",
    ],
    ["roles", RBAC, "reader", "{.rules[0].verbs}=[\"get\"]", "{.rules[0].verbs}=[\"get\"]"],
    ["rolebindings", RBAC, "reader", "{.subjects[0].name}=jane", "{.subjects[0].name}=jane"],
    ["clusterroles", RBAC, "old-reader", "{.rules[0].verbs}=[\"get\"]", "{.rules[0].verbs}=[\"get\"]"],
    ["clusterrolebindings", RBAC, "old-reader", "{.roleRef.name}=old-reader", "{.roleRef.name}=old-reader"],
    [
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        "pizzas.example.com",
        "{.spec.version} {.spec.additionalPrinterColumns[0].JSONPath} {.spec.subresources.status}=v1 .spec.size {}",
        "{.spec.versions[0].name} {.spec.versions[0].additionalPrinterColumns[0].jsonPath} \
         {.spec.versions[0].subresources.status}=v1 .spec.size {}",
    ],
    [
        "validatingwebhookconfigurations",
        ADMISSION,
        "old-checks",
        "{.webhooks[0].failurePolicy} {.webhooks[0].timeoutSeconds}=Ignore 30",
        "{.webhooks[0].sideEffects} {.webhooks[0].admissionReviewVersions}=Unknown [\"v1beta1\"]",
    ],
    [
        "mutatingwebhookconfigurations",
        ADMISSION,
        "old-changes",
        "{.webhooks[0].matchPolicy} {.webhooks[0].clientConfig.service.port}=Exact 443",
        "{.webhooks[0].reinvocationPolicy}=Never",
    ],
    [
        "apiservices",
        "apiregistration.k8s.io",
        "v1alpha1.old.example.com",
        "{.spec.service.port}=443",
        "{.spec.service.port}=443",
    ],
];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

impl Kubectl {
    /// An object in a version has a value at a place.
    async fn has(&self, version: &str, [resource, group, name]: [&str; 3], expected: &str) {
        let (path, value) = expected.rsplit_once("}=").expect("a path and a value");
        let object = format!("get {resource}.{version}.{group} {name} -o");
        let mut command = self.command(&object);
        command.arg(format!("jsonpath={{.apiVersion}} {path}}}"));
        let output = self.output(command).await;
        assert_eq!(text(&output.stdout), format!("{group}/{version} {value}"), "{}", text(&output.stderr));
    }
}

#[tokio::test]
async fn an_old_chart_is_applied_and_read_in_both_versions() {
    let home = Home::in_memory().with("--legacy-apis");
    let Some(kubectl) = Kubectl::start_in(home).await else { return };
    let applied = kubectl.output(kubectl.command("apply -f legacy.yaml")).await;
    let (stdout, stderr) = (text(&applied.stdout), text(&applied.stderr));
    assert_eq!(stdout.matches(" created\n").count(), OBJECTS.len(), "{stdout}{stderr}");
    assert_eq!(stderr.matches(" is deprecated in v1.").count(), OBJECTS.len(), "{stderr}");
    for [resource, group, name, old, new] in OBJECTS {
        kubectl.has("v1beta1", [resource, group, name], old).await;
        kubectl.has("v1", [resource, group, name], new).await;
    }
    assert_eq!(kubectl.run("diff -f legacy.yaml").await, "");
    kubectl.run("apply -f legacy.yaml").await;
    kubectl.run("apply --server-side --force-conflicts -f legacy.yaml").await;
    kubectl.run("replace -f legacy.yaml").await;
    kubectl
        .shows("explain ingress.spec.backend --api-version=networking.k8s.io/v1beta1", &["servicePort"])
        .await;
    kubectl.run("delete -f legacy.yaml").await;
    for [resource, group, name, ..] in OBJECTS {
        assert!(kubectl.refused(&format!("get {resource}.{group} {name}")).await.contains("NotFound"));
    }
}

#[tokio::test]
async fn an_old_chart_is_refused_by_a_server_of_today() {
    let Some(kubectl) = Kubectl::start().await else { return };
    let complaint = kubectl.refused("apply -f legacy.yaml").await;
    assert_eq!(complaint.matches("no matches for kind").count(), OBJECTS.len(), "{complaint}");
    assert!(!kubectl.run("api-versions").await.contains("beta"));
}
