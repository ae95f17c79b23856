//! What is approved gets its certificate, if its signer is ours and the request is what the signer signs.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::CERTIFICATE_SIGNING_REQUESTS;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use super::request::{ANYTHING, CLIENT, NODE_CLIENT, NODE_SERVER, Request};
use super::{has_condition, is_issued};
use crate::{After, Context, Error, Reconcile, Work};

/// For how long at least.
const SHORTEST: i64 = 10 * 60;
/// How far back it begins, for clocks that are behind.
const BACK: i64 = 5 * 60;
/// From which time on what it begins earlier it also ends earlier.
const SHORT: i64 = 8 * 3600;

/// A cluster's authority: signs what it is told to.
pub trait Sign: Send + Sync {
    /// The certificate of an order, as PEM; or why there is none.
    fn sign(&self, order: &Order) -> Result<String, String>;

    /// Whether it signs for the signer of this name.
    fn signs_for(&self, _signer: &str) -> bool {
        true
    }
}

/// What is to be signed.
#[derive(Debug, Clone, PartialEq)]
pub struct Order<'a> {
    /// By which signer.
    pub signer: &'a str,
    /// The request, as DER: whom the certificate names, and the key.
    pub request: &'a [u8],
    /// What it may be used for, in Kubernetes' words, such as `client auth`.
    pub usages: Vec<&'a str>,
    /// When it begins, in seconds since 1970.
    pub not_before: i64,
    /// When it ends, in seconds since 1970; the authority may end it earlier.
    pub not_after: i64,
}

struct Signatures {
    context: Context,
    requests: Informer<Object>,
    authority: Arc<dyn Sign>,
}

/// Sets up the loop. Without an authority it does nothing.
pub(crate) fn start(context: &Context) -> Work {
    let Some(authority) = context.options.authority.clone() else {
        return Work::default();
    };
    let context = context.named("certificate-controller");
    let queue = context.queue("certificate_signing");
    let requests = context.follow(&CERTIFICATE_SIGNING_REQUESTS);
    let todo = queue.clone();
    requests.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(
        queue,
        5,
        Arc::new(Signatures {
            context,
            requests,
            authority,
        }),
    )
}

impl Reconcile for Signatures {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let ours = |object: &Arc<Object>| {
            is_due(object) && self.authority.signs_for(object["spec"]["signerName"].str())
        };
        let Some(object) = self.requests.lister().by_key(key)?.filter(ours) else {
            return Ok(After::Done);
        };
        let request = Request::of(&object)
            .map_err(|why| Error::Other(format!("unable to parse csr {key}: {why}")))?;
        let after = match request.objection(object["spec"]["signerName"].str()) {
            Some(why) => refused(&object, &why, &self.context.now_text()),
            None => self.sign(&object, &request)?,
        };
        self.context
            .api
            .update_status(&CERTIFICATE_SIGNING_REQUESTS, &after)
            .await?;
        Ok(After::Done)
    }
}

impl Signatures {
    fn sign(&self, object: &Object, request: &Request) -> Result<Object, Error> {
        let now = self.context.now().as_second();
        let (not_before, not_after) = lifetime(
            object["spec"]["expirationSeconds"].as_int(),
            now,
            i64::try_from(self.context.options.signing_duration.as_secs()).unwrap_or(i64::MAX),
        );
        let order = Order {
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
            certificate.map_err(|why| Error::Other(format!("error auto signing csr: {why}")))?;
        let mut signed = object.clone();
        signed
            .entry("status")
            .set("certificate", STANDARD.encode(certificate));
        Ok(signed)
    }
}

/// Whether a request is approved, not done with, and ours.
fn is_due(object: &Value) -> bool {
    let is_ours =
        [CLIENT, NODE_CLIENT, NODE_SERVER, ANYTHING].contains(&object["spec"]["signerName"].str());
    let is_approved = has_condition(object, "Approved") && !has_condition(object, "Denied");
    is_ours && is_approved && !has_failed(object) && !is_issued(object)
}

fn has_failed(object: &Value) -> bool {
    let failed = |condition: &Value| {
        condition["type"].str() == "Failed" && matches!(condition["status"].str(), "" | "True")
    };
    object["status"]["conditions"].list().iter().any(failed)
}

fn refused(object: &Object, why: &str, now: &str) -> Object {
    let mut refused = object.clone();
    let condition = value!({
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": why,
        "lastUpdateTime": now,
    });
    refused
        .entry("status")
        .entry("conditions")
        .make_list()
        .push(condition);
    refused
}

/// When a certificate begins and ends, if it is signed now for so many seconds, and good for so many at most. Kubernetes:
/// pkg/controller/certificates/signer/signer.go, `duration`.
fn lifetime(wanted: Option<i64>, now: i64, longest: i64) -> (i64, i64) {
    let seconds = wanted.map_or(longest, |wanted| wanted.max(SHORTEST).min(longest));
    let end = if seconds < SHORT {
        now + seconds
    } else {
        now + seconds - BACK
    };
    (now - BACK, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_lives_as_long_as_was_asked_within_limits() {
        const LONGEST: i64 = 365 * 24 * 3600;
        let minute = 60;
        assert_eq!(lifetime(None, 0, 5 * minute), (-BACK, 5 * minute));
        assert_eq!(lifetime(None, 0, LONGEST), (-BACK, LONGEST - BACK));
        assert_eq!(
            lifetime(Some(i64::MAX), 0, LONGEST),
            (-BACK, LONGEST - BACK)
        );
        assert_eq!(lifetime(Some(1), 0, LONGEST), (-BACK, 10 * minute));
        assert_eq!(
            lifetime(Some(60 * minute), 0, LONGEST),
            (-BACK, 60 * minute)
        );
        assert_eq!(
            lifetime(Some(8 * 60 * minute), 0, LONGEST),
            (-BACK, 8 * 60 * minute - BACK)
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
    fn only_what_is_approved_and_ours_is_signed() {
        check(CLIENT, &["Approved"], true);
        check(CLIENT, &[], false);
        check(CLIENT, &["Approved", "Denied"], false);
        check(CLIENT, &["Approved", "Failed"], false);
        check("example.com/mine", &["Approved"], false);
    }
}
