//! Which revision is the set's, and which were its own before?
//!
//! Kubernetes: a DaemonSet's revisions are named by the hash of the template, as ReplicaSets are, and not by the hash of the
//! patch, as a StatefulSet's are.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::resource::{CONTROLLER_REVISIONS, DAEMON_SETS, PODS};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::DaemonSets;
use super::pod::HASH_LABEL;
use crate::Error;
use crate::common::hash;
use crate::common::template::controller_reference;
use crate::history::{limit, revision};

/// The revisions of a set.
pub(super) struct Revisions {
    /// The hash of the one that restores its template.
    pub hash: String,
    /// The others, in order.
    pub old: Vec<Arc<Object>>,
}

impl DaemonSets {
    /// Finds the revisions of a set, makes the one that is missing, and of several that are equal keeps one.
    pub(super) async fn revisions(&self, set: &Object) -> Result<Revisions, Error> {
        let mut known = Vec::new();
        for revision in self.history.claim(set, &DAEMON_SETS).await? {
            known.push(self.with_hash(revision).await?);
        }
        let patch = revision::patch(set);
        let (mut equal, old): (Vec<_>, Vec<_>) = known
            .into_iter()
            .partition(|known| revision::restores(known, &patch));
        let number = revision::next_number(&old);
        let current = match equal.pop() {
            Some(latest) => {
                self.join(set, &latest, &equal).await?;
                if latest["revision"].int() < number {
                    self.history.renumber(&latest, number).await?;
                }
                latest
            }
            None => Arc::new(self.snapshot(set, &patch, number).await?),
        };
        Ok(Revisions {
            hash: current.label(HASH_LABEL).unwrap_or_default().into(),
            old,
        })
    }

    /// A revision that says no hash is told apart by its name.
    async fn with_hash(&self, revision: Arc<Object>) -> Result<Arc<Object>, Error> {
        if revision.label(HASH_LABEL).is_some() {
            return Ok(revision);
        }
        let mut named = (*revision).clone();
        let name = named.name().to_string();
        named
            .entry("metadata")
            .entry("labels")
            .set(HASH_LABEL, name);
        Ok(Arc::new(
            self.context
                .api
                .update(&CONTROLLER_REVISIONS, &named)
                .await?,
        ))
    }

    /// Makes pods of equal revisions pods of the latest, and forgets those revisions.
    async fn join(
        &self,
        set: &Object,
        latest: &Object,
        equal: &[Arc<Object>],
    ) -> Result<(), Error> {
        if equal.is_empty() {
            return Ok(());
        }
        let hash = latest.label(HASH_LABEL);
        for pod in self
            .pods_of(set)?
            .iter()
            .filter(|pod| pod.label(HASH_LABEL) != hash)
        {
            let mut change = Value::object();
            change
                .entry("metadata")
                .entry("labels")
                .set(HASH_LABEL, hash);
            self.context
                .api
                .patch(&PODS, &pod.key(), "", Patch::Merge, &change)
                .await?;
        }
        self.history.forget(equal).await
    }

    async fn snapshot(&self, set: &Object, patch: &Value, number: i64) -> Result<Object, Error> {
        let hash = hash::of_template(
            set.at("spec.template"),
            set.at("status.collisionCount").as_int(),
        );
        let name = format!("{}-{hash}", set.name());
        let draft = revision::draft(
            set,
            controller_reference(set, &DAEMON_SETS),
            &name,
            (HASH_LABEL, &hash),
            number,
        );
        match self.context.api.create(&CONTROLLER_REVISIONS, &draft).await {
            Err(error) if is_already_exists(&error) => {}
            outcome => return Ok(outcome?),
        }
        let known = self
            .context
            .api
            .get(&CONTROLLER_REVISIONS, &Key::new(set.namespace(), name))
            .await?;
        match revision::restores(&known, patch) {
            true => Ok(known),
            false => Err(self.note_collision(set).await?),
        }
    }

    /// Another template has the same hash. Once the set's status says how many there were, the hash is another.
    async fn note_collision(&self, set: &Object) -> Result<Error, Error> {
        let mut fresh = self.context.api.get(&DAEMON_SETS, &set.key()).await?;
        let (known, actual) = (
            set.at("status.collisionCount").clone(),
            fresh.at("status.collisionCount").clone(),
        );
        if known == actual {
            fresh.entry("status").set("collisionCount", known.int() + 1);
            self.written
                .note(&self.context.api.update_status(&DAEMON_SETS, &fresh).await?);
        }
        Ok(Error::Other(format!(
            "the hash of DaemonSet {} is another revision's",
            set.key()
        )))
    }

    /// Forgets revisions beyond the set's limit. Those that pods are of stay.
    pub(super) async fn forget(&self, set: &Object, old: &[Arc<Object>]) -> Result<(), Error> {
        let pods = self.pods_of(set)?;
        let live: HashSet<&str> = pods
            .iter()
            .filter_map(|pod| pod.label(HASH_LABEL))
            .collect();
        let limit = set["spec"]["revisionHistoryLimit"].as_int().unwrap_or(10);
        self.history
            .forget(&limit::beyond(old, HASH_LABEL, &live, limit))
            .await
    }
}
