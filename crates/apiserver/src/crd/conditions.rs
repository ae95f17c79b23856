//! What a definition's status says: which names it has, whether it is served, who agreed to it.

use mizzen_object::condition;
use mizzen_value::{Value, value};

use super::names::{Names, Taken, accept};

/// Says that a schema does not describe objects whole.
const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Brings the status of a definition up to date; false if it was so already. `taken` are the names of its group.
pub(super) fn update(definition: &mut Value, taken: &Taken, now: &str) -> bool {
    let mut board = Board {
        definition,
        now,
        changed: false,
    };
    if let Some((status, reason, message)) =
        mizzen_apiextensions::approval_condition(board.definition)
    {
        board.set(
            "KubernetesAPIApprovalPolicyConformant",
            status,
            reason,
            &message,
        );
    }
    match mizzen_apiextensions::structural_condition(board.definition) {
        Some((status, reason, message)) => board.set(NON_STRUCTURAL, status, reason, &message),
        None => board.remove(NON_STRUCTURAL),
    }
    board.accept_names(taken);
    board.establish();
    board.changed
}

/// Says in a definition's status that it is going, and how far it is.
pub(super) fn terminate(
    definition: &mut Value,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> bool {
    let mut board = Board {
        definition,
        now,
        changed: false,
    };
    board.set("Terminating", status, reason, message);
    board.changed
}

/// A status that is being written.
struct Board<'a> {
    definition: &'a mut Value,
    now: &'a str,
    changed: bool,
}

impl Board<'_> {
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

    fn accept_names(&mut self, taken: &Taken) {
        let asked = Names::read(&self.definition["spec"]["names"]);
        let had = Names::read(&self.definition["status"]["acceptedNames"]);
        if asked == had {
            return;
        }
        let (names, conflict) = accept(&asked, &had, taken);
        if names != had {
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

    fn told(definition: &Value) -> Vec<String> {
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
    fn a_definition_without_conflicts_is_established_at_once_and_stays_so() {
        let mut definition = definition("Foo");
        assert!(update(&mut definition, &Taken::default(), "now"));
        assert_eq!(
            told(&definition),
            [
                "NamesAccepted=True NoConflicts",
                "Established=True InitialNamesAccepted"
            ]
        );
        assert!(
            !update(&mut definition, &Taken::default(), "later"),
            "nothing is left to say"
        );
    }

    #[test]
    fn a_conflict_keeps_a_definition_waiting_until_the_name_is_free() {
        let mut definition = definition("Foo");
        let mut taken = Taken::default();
        taken.add(&Names {
            kind: "Foo".into(),
            ..Names::default()
        });
        assert!(update(&mut definition, &taken, "now"));
        assert_eq!(
            told(&definition),
            [
                "NamesAccepted=False KindConflict",
                "Established=False NotAccepted"
            ]
        );
        assert!(!update(&mut definition, &taken, "later"));
        assert!(update(&mut definition, &Taken::default(), "later"));
        assert_eq!(
            told(&definition),
            [
                "NamesAccepted=True NoConflicts",
                "Established=True InitialNamesAccepted"
            ]
        );
    }

    #[test]
    fn a_group_of_kubernetes_own_tells_who_agreed() {
        let mut definition = definition("Foo");
        definition.entry("spec").set("group", "x.k8s.io");
        update(&mut definition, &Taken::default(), "now");
        assert_eq!(
            told(&definition)[0],
            "KubernetesAPIApprovalPolicyConformant=False MissingAnnotation"
        );
    }

    #[test]
    fn a_schema_that_does_not_describe_objects_whole_is_told_until_it_does() {
        let mut definition = definition("Foo");
        let text = r#"{"preserveUnknownFields":true,"versions":[{"name":"v1","schema":{"openAPIV3Schema":{
            "type":"object","properties":{"a":{"description":"of any type"}}}}}]}"#;
        let old = json::parse(text.as_bytes()).unwrap();
        for (field, value) in old.entries() {
            definition.entry("spec").set(field, value.clone());
        }
        update(&mut definition, &Taken::default(), "now");
        assert_eq!(told(&definition)[0], "NonStructuralSchema=True Violations");
        assert_eq!(
            definition["status"]["conditions"].list()[0]["message"].str(),
            "[spec.preserveUnknownFields: Invalid value: true: must be false, \
             spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for \
             specified object fields]"
        );
        definition.entry("spec").remove("preserveUnknownFields");
        definition.entry("spec").remove("versions");
        assert!(update(&mut definition, &Taken::default(), "later"));
        assert_eq!(told(&definition)[0], "NamesAccepted=True NoConflicts");
    }
}
