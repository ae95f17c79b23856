//! Keeps owner references and managed fields valid after plug-ins, policies and webhooks.

use mizzen_object::managed_fields::ManagedFields;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::{Str, Value};

use crate::verbs::ResourceCall;
use mizzen_registry::Warnings;

/// When owners are deduplicated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dedupe {
    /// Before admission.
    AsSent,
    /// After admission.
    AfterAdmission,
}

/// Removes duplicate owner references, with a warning.
pub(crate) fn dedupe_owners(call: &ResourceCall, object: &mut CanonicalObject, when: Dedupe) {
    let owners = &object["metadata"]["ownerReferences"];
    if owners.list().len() < 2 {
        return;
    }
    let (distinct, repeated) = distinct(owners.list());
    if repeated.is_empty() {
        return;
    }
    let place = match when {
        Dedupe::AsSent => ".metadata.ownerReferences contains duplicate entries",
        Dedupe::AfterAdmission => {
            ".metadata.ownerReferences contains duplicate entries after mutating admission happens"
        }
    };
    call.notes.warn(format!(
        "{place}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; \
         please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
    object.entry("metadata").set("ownerReferences", distinct);
}

/// The distinct owners, and the uids of the duplicates.
fn distinct(owners: &[Value]) -> (Vec<Value>, Vec<Str>) {
    let (mut distinct, mut repeated) = (Vec::new(), Vec::new());
    for owner in owners {
        match distinct.contains(owner) {
            true => repeated.push(owner["uid"].str().into()),
            false => distinct.push(owner.clone()),
        }
    }
    (distinct, repeated)
}

/// The managed fields before admission.
pub(crate) struct Managers(Value);

impl Managers {
    /// Those of `object` now.
    pub(super) fn of(object: &Value) -> Managers {
        Managers(object["metadata"]["managedFields"].clone())
    }

    /// Restores them if admission made them invalid, with a warning.
    pub(super) fn restore(self, object: &mut CanonicalObject, notes: &Warnings) {
        let found = &object["metadata"]["managedFields"];
        if *found == self.0 {
            return;
        }
        let Err(error) = ManagedFields::decode(found.list().into()) else {
            return;
        };
        notes.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
             mutating admission controller; please fix your requests: {error}"
        ));
        object.entry("metadata").set("managedFields", self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::{json, value};

    #[test]
    fn duplicate_owner_references_are_removed() {
        let owner = |uid: &str, name: &str| value!({ "uid": uid, "name": name });
        let owners = [
            owner("1", "a"),
            owner("2", "b"),
            owner("1", "a"),
            owner("1", "c"),
        ];
        let (distinct, repeated) = distinct(&owners);
        assert_eq!(
            distinct,
            [owner("1", "a"), owner("2", "b"), owner("1", "c")]
        );
        assert_eq!(repeated, ["1"]);
    }

    #[track_caller]
    fn check(after: &str, expected: &str, warning: Option<&str>) {
        let entry = r#"[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}]"#;
        let read = |fields: &str| {
            json::parse(format!(r#"{{"metadata":{{"managedFields":{fields}}}}}"#).as_bytes())
        };
        let (notes, mut object) = (Warnings::default(), read(after).unwrap().into());
        Managers::of(&read(entry).unwrap()).restore(&mut object, &notes);
        assert_eq!(
            object["metadata"]["managedFields"][0]["manager"].str(),
            expected
        );
        assert_eq!(
            notes
                .take()
                .first()
                .map(|note| note.rsplit_once("; ").unwrap().1),
            warning
        );
    }

    #[test]
    fn invalid_managed_fields_are_reset() {
        let sound = r#"[{"manager":"n","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}}}]"#;
        check(sound, "n", None);
        let problem = "please fix your requests: operation must be `Apply` or `Update`";
        check(
            r#"[{"manager":"n","operation":"Nonsense"}]"#,
            "m",
            Some(problem),
        );
    }
}
