//! Is the plug-in there, and is its key still the one that we seal with?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_object::in_one;
use tokio::time::{Instant, sleep};

use super::object::check_key_id;
use super::service::{Status, hash};
use super::{Kms, State};
use crate::cipher::{Derived, SEED};

/// How often the plug-in is asked while all is well, and while it is not.
const EVERY: Duration = Duration::from_secs(60);
const EVERY_IN_NEED: Duration = Duration::from_secs(10);
/// How long an answer counts for whoever else asks.
const COUNTS: Duration = Duration::from_secs(20);
const COUNTS_IN_NEED: Duration = Duration::from_secs(3);
/// How long a seed may be written with after the plug-in has said that its key is current.
const MAY_WRITE: Duration = Duration::from_secs(3 * 60);

/// The last answer.
#[derive(Default)]
pub(super) struct Last {
    answer: Option<(Instant, Result<(), String>)>,
    /// The version of the plug-in's first answer, which may not change.
    version: String,
}

impl Last {
    fn counts(&self) -> Option<Result<(), String>> {
        let (at, answer) = self.answer.as_ref()?;
        let counts = if answer.is_ok() {
            COUNTS
        } else {
            COUNTS_IN_NEED
        };
        (at.elapsed() < counts).then(|| answer.clone())
    }
}

/// Asks once, and from now on again and again until the plug-in is no longer used.
pub(crate) async fn keep_asking(plugin: &Arc<Kms>) {
    let mut is_well = ask(plugin).await;
    let plugin = Arc::downgrade(plugin);
    tokio::spawn(async move {
        loop {
            sleep(if is_well { EVERY } else { EVERY_IN_NEED }).await;
            let Some(plugin) = plugin.upgrade() else {
                return;
            };
            is_well = ask(&plugin).await;
        }
    });
}

async fn ask(plugin: &Kms) -> bool {
    let answer = plugin.check().await;
    if let Err(problem) = &answer {
        tracing::warn!("kms plugin failed health check probe: {problem}");
    }
    answer.is_ok()
}

impl Kms {
    /// Whether the plug-in is well and we can seal with its key. Who asks while somebody else does, or shortly after,
    /// gets the same answer.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some(answer) = last.counts() {
            return answer;
        }
        let answer = self.examine(&mut last.version).await;
        last.answer = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn examine(&self, version: &mut String) -> Result<(), String> {
        // The three minutes begin before the plug-in is asked: they are the most.
        let until = Instant::now() + MAY_WRITE;
        let name = &self.name;
        let status = self.service.status().await.map_err(|error| {
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let mut problems = complaints(&status, version);
        match check_key_id(&status.key_id) {
            Ok(()) => {
                self.counts.said(&status.key_id, self.world.clock.now().0);
                problems.extend(self.keep_or_rotate(&status.key_id, until).await.err());
            }
            Err(error) => {
                self.counts.said_nonsense(&status.key_id);
                problems.push(format!(
                    "got invalid KMSv2 KeyID hash \"{}\": {error}",
                    shown(&status.key_id)
                ));
            }
        }
        match in_one(problems) {
            None => Ok(()),
            Some(problems) => Err(format!(
                "kmsv2 Provider {name} is not healthy, error: {problems}"
            )),
        }
    }

    /// Goes on with the seed if the plug-in still uses the key that sealed it, and makes another one if not. If that
    /// fails, the old one is good for as long as it was.
    async fn keep_or_rotate(&self, key_id: &str, until: Instant) -> Result<(), String> {
        if let Some(state) = self.state().filter(|state| state.source.key_id == key_id) {
            let State {
                source,
                cipher,
                uses,
                mark,
                ..
            } = &*state;
            let (source, cipher, uses) = (source.clone(), cipher.clone(), uses.clone());
            self.set_state(State {
                source,
                cipher,
                uses,
                mark: *mark,
                until,
            });
            return Ok(());
        }
        let failed = |error: String| format!("failed to rotate DEK: {error}");
        let (mut seed, started) = ([0; SEED], Instant::now());
        self.world.random.fill(&mut seed);
        self.world.counts.generated(started.elapsed());
        let source = self.service.encrypt(&seed, self.world.uuid()).await;
        let source =
            source.map_err(|error| failed(format!("failed to encrypt DEK, error: {error}")))?;
        source.check().map_err(failed)?;
        if source.key_id != key_id {
            let (status, encrypt) = (hash(key_id), hash(&source.key_id));
            return Err(failed(format!(
                "statusKeyIDHash=\"{status}\", encryptKeyIDHash=\"{encrypt}\""
            )));
        }
        let cipher =
            Derived::from_seed(&seed, &self.world.random).expect("the seed is long enough");
        let cipher = Arc::new(cipher);
        let uses = self.counts.key(&source.key_id);
        self.remember(source.clone(), (cipher.clone(), uses.clone()));
        let mark = self.mark_of(&source);
        self.set_state(State {
            source,
            cipher,
            uses,
            mark,
            until,
        });
        self.world.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn set_state(&self, state: State) {
        *self.state.write() = Some(Arc::new(state));
    }
}

/// What is wrong with how a plug-in says it is.
fn complaints(status: &Status, version: &mut String) -> Vec<String> {
    let mut problems = Vec::new();
    if status.health != "ok" {
        problems.push(format!("got unexpected healthz status: {}", status.health));
    }
    if !["v2", "v2beta1"].contains(&status.version.as_str()) {
        problems.push(format!(
            "expected KMSv2 API version v2, got {}",
            status.version
        ));
    } else if version.is_empty() {
        version.clone_from(&status.version);
    } else if *version != status.version {
        problems.push(format!(
            "KMSv2 API version should not change after the initial status response version {version}, got {}",
            status.version
        ));
    }
    problems
}

fn shown(key_id: &str) -> String {
    if key_id.is_empty() {
        String::new()
    } else {
        hash(key_id)
    }
}
