//! Encryption at rest, as the file of `--encryption-provider-config` configures it.
//!
//! `configuration` decodes the file and `validate` validates it; `rules` select the provider of a resource. `cipher/` has
//! the ciphers, `kms/` the KMS v2 plug-ins, `marks` numbers keys, `reload` reloads a changed file, `metrics` has the
//! metrics, `codec` encrypts records in etcd. Records on disk look as there: a prefix with the provider and the key, then
//! the ciphertext. Ciphers that can authenticate data authenticate the storage path.
//!
//! Invariant: a record that cannot be encrypted is rejected; it is never written in plain text.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mizzen_apiserver::clock::{SystemRandom, WallClock};
//! use mizzen_encryption::Encryption;
//! use mizzen_store::Encryptor as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let configuration = r#"
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets]
//!   providers:
//!   - aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
//! "#;
//! let (clock, random) = (Arc::new(WallClock), Arc::new(SystemRandom));
//! let file = "encryption.yaml".into();
//! let encryption = Encryption::start(file, configuration.as_bytes(), clock, random).await?;
//!
//! let record = encryption.encrypt("secrets", "default/db", b"password")?.unwrap().bytes;
//! assert!(record.starts_with(b"k8s:enc:aescbc:v1:key1:"));
//! assert_eq!(encryption.decrypt("secrets", "default/db", &record)?.0, b"password");
//! # Ok(())
//! # }
//! ```

mod cipher;
mod codec;
mod configuration;
mod kms;
mod marks;
mod metrics;
mod owner;
mod reload;
mod rules;
mod validate;

use parking_lot::RwLock;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_apiserver::HealthCheck;
use mizzen_metrics::{Collector, Families};
use mizzen_registry::BoxFuture;
use mizzen_store::{EncryptedContent, EncryptionError, Encryptor, KeyMark};
use mizzen_value::clock::{Clock, Random, uuid};
use ring::digest::{SHA256, digest};
use tokio::runtime::Handle;

pub use codec::EncryptedCodec;
pub use configuration::EncryptionConfigurationError;
pub use owner::check_owner;

use marks::Marks;
use metrics::EncryptionMetrics;
use rules::EncryptionRules;

/// Encrypts records as a file configures it.
pub struct Encryption {
    rules: RwLock<Arc<EncryptionRules>>,
    file: PathBuf,
    /// The digest of the text of the file in use.
    digest: RwLock<Vec<u8>>,
    context: EncryptionContext,
}

/// What all parts share.
#[derive(Clone)]
struct EncryptionContext {
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    marks: Arc<Marks>,
    /// Counts changes of marks.
    changes: Arc<AtomicU64>,
    metrics: Arc<EncryptionMetrics>,
    /// Runs calls of KMS plug-ins.
    runtime: Handle,
}

impl Encryption {
    /// Encrypts as `text`, the text of `file`, configures it. KMS plug-ins are probed; one that does not respond is probed
    /// again until it does.
    pub async fn start(
        file: PathBuf,
        text: &[u8],
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Arc<Encryption>, EncryptionConfigurationError> {
        let context = EncryptionContext {
            random,
            clock,
            marks: Arc::default(),
            changes: Arc::default(),
            metrics: Arc::default(),
            runtime: Handle::current(),
        };
        let rules = EncryptionRules::parse(text, &context)?;
        context.metrics.reloads.set_content(text);
        for plugin in &rules.plugins {
            kms::start_probing(plugin).await;
        }
        Ok(Arc::new(Encryption {
            rules: RwLock::new(Arc::new(rules)),
            file,
            digest: RwLock::new(Encryption::digest(text)),
            context,
        }))
    }

    fn digest(text: &[u8]) -> Vec<u8> {
        digest(&SHA256, text).as_ref().to_vec()
    }

    fn rules(&self) -> Arc<EncryptionRules> {
        self.rules.read().clone()
    }

    /// Whether any KMS plug-in is configured.
    pub fn has_plugins(&self) -> bool {
        !self.rules().plugins.is_empty()
    }
}

impl EncryptionContext {
    /// The ID of a request to a plug-in.
    fn uuid(&self) -> String {
        uuid(&*self.random)
    }
}

/// The storage path of a record, which ciphers authenticate.
fn path(space: &str, key: &str) -> Vec<u8> {
    format!("/registry/{space}/{key}").into_bytes()
}

impl Encryptor for Encryption {
    fn mark(&self, space: &str) -> KeyMark {
        self.rules().mark(space)
    }

    fn encrypt(
        &self,
        space: &str,
        key: &str,
        plain: &[u8],
    ) -> Result<Option<EncryptedContent>, EncryptionError> {
        self.rules().encrypt(space, &path(space, key), plain)
    }

    fn decrypt(
        &self,
        space: &str,
        key: &str,
        ciphertext: &[u8],
    ) -> Result<(Vec<u8>, KeyMark), EncryptionError> {
        self.rules().decrypt(space, &path(space, key), ciphertext)
    }

    fn allow_plain_text(&self, space: &str) -> Result<(), EncryptionError> {
        self.rules().admit_plain(space)
    }

    fn is_current(&self, space: &str, ciphertext: Option<&[u8]>) -> bool {
        self.rules().is_current(space, ciphertext)
    }

    fn generation(&self) -> u64 {
        self.context.changes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Encryption({})", self.file.display())
    }
}

impl Collector for Encryption {
    fn collect(&self, families: &mut Families) {
        self.context.metrics.collect(families);
    }
}

/// All plug-ins under one name, as in Kubernetes.
impl HealthCheck for Encryption {
    fn name(&self) -> &str {
        "kms-providers"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let rules = self.rules();
        Box::pin(async move { rules.check_health().await })
    }
}

#[cfg(test)]
mod tests;
