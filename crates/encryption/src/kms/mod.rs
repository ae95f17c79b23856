//! KMS v2: a plug-in encrypts a seed (the DEK source), and keys derived from the seed encrypt records.
//!
//! `grpc` makes gRPC calls over a Unix socket, `service` has the three calls of `v2.KeyManagementService`, `object` is the
//! stored form. `probe` checks the status of the plug-in every minute, and every ten seconds while it is unhealthy. A new
//! key of the plug-in causes a new seed. While the plug-in is unavailable, cached seeds still decrypt; the last seed
//! encrypts for three more minutes, and writes are rejected after that.

mod grpc;
mod metrics;
mod object;
mod probe;
mod service;

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_store::{EncryptedContent, EncryptionError, KeyMark};
use mizzen_value::time::from_unix;
use tokio::time::Instant;

use self::metrics::KeyUses;
use self::object::{DekSource, Envelope};
use self::probe::LastProbe;
use self::service::KmsService;
use super::EncryptionContext;
use super::cipher::{Cipher, Derived};
use super::configuration::KmsOptions;
use super::marks::Marks;
use super::metrics::{TransformationType, Transformations};

pub(super) use metrics::KmsMetrics;
pub(super) use probe::start_probing;

/// The size of the cache of seeds. There is one for each start of a server and each key of the plug-in.
const MAX_CACHED: usize = 10_000;

/// A KMS plug-in.
pub(super) struct Kms {
    name: String,
    prefix: String,
    service: KmsService,
    timeout: Duration,
    context: EncryptionContext,
    /// The seed that encrypts; none until the plug-in has responded.
    state: RwLock<Option<Arc<KmsState>>>,
    /// Seeds and keys that the plug-in has decrypted.
    cache: Mutex<HashMap<DekSource, CachedDek>>,
    transformations: Arc<Transformations>,
    metrics: Arc<KmsMetrics>,
    last_probe: tokio::sync::Mutex<LastProbe>,
}

/// A seed or key that the plug-in has decrypted, and its uses.
type CachedDek = (Arc<dyn Cipher>, Arc<KeyUses>);

/// The current seed.
struct KmsState {
    source: DekSource,
    uses: Arc<KeyUses>,
    cipher: Arc<Derived>,
    mark: KeyMark,
    /// It encrypts until then.
    expires: Instant,
}

impl Kms {
    pub(super) fn new(options: &KmsOptions, context: EncryptionContext) -> Kms {
        let prefix = format!("k8s:enc:kms:v2:{}:", options.name);
        let metrics = context.metrics.plugin(&options.name);
        Kms {
            name: options.name.clone(),
            transformations: context.metrics.transformations(&prefix),
            prefix,
            service: KmsService::new(&options.socket, options.timeout, metrics.clone()),
            metrics,
            timeout: options.timeout,
            context,
            state: RwLock::default(),
            cache: Mutex::default(),
            last_probe: tokio::sync::Mutex::default(),
        }
    }

    /// The prefix of its records.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The metrics of its transformations.
    pub(super) fn transformations(&self) -> &Transformations {
        &self.transformations
    }

    /// The timeout of a call.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The mark of records that are written now.
    pub(super) fn mark(&self) -> KeyMark {
        self.state().map_or(Marks::UNKNOWN, |state| state.mark)
    }

    /// Encrypts with the current seed, including the prefix. Does not call the plug-in.
    pub(super) fn encrypt(
        &self,
        path: &[u8],
        plain: &[u8],
    ) -> Result<EncryptedContent, EncryptionError> {
        let state = self
            .state()
            .ok_or_else(|| EncryptionError("got unexpected nil transformer".into()))?;
        self.check_expiry(&state)?;
        let mut data = Vec::with_capacity(plain.len() + 128);
        state.cipher.encrypt(plain, path, &mut data)?;
        let mut bytes = Vec::with_capacity(self.prefix.len() + data.len() + 256);
        bytes.extend_from_slice(self.prefix.as_bytes());
        Envelope {
            data,
            source: state.source.clone(),
        }
        .encode(&mut bytes);
        let now = self.context.clock.now().0;
        state.uses.record(TransformationType::ToStorage, now);
        Ok(EncryptedContent {
            bytes: bytes.into(),
            mark: state.mark,
        })
    }

    /// Decrypts a record without its prefix. Blocks while the plug-in decrypts a seed that is not cached, so it must not
    /// be called from a task.
    pub(super) fn decrypt(
        &self,
        path: &[u8],
        encrypted: &[u8],
    ) -> Result<(Vec<u8>, KeyMark), EncryptionError> {
        let Envelope { data, source } = Envelope::decode(encrypted).map_err(EncryptionError)?;
        let cached = self.cache.lock().get(&source).cloned();
        let (cipher, uses) = match cached {
            Some(cached) => cached,
            None => {
                self.context.metrics.record_cache_miss();
                self.context.runtime.block_on(self.decrypt_dek(&source))?
            }
        };
        uses.record(TransformationType::FromStorage, self.context.clock.now().0);
        Ok((cipher.decrypt(&data, path)?, self.mark_for(&source)))
    }

    /// Lets the plug-in decrypt a seed or key, and caches it.
    async fn decrypt_dek(&self, source: &DekSource) -> Result<CachedDek, EncryptionError> {
        let key = self.service.decrypt(source, self.context.uuid()).await;
        let key =
            key.map_err(|error| EncryptionError(format!("failed to decrypt DEK, error: {error}")))?;
        let cipher = source
            .cipher(&key, &self.context.random)
            .map_err(EncryptionError)?;
        let uses = self.metrics.key(&source.key_id);
        self.cache_dek(source.clone(), (cipher.clone(), uses.clone()));
        Ok((cipher, uses))
    }

    /// Caches a seed or key. A seed that was dropped is decrypted by the plug-in again.
    fn cache_dek(&self, source: DekSource, dek: CachedDek) {
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(source, dek);
        self.metrics.set_cache_size(cache.len());
    }

    fn state(&self) -> Option<Arc<KmsState>> {
        self.state.read().clone()
    }

    /// The mark of a seed: all seeds under one key of the plug-in have the same.
    fn mark_for(&self, source: &DekSource) -> KeyMark {
        self.context.marks.assign(&[
            self.prefix.as_bytes(),
            &[source.kind],
            source.key_id.as_bytes(),
        ])
    }

    fn check_expiry(&self, state: &KmsState) -> Result<(), EncryptionError> {
        let now = Instant::now();
        if now <= state.expires {
            return Ok(());
        }
        let seconds = self.context.clock.now().0;
        let late = i64::try_from((now - state.expires).as_secs()).unwrap_or_default();
        let hash = service::key_id_hash(&state.source.key_id);
        let (then, now) = (from_unix(seconds - late), from_unix(seconds));
        Err(EncryptionError(format!(
            "encryptedDEKSource with keyID hash \"{hash}\" expired at {then} (current time is {now})"
        )))
    }
}

#[cfg(test)]
pub(super) mod tests;
