//! The conditions of a CustomResourceDefinition: NamesAccepted, Established, NonStructuralSchema and so on.

use mizzen_object::condition;
use mizzen_value::{Value, value};

use super::names::{DefinitionNames, TakenNames, accept_names};

const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Updates the status of a definition. Returns whether it changed. `taken` are the names of its group.
pub(super) fn update(definition: &mut Value, taken: &TakenNames, now: &str) -> bool {
    let mut writer = StatusWriter {
        definition,
        now,
        changed: false,
    };
    if let Some((status, reason, message)) =
        mizzen_apiextensions::approval_condition(writer.definition)
    {
        writer.set(
            "KubernetesAPIApprovalPolicyConformant",
            status,
            reason,
            &message,
        );
    }
    match mizzen_apiextensions::structural_condition(writer.definition) {
        Some((status, reason, message)) => writer.set(NON_STRUCTURAL, status, reason, &message),
        None => writer.remove(NON_STRUCTURAL),
    }
    writer.accept_names(taken);
    writer.establish();
    writer.changed
}

/// Sets the Terminating condition.
pub(super) fn terminate(
    definition: &mut Value,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> bool {
    let mut writer = StatusWriter {
        definition,
        now,
        changed: false,
    };
    writer.set("Terminating", status, reason, message);
    writer.changed
}

/// Writes the status of a definition.
struct StatusWriter<'a> {
    definition: &'a mut Value,
    now: &'a str,
    changed: bool,
}

impl StatusWriter<'_> {
    fn condition(&self, name: &str) -> &Value {
        condition::find(&self.definition["status"]["conditions"], name).unwrap_or(&Value::Null)
    }

    fn holds(&self, name: &str) -> bool {
        condition::is_true(&self.definition["status"]["conditions"], name)
    }

    fn set(&mut self, name: &str, status: &str, reason: &str, message: &str) {
        let new = value!({
            "type": name, "status": status, "lastTransitionTime": (self.now), "reason": reason, "message": message,
        });
        let Some(new) = condition::updated(&self.definition["status"]["conditions"], new) else {
            return;
        };
        condition::set(self.conditions(), new);
        self.changed = true;
    }

    fn conditions(&mut self) -> &mut Vec<Value> {
        self.definition
            .entry("status")
            .entry("conditions")
            .make_list()
    }

    fn remove(&mut self, name: &str) {
        if !self.condition(name).is_null() {
            self.changed |= condition::remove(self.conditions(), name);
        }
    }

    fn accept_names(&mut self, taken: &TakenNames) {
        let requested = DefinitionNames::read(&self.definition["spec"]["names"]);
        let accepted = DefinitionNames::read(&self.definition["status"]["acceptedNames"]);
        if requested == accepted {
            return;
        }
        let (names, conflict) = accept_names(&requested, &accepted, taken);
        if names != accepted {
            self.definition
                .entry("status")
                .set("acceptedNames", names.to_value());
            self.changed = true;
        }
        match conflict {
            None => self.set("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            Some(conflict) => {
                self.set("NamesAccepted", "False", conflict.reason, &conflict.message);
                if self.condition("Established").is_null() {
                    self.set(
                        "Established",
                        "False",
                        "NotAccepted",
                        "not all names are accepted",
                    );
                }
            }
        }
    }

    /// Once established, a definition stays so.
    fn establish(&mut self) {
        if self.holds("NamesAccepted") && !self.holds("Established") {
            let message = "the initial names have been accepted";
            self.set("Established", "True", "InitialNamesAccepted", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn definition(kind: &str) -> Value {
        let names = format!(
            r#"{{"plural":"foos","singular":"foo","kind":"{kind}","listKind":"{kind}List"}}"#
        );
        let text = format!(
            r#"{{"metadata":{{}},"spec":{{"group":"example.com","names":{names}}},"status":{{}}}}"#
        );
        json::parse(text.as_bytes()).unwrap()
    }

    fn conditions(definition: &Value) -> Vec<String> {
        let conditions = definition["status"]["conditions"].list().iter();
        conditions
            .map(|it| {
                format!(
                    "{}={} {}",
                    it["type"].str(),
                    it["status"].str(),
                    it["reason"].str()
                )
            })
            .collect()
    }

    #[test]
    fn a_definition_without_conflicts_is_established_at_once_and_stays_established() {
        let mut definition = definition("Foo");
        assert!(update(&mut definition, &TakenNames::default(), "now"));
        assert_eq!(
            conditions(&definition),
            [
                "NamesAccepted=True NoConflicts",
                "Established=True InitialNamesAccepted"
            ]
        );
        assert!(
            !update(&mut definition, &TakenNames::default(), "later"),
            "nothing has changed"
        );
    }

    #[test]
    fn a_conflict_keeps_a_definition_waiting_until_the_name_is_free() {
        let mut definition = definition("Foo");
        let mut taken = TakenNames::default();
        taken.add(&DefinitionNames {
            kind: "Foo".into(),
            ..DefinitionNames::default()
        });
        assert!(update(&mut definition, &taken, "now"));
        assert_eq!(
            conditions(&definition),
            [
                "NamesAccepted=False KindConflict",
                "Established=False NotAccepted"
            ]
        );
        assert!(!update(&mut definition, &taken, "later"));
        assert!(update(&mut definition, &TakenNames::default(), "later"));
        assert_eq!(
            conditions(&definition),
            [
                "NamesAccepted=True NoConflicts",
                "Established=True InitialNamesAccepted"
            ]
        );
    }

    #[test]
    fn a_protected_group_has_an_approval_condition() {
        let mut definition = definition("Foo");
        definition.entry("spec").set("group", "x.k8s.io");
        update(&mut definition, &TakenNames::default(), "now");
        assert_eq!(
            conditions(&definition)[0],
            "KubernetesAPIApprovalPolicyConformant=False MissingAnnotation"
        );
    }

    #[test]
    fn a_non_structural_schema_has_a_condition_until_it_is_structural() {
        let mut definition = definition("Foo");
        let text = r#"{"preserveUnknownFields":true,"versions":[{"name":"v1","schema":{"openAPIV3Schema":{
            "type":"object","properties":{"a":{"description":"of any type"}}}}}]}"#;
        let old = json::parse(text.as_bytes()).unwrap();
        for (field, value) in old.entries() {
            definition.entry("spec").set(field, value.clone());
        }
        update(&mut definition, &TakenNames::default(), "now");
        assert_eq!(
            conditions(&definition)[0],
            "NonStructuralSchema=True Violations"
        );
        assert_eq!(
            definition["status"]["conditions"].list()[0]["message"].str(),
            "[spec.preserveUnknownFields: Invalid value: true: must be false, \
             spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for \
             specified object fields]"
        );
        definition.entry("spec").remove("preserveUnknownFields");
        definition.entry("spec").remove("versions");
        assert!(update(&mut definition, &TakenNames::default(), "later"));
        assert_eq!(conditions(&definition)[0], "NamesAccepted=True NoConflicts");
    }
}
