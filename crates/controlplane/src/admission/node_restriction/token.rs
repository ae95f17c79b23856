//! For which tokens may a node ask? For those of its pods, and for those audiences that the pods ask for.

use mizzen_kinds::references;
use mizzen_object::{Status, in_one};
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::Asked;
use mizzen_apiserver::authorization::Resource;

/// Volumes of old, and the drivers that took their place (csi-translation-lib).
const REPLACED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// Whether a token is asked for.
pub(super) fn is_asked(asked: &Asked) -> bool {
    let attributes = asked.attributes;
    attributes.subresource() == "token"
        && attributes.is_create()
        && attributes.is("", "serviceaccounts")
}

/// Lets a node have a token, or refuses.
pub(super) async fn check(asked: &Asked<'_>) -> Result<(), Status> {
    let spec = &asked.object()["spec"];
    let reference = &spec["boundObjectRef"];
    let said = ["apiVersion", "kind"].map(|field| reference[field].str());
    let (name, uid) = (reference["name"].str(), reference["uid"].str());
    if said != ["v1", "Pod"] || name.is_empty() {
        return asked.refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return asked.refuse("node requested token with a pod binding without a uid");
    }
    let pod = asked.pod(name)?;
    if pod["metadata"]["uid"].str() != uid {
        return asked.refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"].str() != asked.node() {
        return asked.refuse("node requested token bound to a pod scheduled on a different node");
    }
    match check_audience(asked, spec["audiences"].list(), &pod).await {
        Ok(()) => Ok(()),
        Err(why) => asked.refuse(why),
    }
}

/// A token is for whom one of the pod's volumes wants it, or for whom the node may ask besides.
async fn check_audience(asked: &Asked<'_>, audiences: &[Value], pod: &Value) -> Result<(), String> {
    let audience = match audiences {
        [] => "",
        [audience] => audience.str(),
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    let shown = quote(audience);
    let wanted = wants(asked, pod, audience);
    if wanted.map_err(|why| format!("error validating audience {shown}: {why}"))? {
        return Ok(());
    }
    let resource = Resource {
        version: "v1",
        resource: audience,
        namespace: asked.attributes.namespace(),
        name: asked.name(),
        ..Resource::default()
    };
    if asked
        .attributes
        .may("request-serviceaccounts-token-audience", resource)
        .await
    {
        return Ok(());
    }
    let user = &asked.attributes.call.request.user.name;
    Err(format!(
        "audience {shown} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    ))
}

/// Whether a volume of the pod wants a token for this audience; what could not be found out is told if none does.
fn wants(asked: &Asked, pod: &Value, audience: &str) -> Result<bool, String> {
    let mut problems = Vec::new();
    for volume in pod["spec"]["volumes"].list() {
        let projected = volume["projected"]["sources"]
            .list()
            .iter()
            .map(|source| &source["serviceAccountToken"]);
        if projected
            .filter(|token| !token.is_null())
            .any(|token| token["audience"].str() == audience)
        {
            return Ok(true);
        }
        match driver_wants(asked, pod, volume, audience) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(problem) => problems.push(problem),
        }
    }
    in_one(problems).map_or(Ok(false), Err)
}

fn driver_wants(
    asked: &Asked,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<bool, String> {
    let driver = match (
        references::claim(pod, volume),
        volume["csi"]["driver"].str(),
    ) {
        (Some(claim), _) => driver_of_claim(asked, &claim)?,
        (None, "") => replacement(volume).into(),
        (None, driver) => driver.into(),
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let found = asked
        .attributes
        .find("storage.k8s.io", "csidrivers", "", &driver);
    let found =
        found.ok_or_else(|| format!("csidriver.storage.k8s.io {} not found", quote(&driver)))?;
    Ok(found["spec"]["tokenRequests"]
        .list()
        .iter()
        .any(|token| token["audience"].str() == audience))
}

fn driver_of_claim(asked: &Asked, claim: &str) -> Result<String, String> {
    let missing = |status: Status| status.message;
    let namespace = asked.attributes.namespace();
    let claim = asked
        .find(
            "persistentvolumeclaim",
            "persistentvolumeclaims",
            namespace,
            claim,
        )
        .map_err(missing)?;
    let name = claim["spec"]["volumeName"].str();
    let volume = asked
        .find("persistentvolume", "persistentvolumes", "", name)
        .map_err(missing)?;
    Ok(match volume["spec"]["csi"]["driver"].str() {
        "" => replacement(&volume["spec"]),
        driver => driver,
    }
    .into())
}

fn replacement(source: &Value) -> &'static str {
    let found = REPLACED.iter().find(|(old, _)| !source[*old].is_null());
    found.map(|(_, driver)| *driver).unwrap_or_default()
}
