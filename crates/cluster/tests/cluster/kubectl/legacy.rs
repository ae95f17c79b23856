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
    [
        "cronjobs",
        "batch",
        "tidy",
        "{.spec.concurrencyPolicy}=Allow",
        "{.spec.concurrencyPolicy}=Allow",
    ],
    [
        "poddisruptionbudgets",
        "policy",
        "nobody",
        "{.spec.selector}={}",
        "{.spec.selector.matchExpressions[0].operator}=Exists",
    ],
    [
        "roles",
        RBAC,
        "reader",
        "{.rules[0].verbs}=[\"get\"]",
        "{.rules[0].verbs}=[\"get\"]",
    ],
    [
        "rolebindings",
        RBAC,
        "reader",
        "{.subjects[0].name}=jane",
        "{.subjects[0].name}=jane",
    ],
    [
        "clusterroles",
        RBAC,
        "old-reader",
        "{.rules[0].verbs}=[\"get\"]",
        "{.rules[0].verbs}=[\"get\"]",
    ],
    [
        "clusterrolebindings",
        RBAC,
        "old-reader",
        "{.roleRef.name}=old-reader",
        "{.roleRef.name}=old-reader",
    ],
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

/// Resource, a removed version and the one that is left, name, a field in each and its value.
const WORKLOADS: [[&str; 6]; 11] = [
    [
        "deployments",
        "extensions/v1beta1",
        "apps/v1",
        "web",
        "{.spec.revisionHistoryLimit}=2147483647",
        "{.spec.selector.matchLabels.app} {.spec.strategy.rollingUpdate.maxSurge}=web 1",
    ],
    [
        "ingresses",
        "extensions/v1beta1",
        "networking.k8s.io/v1",
        "web",
        "{.spec.rules[0].http.paths[0].backend.servicePort}=80",
        "{.spec.rules[0].http.paths[0].backend.service.port.number}=80",
    ],
    [
        "daemonsets",
        "extensions/v1beta1",
        "apps/v1",
        "logs",
        "{.spec.templateGeneration}=1",
        "{.spec.updateStrategy.type}=OnDelete",
    ],
    [
        "statefulsets",
        "apps/v1beta1",
        "apps/v1",
        "db",
        "{.spec.updateStrategy.type}=OnDelete",
        "{.spec.selector.matchLabels.app}=db",
    ],
    [
        "deployments",
        "apps/v1beta2",
        "apps/v1",
        "api",
        "{.spec.progressDeadlineSeconds}=600",
        "{.spec.progressDeadlineSeconds}=600",
    ],
    [
        "horizontalpodautoscalers",
        "autoscaling/v2beta2",
        "autoscaling/v2",
        "web",
        "{.spec.minReplicas}=1",
        "{.spec.metrics[0].resource.target.averageUtilization}=50",
    ],
    [
        "horizontalpodautoscalers",
        "autoscaling/v2beta1",
        "autoscaling/v2",
        "api",
        "{.spec.metrics[0].pods.targetAverageValue}=1k",
        "{.spec.metrics[0].pods.target.averageValue}=1k",
    ],
    [
        "certificatesigningrequests",
        "certificates.k8s.io/v1beta1",
        "certificates.k8s.io/v1",
        "old-node",
        "{.spec.signerName}=kubernetes.io/kube-apiserver-client-kubelet",
        "{.spec.signerName}=kubernetes.io/kube-apiserver-client-kubelet",
    ],
    [
        "priorityclasses",
        "scheduling.k8s.io/v1beta1",
        "scheduling.k8s.io/v1",
        "high",
        "{.preemptionPolicy}=PreemptLowerPriority",
        "{.value}=1000",
    ],
    [
        "storageclasses",
        "storage.k8s.io/v1beta1",
        "storage.k8s.io/v1",
        "old-disks",
        "{.volumeBindingMode}=Immediate",
        "{.reclaimPolicy}=Delete",
    ],
    [
        "prioritylevelconfigurations",
        "flowcontrol.apiserver.k8s.io/v1beta2",
        "flowcontrol.apiserver.k8s.io/v1",
        "old-level",
        "{.spec.limited.assuredConcurrencyShares}=7",
        "{.spec.limited.nominalConcurrencyShares}=7",
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
        assert_eq!(
            text(&output.stdout),
            format!("{group}/{version} {value}"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[tokio::test]
async fn an_old_chart_is_applied_and_read_in_both_versions() {
    let home = Home::in_memory().with("--legacy-apis");
    let Some(kubectl) = Kubectl::start_in(home).await else {
        return;
    };
    let applied = kubectl
        .output(kubectl.command("apply -f legacy.yaml"))
        .await;
    let (stdout, stderr) = (text(&applied.stdout), text(&applied.stderr));
    assert_eq!(
        stdout.matches(" created\n").count(),
        OBJECTS.len(),
        "{stdout}{stderr}"
    );
    assert_eq!(
        stderr.matches(" is deprecated in v1.").count(),
        OBJECTS.len(),
        "{stderr}"
    );
    for [resource, group, name, old, new] in OBJECTS {
        kubectl.has("v1beta1", [resource, group, name], old).await;
        kubectl.has("v1", [resource, group, name], new).await;
    }
    assert_eq!(kubectl.run("diff -f legacy.yaml").await, "");
    kubectl.run("apply -f legacy.yaml").await;
    kubectl
        .run("apply --server-side --force-conflicts -f legacy.yaml")
        .await;
    kubectl.run("replace -f legacy.yaml").await;
    kubectl
        .shows(
            "explain ingress.spec.backend --api-version=networking.k8s.io/v1beta1",
            &["servicePort"],
        )
        .await;
    kubectl.run("delete -f legacy.yaml").await;
    for [resource, group, name, ..] in OBJECTS {
        assert!(
            kubectl
                .refused(&format!("get {resource}.{group} {name}"))
                .await
                .contains("NotFound")
        );
    }
}

#[tokio::test]
async fn manifests_of_the_first_years_are_applied_and_read_in_both_versions() {
    let home = Home::in_memory().with("--legacy-apis");
    let Some(kubectl) = Kubectl::start_in(home).await else {
        return;
    };
    let applied = kubectl
        .output(kubectl.command("apply -f legacy-workloads.yaml"))
        .await;
    let (stdout, stderr) = (text(&applied.stdout), text(&applied.stderr));
    assert_eq!(
        stdout.matches(" created\n").count(),
        WORKLOADS.len(),
        "{stdout}{stderr}"
    );
    for [resource, old, new, name, in_old, in_new] in WORKLOADS {
        for (version, expected) in [(old, in_old), (new, in_new)] {
            let (group, version) = version.split_once('/').expect("group and version");
            kubectl
                .has(version, [resource, group, name], expected)
                .await;
        }
    }
    assert_eq!(kubectl.run("diff -f legacy-workloads.yaml").await, "");
    kubectl.run("apply -f legacy-workloads.yaml").await;
    kubectl
        .run("apply --server-side --force-conflicts -f legacy-workloads.yaml")
        .await;
    kubectl
        .run("scale deployments.v1beta1.extensions web --replicas=3")
        .await;
    kubectl
        .has("v1", ["deployments", "apps", "web"], "{.spec.replicas}=3")
        .await;
    // Without a version kubectl uses the served one.
    kubectl
        .shows("get deployment web -o jsonpath={.apiVersion}", &["apps/v1"])
        .await;
    kubectl
        .shows(
            "get ingress web -o jsonpath={.apiVersion}",
            &["networking.k8s.io/v1"],
        )
        .await;
    kubectl
        .run("delete --wait=false -f legacy-workloads.yaml")
        .await;
}

#[tokio::test]
async fn an_old_chart_is_rejected_without_legacy_apis() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let complaint = kubectl.refused("apply -f legacy.yaml").await;
    assert_eq!(
        complaint.matches("no matches for kind").count(),
        OBJECTS.len(),
        "{complaint}"
    );
    // A kubectl with field validation lists the definitions, and gets the hint with them.
    if !kubectl.lacks("apply --validate=strict") {
        let hint = "such as extensions/v1beta1, are served only with --legacy-apis";
        assert_eq!(complaint.matches(hint).count(), 1, "{complaint}");
    }
    let output = kubectl.output(kubectl.command("get namespaces")).await;
    assert_eq!(text(&output.stderr), "");
    assert!(!kubectl.run("api-versions").await.contains("beta"));
}
