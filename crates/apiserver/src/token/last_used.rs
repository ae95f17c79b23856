//! The last use of secret-based tokens: a label of the secret, so that unused ones can be removed.

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use mizzen_object::User;
use mizzen_value::{Value, json, time, value};

use crate::server::{Server, ServerParts};

/// The label with the date of the last use.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const DAY: i64 = 24 * 3600;

/// Labels the secret with today's date, in the background.
pub(super) fn record_use(server: &ServerParts, secret: &Value) {
    let Some(today) = missing_date(secret, server.registry.now()) else {
        return;
    };
    let Some(server) = server.itself.upgrade().map(Server) else {
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
    tokio::spawn(async move {
        let Ok(uri) = path.parse() else { return };
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/merge-patch+json"),
        );
        let (user, body) = (
            User::master("system:apiserver"),
            json::to_string(&change).into(),
        );
        let answer = server
            .call(Some(user), Method::PATCH, uri, headers, body)
            .await;
        if !answer.status().is_success() {
            tracing::debug!(
                code = answer.status().as_u16(),
                path,
                "cannot record the use of a service account token"
            );
        }
    });
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
    fn a_secret_says_the_day() {
        check("", Some("2023-11-14"));
        check("2023-11-13", Some("2023-11-14"));
        check("2023-11-14", None);
        check("2023-11-15", None);
        check("2023-11-16", Some("2023-11-14"));
    }
}
