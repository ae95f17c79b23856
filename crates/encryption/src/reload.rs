//! Following the file: a new one counts once it makes sense and all its plug-ins answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_apiserver::file_watcher::FileWatcher;
use tokio::time::{Instant, sleep, timeout};

use super::rules::Rules;
use super::{ConfigurationError, Encryption, check_owner, digest_of, health, kms, patience};

/// How long new plug-ins have at least until all must have answered, and how often they are asked.
const PATIENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Encryption {
    /// Goes by the file as it is, from now on.
    pub async fn follow(self: Arc<Encryption>) {
        let mut watcher = FileWatcher::new([self.file.clone()], []);
        loop {
            // A file that cannot be read is an error of `reload`, too.
            let _ = watcher.changed().await;
            let outcome = self.reload().await;
            if outcome.is_ok() {
                watcher.accept();
            }
            if !matches!(outcome, Ok(false)) {
                self.world
                    .counts
                    .reloads
                    .reloaded(outcome.is_ok(), self.world.clock.now().0);
            }
            match outcome {
                Ok(false) => {}
                Ok(true) => tracing::info!("encryption goes by the new {}", self.file.display()),
                Err(error) => {
                    let file = self.file.display();
                    tracing::error!("error processing encryption config file {file}: {error}");
                }
            }
        }
    }

    /// Returns whether the file has changed. If it makes no sense, the old one counts.
    pub(super) async fn reload(&self) -> Result<bool, ConfigurationError> {
        let text = check_owner(&self.file).and_then(|()| std::fs::read(&self.file));
        let text = text.map_err(|error| ConfigurationError(error.to_string()))?;
        let digest = digest_of(&text);
        if *self.seen.read() == digest {
            return Ok(false);
        }
        let rules = self.world.rules(&text)?;
        for plugin in &rules.plugins {
            kms::keep_asking(plugin).await;
        }
        until_healthy(&rules).await?;
        *self.rules.write() = Arc::new(rules);
        *self.seen.write() = digest;
        self.world.counts.reloads.gone_by(&text);
        self.world.changes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

async fn until_healthy(rules: &Rules) -> Result<(), ConfigurationError> {
    let patience = PATIENCE.max(2 * patience(rules));
    let until = Instant::now() + patience;
    loop {
        let outcome = timeout(patience, health(rules))
            .await
            .unwrap_or_else(|_| Err("it took too long".into()));
        match outcome {
            Ok(()) => return Ok(()),
            Err(problem) if Instant::now() >= until => {
                return Err(ConfigurationError(format!(
                    "health check for new transformers failed: {problem}"
                )));
            }
            Err(_) => sleep(ASK_EVERY).await,
        }
    }
}
