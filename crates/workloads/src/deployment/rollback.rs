//! Rollback to an earlier revision, by the annotation that replaced the deprecated `rollbackTo`
//! field.

use mizzen_sdk::Object;
use mizzen_sdk::controller::{Action, Error};
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::DEPLOYMENTS;

use super::replica_sets::{HASH, Set, is_same_template};
use super::revision::{self, ROLLBACK, annotations, is_skipped_annotation};
use super::rollout::Rollout;

/// The revision to roll back to; 0 means the last one.
pub(super) fn rollback_to(deployment: &Object) -> Option<i64> {
    deployment.annotation(ROLLBACK)?.parse().ok()
}

impl Rollout<'_> {
    /// Copies the template of a revision to the deployment. The next sync starts the rollout.
    pub(super) async fn roll_back(&mut self, revision: i64) -> Result<Action, Error> {
        self.sync_new_set_annotations().await?;
        self.get_or_create_new_set().await?;
        let sets: Vec<&Set> = self.sets.all().collect();
        let revision = if revision == 0 {
            revision::last_revision(&sets)
        } else {
            revision
        };
        let set = sets
            .into_iter()
            .find(|set| revision != 0 && revision::revision(set) == Some(revision))
            .cloned();
        let mut changed = self.deployment.clone();
        annotations(&mut changed).remove(ROLLBACK);
        let name = self.deployment.name();
        let note = match set {
            None if revision == 0 => not_found("Unable to find last revision."),
            None => not_found("Unable to find the revision to rollback to."),
            Some(set)
                if is_same_template(&changed["spec"]["template"], &set["spec"]["template"]) =>
            {
                let message = format!(
                    "The rollback revision contains the same template as current deployment \"{name}\""
                );
                Note::warning("DeploymentRollbackTemplateUnchanged", "", message)
            }
            Some(set) => {
                copy_template_and_annotations(&mut changed, &set);
                let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
                Note::normal("DeploymentRollback", "", message)
            }
        };
        let written = self.all.context.api.update(&DEPLOYMENTS, &changed).await?;
        self.all.written.record(&written);
        self.all.record_event(&self.deployment, note);
        Ok(Action::done())
    }
}

fn not_found(message: &str) -> Note {
    Note::warning("DeploymentRollbackRevisionNotFound", "", message)
}

/// Copies template and annotations of the set.
fn copy_template_and_annotations(deployment: &mut Object, set: &Object) {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template.at_mut("metadata.labels") {
        labels.remove(HASH);
    }
    deployment.entry("spec").set("template", template);
    annotations(deployment)
        .make_map()
        .retain(|name, _| is_skipped_annotation(name));
    for (name, value) in set["metadata"]["annotations"]
        .entries()
        .filter(|(name, _)| !is_skipped_annotation(name))
    {
        annotations(deployment).set(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn object(text: &str) -> Object {
        Object::parse(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_target_is_a_number() {
        let check = |value: &str, expect: Option<i64>| {
            let text = format!(
                r#"{{"metadata": {{"annotations": {{"deprecated.deployment.rollback.to": "{value}"}}}}}}"#
            );
            assert_eq!(rollback_to(&object(&text)), expect);
        };
        check("3", Some(3));
        check("0", Some(0));
        check("x", None);
        check("", None);
    }

    #[test]
    fn template_and_annotations_become_those_of_the_set() {
        let mut deployment = object(
            r#"{"metadata": {"annotations": {"cause": "edit", "deployment.kubernetes.io/revision": "2"}},
                "spec": {"template": {"spec": "new"}}}"#,
        );
        let set = object(
            r#"{"metadata": {"annotations": {"cause": "create", "deployment.kubernetes.io/revision": "1"}},
                "spec": {"template": {"metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": "old"}}}"#,
        );
        copy_template_and_annotations(&mut deployment, &set);
        let expect = r#"{"metadata": {"annotations": {"cause": "create", "deployment.kubernetes.io/revision": "2"}},
            "spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": "old"}}}"#;
        assert_eq!(*deployment, json::parse(expect.as_bytes()).expect("JSON"));
    }
}
