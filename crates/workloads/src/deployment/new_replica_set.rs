//! The new ReplicaSet of a deployment, which has the deployment's template: found and kept in sync,
//! or created.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::controller::Error;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::{DEPLOYMENTS, REPLICA_SETS};
use mizzen_sdk::write::{is_already_exists, is_namespace_terminating, message};
use mizzen_value::{Value, value};

use super::condition::{self, PROGRESSING};
use super::replica_sets::{HASH, Set, is_same_template};
use super::revision::{self, REVISION, annotations};
use super::rolling;
use super::rollout::Rollout;
use super::status::deadline;
use crate::common::hash;
use crate::common::template::controller_reference;

impl Rollout<'_> {
    /// Copies the deployment's annotations to the new set, and the set's revision to the
    /// deployment. Does nothing if there is no new set yet.
    pub(super) async fn sync_new_set_annotations(&mut self) -> Result<(), Error> {
        let Some(new) = self.sets.new.clone() else {
            return Ok(());
        };
        let revision = revision::max_revision(&self.sets.old) + 1;
        let mut synced = Object::clone(&new);
        revision::set_new_replica_set_annotations(&mut synced, &self.deployment, revision);
        match self.deployment["spec"]["minReadySeconds"].int() {
            0 => drop(synced.entry("spec").remove("minReadySeconds")),
            seconds => synced.entry("spec").set("minReadySeconds", seconds),
        }
        if self.update_set(&new, &synced).await? {
            return Ok(());
        }
        let mut changed = self.deployment.clone();
        annotations(&mut changed).set(REVISION, new.annotation(REVISION).unwrap_or_default());
        if condition::find(&changed["status"], PROGRESSING).is_none() {
            self.set_progressing(
                &mut changed,
                "FoundNewReplicaSet",
                &format!("Found new replica set \"{}\"", new.name()),
            );
        }
        self.write_if_changed(changed).await
    }

    /// The new set; creates it if it does not exist.
    pub(super) async fn get_or_create_new_set(&mut self) -> Result<Set, Error> {
        if let Some(new) = &self.sets.new {
            return Ok(new.clone());
        }
        let revision = revision::max_revision(&self.sets.old) + 1;
        let draft = new_replica_set(&self.deployment, self.sets.n_replicas(), revision);
        let (new, is_made) = match self.all.context.api.create(&REPLICA_SETS, &draft).await {
            Ok(made) => (made, true),
            Err(error) if is_already_exists(&error) => {
                (self.handle_name_collision(&draft, error).await?, false)
            }
            Err(error) => return Err(self.report_create_failure(&draft, error).await),
        };
        let new = Arc::new(new);
        self.sets.new = Some(new.clone());
        let size = draft["spec"]["replicas"].int();
        if is_made && size > 0 {
            self.record_scaled(new.name(), 0, size);
        }
        let mut changed = self.deployment.clone();
        annotations(&mut changed).set(REVISION, revision.to_string());
        if is_made {
            self.set_progressing(
                &mut changed,
                "NewReplicaSetCreated",
                &format!("Created new replica set \"{}\"", new.name()),
            );
        }
        self.write_if_changed(changed).await?;
        Ok(new)
    }

    /// A set of that name exists. Either it is the deployment's own, which the cache does not have
    /// yet, or another template has the same hash, and the next try uses another one.
    async fn handle_name_collision(
        &mut self,
        draft: &Object,
        error: kube::Error,
    ) -> Result<Object, Error> {
        let found = self
            .all
            .context
            .api
            .get(&REPLICA_SETS, &draft.key())
            .await?;
        let template = &self.deployment["spec"]["template"];
        let is_mine = found.is_controlled_by(self.deployment.uid());
        if is_mine && is_same_template(template, &found["spec"]["template"]) {
            return Ok(found);
        }
        let n_collisions = self.deployment["status"]["collisionCount"].int();
        self.deployment
            .entry("status")
            .set("collisionCount", n_collisions + 1);
        self.all.update_status(&self.deployment).await?;
        Err(error.into())
    }

    /// Records that the set could not be created, unless the namespace is being deleted.
    async fn report_create_failure(&mut self, draft: &Object, error: kube::Error) -> Error {
        if is_namespace_terminating(&error) {
            return error.into();
        }
        let reason = "ReplicaSetCreateError";
        let message = format!(
            "Failed to create new replica set \"{}\": {}",
            draft.name(),
            message(&error)
        );
        if deadline(&self.deployment).is_some() {
            let now = self.all.context.now_text();
            let condition = condition::new(PROGRESSING, "False", reason, &message, &now);
            condition::set(self.deployment.entry("status"), condition);
            // The create error is returned, so an error of this write is ignored.
            let _ = self.all.update_status(&self.deployment).await;
        }
        self.all
            .record_event(&self.deployment, Note::warning(reason, "", message));
        error.into()
    }

    fn set_progressing(&self, deployment: &mut Object, reason: &str, message: &str) {
        if deadline(deployment).is_some() {
            let condition = condition::new(
                PROGRESSING,
                "True",
                reason,
                message,
                &self.all.context.now_text(),
            );
            condition::set(deployment.entry("status"), condition);
        }
    }

    async fn write_if_changed(&mut self, changed: Object) -> Result<(), Error> {
        if self.deployment != changed {
            self.deployment = self.all.update_status(&changed).await?;
        }
        Ok(())
    }
}

/// The set to be created. Its name contains the template hash, so that it is not created twice.
fn new_replica_set(deployment: &Object, n_all: i64, revision: i64) -> Object {
    let template = &deployment["spec"]["template"];
    let hash = hash::hash_pod_template(template, deployment["status"]["collisionCount"].as_int());
    let (name, namespace) = (set_name(deployment.name(), &hash), deployment.namespace());
    let template = with_hash_label(template, "metadata.labels", &hash);
    let selector = with_hash_label(&deployment["spec"]["selector"], "matchLabels", &hash);
    let labels = template["metadata"]["labels"].clone();
    let owners = vec![controller_reference(deployment, &DEPLOYMENTS)];
    let replicas = rolling::new_set_replicas(deployment, n_all, 0);
    let metadata =
        value!({"name": name, "namespace": namespace, "ownerReferences": owners, "labels": labels});
    let spec = value!({"replicas": replicas, "selector": selector, "template": template});
    let mut set = Object(value!({"metadata": metadata, "spec": spec}));
    let min_ready = &deployment["spec"]["minReadySeconds"];
    if !min_ready.is_empty() {
        set.entry("spec").set("minReadySeconds", min_ready.clone());
    }
    revision::set_new_replica_set_annotations(&mut set, deployment, revision);
    revision::set_replicas_annotations(&mut set, deployment);
    set
}

fn with_hash_label(value: &Value, path: &str, hash: &str) -> Value {
    let mut value = value.clone();
    path.split('.')
        .fold(&mut value, |value, key| value.entry(key))
        .set(HASH, hash);
    value
}

/// The deployment's name, cut to leave room for the hash.
fn set_name(deployment: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let room = LONGEST - 1 - hash.len();
    format!("{}-{hash}", deployment.get(..room).unwrap_or(deployment))
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn web() -> Object {
        let text = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "d", "annotations": {"team": "a"}}, "spec": {
            "replicas": 4, "minReadySeconds": 3, "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}}}"#;
        Object::parse(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_new_set_has_its_controller_and_selector() {
        let hash = hash::hash_pod_template(&web()["spec"]["template"], None);
        let expect = r#"{
            "metadata": {"name": "web-HASH", "namespace": "shop", "labels": {"app": "a", "pod-template-hash": "HASH"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
                    "controller": true, "blockOwnerDeletion": true}],
                "annotations": {"team": "a", "deployment.kubernetes.io/revision": "2",
                    "deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5"}},
            "spec": {"replicas": 1, "minReadySeconds": 3,
                "selector": {"matchLabels": {"app": "a", "pod-template-hash": "HASH"}},
                "template": {"metadata": {"labels": {"app": "a", "pod-template-hash": "HASH"}}, "spec": {"containers": []}}}}"#;
        let expect = json::parse(expect.replace("HASH", &hash).as_bytes()).expect("JSON");
        assert_eq!(*new_replica_set(&web(), 4, 2), expect);
    }

    #[test]
    fn a_selector_without_labels_gets_one() {
        let mut web = web();
        let expression = value!({"key": "app", "operator": "Exists"});
        web.entry("spec")
            .set("selector", value!({"matchExpressions": [expression]}));
        let set = new_replica_set(&web, 0, 1);
        assert_eq!(set["spec"]["selector"]["matchLabels"].entries().count(), 1);
        assert_eq!(set["spec"]["selector"]["matchExpressions"].list().len(), 1);
    }

    #[test]
    fn collisions_lead_to_another_name() {
        let mut again = web();
        again.set("status", value!({"collisionCount": 1}));
        assert_ne!(
            new_replica_set(&web(), 0, 1).name(),
            new_replica_set(&again, 0, 1).name()
        );
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(set_name("web", "abc"), "web-abc");
        assert_eq!(set_name(&"w".repeat(253), "abc").len(), 253);
    }
}
