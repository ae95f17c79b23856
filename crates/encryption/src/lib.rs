//! What can be read on disk by those who have the disk but no key? As little as the file of
//! `--encryption-provider-config` says.
//!
//! `configuration` reads the file and `validate` says what is wrong with it; `rules` are what it comes to: who seals
//! which resource. `cipher/` has the ways of sealing, `kms/` the one that asks a plug-in for its key, `marks` tells
//! keys apart, `reload` follows the file, `counts` is what is counted. What is sealed looks as it does upstream: a prefix that names the provider and the
//! key, then its bytes; the storage path is authenticated with it where the way of sealing can.
//!
//! Invariant: what must be sealed is refused when it cannot be; it is never written as it is.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mizzen_apiserver::seams::{SystemRandom, WallClock};
//! use mizzen_encryption::Encryption;
//! use mizzen_store::Sealer as _;
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
//! let record = encryption.seal("secrets", "default/db", b"password")?.unwrap().bytes;
//! assert!(record.starts_with(b"k8s:enc:aescbc:v1:key1:"));
//! assert_eq!(encryption.open("secrets", "default/db", &record)?.0, b"password");
//! # Ok(())
//! # }
//! ```

mod cipher;
mod configuration;
mod counts;
mod kms;
mod marks;
mod owner;
mod reload;
mod rules;
mod validate;

use parking_lot::RwLock;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mizzen_apiserver::HealthCheck;
use mizzen_metrics::{Collector, Families};
use mizzen_object::in_one;
use mizzen_registry::Future;
use mizzen_store::{Mark, SealError, Sealed, Sealer};
use mizzen_value::clock::{Clock, Random, uuid};
use ring::digest::{SHA256, digest};
use tokio::runtime::Handle;

pub use configuration::ConfigurationError;
pub use owner::check_owner;

use configuration::{Configuration, KmsOptions};
use counts::Counts;
use kms::Kms;
use marks::Marks;
use rules::{Rules, Workshop};

/// Seals what goes to disk as a file says.
pub struct Encryption {
    rules: RwLock<Arc<Rules>>,
    file: PathBuf,
    /// What the file said when it was last read, told by a digest.
    seen: RwLock<Vec<u8>>,
    world: World,
}

/// What all parts need.
#[derive(Clone)]
struct World {
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    marks: Arc<Marks>,
    /// Counts changes of marks.
    changes: Arc<AtomicU64>,
    counts: Arc<Counts>,
    /// Where plug-ins are asked.
    runtime: Handle,
}

impl Encryption {
    /// Goes by what `text`, the file's, says, and asks plug-ins for their first key. One that does not answer is asked
    /// again until it does.
    pub async fn start(
        file: PathBuf,
        text: &[u8],
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Arc<Encryption>, ConfigurationError> {
        let (marks, changes, counts) = (Arc::default(), Arc::default(), Arc::default());
        let world = World {
            random,
            clock,
            marks,
            changes,
            counts,
            runtime: Handle::current(),
        };
        let rules = world.rules(text)?;
        world.counts.reloads.gone_by(text);
        for plugin in &rules.plugins {
            kms::keep_asking(plugin).await;
        }
        let seen = RwLock::new(digest_of(text));
        Ok(Arc::new(Encryption {
            rules: RwLock::new(Arc::new(rules)),
            file,
            seen,
            world,
        }))
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Whether any plug-in is asked for keys.
    pub fn has_plugins(&self) -> bool {
        !self.rules().plugins.is_empty()
    }
}

impl World {
    /// Tells one question to a plug-in from another.
    fn uuid(&self) -> String {
        uuid(&*self.random)
    }

    fn rules(&self, text: &[u8]) -> Result<Rules, ConfigurationError> {
        let configuration = Configuration::parse(text)?;
        let plugin = |options: &KmsOptions| Arc::new(Kms::new(options, self.clone()));
        let World {
            random,
            marks,
            counts,
            ..
        } = self;
        Rules::new(
            &configuration,
            &Workshop {
                random,
                marks,
                counts,
                plugin: &plugin,
            },
        )
    }
}

fn digest_of(text: &[u8]) -> Vec<u8> {
    digest(&SHA256, text).as_ref().to_vec()
}

/// Where an object is stored, as Kubernetes says it: what is sealed for one object is no other's.
fn path(space: &str, key: &str) -> Vec<u8> {
    format!("/registry/{space}/{key}").into_bytes()
}

impl Sealer for Encryption {
    fn mark(&self, space: &str) -> Mark {
        self.rules().mark(space)
    }

    fn seal(&self, space: &str, key: &str, plain: &[u8]) -> Result<Option<Sealed>, SealError> {
        self.rules().seal(space, &path(space, key), plain)
    }

    fn open(&self, space: &str, key: &str, sealed: &[u8]) -> Result<(Vec<u8>, Mark), SealError> {
        self.rules().open(space, &path(space, key), sealed)
    }

    fn admit_plain(&self, space: &str) -> Result<(), SealError> {
        self.rules().admit_plain(space)
    }

    fn is_current(&self, space: &str, sealed: Option<&[u8]>) -> bool {
        self.rules().is_current(space, sealed)
    }

    fn generation(&self) -> u64 {
        self.world.changes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Encryption({})", self.file.display())
    }
}

impl Collector for Encryption {
    fn collect(&self, families: &mut Families) {
        self.world.counts.collect(families);
    }
}

/// All plug-ins under one name, as Kubernetes has it.
impl HealthCheck for Encryption {
    fn name(&self) -> &str {
        "kms-providers"
    }

    fn check(&self) -> Future<'_, Result<(), String>> {
        let rules = self.rules();
        Box::pin(async move { health(&rules).await })
    }
}

/// What is wrong with plug-ins, one after the other.
async fn health(rules: &Rules) -> Result<(), String> {
    let mut problems = Vec::new();
    for (at, plugin) in rules.plugins.iter().enumerate() {
        if let Err(problem) = plugin.check().await {
            problems.push(format!("kms-provider-{at}: {problem}"));
        }
    }
    in_one(problems).map_or(Ok(()), Err)
}

/// How long all plug-ins may take together.
fn patience(rules: &Rules) -> Duration {
    rules.plugins.iter().map(|plugin| plugin.timeout()).sum()
}

#[cfg(test)]
mod tests;
