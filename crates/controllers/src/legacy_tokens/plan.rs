//! Decides what happens to a token secret that is not used.

use mizzen_sdk::Object;
use mizzen_value::time;

use crate::service_account_tokens::holds_token;

/// The label with the day of the last use.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label with the day since when the token is invalid.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

const DAY: i64 = 24 * 3600;
/// How many seconds a token must be unused: one year.
const CLEANUP_PERIOD: i64 = 365 * DAY;

/// What happens to a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CleanupAction {
    MarkInvalid,
    Delete,
}

/// The dates that a check compares with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CleanupDates {
    pub today: String,
    /// Tokens used on that day or later are in use.
    used: String,
    /// Secrets created at that time or later are new, in seconds since 1970.
    made: i64,
}

impl CleanupDates {
    /// The dates for `now`. None if use has not been tracked for long enough, or the ConfigMap has
    /// no date.
    pub(super) fn at(now: i64, tracked_since: &str) -> Option<CleanupDates> {
        // The first day was not tracked completely.
        let tracked = to_unix(tracked_since)? + DAY;
        let made = now - CLEANUP_PERIOD;
        (tracked <= made).then(|| CleanupDates {
            today: day(now),
            used: day(made),
            made,
        })
    }
}

/// What happens to an auto-generated secret that no pod mounts.
pub(super) fn cleanup_action(secret: &Object, times: &CleanupDates) -> Option<CleanupAction> {
    let label = |name: &str| secret["metadata"]["labels"][name].as_str();
    let is_going = !secret["metadata"]["deletionTimestamp"].is_null();
    if !holds_token(secret) || is_going || secret.created() >= times.made {
        return None;
    }
    // An invalid date counts as used.
    if label(LAST_USED).is_some_and(|last| to_unix(last).is_none() || *last >= *times.used) {
        return None;
    }
    match label(INVALID_SINCE).filter(|since| to_unix(since).is_some()) {
        None => Some(CleanupAction::MarkInvalid),
        Some(since) if *since >= *times.used => None,
        Some(_) => Some(CleanupAction::Delete),
    }
}

fn day(seconds: i64) -> String {
    time::from_unix(seconds)[..10].to_owned()
}

/// The start of a day, in seconds since 1970.
fn to_unix(day: &str) -> Option<i64> {
    (day.len() == 10)
        .then(|| time::to_unix(&format!("{day}T00:00:00Z")))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::{Value, value};

    /// 2023-11-14T22:13:20Z
    const NOW: i64 = 1_700_000_000;
    const A_YEAR_AGO: &str = "2022-11-14";

    fn times() -> CleanupDates {
        CleanupDates::at(NOW, "2022-01-01").unwrap()
    }

    #[test]
    fn use_must_have_been_tracked_for_a_year() {
        assert_eq!(
            (&*times().today, &*times().used),
            ("2023-11-14", A_YEAR_AGO)
        );
        assert!(CleanupDates::at(NOW, "2022-11-13").is_some());
        assert!(CleanupDates::at(NOW, A_YEAR_AGO).is_none());
        for nonsense in ["", "yesterday", "2022-13-01", "2022-11-13 "] {
            assert_eq!(CleanupDates::at(NOW, nonsense), None, "{nonsense}");
        }
    }

    #[track_caller]
    fn check(last_used: &str, invalid_since: &str, expected: Option<CleanupAction>) {
        let mut labels = Value::object();
        for (label, day) in [(LAST_USED, last_used), (INVALID_SINCE, invalid_since)] {
            if !day.is_empty() {
                labels.set(label, day);
            }
        }
        assert_eq!(
            cleanup_action(&secret(labels), &times()),
            expected,
            "{last_used} {invalid_since}"
        );
    }

    fn secret(labels: Value) -> Object {
        Object(value!({
            "type": "kubernetes.io/service-account-token",
            "metadata": { "creationTimestamp": "2022-01-01T00:00:00Z", "labels": labels }
        }))
    }

    #[test]
    fn an_unused_token_is_invalid_and_deleted_a_year_later() {
        check("", "", Some(CleanupAction::MarkInvalid));
        check("2022-11-13", "", Some(CleanupAction::MarkInvalid));
        check(A_YEAR_AGO, "", None);
        check("2022-11-13", "2022-11-13", Some(CleanupAction::Delete));
        check("2022-11-13", A_YEAR_AGO, None);
        check(A_YEAR_AGO, "2022-11-13", None);
    }

    #[test]
    fn invalid_dates_count_as_used() {
        check("sometime", "", None);
        check("2022-11-13", "sometime", Some(CleanupAction::MarkInvalid));
    }

    fn stamp(secret: &mut Object, field: &str) {
        secret.entry("metadata").set(field, "2022-11-14T22:13:20Z");
    }

    #[test]
    fn new_terminating_and_other_secrets_are_ignored() {
        let fate_of = |change: fn(&mut Object)| {
            let mut secret = secret(Value::Null);
            change(&mut secret);
            cleanup_action(&secret, &times())
        };
        assert_eq!(fate_of(|_| {}), Some(CleanupAction::MarkInvalid));
        assert_eq!(fate_of(|secret| secret.set("type", "Opaque")), None);
        assert_eq!(fate_of(|secret| stamp(secret, "creationTimestamp")), None);
        assert_eq!(fate_of(|secret| stamp(secret, "deletionTimestamp")), None);
    }
}
