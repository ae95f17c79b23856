//! The cleaner of certificate signing requests: deletes those that are old or expired.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::Object;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::CERTIFICATE_SIGNING_REQUESTS;
use mizzen_value::{Value, time};
use tokio::time::{MissedTickBehavior, interval};
use x509_parser::pem::Pem;

use super::is_issued;
use crate::{Controller, ControllerContext};

/// How often requests are checked.
const PERIOD: Duration = Duration::from_secs(3600);
/// How many seconds approved, denied and failed requests are kept.
const ANSWERED: i64 = 3600;
/// How many seconds pending requests are kept.
const PENDING: i64 = 24 * 3600;

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("certificate-controller");
    let requests = context.informer(&CERTIFICATE_SIGNING_REQUESTS);
    Controller::new(&context).with_task(async move {
        let mut checks = interval(PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            for request in requests.lister().list().unwrap_or_default() {
                if !should_delete(&request, context.now().as_second()) {
                    continue;
                }
                let options = DeleteOptions {
                    uid: Some(request.uid()),
                    ..DeleteOptions::default()
                };
                let deleted = context
                    .api
                    .delete(&CERTIFICATE_SIGNING_REQUESTS, &request.key(), &options)
                    .await;
                if let Err(error) = deleted {
                    tracing::debug!(%error, request = request.name(), "request not deleted");
                }
            }
        }
    })
}

/// Whether a request is to be deleted.
fn should_delete(request: &Object, now: i64) -> bool {
    let conditions = request["status"]["conditions"].list();
    let is_old = |condition: &Value| {
        let updated = time::to_unix(condition["lastUpdateTime"].str());
        let age = updated.map_or(0, |updated| now - updated);
        match condition["type"].str() {
            "Approved" if is_issued(request) => age > ANSWERED || has_expired(request, now),
            "Approved" => age > PENDING,
            "Denied" | "Failed" => age > ANSWERED,
            _ => false,
        }
    };
    let was_ignored = conditions.is_empty() && now - request.created() > PENDING;
    was_ignored || conditions.iter().any(is_old)
}

fn has_expired(request: &Value, now: i64) -> bool {
    let pem = STANDARD
        .decode(request["status"]["certificate"].str())
        .unwrap_or_default();
    let Some(Ok(block)) = Pem::iter_from_buffer(&pem).next() else {
        return false;
    };
    block
        .parse_x509()
        .is_ok_and(|certificate| certificate.validity().not_after.timestamp() < now)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    const NOW: i64 = 1_000_000;

    #[track_caller]
    fn check(condition: Option<&str>, certificate: &str, age: i64, wanted: bool) {
        let then = time::from_unix(NOW - age);
        let conditions: Vec<Value> = condition
            .iter()
            .map(|kind| value!({"type": (*kind), "lastUpdateTime": (then.as_str())}))
            .collect();
        let request = Object(value!({
            "metadata": {"creationTimestamp": (then.as_str())},
            "status": {"conditions": conditions, "certificate": certificate},
        }));
        assert_eq!(should_delete(&request, NOW), wanted, "{condition:?} {age}");
    }

    #[test]
    fn requests_are_kept_for_a_while() {
        const HOUR: i64 = 3600;
        check(None, "", 24 * HOUR, false);
        check(None, "", 24 * HOUR + 1, true);
        check(Some("Approved"), "", 24 * HOUR, false);
        check(Some("Approved"), "", 24 * HOUR + 1, true);
        check(Some("Approved"), "eA==", HOUR, false);
        check(Some("Approved"), "eA==", HOUR + 1, true);
        check(Some("Denied"), "", HOUR + 1, true);
        check(Some("Failed"), "", HOUR + 1, true);
        check(Some("Failed"), "", HOUR, false);
    }
}
