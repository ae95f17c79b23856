//! Reload of a changed file, once it is valid and all its plug-ins are healthy.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_apiserver::file_watcher::FileWatcher;
use tokio::time::{Instant, sleep, timeout};

use super::rules::EncryptionRules;
use super::{Encryption, EncryptionConfigurationError, check_owner, kms};

/// The minimum time for all new plug-ins to become healthy, and the interval of checks.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);

impl Encryption {
    /// Reloads the file whenever it changes. Never returns.
    pub async fn reload_on_change(self: Arc<Encryption>) {
        let mut watcher = FileWatcher::new([self.file.clone()], []);
        loop {
            // A file that cannot be read is an error of `reload`, too.
            let _ = watcher.changed().await;
            let outcome = self.reload().await;
            if outcome.is_ok() {
                watcher.accept();
            }
            let path = self.file.display();
            match &outcome {
                Ok(false) => continue,
                Ok(true) => tracing::info!(%path, "reloaded encryption configuration"),
                Err(error) => {
                    tracing::error!(%path, %error, "error processing encryption config file, keeping the previous one")
                }
            }
            let now = self.context.clock.now().0;
            self.context
                .metrics
                .reloads
                .record_reload(outcome.is_ok(), now);
        }
    }

    /// Returns whether the file has changed. An invalid file does not replace the previous one.
    async fn reload(&self) -> Result<bool, EncryptionConfigurationError> {
        let text = check_owner(&self.file).and_then(|()| std::fs::read(&self.file));
        let text = text.map_err(|error| EncryptionConfigurationError(error.to_string()))?;
        let digest = Encryption::digest(&text);
        if *self.digest.read() == digest {
            return Ok(false);
        }
        let rules = EncryptionRules::parse(&text, &self.context)?;
        for plugin in &rules.plugins {
            kms::start_probing(plugin).await;
        }
        rules.wait_until_healthy().await?;
        *self.rules.write() = Arc::new(rules);
        *self.digest.write() = digest;
        self.context.metrics.reloads.set_content(&text);
        self.context.changes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

impl EncryptionRules {
    async fn wait_until_healthy(&self) -> Result<(), EncryptionConfigurationError> {
        let timeouts: Duration = self.plugins.iter().map(|plugin| plugin.timeout()).sum();
        let health_timeout = HEALTH_TIMEOUT.max(2 * timeouts);
        let deadline = Instant::now() + health_timeout;
        loop {
            let outcome = timeout(health_timeout, self.check_health())
                .await
                .unwrap_or_else(|_| Err("it took too long".into()));
            match outcome {
                Ok(()) => return Ok(()),
                Err(problem) if Instant::now() >= deadline => {
                    return Err(EncryptionConfigurationError(format!(
                        "health check for new transformers failed: {problem}"
                    )));
                }
                Err(_) => sleep(HEALTH_INTERVAL).await,
            }
        }
    }
}
