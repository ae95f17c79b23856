//! What becomes of a secret with a token that nobody may need?

use mizzen_sdk::Object;
use mizzen_value::time;

use crate::service_account_tokens::holds_token;

/// The label with the day of the last use.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label with the day since when a token is good no more.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

const DAY: i64 = 24 * 3600;
/// For how many seconds a token must not have been used: a year.
const UNUSED: i64 = 365 * DAY;

/// What happens to a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is told to be invalid.
    Invalid,
    /// It is deleted.
    Gone,
}

/// What is long ago.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// The day.
    pub today: String,
    /// Whoever was used on that day, or later, is in use.
    used: String,
    /// Whoever was made then, or later, is new.
    made: i64,
}

impl Times {
    /// As it is now. None if it has not been noted for long enough who is in use, or if nobody says since when.
    pub(super) fn at(now: i64, tracked_since: &str) -> Option<Times> {
        // On the day itself not all uses were noted.
        let tracked = to_unix(tracked_since)? + DAY;
        let made = now - UNUSED;
        (tracked <= made).then(|| Times {
            today: day(now),
            used: day(made),
            made,
        })
    }
}

/// What becomes of a secret, if no pod needs it and nobody asked for it.
pub(super) fn fate(secret: &Object, times: &Times) -> Option<Fate> {
    let label = |name: &str| secret["metadata"]["labels"][name].as_str();
    let is_going = !secret["metadata"]["deletionTimestamp"].is_null();
    if !holds_token(secret) || is_going || secret.created() >= times.made {
        return None;
    }
    // Who cannot be understood may have been used.
    if label(LAST_USED).is_some_and(|last| to_unix(last).is_none() || *last >= *times.used) {
        return None;
    }
    match label(INVALID_SINCE).filter(|since| to_unix(since).is_some()) {
        None => Some(Fate::Invalid),
        Some(since) if *since >= *times.used => None,
        Some(_) => Some(Fate::Gone),
    }
}

fn day(seconds: i64) -> String {
    time::from_unix(seconds)[..10].to_owned()
}

/// When a day begins.
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

    fn times() -> Times {
        Times::at(NOW, "2022-01-01").unwrap()
    }

    #[test]
    fn uses_must_have_been_noted_for_a_year() {
        assert_eq!(
            (&*times().today, &*times().used),
            ("2023-11-14", A_YEAR_AGO)
        );
        assert!(Times::at(NOW, "2022-11-13").is_some());
        assert!(Times::at(NOW, A_YEAR_AGO).is_none());
        for nonsense in ["", "yesterday", "2022-13-01", "2022-11-13 "] {
            assert_eq!(Times::at(NOW, nonsense), None, "{nonsense}");
        }
    }

    #[track_caller]
    fn check(last_used: &str, invalid_since: &str, expected: Option<Fate>) {
        let mut labels = Value::object();
        for (label, day) in [(LAST_USED, last_used), (INVALID_SINCE, invalid_since)] {
            if !day.is_empty() {
                labels.set(label, day);
            }
        }
        assert_eq!(
            fate(&secret(labels), &times()),
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
    fn what_is_not_used_is_invalid_and_goes_a_year_later() {
        check("", "", Some(Fate::Invalid));
        check("2022-11-13", "", Some(Fate::Invalid));
        check(A_YEAR_AGO, "", None);
        check("2022-11-13", "2022-11-13", Some(Fate::Gone));
        check("2022-11-13", A_YEAR_AGO, None);
        check(A_YEAR_AGO, "2022-11-13", None);
    }

    #[test]
    fn what_cannot_be_understood_was_used_and_is_not_invalid() {
        check("sometime", "", None);
        check("2022-11-13", "sometime", Some(Fate::Invalid));
    }

    fn stamp(secret: &mut Object, field: &str) {
        secret.entry("metadata").set(field, "2022-11-14T22:13:20Z");
    }

    #[test]
    fn what_is_new_or_going_or_no_token_is_left_alone() {
        let fate_of = |change: fn(&mut Object)| {
            let mut secret = secret(Value::Null);
            change(&mut secret);
            fate(&secret, &times())
        };
        assert_eq!(fate_of(|_| {}), Some(Fate::Invalid));
        assert_eq!(fate_of(|secret| secret.set("type", "Opaque")), None);
        assert_eq!(fate_of(|secret| stamp(secret, "creationTimestamp")), None);
        assert_eq!(fate_of(|secret| stamp(secret, "deletionTimestamp")), None);
    }
}
