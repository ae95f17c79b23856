//! ServiceAccount: sets the service account of a pod and mounts its token.

use std::time::Duration;

use mizzen_component_helpers::references::{self, is_mirror};
use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::clock::name_suffix;
use mizzen_value::{Value, value};

use super::Attributes;

/// The default service account.
const DEFAULT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token in seconds. Kubernetes: this value marks a token that may be extended (serviceaccount/claims.go).
const EXPIRATION: i64 = 3607;
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// The default account of a new namespace is created soon: how often it is looked up, and the pause between.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Whether the write creates a pod.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    attributes.is_main("", "pods") && attributes.is_create()
}

/// Sets account, token and image pull secrets of a new pod.
pub(super) fn admit<'a>(
    attributes: &'a Attributes<'a>,
    pod: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        if is_mirror(pod) {
            return check_pod(attributes, pod).await;
        }
        if pod["spec"]["serviceAccountName"].is_empty() {
            let spec = pod.entry("spec");
            spec.set("serviceAccountName", DEFAULT);
            spec.set("serviceAccount", DEFAULT);
        }
        let is_default = pod["spec"]["serviceAccountName"].str() == DEFAULT;
        let n_tries = if is_default { TRIES } else { 1 };
        let account = account_of(attributes, pod, n_tries).await?;
        const AUTOMOUNT: &str = "automountServiceAccountToken";
        let automount = pod["spec"][AUTOMOUNT].as_bool();
        if automount.or(account[AUTOMOUNT].as_bool()).unwrap_or(true) {
            let suffix = name_suffix(attributes.call.server.registry.random(), 5);
            mount_token(pod.entry("spec"), &suffix);
        }
        if pod["spec"]["imagePullSecrets"].is_empty() && !account["imagePullSecrets"].is_empty() {
            let named = |secret: &Value| value!({ "name": (secret["name"].str()) });
            let secrets: Vec<Value> = account["imagePullSecrets"]
                .list()
                .iter()
                .map(named)
                .collect();
            pod.entry("spec").set("imagePullSecrets", secrets);
        }
        check_pod(attributes, pod).await
    })
}

/// Whether the write is of a pod.
pub(super) fn is_of_pod(attributes: &Attributes) -> bool {
    attributes.is("", "pods")
}

/// Checks the service account of a pod and the secrets that it references.
pub(super) fn check<'a>(
    attributes: &'a Attributes<'a>,
    pod: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(check_pod(attributes, pod))
}

async fn check_pod(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    match (attributes.subresource(), attributes.old) {
        ("", None) if is_mirror(pod) => {
            check_mirror(pod).map_err(|why| attributes.forbidden(pod, why))
        }
        ("", None) => {
            let account = account_of(attributes, pod, 1).await?;
            let checked = if limits_secrets(&account) {
                check_secrets(&account, pod)
            } else {
                Ok(())
            };
            checked.map_err(|why| attributes.forbidden(pod, &why))
        }
        ("ephemeralcontainers", Some(_)) => {
            let account = account_of(attributes, pod, 1).await?;
            let mountable = names(&account["secrets"]);
            let containers = &pod["spec"]["ephemeralContainers"];
            if !limits_secrets(&account) {
                return Ok(());
            }
            // Kubernetes: this error is no Forbidden (serviceaccount/admission.go).
            check_containers(&account, &mountable, containers, "ephemeral container")
                .map_err(Status::unknown)
        }
        _ => Ok(()),
    }
}

/// The account of a pod, which is looked up so many times until it is there.
async fn account_of(
    attributes: &Attributes<'_>,
    pod: &Value,
    n_tries: usize,
) -> Result<Value, Status> {
    let (namespace, name) = (
        attributes.namespace(),
        pod["spec"]["serviceAccountName"].str(),
    );
    if name.is_empty() {
        let pod_name = pod["metadata"]["name"].str();
        let why = format!("no service account specified for pod {namespace}/{pod_name}");
        return Err(attributes.forbidden(pod, &why));
    }
    let mut left = n_tries;
    let problem = loop {
        left -= 1;
        match attributes
            .look_up("", "serviceaccounts", namespace, name)
            .await
        {
            Ok(account) => return Ok(account),
            Err(status) if status.code != 404 => break status.message,
            Err(_) if left == 0 => break format!("serviceaccount \"{name}\" not found"),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    let why = format!("error looking up service account {namespace}/{name}: {problem}");
    Err(attributes.forbidden(pod, &why))
}

/// Mounts a token into all containers without a mount at its path.
fn mount_token(spec: &mut Value, suffix: &str) {
    let known = spec["volumes"]
        .list()
        .iter()
        .map(|volume| volume["name"].str());
    let known = known
        .filter(|name| name.starts_with(VOLUME_PREFIX))
        .map(String::from)
        .next();
    let name = known
        .clone()
        .unwrap_or_else(|| format!("{VOLUME_PREFIX}{suffix}"));
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).into_iter().flat_map(Value::list_mut) {
            let mounted = |mount: &Value| mount["mountPath"].str() == MOUNT_PATH;
            if !container["volumeMounts"].list().iter().any(mounted) {
                let mount = value!({ "name": (&name), "readOnly": true, "mountPath": MOUNT_PATH });
                container.entry("volumeMounts").make_list().push(mount);
                is_used = true;
            }
        }
    }
    if is_used && known.is_none() {
        // Everything for API access: token, CA certificate and namespace.
        let volume = value!({
            "name": name,
            "projected": {
                "sources": [
                    { "serviceAccountToken": { "expirationSeconds": EXPIRATION, "path": "token" } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [
                        { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }
                    ] } }
                ],
                "defaultMode": 420
            }
        });
        spec.entry("volumes").make_list().push(volume);
    }
}

/// A mirror pod may not reference service accounts or secrets.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    let spec = &pod["spec"];
    if !spec["serviceAccountName"].is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if references::secrets(pod).next().is_some() {
        return Err("a mirror pod may not reference secrets");
    }
    let mut sources = spec["volumes"]
        .list()
        .iter()
        .flat_map(|volume| volume["projected"]["sources"].list());
    if sources.any(|source| !source["serviceAccountToken"].is_null()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn limits_secrets(account: &Value) -> bool {
    // As Go parses a boolean.
    let value = account["metadata"]["annotations"][ENFORCE_SECRETS].str();
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn names(references: &Value) -> Vec<&str> {
    references
        .list()
        .iter()
        .map(|reference| reference["name"].str())
        .collect()
}

/// Checks that the account references every secret of the pod.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let (spec, mountable, owner) = (
        &pod["spec"],
        names(&account["secrets"]),
        account["metadata"]["name"].str(),
    );
    let volumes = spec["volumes"]
        .list()
        .iter()
        .filter(|volume| !volume["secret"].is_null());
    for secret in volumes.map(|volume| volume["secret"]["secretName"].str()) {
        if !mountable.contains(&secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {owner} does not \
                 reference that secret"
            ));
        }
    }
    check_containers(
        account,
        &mountable,
        &spec["initContainers"],
        "init container",
    )?;
    check_containers(account, &mountable, &spec["containers"], "container")?;
    let pulling = names(&account["imagePullSecrets"]);
    for (index, secret) in names(&spec["imagePullSecrets"]).into_iter().enumerate() {
        if !pulling.contains(&secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {owner} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_containers(
    account: &Value,
    mountable: &[&str],
    containers: &Value,
    title: &str,
) -> Result<(), String> {
    let owner = account["metadata"]["name"].str();
    for container in containers.list() {
        let variables = container["env"].list().iter().filter_map(|variable| {
            let secret = &variable["valueFrom"]["secretKeyRef"];
            let how = || format!("envVar {}", variable["name"].str());
            (!secret.is_null()).then(|| (how(), secret["name"].str()))
        });
        let sources = container["envFrom"].list().iter().filter_map(|source| {
            let secret = &source["secretRef"];
            (!secret.is_null()).then(|| ("envFrom".to_string(), secret["name"].str()))
        });
        if let Some((how, secret)) = variables
            .chain(sources)
            .find(|(_, secret)| !mountable.contains(secret))
        {
            let name = container["name"].str();
            return Err(format!(
                "{title} {name} with {how} referencing secret.secretName=\"{secret}\" is not allowed because service \
                 account {owner} does not reference that secret"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(spec: &str, expected: Option<&str>) {
        let account = r#"{"metadata":{"name":"a"},"secrets":[{"name":"s"}],"imagePullSecrets":[{"name":"p"}]}"#;
        let found = check_secrets(&read(account), &read(&format!(r#"{{"spec":{spec}}}"#)));
        let tail = "is not allowed because service account a does not reference that";
        assert_eq!(
            found.err(),
            expected.map(|head| {
                let what = if head.starts_with("imagePull") {
                    "imagePullSecret"
                } else {
                    "secret"
                };
                format!("{head} {tail} {what}")
            })
        );
    }

    #[test]
    fn a_limited_account_uses_only_its_own_secrets() {
        check(
            r#"{"volumes":[{"secret":{"secretName":"s"}}],"imagePullSecrets":[{"name":"p"}]}"#,
            None,
        );
        check(
            r#"{"volumes":[{"secret":{"secretName":"t"}}]}"#,
            Some(r#"volume with secret.secretName="t""#),
        );
        let variable = r#"{"name":"v","valueFrom":{"secretKeyRef":{"name":"t"}}}"#;
        check(
            &format!(r#"{{"containers":[{{"name":"c","env":[{variable}]}}]}}"#),
            Some(r#"container c with envVar v referencing secret.secretName="t""#),
        );
        check(
            r#"{"initContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"t"}}]}]}"#,
            Some(r#"init container c with envFrom referencing secret.secretName="t""#),
        );
        check(
            r#"{"imagePullSecrets":[{"name":"q"}]}"#,
            Some(r#"imagePullSecrets[0].name="q""#),
        );
    }

    #[test]
    fn a_mirror_pod_has_no_secrets() {
        let rejected = |spec: &str| check_mirror(&read(&format!(r#"{{"spec":{spec}}}"#))).err();
        assert_eq!(rejected("{}"), None);
        assert_eq!(
            rejected(r#"{"serviceAccountName":"a"}"#),
            Some("a mirror pod may not reference service accounts")
        );
        let secrets = Some("a mirror pod may not reference secrets");
        assert_eq!(
            rejected(r#"{"volumes":[{"rbd":{"secretRef":{"name":"s"}}}]}"#),
            secrets
        );
        assert_eq!(
            rejected(r#"{"volumes":[{"projected":{"sources":[{"secret":{"name":"s"}}]}}]}"#),
            secrets
        );
        let token =
            r#"{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]}"#;
        assert_eq!(
            rejected(token),
            Some("a mirror pod may not use ServiceAccountToken volume projections")
        );
    }

    #[test]
    fn a_token_is_mounted_where_nothing_is() {
        let mut spec = read(
            r#"{"containers":[{"name":"a"},{"name":"b","volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}"#,
        );
        mount_token(&mut spec, "xyz12");
        assert_eq!(
            spec["containers"][0]["volumeMounts"][0]["name"].str(),
            "kube-api-access-xyz12"
        );
        assert_eq!(spec["containers"][1]["volumeMounts"].list().len(), 1);
        assert_eq!(spec["volumes"][0]["name"].str(), "kube-api-access-xyz12");
        let before = spec.clone();
        mount_token(&mut spec, "other");
        assert_eq!(spec, before, "once is enough");
    }
}
