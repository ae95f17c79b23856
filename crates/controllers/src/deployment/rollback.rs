//! Going back to an earlier template, by the annotation of an API that is no more.

use mizzen_sdk::Object;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::DEPLOYMENTS;

use super::revision::{self, ROLLBACK, annotations, is_private};
use super::rollout::Rollout;
use super::sets::{HASH, Set, is_same_template};
use crate::{After, Error};

/// The revision to which somebody wants to go back, 0 for the last one.
pub(super) fn target(deployment: &Object) -> Option<i64> {
    deployment.annotation(ROLLBACK)?.parse().ok()
}

impl Rollout<'_> {
    /// Takes the template of an earlier revision. The rollout itself begins with the next look.
    pub(super) async fn roll_back(&mut self, revision: i64) -> Result<After, Error> {
        self.follow_new_set().await?;
        self.new_set().await?;
        let sets: Vec<&Set> = self.sets.all().collect();
        let revision = if revision == 0 {
            revision::last(&sets)
        } else {
            revision
        };
        let set = sets
            .into_iter()
            .find(|set| revision != 0 && revision::of(set) == Some(revision))
            .cloned();
        let mut changed = self.deployment.clone();
        annotations(&mut changed).remove(ROLLBACK);
        let note = match set {
            None if revision == 0 => not_found("Unable to find last revision."),
            None => not_found("Unable to find the revision to rollback to."),
            Some(set)
                if is_same_template(&changed["spec"]["template"], &set["spec"]["template"]) =>
            {
                unchanged(self.deployment.name())
            }
            Some(set) => {
                take_over(&mut changed, &set);
                done(self.deployment.name(), revision)
            }
        };
        let written = self.all.context.api.update(&DEPLOYMENTS, &changed).await?;
        self.all.written.note(&written);
        self.all.tell(&self.deployment, note);
        Ok(After::Done)
    }
}

fn not_found(message: &str) -> Note {
    Note::warning("DeploymentRollbackRevisionNotFound", "", message)
}

fn unchanged(name: &str) -> Note {
    let message = format!(
        "The rollback revision contains the same template as current deployment \"{name}\""
    );
    Note::warning("DeploymentRollbackTemplateUnchanged", "", message)
}

fn done(name: &str, revision: i64) -> Note {
    let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
    Note::normal("DeploymentRollback", "", message)
}

/// Template and annotations become those of the set.
fn take_over(deployment: &mut Object, set: &Object) {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template.at_mut("metadata.labels") {
        labels.remove(HASH);
    }
    deployment.entry("spec").set("template", template);
    annotations(deployment)
        .make_map()
        .retain(|name, _| is_private(name));
    for (name, value) in set["metadata"]["annotations"]
        .entries()
        .filter(|(name, _)| !is_private(name))
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
            assert_eq!(target(&object(&text)), expect);
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
        take_over(&mut deployment, &set);
        let expect = r#"{"metadata": {"annotations": {"cause": "create", "deployment.kubernetes.io/revision": "2"}},
            "spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": "old"}}}"#;
        assert_eq!(*deployment, json::parse(expect.as_bytes()).expect("JSON"));
    }
}
