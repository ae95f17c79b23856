//! The signer: issues certificates for approved requests of the built-in signers.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::controller::Context;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::CERTIFICATE_SIGNING_REQUESTS;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use super::request::{CLIENT, CertificateRequest, LEGACY_UNKNOWN, NODE_CLIENT, NODE_SERVER};
use super::{has_condition, is_issued};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

/// The shortest validity, in seconds.
const MIN_DURATION: i64 = 10 * 60;
/// How far notBefore is in the past, for clocks that are behind.
const BACKDATE: i64 = 5 * 60;
/// From this validity on, the certificate also expires earlier by the backdating.
const SHORT_DURATION: i64 = 8 * 3600;

/// The cluster's certificate authority.
pub trait CertificateSigner: Send + Sync {
    /// Signs; returns the certificate as PEM, or why it was refused.
    fn sign(&self, order: &SigningRequest) -> Result<String, String>;

    /// Whether this authority signs for a signer name.
    fn signs_for(&self, _signer: &str) -> bool {
        true
    }
}

/// A certificate to be signed.
#[derive(Debug, Clone, PartialEq)]
pub struct SigningRequest<'a> {
    /// The signer name.
    pub signer: &'a str,
    /// The certificate signing request as DER: subject and public key.
    pub request: &'a [u8],
    /// The key usages by their Kubernetes names, such as `client auth`.
    pub usages: Vec<&'a str>,
    /// When it becomes valid, in seconds since 1970.
    pub not_before: i64,
    /// When it expires, in seconds since 1970; the authority may shorten it.
    pub not_after: i64,
}

struct CsrSigner {
    context: ControllerContext,
    requests: Informer<Object>,
    authority: Arc<dyn CertificateSigner>,
}

/// Creates the controller. Without an authority it does nothing.
pub(crate) fn start(context: &ControllerContext) -> Controller {
    let Some(authority) = context.options.authority.clone() else {
        return Controller::new(context);
    };
    let context = context.named("certificate-controller");
    let requests = context.informer(&CERTIFICATE_SIGNING_REQUESTS);
    Controller::for_kind(&context, &CERTIFICATE_SIGNING_REQUESTS)
        .queue_name("certificate_signing")
        .workers(5)
        .reconcile(CsrSigner {
            context,
            requests,
            authority,
        })
}

impl Reconcile for CsrSigner {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let ours = |object: &Arc<Object>| {
            is_due(object) && self.authority.signs_for(object["spec"]["signerName"].str())
        };
        let Some(object) = self.requests.lister().by_key(key)?.filter(ours) else {
            return Ok(Action::done());
        };
        let request = CertificateRequest::from_object(&object)
            .map_err(|why| Error::other(format!("unable to parse csr {key}: {why}")))?;
        let after = match request.signer_violation(object["spec"]["signerName"].str()) {
            Some(why) => {
                let mut failed = Object::clone(&object);
                let conditions = failed.entry("status").entry("conditions").make_list();
                conditions.push(value!({
                    "type": "Failed",
                    "status": "True",
                    "reason": "SignerValidationFailure",
                    "message": why,
                    "lastUpdateTime": (self.context.now_text()),
                }));
                failed
            }
            None => self.sign(&object, &request)?,
        };
        self.context
            .api
            .update_status(&CERTIFICATE_SIGNING_REQUESTS, &after)
            .await?;
        Ok(Action::done())
    }
}

impl CsrSigner {
    fn sign(&self, object: &Object, request: &CertificateRequest) -> Result<Object, Error> {
        let now = self.context.now().as_second();
        let (not_before, not_after) = validity(
            object["spec"]["expirationSeconds"].as_int(),
            now,
            i64::try_from(self.context.options.signing_duration.as_secs()).unwrap_or(i64::MAX),
        );
        let order = SigningRequest {
            signer: object["spec"]["signerName"].str(),
            request: &request.der,
            usages: object["spec"]["usages"]
                .list()
                .iter()
                .map(Value::str)
                .collect(),
            not_before,
            not_after,
        };
        let certificate = self.authority.sign(&order);
        let certificate =
            certificate.map_err(|why| Error::other(format!("error auto signing csr: {why}")))?;
        let mut signed = object.clone();
        signed
            .entry("status")
            .set("certificate", STANDARD.encode(certificate));
        Ok(signed)
    }
}

/// Whether a request is approved, not issued or failed, and has a built-in signer.
fn is_due(object: &Value) -> bool {
    let is_ours = [CLIENT, NODE_CLIENT, NODE_SERVER, LEGACY_UNKNOWN]
        .contains(&object["spec"]["signerName"].str());
    let is_approved = has_condition(object, "Approved") && !has_condition(object, "Denied");
    let failed = |condition: &Value| {
        condition["type"].str() == "Failed" && matches!(condition["status"].str(), "" | "True")
    };
    let has_failed = object["status"]["conditions"].list().iter().any(failed);
    is_ours && is_approved && !has_failed && !is_issued(object)
}

/// notBefore and notAfter of a certificate signed at `now` for `wanted` seconds, at most `longest`.
/// Kubernetes: pkg/controller/certificates/signer/signer.go, `duration`.
fn validity(wanted: Option<i64>, now: i64, longest: i64) -> (i64, i64) {
    let seconds = wanted.map_or(longest, |wanted| wanted.max(MIN_DURATION).min(longest));
    let end = if seconds < SHORT_DURATION {
        now + seconds
    } else {
        now + seconds - BACKDATE
    };
    (now - BACKDATE, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_validity_is_the_requested_one_within_limits() {
        const LONGEST: i64 = 365 * 24 * 3600;
        let minute = 60;
        assert_eq!(validity(None, 0, 5 * minute), (-BACKDATE, 5 * minute));
        assert_eq!(validity(None, 0, LONGEST), (-BACKDATE, LONGEST - BACKDATE));
        assert_eq!(
            validity(Some(i64::MAX), 0, LONGEST),
            (-BACKDATE, LONGEST - BACKDATE)
        );
        assert_eq!(validity(Some(1), 0, LONGEST), (-BACKDATE, 10 * minute));
        assert_eq!(
            validity(Some(60 * minute), 0, LONGEST),
            (-BACKDATE, 60 * minute)
        );
        assert_eq!(
            validity(Some(8 * 60 * minute), 0, LONGEST),
            (-BACKDATE, 8 * 60 * minute - BACKDATE)
        );
    }

    #[track_caller]
    fn check(signer: &str, conditions: &[&str], wanted: bool) {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| value!({"type": (*kind), "status": "True"}))
            .collect();
        let object = value!({"spec": {"signerName": signer}, "status": {"conditions": conditions}});
        assert_eq!(is_due(&object), wanted, "{signer} {object:?}");
    }

    #[test]
    fn only_approved_requests_of_built_in_signers_are_signed() {
        check(CLIENT, &["Approved"], true);
        check(CLIENT, &[], false);
        check(CLIENT, &["Approved", "Denied"], false);
        check(CLIENT, &["Approved", "Failed"], false);
        check("example.com/mine", &["Approved"], false);
    }
}
