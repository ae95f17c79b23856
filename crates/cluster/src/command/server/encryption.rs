//! Encryption at rest.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::HealthCheck;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_encryption::{Encryption, check_owner};

use super::{invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of encryption.
#[derive(Args, Clone)]
pub(crate) struct EncryptionArgs {
    /// Encrypt objects on disk by this EncryptionConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Reload --encryption-provider-config when it changes
    #[arg(long, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,
}

impl EncryptionArgs {
    /// The encryption, if it is configured.
    pub(crate) async fn encryption(&self) -> Result<Option<Arc<Encryption>>, ComposeError> {
        let Some(file) = &self.encryption_provider_config else {
            return Ok(None);
        };
        check_owner(file).map_err(|error| invalid_file(file, error.to_string()))?;
        let text = text(file)?;
        let (clock, random) = (Arc::new(WallClock), Arc::new(SystemRandom));
        let started = Encryption::start(file.clone(), text.as_bytes(), clock, random).await;
        started
            .map(Some)
            .map_err(|error| invalid_file(file, error.to_string()))
    }

    /// Whether the file is reloaded.
    pub(crate) fn is_reloaded(&self) -> bool {
        self.encryption_provider_config_automatic_reload
    }

    /// The health check of KMS plug-ins. Kubernetes: none without plug-ins, unless the file is reloaded and may add some.
    pub(crate) fn health(&self, encryption: Option<&Arc<Encryption>>) -> Vec<Arc<dyn HealthCheck>> {
        let listed = encryption.filter(|encryption| self.is_reloaded() || encryption.has_plugins());
        listed
            .map(|encryption| encryption.clone() as Arc<dyn HealthCheck>)
            .into_iter()
            .collect()
    }
}
