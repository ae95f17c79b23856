//! Probes the status of a plug-in, and rotates the seed when its key changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_object::aggregate;
use tokio::time::{Instant, sleep};

use super::object::check_key_id;
use super::service::{StatusResponse, key_id_hash};
use super::{Kms, KmsState};
use crate::cipher::{Derived, SEED};

/// The interval of probes while the plug-in is healthy, and while it is not.
const INTERVAL: Duration = Duration::from_secs(60);
const INTERVAL_UNHEALTHY: Duration = Duration::from_secs(10);
/// How long a result is cached.
const CACHE_TTL: Duration = Duration::from_secs(20);
const CACHE_TTL_UNHEALTHY: Duration = Duration::from_secs(3);
/// How long a seed encrypts after the plug-in has confirmed its key.
const SEED_TTL: Duration = Duration::from_secs(3 * 60);

/// The result of the last probe.
#[derive(Default)]
pub(super) struct LastProbe {
    result: Option<(Instant, Result<(), String>)>,
    /// The version of the first response, which must not change.
    version: String,
}

impl LastProbe {
    /// The result, while it is fresh.
    fn cached(&self) -> Option<Result<(), String>> {
        let (at, result) = self.result.as_ref()?;
        let ttl = match result {
            Ok(()) => CACHE_TTL,
            Err(_) => CACHE_TTL_UNHEALTHY,
        };
        (at.elapsed() < ttl).then(|| result.clone())
    }
}

/// Probes once, and then periodically until the plug-in is dropped.
pub(crate) async fn start_probing(plugin: &Arc<Kms>) {
    let mut is_healthy = probe(plugin).await;
    let plugin = Arc::downgrade(plugin);
    tokio::spawn(async move {
        loop {
            let interval = match is_healthy {
                true => INTERVAL,
                false => INTERVAL_UNHEALTHY,
            };
            sleep(interval).await;
            let Some(plugin) = plugin.upgrade() else {
                return;
            };
            is_healthy = probe(&plugin).await;
        }
    });
}

async fn probe(plugin: &Kms) -> bool {
    let result = plugin.check().await;
    if let Err(error) = &result {
        tracing::warn!(plugin = plugin.name, %error, "kms plugin failed health check probe");
    }
    result.is_ok()
}

impl Kms {
    /// Checks whether the plug-in is healthy and its key encrypts the seed. Concurrent and later callers share a result
    /// while it is fresh.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let mut last = self.last_probe.lock().await;
        if let Some(result) = last.cached() {
            return result;
        }
        let result = self.check_status(&mut last.version).await;
        last.result = Some((Instant::now(), result.clone()));
        result
    }

    async fn check_status(&self, version: &mut String) -> Result<(), String> {
        // Computed before the call, so that the seed never encrypts longer.
        let expires = Instant::now() + SEED_TTL;
        let name = &self.name;
        let status = self.service.status().await.map_err(|error| {
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let mut problems = status.problems(version);
        match check_key_id(&status.key_id) {
            Ok(()) => {
                self.metrics
                    .record_status_key(&status.key_id, self.context.clock.now().0);
                problems.extend(self.keep_or_rotate(&status.key_id, expires).await.err());
            }
            Err(error) => {
                self.metrics.record_invalid_key_id(&status.key_id);
                let hash = match status.key_id.as_str() {
                    "" => String::new(),
                    key_id => key_id_hash(key_id),
                };
                problems.push(format!("got invalid KMSv2 KeyID hash \"{hash}\": {error}"));
            }
        }
        match aggregate(problems) {
            None => Ok(()),
            Some(problems) => Err(format!(
                "kmsv2 Provider {name} is not healthy, error: {problems}"
            )),
        }
    }

    /// Extends the life of the seed if the plug-in still uses its key, and generates a new seed if not. If that fails, the
    /// old one expires as before.
    async fn keep_or_rotate(&self, key_id: &str, expires: Instant) -> Result<(), String> {
        if let Some(state) = self.state().filter(|state| state.source.key_id == key_id) {
            let KmsState {
                source,
                cipher,
                uses,
                mark,
                ..
            } = &*state;
            let (source, cipher, uses) = (source.clone(), cipher.clone(), uses.clone());
            self.set_state(KmsState {
                source,
                cipher,
                uses,
                mark: *mark,
                expires,
            });
            return Ok(());
        }
        let failed = |error: String| format!("failed to rotate DEK: {error}");
        let (mut seed, started) = ([0; SEED], Instant::now());
        self.context.random.fill(&mut seed);
        self.context
            .metrics
            .record_key_generation(started.elapsed());
        let source = self.service.encrypt(&seed, self.context.uuid()).await;
        let source =
            source.map_err(|error| failed(format!("failed to encrypt DEK, error: {error}")))?;
        source.check().map_err(failed)?;
        if source.key_id != key_id {
            let (status, encrypt) = (key_id_hash(key_id), key_id_hash(&source.key_id));
            return Err(failed(format!(
                "statusKeyIDHash=\"{status}\", encryptKeyIDHash=\"{encrypt}\""
            )));
        }
        let cipher =
            Derived::from_seed(&seed, &self.context.random).expect("the seed is long enough");
        let cipher = Arc::new(cipher);
        let uses = self.metrics.key(&source.key_id);
        self.cache_dek(source.clone(), (cipher.clone(), uses.clone()));
        let mark = self.mark_for(&source);
        self.set_state(KmsState {
            source,
            cipher,
            uses,
            mark,
            expires,
        });
        self.context.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn set_state(&self, state: KmsState) {
        *self.state.write() = Some(Arc::new(state));
    }
}

impl StatusResponse {
    /// What is wrong with it. `version` is that of the first response.
    fn problems(&self, version: &mut String) -> Vec<String> {
        let mut problems = Vec::new();
        if self.health != "ok" {
            problems.push(format!("got unexpected healthz status: {}", self.health));
        }
        if !["v2", "v2beta1"].contains(&self.version.as_str()) {
            problems.push(format!(
                "expected KMSv2 API version v2, got {}",
                self.version
            ));
        } else if version.is_empty() {
            version.clone_from(&self.version);
        } else if *version != self.version {
            problems.push(format!(
                "KMSv2 API version should not change after the initial status response version {version}, got {}",
                self.version
            ));
        }
        problems
    }
}
