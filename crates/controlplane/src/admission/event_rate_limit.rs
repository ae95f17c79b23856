//! EventRateLimit: limits on events per second: of the server, a namespace, a user, or a source and object.
//!
//! Each limit has token buckets, one per key. The least recently used ones are dropped when there are too
//! many; a dropped bucket is full again when its key comes back.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::{Status, Violations, aggregate};
use mizzen_outgoing::LruCache;
use mizzen_value::Value;
use tokio::time::Instant;

use super::{Attributes, admission};

/// How many buckets a limit keeps unless configured otherwise.
const DEFAULT_CACHE_SIZE: usize = 4096;
/// Buckets are dropped because of their number, not of their age.
const KEPT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The limits on events.
#[derive(Debug)]
pub struct EventRateLimit(Vec<EventLimit>);

struct EventLimit {
    scope: LimitScope,
    qps: f64,
    burst: f64,
    buckets: LruCache<Arc<Mutex<EventBucket>>>,
}

/// The events that share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitScope {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

struct EventBucket {
    tokens: f64,
    filled: Instant,
}

/// Rejects events above a limit. Kubernetes: only those of the core group, and not in a dry run
/// (eventratelimit/admission.go).
pub(super) fn check(attributes: &Attributes, event: &Value) -> Result<(), Status> {
    let Some(limits) = &admission(attributes).event_rate_limit else {
        return Ok(());
    };
    if !attributes.is("", "events") || attributes.is_dry_run() {
        return Ok(());
    }
    // Every limit counts the event, also if another rejects it.
    let problems: Vec<String> = limits
        .0
        .iter()
        .filter_map(|limit| limit.accept(&limit.scope.key(attributes, event)).err())
        .collect();
    match aggregate(problems) {
        Some(problems) => Err(Status::failure(
            429,
            "TooManyRequests",
            format!("Too many requests: {problems}"),
        )),
        None => Ok(()),
    }
}

impl EventRateLimit {
    /// Reads the limits of a configuration.
    pub(super) fn read(configuration: &Value) -> Result<EventRateLimit, Violations> {
        let mut violations = Violations::default();
        let limits = configuration["limits"].list();
        if limits.is_empty() {
            violations.invalid(
                "limits",
                configuration["limits"].clone(),
                "must not be empty",
            );
        }
        let read = |(index, limit)| EventLimit::read(limit, index, &mut violations);
        let limits: Vec<Option<EventLimit>> = limits.iter().enumerate().map(read).collect();
        match violations.is_empty() {
            true => Ok(EventRateLimit(limits.into_iter().flatten().collect())),
            false => Err(violations),
        }
    }
}

impl EventLimit {
    fn read(limit: &Value, index: usize, violations: &mut Violations) -> Option<EventLimit> {
        let scope = LimitScope::named(limit["type"].str());
        if scope.is_none() {
            let known = ["Server", "Namespace", "User", "SourceAndObject"];
            violations.not_supported(format!("limits[{index}].type"), limit["type"].str(), &known);
        }
        for field in ["burst", "qps"] {
            if limit[field].int() <= 0 {
                violations.invalid(
                    format!("limits[{index}].{field}"),
                    limit[field].int(),
                    "must be positive",
                );
            }
        }
        let size = limit["cacheSize"].int();
        if scope != Some(LimitScope::Server) && size < 0 {
            violations.invalid(
                format!("limits[{index}].cacheSize"),
                size,
                "must not be negative",
            );
        }
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size > 0)
            .unwrap_or(DEFAULT_CACHE_SIZE);
        let (qps, burst) = (limit["qps"].int() as f64, limit["burst"].int() as f64);
        Some(EventLimit {
            scope: scope?,
            qps,
            burst,
            buckets: LruCache::new(size),
        })
    }

    fn accept(&self, key: &str) -> Result<(), String> {
        let bucket = self.buckets.get(key).unwrap_or_else(|| {
            let full = Arc::new(Mutex::new(EventBucket {
                tokens: self.burst,
                filled: Instant::now(),
            }));
            self.buckets.put(key.into(), full.clone(), KEPT);
            full
        });
        let mut bucket = bucket.lock();
        let now = Instant::now();
        let since = now.duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * self.qps).min(self.burst);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return Err(format!(
                "limit reached on type {:?} for key {key}",
                self.scope
            ));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

impl LimitScope {
    fn named(name: &str) -> Option<LimitScope> {
        let all = [
            LimitScope::Server,
            LimitScope::Namespace,
            LimitScope::User,
            LimitScope::SourceAndObject,
        ];
        all.into_iter().find(|scope| format!("{scope:?}") == name)
    }

    fn key(self, attributes: &Attributes, event: &Value) -> String {
        let (source, about) = (&event["source"], &event["involvedObject"]);
        match self {
            LimitScope::Server => String::new(),
            LimitScope::Namespace => attributes.namespace().into(),
            LimitScope::User => attributes.call.request.user.name.to_string(),
            LimitScope::SourceAndObject => {
                let about = ["kind", "namespace", "name", "uid", "apiVersion"]
                    .map(|field| about[field].str());
                format!(
                    "{}{}{}",
                    source["component"].str(),
                    source["host"].str(),
                    about.concat()
                )
            }
        }
    }
}

impl fmt::Debug for EventLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: {} qps, burst {}",
            self.scope, self.qps, self.burst
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn limit(scope: &str, qps: i64, burst: i64, cache_size: i64) -> Value {
        value!({ "limits": [{ "type": scope, "qps": qps, "burst": burst, "cacheSize": cache_size }] })
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_holds_a_burst_and_fills_again() {
        let limits = EventRateLimit::read(&limit("Namespace", 2, 3, 2)).unwrap();
        let accepted = |key: &str| (0..10).filter(|_| limits.0[0].accept(key).is_ok()).count();
        assert_eq!((accepted("a"), accepted("b")), (3, 3));
        tokio::time::advance(Duration::from_millis(499)).await;
        assert_eq!(accepted("a"), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(accepted("a"), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(accepted("a"), 3);
        let rejected = limits.0[0].accept("a").unwrap_err();
        assert_eq!(rejected, "limit reached on type Namespace for key a");
        assert_eq!(
            (accepted("c"), accepted("b")),
            (3, 3),
            "the least recently used bucket was dropped"
        );
    }

    #[track_caller]
    fn check(configuration: Value, expected: &str) {
        let rejected = EventRateLimit::read(&configuration).unwrap_err();
        assert_eq!(rejected.aggregate().as_deref(), Some(expected));
    }

    #[test]
    fn limits_are_validated() {
        assert!(EventRateLimit::read(&limit("Server", 1, 1, -1)).is_ok());
        check(value!({}), "limits: Invalid value: null: must not be empty");
        check(
            limit("User", 1, 1, -1),
            "limits[0].cacheSize: Invalid value: -1: must not be negative",
        );
        check(
            limit("x", 0, -1, 0),
            "[limits[0].type: Unsupported value: \"x\": supported values: \"Server\", \"Namespace\", \"User\", \"SourceAndObject\", \
             limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive]",
        );
    }
}
