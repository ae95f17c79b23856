//! Metrics of authentication, under upstream's names (endpoints/filters/metrics.go).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::{Families, Timings, exponential};

/// The upper bounds of durations, in seconds.
const BUCKETS: [f64; 15] = exponential(0.001, 2.0);

/// Users with a label of their own. Kubernetes: so that neither user names nor too many series are
/// published.
const KNOWN: [&str; 5] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
];
const E_MAIL: usize = KNOWN.len();
const OTHER: usize = E_MAIL + 1;

/// The outcome of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthenticationOutcome {
    Success,
    /// There are no credentials, and anonymous requests are not allowed.
    Failure,
    /// The credentials are invalid.
    Error,
}

/// Counts users and attempts.
pub(crate) struct AuthenticationMetrics {
    users: [AtomicU64; OTHER + 1],
    authentication: [Timings; 3],
}

impl Default for AuthenticationMetrics {
    fn default() -> AuthenticationMetrics {
        let timings = |_| Timings::new(&BUCKETS);
        AuthenticationMetrics {
            users: Default::default(),
            authentication: [(); 3].map(timings),
        }
    }
}

impl AuthenticationMetrics {
    /// Records a successful authentication.
    pub(crate) fn record_user(&self, user: &str, took: Duration) {
        let known = KNOWN.iter().position(|known| *known == user);
        let idx = known.unwrap_or(if user.contains('@') { E_MAIL } else { OTHER });
        self.users[idx].fetch_add(1, Relaxed);
        self.record_authentication(AuthenticationOutcome::Success, took);
    }

    pub(crate) fn record_authentication(&self, result: AuthenticationOutcome, took: Duration) {
        self.authentication[result as usize].observe(took);
    }

    pub(crate) fn collect(&self, out: &mut Families) {
        let users = out.counter("authenticated_user_requests", "Requests by user.");
        let names = KNOWN.iter().chain(&["email_id", "other"]);
        for (name, count) in names.zip(&self.users) {
            let count = count.load(Relaxed);
            if count > 0 {
                users.add(&[("username", name)], count);
            }
        }
        let words = ["success", "failure", "error"];
        for (word, timings) in words.into_iter().zip(&self.authentication) {
            if timings.count() > 0 {
                let labels: &[_] = &[("result", word)];
                out.counter("authentication_attempts", "Requests by result.")
                    .add(labels, timings.count());
                out.histogram("authentication_duration_seconds", "How long it took.")
                    .add_histogram(labels, &timings.histogram());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_users_have_a_name_in_metrics() {
        let results = AuthenticationMetrics::default();
        for user in [
            "admin",
            "jane",
            "joe@example.com",
            "admin",
            "system:serviceaccount:default:default",
        ] {
            results.record_user(user, Duration::ZERO);
        }
        let mut families = Families::default();
        results.collect(&mut families);
        let out = families.to_string();
        for line in [
            r#"authenticated_user_requests{username="admin"} 2"#,
            r#"authenticated_user_requests{username="email_id"} 1"#,
            r#"authenticated_user_requests{username="other"} 2"#,
            r#"authentication_attempts{result="success"} 5"#,
            r#"authentication_duration_seconds_bucket{result="success",le="0.001"} 5"#,
        ] {
            assert!(
                out.lines().any(|known| known == line),
                "{line} is not in\n{out}"
            );
        }
    }
}
