//! The last use of secret-based tokens: a label of the secret, so that unused ones can be removed.

use mizzen_value::{Value, time, value};

use crate::RequestAuthenticator;

/// The label with the date of the last use.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const DAY: i64 = 24 * 3600;

/// Labels the secret with today's date, in the background.
pub(super) fn record_use(authenticator: &RequestAuthenticator, secret: &Value) {
    let Some(today) = missing_date(secret, authenticator.registry.now()) else {
        return;
    };
    let metadata = &secret["metadata"];
    let path = format!(
        "/api/v1/namespaces/{}/secrets/{}",
        metadata["namespace"].str(),
        metadata["name"].str()
    );
    let mut change = value!({ "metadata": { "uid": (metadata["uid"].str()) } });
    change
        .entry("metadata")
        .entry("labels")
        .set(LAST_USED, today);
    (authenticator.merge_patch)(path, change);
}

/// The date to be written; none if it is up to date. Kubernetes: a server whose clock is ahead may
/// have written tomorrow's.
fn missing_date(secret: &Value, now: i64) -> Option<String> {
    let day = |seconds: i64| time::from_unix(seconds)[..10].to_owned();
    let said = secret["metadata"]["labels"][LAST_USED].str();
    let today = day(now);
    (said != today && said != day(now + DAY)).then_some(today)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expected: Option<&str>) {
        let mut secret = Value::object();
        secret
            .entry("metadata")
            .entry("labels")
            .set(LAST_USED, said);
        assert_eq!(
            missing_date(&secret, 1_700_000_000).as_deref(),
            expected,
            "{said}"
        );
    }

    #[test]
    fn a_secret_is_labelled_with_the_day_of_its_last_use() {
        check("", Some("2023-11-14"));
        check("2023-11-13", Some("2023-11-14"));
        check("2023-11-14", None);
        check("2023-11-15", None);
        check("2023-11-16", Some("2023-11-14"));
    }
}
