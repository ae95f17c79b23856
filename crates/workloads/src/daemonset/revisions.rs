//! The ControllerRevisions of a DaemonSet.
//!
//! Kubernetes: they are named by the hash of the pod template, as ReplicaSets are, and not by the
//! hash of the patch, as those of a StatefulSet.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_sdk::controller::Error;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::{CONTROLLER_REVISIONS, DAEMON_SETS, PODS};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::DaemonSets;
use super::pod::HASH_LABEL;
use crate::common::hash;
use crate::common::template::controller_reference;
use crate::controller_history::{limit, revision};

/// The revisions of a set.
pub(super) struct DaemonSetRevisions {
    /// The hash of the current one.
    pub hash: String,
    /// The old ones, sorted.
    pub old: Vec<Arc<Object>>,
}

impl DaemonSets {
    /// Finds the revisions of a set, creates the current one if it is missing, and removes
    /// duplicates of it.
    pub(super) async fn revisions(&self, set: &Object) -> Result<DaemonSetRevisions, Error> {
        let mut known = Vec::new();
        for revision in self.history.claim_revisions(set, &DAEMON_SETS).await? {
            known.push(self.ensure_hash_label(revision).await?);
        }
        let patch = revision::template_patch(set);
        let (mut equal, old): (Vec<_>, Vec<_>) = known
            .into_iter()
            .partition(|known| revision::equals_patch(known, &patch));
        let number = revision::next_number(&old);
        let current = match equal.pop() {
            Some(latest) => {
                self.dedup_cur_histories(set, &latest, &equal).await?;
                if latest["revision"].int() < number {
                    self.history.update_revision_number(&latest, number).await?;
                }
                latest
            }
            None => Arc::new(self.snapshot(set, &patch, number).await?),
        };
        Ok(DaemonSetRevisions {
            hash: current.label(HASH_LABEL).unwrap_or_default().into(),
            old,
        })
    }

    /// A revision without the hash label gets its name as the label.
    async fn ensure_hash_label(&self, revision: Arc<Object>) -> Result<Arc<Object>, Error> {
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

    /// Relabels the pods of duplicate revisions to the latest one, and deletes the duplicates.
    async fn dedup_cur_histories(
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
                .patch(&PODS, &pod.key(), "", PatchType::Merge, &change)
                .await?;
        }
        self.history.delete_revisions(equal).await
    }

    async fn snapshot(&self, set: &Object, patch: &Value, number: i64) -> Result<Object, Error> {
        let hash = hash::hash_pod_template(
            set.at("spec.template"),
            set.at("status.collisionCount").as_int(),
        );
        let name = format!("{}-{hash}", set.name());
        let draft = revision::new_revision(
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
        let api = &self.context.api;
        let known = api
            .get(&CONTROLLER_REVISIONS, &Key::new(set.namespace(), name))
            .await?;
        match revision::equals_patch(&known, patch) {
            true => Ok(known),
            false => Err(self.increment_collision_count(set).await?),
        }
    }

    /// Increments the collision count in the status: another template has the same hash.
    async fn increment_collision_count(&self, set: &Object) -> Result<Error, Error> {
        let mut fresh = self.context.api.get(&DAEMON_SETS, &set.key()).await?;
        let known = set.at("status.collisionCount").clone();
        let actual = fresh.at("status.collisionCount").clone();
        if known == actual {
            fresh.entry("status").set("collisionCount", known.int() + 1);
            self.written
                .record(&self.context.api.update_status(&DAEMON_SETS, &fresh).await?);
        }
        Ok(Error::other(format!(
            "the hash of DaemonSet {} is another revision's",
            set.key()
        )))
    }

    /// Deletes revisions beyond revisionHistoryLimit that no pod has.
    pub(super) async fn cleanup_history(
        &self,
        set: &Object,
        old: &[Arc<Object>],
    ) -> Result<(), Error> {
        let pods = self.pods_of(set)?;
        let live: HashSet<&str> = pods
            .iter()
            .filter_map(|pod| pod.label(HASH_LABEL))
            .collect();
        let limit = set["spec"]["revisionHistoryLimit"].as_int().unwrap_or(10);
        self.history
            .delete_revisions(&limit::over_limit(old, HASH_LABEL, &live, limit))
            .await
    }
}
