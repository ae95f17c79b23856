//! The objects of an operator, the same for Kustomize and for Helm.

use k8s_openapi::api::rbac::v1::PolicyRule;
use mizzen_value::{Value, json, value};
use serde::Serialize;

use super::{ENDPOINTS_PORT, Manifests};
use crate::rbac::policy_rules;
#[cfg(feature = "webhook")]
use crate::webhook::Endpoint;

/// How the names of files for the leader election begin.
pub(super) const LEADER_ELECTION: &str = "leader_election_";

/// Where an operator is installed.
pub(super) struct Installation {
    pub namespace: String,
    pub service_account: String,
}

/// One generated file.
pub(super) struct ManifestFile {
    /// The Kustomize base: `crd`, `rbac`, `manager` or `webhook`.
    pub base: &'static str,
    pub name: String,
    pub objects: Vec<Value>,
}

impl ManifestFile {
    fn new(base: &'static str, name: impl Into<String>, objects: Vec<Value>) -> ManifestFile {
        ManifestFile {
            base,
            name: name.into(),
            objects,
        }
    }
}

impl Manifests {
    /// All objects, without the Namespace.
    pub(super) fn manifest_files(&self, at: &Installation) -> Vec<ManifestFile> {
        let mut files = self.definition_files(at);
        files.push(ManifestFile::new(
            "rbac",
            "service_account.yaml",
            vec![self.service_account(at)],
        ));
        let (cluster, own) = policy_rules(&self.all_rules());
        let (_, lease) = policy_rules(&self.lease_rules());
        let roles = [
            ("", "ClusterRole", self.name.clone(), cluster),
            ("namespaced_", "Role", self.name.clone(), own),
            (
                LEADER_ELECTION,
                "Role",
                format!("{}-leader-election", self.name),
                lease,
            ),
        ];
        for (prefix, kind, name, rules) in roles {
            if !rules.is_empty() {
                let (role, binding) = self.role_and_binding(kind, &name, &rules, at);
                let (role_file, binding_file) = (
                    format!("{prefix}role.yaml"),
                    format!("{prefix}role_binding.yaml"),
                );
                files.push(ManifestFile::new("rbac", role_file, vec![role]));
                files.push(ManifestFile::new("rbac", binding_file, vec![binding]));
            }
        }
        files.push(ManifestFile::new(
            "manager",
            "deployment.yaml",
            vec![self.deployment(at)],
        ));
        files.extend(self.webhook_files(at));
        files
    }

    /// A file per CustomResourceDefinition, named as controller-gen does.
    fn definition_files(&self, at: &Installation) -> Vec<ManifestFile> {
        let definitions = self.definitions.iter().map(|definition| {
            #[allow(unused_mut, reason = "without webhooks nothing is added")]
            let mut definition = definition.clone();
            #[cfg(feature = "webhook")]
            if let Some(server) = &self.webhooks
                && let Some(name) = &definition.metadata.name
                && server.converts(name)
            {
                let conversion = server.conversion_of(name, &self.endpoint(at), "");
                definition.spec.conversion = Some(conversion);
            }
            #[cfg(not(feature = "webhook"))]
            let _ = at;
            let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
            let file = format!("{group}_{plural}.yaml");
            ManifestFile::new("crd", file, vec![to_value(&definition)])
        });
        definitions.collect()
    }

    pub(super) fn namespace_object(&self) -> Value {
        let mut namespace = value!({"apiVersion": "v1", "kind": "Namespace"});
        let mut labels = self.labels();
        labels.set("pod-security.kubernetes.io/enforce", "restricted");
        namespace.set(
            "metadata",
            value!({"name": (&self.namespace), "labels": labels}),
        );
        namespace
    }

    /// Pods do not get its token unless they ask for it.
    fn service_account(&self, at: &Installation) -> Value {
        let mut object = self.object("v1", "ServiceAccount", &at.service_account, Some(at));
        object.set("automountServiceAccountToken", false);
        object
    }

    /// A role and its binding to the ServiceAccount.
    fn role_and_binding(
        &self,
        kind: &str,
        name: &str,
        rules: &[PolicyRule],
        at: &Installation,
    ) -> (Value, Value) {
        let version = "rbac.authorization.k8s.io/v1";
        let namespaced = (kind == "Role").then_some(at);
        let mut role = self.object(version, kind, name, namespaced);
        role.set("rules", to_value(&rules));
        let mut binding = self.object(version, &format!("{kind}Binding"), name, namespaced);
        binding.set(
            "roleRef",
            value!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}),
        );
        binding.set(
            "subjects",
            value!([{
                "kind": "ServiceAccount",
                "name": (&at.service_account),
                "namespace": (&at.namespace),
            }]),
        );
        (role, binding)
    }

    fn deployment(&self, at: &Installation) -> Value {
        let mut args: Vec<Value> = self.args.iter().map(Value::from).collect();
        if self.lease.is_some() {
            args.push("--leader-elect".into());
        }
        let field = |name: &str, path: &str| value!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        #[allow(unused_mut, reason = "without webhooks nothing is added")]
        let mut ports = vec![value!({"containerPort": ENDPOINTS_PORT, "name": "endpoints"})];
        #[cfg(feature = "webhook")]
        if self.webhooks.is_some() {
            ports.push(value!({"containerPort": (super::WEBHOOK_PORT), "name": "webhook"}));
        }
        let container = value!({
            "name": "manager",
            "image": (&self.image),
            "args": args,
            "env": [
                (field("POD_NAME", "metadata.name")),
                (field("POD_NAMESPACE", "metadata.namespace")),
            ],
            "ports": ports,
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "endpoints"},
                "initialDelaySeconds": 15,
                "periodSeconds": 20,
            },
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": "endpoints"},
                "periodSeconds": 5,
            },
            "resources": (resources()),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
        });
        let mut deployment = self.object("apps/v1", "Deployment", &self.name, Some(at));
        deployment.set(
            "spec",
            value!({
                "replicas": 1,
                "selector": {"matchLabels": (self.labels())},
                "template": {
                    "metadata": {
                        "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                        "labels": (self.labels()),
                    },
                    "spec": {
                        "automountServiceAccountToken": true,
                        "containers": [container],
                        "securityContext": {
                            "runAsNonRoot": true,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "serviceAccountName": (&at.service_account),
                        // Longer than the grace period of the manager.
                        "terminationGracePeriodSeconds": 40,
                    },
                },
            }),
        );
        deployment
    }

    #[cfg(not(feature = "webhook"))]
    fn webhook_files(&self, _: &Installation) -> Vec<ManifestFile> {
        Vec::new()
    }

    #[cfg(feature = "webhook")]
    fn webhook_files(&self, at: &Installation) -> Vec<ManifestFile> {
        let Some(server) = &self.webhooks else {
            return Vec::new();
        };
        let endpoint = self.endpoint(at);
        let mut service = self.object("v1", "Service", &self.webhook_name(), Some(at));
        service.set(
            "spec",
            value!({
                "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}],
                "selector": (self.labels()),
            }),
        );
        let mut files = vec![ManifestFile::new("webhook", "service.yaml", vec![service])];
        let mutating = server.mutating_configuration(&endpoint, "");
        let validating = server.validating_configuration(&endpoint, "");
        let configurations: Vec<Value> = (mutating.iter().map(to_value))
            .chain(validating.iter().map(to_value))
            .map(|mut configuration| {
                configuration.entry("metadata").set("labels", self.labels());
                configuration
            })
            .collect();
        if !configurations.is_empty() {
            files.push(ManifestFile::new(
                "webhook",
                "configurations.yaml",
                configurations,
            ));
        }
        files
    }

    #[cfg(feature = "webhook")]
    fn endpoint(&self, at: &Installation) -> Endpoint {
        Endpoint::service(&at.namespace, self.webhook_name())
    }

    /// An object with metadata; in the namespace of the operator if one is given.
    pub(super) fn object(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        at: Option<&Installation>,
    ) -> Value {
        let mut metadata = value!({"name": name, "labels": (self.labels())});
        if let Some(at) = at {
            metadata.set("namespace", &at.namespace);
        }
        value!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    }

    pub(super) fn labels(&self) -> Value {
        value!({"app.kubernetes.io/name": (&self.name)})
    }
}

/// The resources of the manager.
pub(super) fn resources() -> Value {
    value!({
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"cpu": "500m", "memory": "128Mi"},
    })
}

fn to_value(object: &impl Serialize) -> Value {
    let text = serde_json::to_vec(object).expect("an API object is JSON");
    json::parse(&text).expect("JSON is parsed")
}
