//! What is sealed on disk.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::HealthCheck;
use mizzen_apiserver::seams::{SystemRandom, WallClock};
use mizzen_encryption::{Encryption, check_owner};

use super::{refused, text};
use crate::compose::ComposeError;

/// The arguments of encryption.
#[derive(Args, Clone)]
pub(crate) struct EncryptionArgs {
    /// Seal objects on disk as an EncryptionConfiguration in YAML or JSON says
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Go by that file anew whenever it changes; it is looked at every minute
    #[arg(long, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,
}

impl EncryptionArgs {
    /// Who seals, if anybody does.
    pub(crate) async fn encryption(&self) -> Result<Option<Arc<Encryption>>, ComposeError> {
        let Some(file) = &self.encryption_provider_config else {
            return Ok(None);
        };
        check_owner(file).map_err(|error| refused(file, error.to_string()))?;
        let text = text(file)?;
        let (clock, random) = (Arc::new(WallClock), Arc::new(SystemRandom));
        let started = Encryption::start(file.clone(), text.as_bytes(), clock, random).await;
        started
            .map(Some)
            .map_err(|error| refused(file, error.to_string()))
    }

    /// Whether the file is followed.
    pub(crate) fn is_followed(&self) -> bool {
        self.encryption_provider_config_automatic_reload
    }

    /// What must be well for keys to be there. Kubernetes: nothing is listed without plug-ins, unless the file is
    /// followed and may name some.
    pub(crate) fn health(&self, encryption: Option<&Arc<Encryption>>) -> Vec<Arc<dyn HealthCheck>> {
        let listed = encryption.filter(|encryption| self.is_followed() || encryption.has_plugins());
        listed
            .map(|encryption| encryption.clone() as Arc<dyn HealthCheck>)
            .into_iter()
            .collect()
    }
}
