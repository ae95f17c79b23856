//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction.

use mizzen_authorization::ResourceAttributes;
use mizzen_object::Status;
use mizzen_registry::BoxFuture;
use mizzen_value::{Value, json};

use super::Attributes;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
/// Certificates of this signer authenticate clients to this server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Whether the write approves or denies a request.
pub(super) fn is_approval(attributes: &Attributes) -> bool {
    is_below(attributes, "approval")
}

/// Whether the write may add a certificate to a request.
pub(super) fn is_status(attributes: &Attributes) -> bool {
    is_below(attributes, "status")
}

fn is_below(attributes: &Attributes, subresource: &str) -> bool {
    attributes.old.is_some()
        && attributes.subresource() == subresource
        && attributes.is(GROUP, REQUESTS)
}

/// Approving and denying needs the verb `approve` on the signer.
pub(super) fn check_approval<'a>(
    attributes: &'a Attributes<'a>,
    request: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(check(attributes, request, "approve"))
}

/// Adding a certificate needs the verb `sign` on the signer.
pub(super) fn check_signing<'a>(
    attributes: &'a Attributes<'a>,
    request: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    let same = |field: &str| {
        attributes
            .old
            .is_some_and(|old| request["status"][field] == old["status"][field])
    };
    if same("certificate") && same("conditions") {
        return Box::pin(std::future::ready(Ok(())));
    }
    Box::pin(check(attributes, request, "sign"))
}

/// Rejects requests for a client certificate with the group `system:masters`.
pub(super) fn check_subject(attributes: &Attributes, request: &Value) -> Result<(), Status> {
    let spec = &request["spec"];
    if !attributes.is_main(GROUP, REQUESTS)
        || !attributes.is_create()
        || spec["signerName"].str() != CLIENT_SIGNER
    {
        return Ok(());
    }
    let groups = mizzen_kinds::requested_groups(spec["request"].str());
    if !groups
        .iter()
        .any(|group| group == mizzen_apiserver::MASTERS)
    {
        return Ok(());
    }
    let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
    Err(attributes.forbidden(request, &why))
}

async fn check(
    attributes: &Attributes<'_>,
    request: &Value,
    verb: &'static str,
) -> Result<(), Status> {
    let signer = attributes
        .old
        .map(|old| old["spec"]["signerName"].str())
        .unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let signers = ResourceAttributes {
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..ResourceAttributes::default()
        };
        if attributes.may(verb, signers).await {
            return Ok(());
        }
    }
    let why = format!(
        "user not permitted to {verb} requests with signerName {}",
        json::quote(signer)
    );
    Err(attributes.forbidden(request, &why))
}
