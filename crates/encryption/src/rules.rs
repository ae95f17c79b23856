//! Who seals what: the first provider of a resource writes, all of them read.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::{GroupResource, in_one};
use mizzen_store::{Mark, SealError, Sealed};
use mizzen_value::clock::Random;
use tokio::time::Instant;

use super::cipher::{Cipher, Method};
use super::configuration::{self, Configuration, ConfigurationError, Entry, KmsOptions};
use super::counts::{Counts, Transformations, Way};
use super::kms::Kms;
use super::marks::Marks;

/// What a configuration comes to.
#[derive(Default)]
pub(super) struct Rules {
    /// By space.
    exact: HashMap<String, Providers>,
    /// By group, for all of its resources.
    groups: HashMap<String, Providers>,
    /// For everything else.
    any: Option<Providers>,
    /// All plug-ins.
    pub(super) plugins: Vec<Arc<Kms>>,
    /// What nobody could open.
    unknown: Arc<Transformations>,
}

/// Those of one resource, in order.
type Providers = Vec<Arc<Provider>>;

/// One who seals.
pub(super) enum Provider {
    /// Leaves everything as it is.
    Identity,
    Keys(Ring),
    Kms(Arc<Kms>),
}

/// Keys that are used in one way.
pub(super) struct Ring {
    method: Method,
    counts: Arc<Transformations>,
    keys: Vec<Key>,
}

struct Key {
    /// What is sealed with it begins with this: the method's prefix and the key's name.
    prefix: String,
    mark: Mark,
    cipher: Box<dyn Cipher>,
}

/// What is needed to make rules.
pub(super) struct Workshop<'a> {
    pub(super) random: &'a Arc<dyn Random>,
    pub(super) marks: &'a Arc<Marks>,
    pub(super) counts: &'a Counts,
    pub(super) plugin: &'a dyn Fn(&KmsOptions) -> Arc<Kms>,
}

impl Rules {
    /// Makes them of a configuration.
    pub(super) fn new(
        configuration: &Configuration,
        workshop: &Workshop,
    ) -> Result<Rules, ConfigurationError> {
        let mut rules = Rules {
            unknown: workshop.counts.of("unknown"),
            ..Rules::default()
        };
        for entry in &configuration.entries {
            rules.add(entry, workshop)?;
        }
        Ok(rules)
    }

    fn add(&mut self, entry: &Entry, workshop: &Workshop) -> Result<(), ConfigurationError> {
        let providers: Providers = entry
            .providers
            .iter()
            .map(|provider| Arc::new(self.provider(provider, workshop)))
            .collect();
        for resource in &entry.resources {
            if let Some(earlier) = self.masking(resource) {
                let (masked, earlier) = (shown(resource), shown(&earlier));
                let why = format!("resource {masked:?} is masked by earlier rule {earlier:?}");
                return Err(ConfigurationError(why));
            }
            self.slot(resource).extend(providers.iter().cloned());
        }
        Ok(())
    }

    fn provider(&mut self, provider: &configuration::Provider, workshop: &Workshop) -> Provider {
        match provider {
            configuration::Provider::Identity => Provider::Identity,
            configuration::Provider::Keys(method, keys) => {
                let keys = keys
                    .iter()
                    .filter_map(|key| Key::new(*method, key, workshop))
                    .collect();
                Provider::Keys(Ring {
                    method: *method,
                    counts: workshop.counts.of(method.prefix()),
                    keys,
                })
            }
            configuration::Provider::Kms(options) => {
                let plugin = (workshop.plugin)(options);
                self.plugins.push(plugin.clone());
                Provider::Kms(plugin)
            }
        }
    }

    /// The earlier rule that leaves nothing to one for `resource`.
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

    fn slot(&mut self, resource: &GroupResource) -> &mut Providers {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("*", "*") => self.any.get_or_insert_default(),
            (group, "*") => self.groups.entry(group.into()).or_default(),
            ("", resource) => self.exact.entry(resource.into()).or_default(),
            (group, resource) => self.exact.entry(format!("{group}/{resource}")).or_default(),
        }
    }

    /// Who seals a space; nobody if nothing is said of it.
    fn of(&self, space: &str) -> &[Arc<Provider>] {
        let group = space.split_once('/').map_or("", |(group, _)| group);
        let found = self
            .exact
            .get(space)
            .or_else(|| self.groups.get(group))
            .or(self.any.as_ref());
        found.map_or(&[], Vec::as_slice)
    }

    /// How content of `space` is written now.
    pub(super) fn mark(&self, space: &str) -> Mark {
        self.of(space)
            .first()
            .map_or(Mark::PLAIN, |provider| provider.mark())
    }

    /// Seals with the first provider.
    pub(super) fn seal(
        &self,
        space: &str,
        path: &[u8],
        plain: &[u8],
    ) -> Result<Option<Sealed>, SealError> {
        let Some(provider) = self.of(space).first() else {
            return Ok(None);
        };
        let started = Instant::now();
        let sealed = provider.seal(path, plain);
        if let Some(counts) = provider.counts() {
            counts.record(space, Way::To, &sealed, started.elapsed());
        }
        sealed
    }

    /// Opens with the first provider that can.
    pub(super) fn open(
        &self,
        space: &str,
        path: &[u8],
        sealed: &[u8],
    ) -> Result<(Vec<u8>, Mark), SealError> {
        let providers = self.of(space);
        if providers
            .iter()
            .all(|provider| matches!(**provider, Provider::Identity))
        {
            return Err(SealError(
                "identity transformer tried to read encrypted data".into(),
            ));
        }
        let (mut problems, started) = (Vec::new(), Instant::now());
        // Kubernetes: a key that does not fit keeps no later one from being tried: two may have the same name.
        for provider in providers {
            let Some(outcome) = provider.open(path, sealed) else {
                continue;
            };
            if let Some(counts) = provider.counts() {
                counts.record(space, Way::From, &outcome, started.elapsed());
            }
            match outcome {
                Ok(opened) => return Ok(opened),
                Err(problem) => problems.push(problem.0),
            }
        }
        if let Some(problem) = in_one(problems) {
            return Err(SealError(problem));
        }
        let refused = Err(SealError(no_provider()));
        self.unknown
            .record(space, Way::From, &refused, started.elapsed());
        refused
    }

    /// Refuses what is not sealed where nobody reads that.
    pub(super) fn admit_plain(&self, space: &str) -> Result<(), SealError> {
        let providers = self.of(space);
        let reads = providers.is_empty()
            || providers
                .iter()
                .any(|provider| matches!(**provider, Provider::Identity));
        if reads {
            Ok(())
        } else {
            Err(SealError(no_provider()))
        }
    }

    /// Whether content looks as if it were written now.
    pub(super) fn is_current(&self, space: &str, sealed: Option<&[u8]>) -> bool {
        match (
            self.of(space)
                .first()
                .and_then(|provider| provider.prefix()),
            sealed,
        ) {
            (None, None) => true,
            (Some(prefix), Some(sealed)) => sealed.starts_with(prefix.as_bytes()),
            _ => false,
        }
    }
}

fn no_provider() -> String {
    "no matching prefix found".into()
}

/// A resource as the file says it.
fn shown(resource: &GroupResource) -> String {
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "*") => "*.".into(),
        _ => resource.to_string(),
    }
}

impl Provider {
    /// Where it is counted what is sealed; nothing is where things stay as they are.
    fn counts(&self) -> Option<&Transformations> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => Some(&ring.counts),
            Provider::Kms(kms) => Some(kms.transformations()),
        }
    }

    fn mark(&self) -> Mark {
        match self {
            Provider::Identity => Mark::PLAIN,
            Provider::Keys(ring) => ring.keys[0].mark,
            Provider::Kms(kms) => kms.mark(),
        }
    }

    /// What is written now begins with this, if it is sealed.
    fn prefix(&self) -> Option<&str> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => Some(&ring.keys[0].prefix),
            Provider::Kms(kms) => Some(kms.prefix()),
        }
    }

    fn seal(&self, path: &[u8], plain: &[u8]) -> Result<Option<Sealed>, SealError> {
        match self {
            Provider::Identity => Ok(None),
            Provider::Keys(ring) => ring.keys[0].seal(path, plain).map(Some),
            Provider::Kms(kms) => kms.seal(path, plain).map(Some),
        }
    }

    /// None if it was sealed by somebody else.
    fn open(&self, path: &[u8], sealed: &[u8]) -> Option<Result<(Vec<u8>, Mark), SealError>> {
        match self {
            Provider::Identity => None,
            Provider::Keys(ring) => ring.open(path, sealed),
            Provider::Kms(kms) => sealed
                .strip_prefix(kms.prefix().as_bytes())
                .map(|sealed| kms.open(path, sealed)),
        }
    }
}

impl Ring {
    fn open(&self, path: &[u8], sealed: &[u8]) -> Option<Result<(Vec<u8>, Mark), SealError>> {
        sealed.strip_prefix(self.method.prefix().as_bytes())?;
        let mut problems = Vec::new();
        for key in &self.keys {
            let Some(sealed) = sealed.strip_prefix(key.prefix.as_bytes()) else {
                continue;
            };
            match key.cipher.open(sealed, path) {
                Ok(plain) => return Some(Ok((plain, key.mark))),
                Err(problem) => problems.push(problem.0),
            }
        }
        let family = self.method.family();
        let none = || format!("no matching key was found for the provided {family} transformer");
        Some(Err(SealError(in_one(problems).unwrap_or_else(none))))
    }
}

impl Key {
    fn new(method: Method, key: &configuration::Key, workshop: &Workshop) -> Option<Key> {
        let cipher = method.with_key(&key.secret, workshop.random)?;
        let prefix = format!("{}{}:", method.prefix(), key.name);
        // Another secret under the same name is another key.
        let mark = workshop.marks.of(&[prefix.as_bytes(), &key.secret]);
        Some(Key {
            prefix,
            mark,
            cipher,
        })
    }

    fn seal(&self, path: &[u8], plain: &[u8]) -> Result<Sealed, SealError> {
        let mut bytes = Vec::with_capacity(self.prefix.len() + plain.len() + 64);
        bytes.extend_from_slice(self.prefix.as_bytes());
        self.cipher.seal(plain, path, &mut bytes)?;
        Ok(Sealed {
            bytes: bytes.into(),
            mark: self.mark,
        })
    }
}
