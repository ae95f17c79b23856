//! Which provider encrypts which resource: the first provider of a resource writes, all of them read.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::{GroupResource, aggregate};
use mizzen_store::{EncryptedContent, EncryptionError, KeyMark};
use tokio::time::Instant;

use super::EncryptionContext;
use super::cipher::{Cipher, Method};
use super::configuration::{
    EncryptionConfiguration, EncryptionConfigurationError, KeyConfiguration, ProviderConfiguration,
    ResourceConfiguration,
};
use super::kms::Kms;
use super::metrics::{TransformationType, Transformations};

/// The providers of each resource.
#[derive(Default)]
pub(super) struct EncryptionRules {
    /// By keyspace.
    exact: HashMap<String, Providers>,
    /// By API group, for `*.group`.
    groups: HashMap<String, Providers>,
    /// For `*.*`.
    any: Option<Providers>,
    /// All KMS plug-ins.
    pub(super) plugins: Vec<Arc<Kms>>,
    /// Counts records that no provider could decrypt.
    unknown: Arc<Transformations>,
}

/// The providers of one resource, in order.
type Providers = Vec<Arc<Provider>>;

/// A provider.
pub(super) enum Provider {
    /// Plain text.
    Identity,
    Keys(KeyRing),
    Kms(Arc<Kms>),
}

/// The keys of one method. The first one encrypts.
pub(super) struct KeyRing {
    method: Method,
    metrics: Arc<Transformations>,
    keys: Vec<EncryptionKey>,
}

struct EncryptionKey {
    /// Records under this key begin with it: the prefix of the method and the name of the key.
    prefix: String,
    mark: KeyMark,
    cipher: Box<dyn Cipher>,
}

impl EncryptionRules {
    /// The rules of the text of a file.
    pub(super) fn parse(
        text: &[u8],
        context: &EncryptionContext,
    ) -> Result<EncryptionRules, EncryptionConfigurationError> {
        let mut rules = EncryptionRules {
            unknown: context.metrics.transformations("unknown"),
            ..EncryptionRules::default()
        };
        for entry in &EncryptionConfiguration::parse(text)?.entries {
            rules.add(entry, context)?;
        }
        Ok(rules)
    }

    fn add(
        &mut self,
        entry: &ResourceConfiguration,
        context: &EncryptionContext,
    ) -> Result<(), EncryptionConfigurationError> {
        let providers: Providers = entry
            .providers
            .iter()
            .map(|provider| Arc::new(self.provider(provider, context)))
            .collect();
        for resource in &entry.resources {
            if let Some(earlier) = self.masking(resource) {
                let (masked, earlier) = (resource_name(resource), resource_name(&earlier));
                let why = format!("resource {masked:?} is masked by earlier rule {earlier:?}");
                return Err(EncryptionConfigurationError(why));
            }
            self.providers_mut(resource)
                .extend(providers.iter().cloned());
        }
        Ok(())
    }

    fn provider(
        &mut self,
        provider: &ProviderConfiguration,
        context: &EncryptionContext,
    ) -> Provider {
        match provider {
            ProviderConfiguration::Identity => Provider::Identity,
            ProviderConfiguration::Keys(method, keys) => {
                let keys = keys
                    .iter()
                    .filter_map(|key| EncryptionKey::new(*method, key, context))
                    .collect();
                Provider::Keys(KeyRing {
                    method: *method,
                    metrics: context.metrics.transformations(method.prefix()),
                    keys,
                })
            }
            ProviderConfiguration::Kms(options) => {
                let plugin = Arc::new(Kms::new(options, context.clone()));
                self.plugins.push(plugin.clone());
                Provider::Kms(plugin)
            }
        }
    }

    /// The earlier rule that masks one for `resource`.
    fn masking(&self, resource: &GroupResource) -> Option<GroupResource> {
        let whole = |group: &str| GroupResource {
            group: group.into(),
            resource: "*".into(),
        };
        match (self.groups.contains_key(resource.group.as_str()), &self.any) {
            (true, _) => Some(whole(&resource.group)),
            (false, Some(_)) => Some(whole("*")),
            _ => None,
        }
    }

    fn providers_mut(&mut self, resource: &GroupResource) -> &mut Providers {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("*", "*") => self.any.get_or_insert_default(),
            (group, "*") => self.groups.entry(group.into()).or_default(),
            ("", resource) => self.exact.entry(resource.into()).or_default(),
            (group, resource) => self.exact.entry(format!("{group}/{resource}")).or_default(),
        }
    }

    /// The providers of a keyspace; none if it is not configured.
    fn providers(&self, space: &str) -> &[Arc<Provider>] {
        let group = space.split_once('/').map_or("", |(group, _)| group);
        let found = self
            .exact
            .get(space)
            .or_else(|| self.groups.get(group))
            .or(self.any.as_ref());
        found.map_or(&[], Vec::as_slice)
    }

    /// The mark of records that are written to `space` now.
    pub(super) fn mark(&self, space: &str) -> KeyMark {
        self.providers(space)
            .first()
            .map_or(KeyMark::PLAIN, |provider| provider.mark())
    }

    /// Encrypts with the first provider.
    pub(super) fn encrypt(
        &self,
        space: &str,
        path: &[u8],
        plain: &[u8],
    ) -> Result<Option<EncryptedContent>, EncryptionError> {
        let Some(provider) = self.providers(space).first() else {
            return Ok(None);
        };
        let started = Instant::now();
        let encrypted = provider.encrypt(path, plain);
        if let Some(metrics) = provider.metrics() {
            let to_storage = TransformationType::ToStorage;
            metrics.record(space, to_storage, &encrypted, started.elapsed());
        }
        encrypted
    }

    /// Decrypts with the first provider that can.
    pub(super) fn decrypt(
        &self,
        space: &str,
        path: &[u8],
        encrypted: &[u8],
    ) -> Result<(Vec<u8>, KeyMark), EncryptionError> {
        let providers = self.providers(space);
        if providers.is_empty() {
            return Err(EncryptionError(
                "identity transformer tried to read encrypted data".into(),
            ));
        }
        let (mut problems, started) = (Vec::new(), Instant::now());
        // Kubernetes: after a key that fails, later ones are tried, because two may have the same name.
        for provider in providers {
            let Some(outcome) = provider.decrypt(path, encrypted) else {
                continue;
            };
            if let Some(metrics) = provider.metrics() {
                let from_storage = TransformationType::FromStorage;
                metrics.record(space, from_storage, &outcome, started.elapsed());
            }
            match outcome {
                Ok(decrypted) => return Ok(decrypted),
                Err(problem) => problems.push(problem.0),
            }
        }
        if let Some(problem) = aggregate(problems) {
            return Err(EncryptionError(problem));
        }
        let failed = Err(EncryptionError(NO_PROVIDER.into()));
        let from_storage = TransformationType::FromStorage;
        self.unknown
            .record(space, from_storage, &failed, started.elapsed());
        failed
    }

    /// Rejects plain text where no identity provider reads it.
    pub(super) fn admit_plain(&self, space: &str) -> Result<(), EncryptionError> {
        let providers = self.providers(space);
        let is_readable = providers.is_empty()
            || providers
                .iter()
                .any(|provider| matches!(**provider, Provider::Identity));
        match is_readable {
            true => Ok(()),
            false => Err(EncryptionError(NO_PROVIDER.into())),
        }
    }

    /// Whether a record has the prefix with which it would be written now.
    pub(super) fn is_current(&self, space: &str, encrypted: Option<&[u8]>) -> bool {
        let provider = self.providers(space).first();
        match (provider.and_then(|provider| provider.prefix()), encrypted) {
            (None, None) => true,
            (Some(prefix), Some(encrypted)) => encrypted.starts_with(prefix.as_bytes()),
            _ => false,
        }
    }

    /// The problems of all plug-ins, in one text.
    pub(super) async fn check_health(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        for (at, plugin) in self.plugins.iter().enumerate() {
            if let Err(problem) = plugin.check().await {
                problems.push(format!("kms-provider-{at}: {problem}"));
            }
        }
        aggregate(problems).map_or(Ok(()), Err)
    }
}

const NO_PROVIDER: &str = "no matching prefix found";

/// A resource as it is written in the file.
fn resource_name(resource: &GroupResource) -> String {
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "*") => "*.".into(),
        _ => resource.to_string(),
    }
}

impl Provider {
    /// The metrics of its transformations; plain text is not counted.
    fn metrics(&self) -> Option<&Transformations> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => Some(&ring.metrics),
            Provider::Kms(kms) => Some(kms.transformations()),
        }
    }

    fn mark(&self) -> KeyMark {
        match self {
            Provider::Identity => KeyMark::PLAIN,
            Provider::Keys(ring) => ring.keys[0].mark,
            Provider::Kms(kms) => kms.mark(),
        }
    }

    /// The prefix of records that are written now, unless they are plain text.
    fn prefix(&self) -> Option<&str> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => Some(&ring.keys[0].prefix),
            Provider::Kms(kms) => Some(kms.prefix()),
        }
    }

    fn encrypt(
        &self,
        path: &[u8],
        plain: &[u8],
    ) -> Result<Option<EncryptedContent>, EncryptionError> {
        match self {
            Provider::Identity => Ok(None),
            Provider::Keys(ring) => ring.keys[0].encrypt(path, plain).map(Some),
            Provider::Kms(kms) => kms.encrypt(path, plain).map(Some),
        }
    }

    /// None if another provider encrypted the record.
    fn decrypt(
        &self,
        path: &[u8],
        encrypted: &[u8],
    ) -> Option<Result<(Vec<u8>, KeyMark), EncryptionError>> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => ring.decrypt(path, encrypted),
            Provider::Kms(kms) => encrypted
                .strip_prefix(kms.prefix().as_bytes())
                .map(|encrypted| kms.decrypt(path, encrypted)),
        }
    }
}

impl KeyRing {
    fn decrypt(
        &self,
        path: &[u8],
        encrypted: &[u8],
    ) -> Option<Result<(Vec<u8>, KeyMark), EncryptionError>> {
        encrypted.strip_prefix(self.method.prefix().as_bytes())?;
        let mut problems = Vec::new();
        for key in &self.keys {
            let Some(encrypted) = encrypted.strip_prefix(key.prefix.as_bytes()) else {
                continue;
            };
            match key.cipher.decrypt(encrypted, path) {
                Ok(plain) => return Some(Ok((plain, key.mark))),
                Err(problem) => problems.push(problem.0),
            }
        }
        let family = self.method.family();
        let none = || format!("no matching key was found for the provided {family} transformer");
        Some(Err(EncryptionError(
            aggregate(problems).unwrap_or_else(none),
        )))
    }
}

impl EncryptionKey {
    fn new(
        method: Method,
        key: &KeyConfiguration,
        context: &EncryptionContext,
    ) -> Option<EncryptionKey> {
        let cipher = method.with_key(&key.secret, &context.random)?;
        let prefix = format!("{}{}:", method.prefix(), key.name);
        // Another secret under the same name is another key.
        let mark = context.marks.assign(&[prefix.as_bytes(), &key.secret]);
        Some(EncryptionKey {
            prefix,
            mark,
            cipher,
        })
    }

    fn encrypt(&self, path: &[u8], plain: &[u8]) -> Result<EncryptedContent, EncryptionError> {
        let mut bytes = Vec::with_capacity(self.prefix.len() + plain.len() + 64);
        bytes.extend_from_slice(self.prefix.as_bytes());
        self.cipher.encrypt(plain, path, &mut bytes)?;
        Ok(EncryptedContent {
            bytes: bytes.into(),
            mark: self.mark,
        })
    }
}
