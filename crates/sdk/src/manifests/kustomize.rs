//! Kustomize: a base per part, one for all of them, and overlays.

use std::collections::BTreeMap;

use mizzen_value::{Value, value, yaml};

use super::Manifests;
use super::files::MARK;
use super::objects::{Installation, ManifestFile};

impl Manifests {
    /// The files of Kustomize, by their paths.
    pub(super) fn kustomize_files(&self) -> BTreeMap<String, String> {
        let at = Installation {
            namespace: self.namespace.clone(),
            service_account: self.name.clone(),
        };
        let mut manifests = self.manifest_files(&at);
        manifests.push(ManifestFile {
            base: "manager",
            name: "namespace.yaml".into(),
            objects: vec![self.namespace_object()],
        });
        let mut files = BTreeMap::new();
        let mut bases: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ManifestFile {
            base,
            name,
            objects,
        } in &manifests
        {
            bases.entry(base).or_default().push(name.into());
            files.insert(format!("{base}/{name}"), generated(objects));
        }
        for (base, names) in &mut bases {
            names.sort_by(|left, right| left.str().cmp(right.str()));
            let kustomization = kustomization(names.clone());
            files.insert(
                format!("{base}/kustomization.yaml"),
                generated(&[kustomization]),
            );
        }
        let all = bases.keys().map(|base| format!("../{base}").into());
        files.insert(
            "default/kustomization.yaml".into(),
            generated(&[kustomization(all.collect())]),
        );
        files.extend(self.development_overlay(&at));
        files.extend(self.production_overlay(&at));
        files
    }

    /// A debug log, and images that were loaded into the nodes.
    fn development_overlay(&self, at: &Installation) -> Vec<(String, String)> {
        let mut patch = self.object("apps/v1", "Deployment", &self.name, Some(at));
        patch.set(
            "spec",
            value!({"template": {"spec": {"containers": [{
                "name": "manager",
                "env": [{"name": "RUST_LOG", "value": "debug"}],
                "imagePullPolicy": "IfNotPresent",
            }]}}}),
        );
        let mut overlay = kustomization(vec!["../../default".into()]);
        overlay.set("patches", value!([{"path": "deployment.yaml"}]));
        vec![
            (
                "overlays/development/kustomization.yaml".into(),
                generated(&[overlay]),
            ),
            (
                "overlays/development/deployment.yaml".into(),
                generated(&[patch]),
            ),
        ]
    }

    /// The image of this version; with leader election two replicas on different nodes, one of which
    /// is available while nodes are drained.
    fn production_overlay(&self, at: &Installation) -> Vec<(String, String)> {
        let mut overlay = kustomization(vec!["../../default".into()]);
        let (repository, tag) = self.image_parts();
        if tag.is_some() {
            overlay.set(
                "images",
                value!([{"name": repository, "newTag": (&self.version)}]),
            );
        }
        let mut files = Vec::new();
        if self.lease.is_some() {
            let mut patch = self.object("apps/v1", "Deployment", &self.name, Some(at));
            patch.set(
                "spec",
                value!({"template": {"spec": {"topologySpreadConstraints": [{
                    "labelSelector": {"matchLabels": (self.labels())},
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                }]}}}),
            );
            let mut budget = self.object("policy/v1", "PodDisruptionBudget", &self.name, Some(at));
            budget.set(
                "spec",
                value!({"minAvailable": 1, "selector": {"matchLabels": (self.labels())}}),
            );
            overlay
                .entry("resources")
                .make_list()
                .push("disruption_budget.yaml".into());
            overlay.set("patches", value!([{"path": "deployment.yaml"}]));
            overlay.set("replicas", value!([{"name": (&self.name), "count": 2}]));
            let folder = "overlays/production";
            files.push((format!("{folder}/deployment.yaml"), generated(&[patch])));
            files.push((
                format!("{folder}/disruption_budget.yaml"),
                generated(&[budget]),
            ));
        }
        let path = "overlays/production/kustomization.yaml";
        files.push((path.into(), generated(&[overlay])));
        files
    }

    /// The repository of the image, and its tag unless it has a digest.
    pub(super) fn image_parts(&self) -> (&str, Option<&str>) {
        if self.image.contains('@') {
            return (&self.image, None);
        }
        // A colon before a slash is that of a port.
        match self.image.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (&self.image, Some("latest")),
        }
    }
}

fn kustomization(resources: Vec<Value>) -> Value {
    value!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    })
}

/// The text of a file with these objects.
pub(super) fn generated(objects: &[Value]) -> String {
    let documents: Vec<String> = objects.iter().map(yaml::write).collect();
    format!("# {MARK}\n{}", documents.join("---\n"))
}
