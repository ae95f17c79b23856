//! TokenRequests: a node may request tokens for its pods, with audiences that the pods use.

use mizzen_authorization::ResourceAttributes;
use mizzen_component_helpers::references;
use mizzen_object::{Status, aggregate};
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::NodeRequest;

/// In-tree volumes and the CSI drivers that replaced them (csi-translation-lib).
const REPLACED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// Whether the request is a TokenRequest.
pub(super) fn is_token_request(request: &NodeRequest) -> bool {
    let attributes = request.attributes;
    attributes.subresource() == "token"
        && attributes.is_create()
        && attributes.is("", "serviceaccounts")
}

/// Checks a TokenRequest of a node.
pub(super) async fn check(request: &NodeRequest<'_>) -> Result<(), Status> {
    let spec = &request.object()["spec"];
    let reference = &spec["boundObjectRef"];
    let bound_to = ["apiVersion", "kind"].map(|field| reference[field].str());
    let (name, uid) = (reference["name"].str(), reference["uid"].str());
    if bound_to != ["v1", "Pod"] || name.is_empty() {
        return request.reject("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return request.reject("node requested token with a pod binding without a uid");
    }
    let pod = request.pod(name)?;
    if pod["metadata"]["uid"].str() != uid {
        return request.reject(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"].str() != request.node() {
        return request.reject("node requested token bound to a pod scheduled on a different node");
    }
    match request.check_audience(spec["audiences"].list(), &pod).await {
        Ok(()) => Ok(()),
        Err(why) => request.reject(why),
    }
}

impl NodeRequest<'_> {
    /// The audience must be used by a volume of the pod, or the node must be authorized for it.
    async fn check_audience(&self, audiences: &[Value], pod: &Value) -> Result<(), String> {
        let audience = match audiences {
            [] => "",
            [audience] => audience.str(),
            _ => return Err("node may only request 0 or 1 audiences".into()),
        };
        let shown = quote(audience);
        let is_used = self.uses_audience(pod, audience);
        if is_used.map_err(|why| format!("error validating audience {shown}: {why}"))? {
            return Ok(());
        }
        let resource = ResourceAttributes {
            version: "v1",
            resource: audience,
            namespace: self.attributes.namespace(),
            name: self.name(),
            ..ResourceAttributes::default()
        };
        if self
            .attributes
            .may("request-serviceaccounts-token-audience", resource)
            .await
        {
            return Ok(());
        }
        let user = &self.attributes.call.request.user.name;
        Err(format!(
            "audience {shown} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
        ))
    }

    /// Whether a volume of the pod uses the audience. Lookup errors are returned only if none does.
    fn uses_audience(&self, pod: &Value, audience: &str) -> Result<bool, String> {
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
            match self.driver_uses_audience(pod, volume, audience) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(problem) => problems.push(problem),
            }
        }
        aggregate(problems).map_or(Ok(false), Err)
    }

    fn driver_uses_audience(
        &self,
        pod: &Value,
        volume: &Value,
        audience: &str,
    ) -> Result<bool, String> {
        let driver = match (
            references::claim(pod, volume),
            volume["csi"]["driver"].str(),
        ) {
            (Some(claim), _) => self.driver_of_claim(&claim)?,
            (None, "") => replacement(volume).into(),
            (None, driver) => driver.into(),
        };
        if driver.is_empty() {
            return Ok(false);
        }
        let found = self
            .attributes
            .find("storage.k8s.io", "csidrivers", "", &driver);
        let found = found
            .ok_or_else(|| format!("csidriver.storage.k8s.io {} not found", quote(&driver)))?;
        Ok(found["spec"]["tokenRequests"]
            .list()
            .iter()
            .any(|token| token["audience"].str() == audience))
    }

    fn driver_of_claim(&self, claim: &str) -> Result<String, String> {
        let missing = |status: Status| status.message;
        let namespace = self.attributes.namespace();
        let claim = self
            .find(
                "persistentvolumeclaim",
                "persistentvolumeclaims",
                namespace,
                claim,
            )
            .map_err(missing)?;
        let name = claim["spec"]["volumeName"].str();
        let volume = self
            .find("persistentvolume", "persistentvolumes", "", name)
            .map_err(missing)?;
        Ok(match volume["spec"]["csi"]["driver"].str() {
            "" => replacement(&volume["spec"]),
            driver => driver,
        }
        .into())
    }
}

fn replacement(source: &Value) -> &'static str {
    let found = REPLACED.iter().find(|(old, _)| !source[*old].is_null());
    found.map(|(_, driver)| *driver).unwrap_or_default()
}
