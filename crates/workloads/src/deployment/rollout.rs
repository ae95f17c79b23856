//! One sync of a deployment.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::controller::{Action, Error, controlled_by, decode_entries};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::REPLICA_SETS;
use mizzen_sdk::write::ignore_not_found;
use mizzen_value::Value;

use super::Deployments;
use super::proportional_scaling::{self, Scale};
use super::replica_sets::{ReplicaSets, Set, is_rolling, replicas};
use super::rolling::{self, ReplicaSetScale};
use super::{condition, revision, rollback, status};
use crate::common::pod;

/// A deployment and its sets, updated with what is written.
pub(super) struct Rollout<'a> {
    pub all: &'a Deployments,
    pub deployment: Object,
    pub sets: ReplicaSets,
}

impl Rollout<'_> {
    /// Runs the sync.
    pub(super) async fn sync(&mut self) -> Result<Action, Error> {
        if self.deployment.is_terminating() {
            self.sync_new_set_annotations().await?;
            return self.report_counts().await;
        }
        self.check_paused_conditions().await?;
        let is_paused = self.deployment["spec"]["paused"].bool();
        let target = rollback::rollback_to(&self.deployment);
        if let Some(revision) = target.filter(|_| !is_paused) {
            return self.roll_back(revision).await;
        }
        self.sync_new_set_annotations().await?;
        if is_paused || proportional_scaling::is_scaling_event(&self.deployment, &self.sets) {
            self.scale().await?;
            if is_paused && target.is_none() {
                self.clean_up().await?;
            }
            return self.report_counts().await;
        }
        match is_rolling(&self.deployment) {
            true => self.roll().await?,
            false => self.recreate().await?,
        }
        self.report_progress().await
    }

    async fn check_paused_conditions(&mut self) -> Result<(), Error> {
        if let Some(condition) = status::paused_condition(&self.deployment, self.all.context.now())
        {
            condition::set(self.deployment.entry("status"), condition);
            self.deployment = self.all.update_status(&self.deployment).await?;
        }
        Ok(())
    }

    /// Scales the sets proportionally.
    async fn scale(&mut self) -> Result<(), Error> {
        let (steps, with_notes) = match proportional_scaling::scale(&self.deployment, &self.sets) {
            Scale::Sizes(steps) => (steps, false),
            Scale::Shares(steps) => (steps, true),
        };
        for step in steps {
            self.scale_replica_set(step, with_notes).await?;
        }
        Ok(())
    }

    async fn roll(&mut self) -> Result<(), Error> {
        let new = self.get_or_create_new_set().await?;
        let to =
            rolling::new_set_replicas(&self.deployment, self.sets.n_replicas(), replicas(&new));
        if self
            .scale_replica_set(ReplicaSetScale { set: new, to }, false)
            .await?
        {
            return Ok(());
        }
        let steps = rolling::reconcile_old_replica_sets(&self.deployment, &self.sets);
        if steps.is_empty() {
            return self.clean_up_when_complete().await;
        }
        for step in steps {
            self.scale_replica_set(step, false).await?;
        }
        Ok(())
    }

    /// Recreate strategy: all old pods are deleted before the first new one is created.
    async fn recreate(&mut self) -> Result<(), Error> {
        let old = self.sets.active_old();
        if !old.is_empty() {
            for set in old {
                self.scale_replica_set(ReplicaSetScale { set, to: 0 }, false)
                    .await?;
            }
            return Ok(());
        }
        if self.has_old_pods()? {
            return Ok(());
        }
        let new = self.get_or_create_new_set().await?;
        let to = replicas(&self.deployment);
        self.scale_replica_set(ReplicaSetScale { set: new, to }, false)
            .await?;
        self.clean_up_when_complete().await
    }

    fn has_old_pods(&self) -> Result<bool, Error> {
        let old = &self.sets.old;
        if old.iter().any(|set| set["status"]["replicas"].int() > 0) {
            return Ok(true);
        }
        let pods = old
            .iter()
            .flat_map(|set| controlled_by(&self.all.pods, set.uid()))
            .collect();
        Ok(decode_entries(pods)?
            .iter()
            .any(|pod| !pod::is_terminal(pod)))
    }

    /// Scales a set and sets its size annotations; whether its size changed. Without `with_notes` a
    /// set that has the size is not written.
    pub(super) async fn scale_replica_set(
        &mut self,
        step: ReplicaSetScale,
        with_notes: bool,
    ) -> Result<bool, Error> {
        let current = self
            .sets
            .all()
            .find(|set| set.uid() == step.set.uid())
            .cloned()
            .unwrap_or(step.set);
        let from = replicas(&current);
        if from == step.to && !with_notes {
            return Ok(false);
        }
        let mut changed = Object::clone(&current);
        changed.entry("spec").set("replicas", step.to);
        revision::set_replicas_annotations(&mut changed, &self.deployment);
        self.update_set(&current, &changed).await?;
        if from != step.to {
            self.record_scaled(current.name(), from, step.to);
        }
        Ok(from != step.to)
    }

    /// Writes a set if it changed; whether it did.
    pub(super) async fn update_set(
        &mut self,
        current: &Set,
        changed: &Object,
    ) -> Result<bool, Error> {
        if **current == *changed {
            return Ok(false);
        }
        let written = Arc::new(self.all.context.api.update(&REPLICA_SETS, changed).await?);
        self.sets.replace(&written);
        Ok(true)
    }

    /// Records the ScalingReplicaSet event.
    pub(super) fn record_scaled(&self, set: &str, from: i64, to: i64) {
        let way = if from < to { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {set} from {from} to {to}");
        self.all.record_event(
            &self.deployment,
            Note::normal("ScalingReplicaSet", "", message),
        );
    }

    async fn clean_up_when_complete(&self) -> Result<(), Error> {
        match status::is_complete(&self.deployment, &self.deployment["status"]) {
            true => self.clean_up().await,
            false => Ok(()),
        }
    }

    /// Deletes old sets beyond revisionHistoryLimit.
    async fn clean_up(&self) -> Result<(), Error> {
        for set in sets_over_history_limit(&self.deployment, &self.sets.old) {
            let deleted = self
                .all
                .context
                .api
                .delete(&REPLICA_SETS, &set.key(), &DeleteOptions::default())
                .await;
            ignore_not_found(deleted)?;
        }
        Ok(())
    }

    async fn report_counts(&self) -> Result<Action, Error> {
        let status = status::calculate_status(&self.deployment, &self.sets, self.all.context.now());
        self.write_status(status).await.map(|_| Action::done())
    }

    async fn report_progress(&self) -> Result<Action, Error> {
        let now = self.all.context.now();
        let status = status::rollout_status(&self.deployment, &self.sets, now);
        let until = status::until_deadline(&self.deployment, &status, now);
        match self.write_status(status).await? {
            true => Ok(Action::done()),
            false => Ok(until.map_or(Action::done(), Action::requeue_after)),
        }
    }

    /// Writes the status; whether it changed.
    async fn write_status(&self, status: Value) -> Result<bool, Error> {
        if self.deployment["status"] == status {
            return Ok(false);
        }
        let mut changed = self.deployment.clone();
        changed.set("status", status);
        self.all.update_status(&changed).await.map(|_| true)
    }
}

/// Old sets beyond the limit: scaled to zero, lowest revisions first.
fn sets_over_history_limit<'a>(deployment: &Object, old: &'a [Set]) -> Vec<&'a Set> {
    let Some(limit) = deployment["spec"]["revisionHistoryLimit"].as_int() else {
        return Vec::new();
    };
    if limit == i64::from(i32::MAX) {
        return Vec::new();
    }
    let mut kept: Vec<&Set> = old.iter().filter(|set| !set.is_terminating()).collect();
    let n_surplus = kept
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or_default());
    // They are sorted by age, which decides between equal revisions.
    kept.sort_by_key(|set| revision::revision(set).unwrap_or_default());
    kept.truncate(n_surplus);
    kept.retain(|set| is_empty(set));
    kept
}

/// Whether a set has no pods, and its controller has observed that.
fn is_empty(set: &Object) -> bool {
    let seen = set["status"]["observedGeneration"].int() >= set["metadata"]["generation"].int();
    set["status"]["replicas"].int() == 0 && replicas(set) == 0 && seen
}

#[cfg(test)]
mod tests {
    use super::super::replica_sets::tests::{deployment, set};
    use super::*;

    fn with_revision(name: &str, replicas: i64, revision: &str) -> Set {
        let mut set = Object::clone(&set(name, 1, replicas, 0));
        revision::annotations(&mut set).set(revision::REVISION, revision);
        Arc::new(set)
    }

    #[track_caller]
    fn check(limit: i64, old: &[Set], expect: &[&str]) {
        let mut deployment = deployment(1, "1", "1");
        deployment.entry("spec").set("revisionHistoryLimit", limit);
        let names: Vec<&str> = sets_over_history_limit(&deployment, old)
            .into_iter()
            .map(|set| set.name())
            .collect();
        assert_eq!(names, expect);
    }

    #[test]
    fn old_sets_beyond_the_limit_are_deleted_lowest_revisions_first() {
        let old = [
            with_revision("a", 0, "3"),
            with_revision("b", 0, "1"),
            with_revision("c", 0, "2"),
        ];
        check(1, &old, &["b", "c"]);
        check(0, &old, &["b", "c", "a"]);
        check(3, &old, &[]);
        check(i64::from(i32::MAX), &old, &[]);
    }

    #[test]
    fn a_set_with_pods_stays_and_counts() {
        check(
            1,
            &[
                with_revision("a", 0, "3"),
                with_revision("b", 2, "1"),
                with_revision("c", 0, "2"),
            ],
            &["c"],
        );
    }
}
