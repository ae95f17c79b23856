//! Names of the objects that a pod or a volume refers to.

mod api_reference;

use std::borrow::Cow;

use mizzen_value::Value;

pub use api_reference::api_reference;

use crate::pod_state::CONTAINER_LISTS;

/// Marks a pod that stands for one that a node runs by itself.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where a volume of a pod names a secret.
const SECRETS: [&str; 10] = [
    "azureFile.secretName",
    "cephfs.secretRef.name",
    "cinder.secretRef.name",
    "csi.nodePublishSecretRef.name",
    "flexVolume.secretRef.name",
    "iscsi.secretRef.name",
    "rbd.secretRef.name",
    "scaleIO.secretRef.name",
    "secret.secretName",
    "storageos.secretRef.name",
];

/// Where a persistent volume names a secret that its node needs, and whether the secret is beside the claim if the
/// volume does not say where. Kubernetes: drivers have more secrets, which nodes do not see
/// (pkg/api/v1/persistentvolume/util.go).
const VOLUME_SECRETS: [(&str, bool); 10] = [
    ("cephfs.secretRef", true),
    ("cinder.secretRef", false),
    ("csi.nodeExpandSecretRef", false),
    ("csi.nodePublishSecretRef", false),
    ("csi.nodeStageSecretRef", false),
    ("flexVolume.secretRef", true),
    ("iscsi.secretRef", true),
    ("rbd.secretRef", true),
    ("scaleIO.secretRef", true),
    ("storageos.secretRef", false),
];

/// Whether a pod stands for one that a node runs by itself.
pub fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// The secrets that a pod uses.
pub fn secrets(pod: &Value) -> impl Iterator<Item = &str> {
    let pulling = pod["spec"]["imagePullSecrets"]
        .items()
        .map(|secret| secret["name"].str());
    let mounted =
        volumes(pod).flat_map(|volume| SECRETS.iter().map(move |path| volume.at(path).str()));
    let all = pulling
        .chain(in_environment(pod, "secretRef", "secretKeyRef"))
        .chain(mounted);
    all.chain(projected(pod, "secret"))
        .filter(|name| !name.is_empty())
}

/// The config maps that a pod uses.
pub fn config_maps(pod: &Value) -> impl Iterator<Item = &str> {
    let mounted = volumes(pod).map(|volume| volume["configMap"]["name"].str());
    let all = in_environment(pod, "configMapRef", "configMapKeyRef").chain(mounted);
    all.chain(projected(pod, "configMap"))
        .filter(|name| !name.is_empty())
}

/// The claims of storage that a pod uses.
pub fn claims(pod: &Value) -> impl Iterator<Item = Cow<'_, str>> {
    volumes(pod).filter_map(|volume| claim(pod, volume))
}

/// The claim behind a volume of a pod: the one it names, or the one that is made for it.
pub fn claim<'a>(pod: &'a Value, volume: &'a Value) -> Option<Cow<'a, str>> {
    let name = match volume["ephemeral"].is_null() {
        true => volume["persistentVolumeClaim"]["claimName"].str().into(),
        false => format!("{}-{}", pod["metadata"]["name"].str(), volume["name"].str()).into(),
    };
    Some(name).filter(|name: &Cow<str>| !name.is_empty())
}

/// The claims of devices that a pod uses, as far as they are made.
pub fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let status = &pod["status"];
    let made = |entry: &Value| {
        let mut statuses = status["resourceClaimStatuses"].items();
        statuses
            .find(|status| status["name"] == entry["name"])
            .map(|status| status["resourceClaimName"].str())
    };
    let named = pod["spec"]["resourceClaims"]
        .items()
        .filter_map(move |entry| {
            let template = entry["resourceClaimTemplateName"].as_str();
            entry["resourceClaimName"]
                .as_str()
                .or_else(|| template.and_then(|_| made(entry)))
        });
    let extended = status["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
    named.chain(extended).filter(|name| !name.is_empty())
}

/// The secrets that a node needs for a persistent volume: namespaces and names.
pub fn volume_secrets<'a>(volume: &'a Value) -> impl Iterator<Item = (&'a str, &'a str)> {
    let spec = &volume["spec"];
    let beside = spec["claimRef"]["namespace"].str();
    let or_beside = move |namespace: &'a str| {
        if namespace.is_empty() {
            beside
        } else {
            namespace
        }
    };
    let azure = &spec["azureFile"];
    let azure = (
        or_beside(azure["secretNamespace"].str()),
        azure["secretName"].str(),
    );
    let others = VOLUME_SECRETS.iter().map(move |(path, is_beside)| {
        let secret = spec.at(path);
        let namespace = secret["namespace"].str();
        (
            if *is_beside {
                or_beside(namespace)
            } else {
                namespace
            },
            secret["name"].str(),
        )
    });
    std::iter::once(azure)
        .chain(others)
        .filter(|(_, name)| !name.is_empty())
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["volumes"].items()
}

/// What volumes project that is of one kind.
fn projected<'a>(pod: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a str> {
    let sources = volumes(pod).flat_map(|volume| volume["projected"]["sources"].list());
    sources.map(move |source| source[kind]["name"].str())
}

/// What containers' variables come from: whole objects, and keys of some.
fn in_environment<'a>(
    pod: &'a Value,
    whole: &'a str,
    key: &'a str,
) -> impl Iterator<Item = &'a str> {
    let containers = CONTAINER_LISTS
        .iter()
        .flat_map(|list| pod["spec"][*list].list());
    containers.flat_map(move |container| {
        let sources = container["envFrom"]
            .items()
            .map(move |source| source[whole]["name"].str());
        let variables = container["env"].items();
        sources.chain(variables.map(move |variable| variable["valueFrom"][key]["name"].str()))
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn pod(spec: &str, status: &str) -> Value {
        let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec},"status":{status}}}"#);
        json::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check<T: AsRef<str>>(found: impl Iterator<Item = T>, expected: &str) {
        let found: Vec<T> = found.collect();
        let found: Vec<&str> = found.iter().map(T::as_ref).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn a_pod_names_secrets_in_many_places() {
        let spec = r#"{
            "imagePullSecrets": [{"name": "pull"}, {}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}, {"configMapRef": {"name": "no"}}]}],
            "containers": [{"env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "key"}}}, {"value": "no"}]}],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "late"}}]}],
            "volumes": [
                {"secret": {"secretName": "s"}}, {"azureFile": {"secretName": "azure"}}, {"emptyDir": {}},
                {"csi": {"nodePublishSecretRef": {"name": "csi"}}}, {"cephfs": {"secretRef": {"name": "ceph"}}},
                {"projected": {"sources": [{"secret": {"name": "in"}}, {"configMap": {"name": "no"}}]}}
            ]
        }"#;
        check(
            secrets(&pod(spec, "{}")),
            "pull init key late s azure csi ceph in",
        );
    }

    #[test]
    fn a_pod_names_config_maps() {
        let spec = r#"{
            "containers": [{
                "envFrom": [{"configMapRef": {"name": "from"}}],
                "env": [{"valueFrom": {"configMapKeyRef": {"name": "key"}}}]
            }],
            "volumes": [{"configMap": {"name": "c"}}, {"projected": {"sources": [{"configMap": {"name": "in"}}]}}]
        }"#;
        check(config_maps(&pod(spec, "{}")), "from key c in");
    }

    #[test]
    fn a_claim_is_named_or_made_for_the_pod() {
        let spec = r#"{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"c"}},{"name":"b","ephemeral":{}}]}"#;
        check(claims(&pod(spec, "{}")), "c p-b");
    }

    #[test]
    fn a_claim_of_devices_counts_once_it_is_made() {
        let spec = r#"{"resourceClaims":[
            {"name":"a","resourceClaimName":"named"},
            {"name":"b","resourceClaimTemplateName":"t"},
            {"name":"c","resourceClaimTemplateName":"t"},
            {"name":"d","resourceClaimTemplateName":"t"}
        ]}"#;
        check(resource_claims(&pod(spec, "{}")), "named");
        let status = r#"{
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "more"}
        }"#;
        check(resource_claims(&pod(spec, status)), "named made more");
    }

    #[test]
    fn a_volume_names_secrets_beside_its_claim_or_elsewhere() {
        let found = |source: &str| {
            let text =
                format!(r#"{{"spec":{{"claimRef":{{"namespace":"ns","name":"c"}},{source}}}}}"#);
            let volume = json::parse(text.as_bytes()).unwrap();
            let found: Vec<String> = volume_secrets(&volume)
                .map(|(namespace, name)| format!("{namespace}/{name}"))
                .collect();
            found.join(" ")
        };
        assert_eq!(found(r#""azureFile":{"secretName":"a"}"#), "ns/a");
        assert_eq!(
            found(r#""azureFile":{"secretName":"a","secretNamespace":"x"}"#),
            "x/a"
        );
        assert_eq!(found(r#""rbd":{"secretRef":{"name":"r"}}"#), "ns/r");
        assert_eq!(
            found(r#""rbd":{"secretRef":{"name":"r","namespace":"x"}}"#),
            "x/r"
        );
        assert_eq!(found(r#""cinder":{"secretRef":{"name":"c"}}"#), "/c");
        let csi = r#""csi":{"nodePublishSecretRef":{"name":"p","namespace":"x"},"controllerExpandSecretRef":{"name":"no"}}"#;
        assert_eq!(found(csi), "x/p");
    }
}
