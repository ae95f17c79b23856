//! Sealing with keys that are kept elsewhere: a plug-in seals our seed, and the seed seals what we write.
//!
//! `call` speaks gRPC over a socket, `service` the three calls of `v2.KeyManagementService`, `object` is what is
//! stored. `probe` asks for the plug-in's state: every minute, and every ten seconds while something is wrong. A new
//! key of the plug-in means a new seed. While the plug-in is away, what was opened stays open; what is written may be
//! sealed with the last seed for three minutes, and is refused after that.

mod call;
mod counts;
mod object;
mod probe;
mod service;

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_store::{Mark, SealError, Sealed};
use mizzen_value::time::from_unix;
use tokio::time::Instant;

use self::counts::KeyUses;
use self::object::{Envelope, Source};
use self::probe::Last;
use self::service::Service;
use super::World;
use super::cipher::{Cipher, Derived};
use super::configuration::KmsOptions;
use super::counts::{Transformations, Way};
use super::marks::Marks;

pub(super) use counts::PluginCounts;
pub(super) use probe::keep_asking;

/// How many opened seeds are remembered: there is one for each start of a server and each key of the plug-in.
const MAX_OPENED: usize = 10_000;

/// A plug-in.
pub(super) struct Kms {
    name: String,
    prefix: String,
    service: Service,
    timeout: Duration,
    world: World,
    /// What is written is sealed with; nothing until the plug-in has answered.
    state: RwLock<Option<Arc<State>>>,
    /// Seeds and keys that the plug-in has opened, by what it was given.
    opened: Mutex<HashMap<Source, Opened>>,
    transformations: Arc<Transformations>,
    counts: Arc<PluginCounts>,
    last: tokio::sync::Mutex<Last>,
}

/// A seed or key that the plug-in has opened, and how it is used.
type Opened = (Arc<dyn Cipher>, Arc<KeyUses>);

/// A seed, and what the plug-in made of it.
struct State {
    source: Source,
    uses: Arc<KeyUses>,
    cipher: Arc<Derived>,
    mark: Mark,
    /// It may be written with until then.
    until: Instant,
}

impl Kms {
    pub(super) fn new(options: &KmsOptions, world: World) -> Kms {
        let prefix = format!("k8s:enc:kms:v2:{}:", options.name);
        let counts = world.counts.plugin(&options.name);
        Kms {
            name: options.name.clone(),
            transformations: world.counts.of(&prefix),
            prefix,
            service: Service::new(&options.socket, options.timeout, counts.clone()),
            counts,
            timeout: options.timeout,
            world,
            state: RwLock::default(),
            opened: Mutex::default(),
            last: tokio::sync::Mutex::default(),
        }
    }

    /// What everything begins with that it has sealed.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where it is counted what is sealed and opened.
    pub(super) fn transformations(&self) -> &Transformations {
        &self.transformations
    }

    /// How long it may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is written now is marked so.
    pub(super) fn mark(&self) -> Mark {
        self.state().map_or(Marks::UNKNOWN, |state| state.mark)
    }

    /// Seals with the current seed, prefix included. Asks nobody.
    pub(super) fn seal(&self, path: &[u8], plain: &[u8]) -> Result<Sealed, SealError> {
        let state = self
            .state()
            .ok_or_else(|| SealError("got unexpected nil transformer".into()))?;
        self.check_time(&state)?;
        let mut data = Vec::with_capacity(plain.len() + 128);
        state.cipher.seal(plain, path, &mut data)?;
        let mut bytes = Vec::with_capacity(self.prefix.len() + data.len() + 256);
        bytes.extend_from_slice(self.prefix.as_bytes());
        Envelope {
            data,
            source: state.source.clone(),
        }
        .encode(&mut bytes);
        state.uses.used(Way::To, self.world.clock.now().0);
        Ok(Sealed {
            bytes: bytes.into(),
            mark: state.mark,
        })
    }

    /// Opens what it has sealed, prefix excluded. Blocks while the plug-in opens a seed that is not known yet, so this
    /// must not be called by a task.
    pub(super) fn open(&self, path: &[u8], sealed: &[u8]) -> Result<(Vec<u8>, Mark), SealError> {
        let Envelope { data, source } = Envelope::decode(sealed).map_err(SealError)?;
        let (cipher, uses) = match self.known(&source) {
            Some(known) => known,
            None => {
                self.world.counts.missed();
                self.world.runtime.block_on(self.ask_for(&source))?
            }
        };
        uses.used(Way::From, self.world.clock.now().0);
        Ok((cipher.open(&data, path)?, self.mark_of(&source)))
    }

    fn known(&self, source: &Source) -> Option<Opened> {
        self.opened.lock().get(source).cloned()
    }

    async fn ask_for(&self, source: &Source) -> Result<Opened, SealError> {
        let key = self.service.decrypt(source, self.world.uuid()).await;
        let key =
            key.map_err(|error| SealError(format!("failed to decrypt DEK, error: {error}")))?;
        let cipher = source.cipher(&key, &self.world.random).map_err(SealError)?;
        let uses = self.counts.key(&source.key_id);
        self.remember(source.clone(), (cipher.clone(), uses.clone()));
        Ok((cipher, uses))
    }

    /// Forgetting costs a question, never an answer.
    fn remember(&self, source: Source, cipher: Opened) {
        let mut opened = self.opened.lock();
        if opened.len() >= MAX_OPENED {
            opened.clear();
        }
        opened.insert(source, cipher);
        self.counts.knows(opened.len());
    }

    fn state(&self) -> Option<Arc<State>> {
        self.state.read().clone()
    }

    /// All that is sealed under one key of the plug-in is alike, whatever the seed.
    fn mark_of(&self, source: &Source) -> Mark {
        self.world.marks.of(&[
            self.prefix.as_bytes(),
            &[source.kind],
            source.key_id.as_bytes(),
        ])
    }

    fn check_time(&self, state: &State) -> Result<(), SealError> {
        let now = Instant::now();
        if now <= state.until {
            return Ok(());
        }
        let seconds = self.world.clock.now().0;
        let late = i64::try_from((now - state.until).as_secs()).unwrap_or_default();
        let hash = service::hash(&state.source.key_id);
        let (then, now) = (from_unix(seconds - late), from_unix(seconds));
        Err(SealError(format!(
            "encryptedDEKSource with keyID hash \"{hash}\" expired at {then} (current time is {now})"
        )))
    }
}

#[cfg(test)]
mod tests;
