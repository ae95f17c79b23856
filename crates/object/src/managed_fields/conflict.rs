//! Apply conflicts, with upstream's messages.

use std::fmt;

use super::entry::{ManagedFieldsOperation, ManagerIdentifier};
use super::field_set::FieldSet;
use super::path_element::PathElement;
use crate::status::{Cause, Details, Status};
use mizzen_value::json;

/// A field that another manager owns and that would get another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// The manager that owns it.
    pub owner: ManagerIdentifier,
    /// The path of the field.
    pub path: Vec<PathElement>,
}

/// All conflicts, by manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyConflicts(pub Vec<FieldConflict>);

impl ApplyConflicts {
    /// The conflicts for these fields of other managers.
    pub(super) fn new(mut owned: Vec<(ManagerIdentifier, FieldSet)>) -> ApplyConflicts {
        owned.sort_by_cached_key(|(owner, _)| owner.identity());
        let conflicts = owned.into_iter().flat_map(|(owner, fields)| {
            fields.paths().into_iter().map(move |path| FieldConflict {
                owner: owner.clone(),
                path,
            })
        });
        ApplyConflicts(conflicts.collect())
    }

    /// The conflicts without those about a field in `allowed`.
    pub(super) fn except(self, allowed: &FieldSet) -> ApplyConflicts {
        ApplyConflicts(
            self.0
                .into_iter()
                .filter(|conflict| !allowed.has(&conflict.path))
                .collect(),
        )
    }

    /// The response to the client.
    pub fn to_status(&self) -> Status {
        let causes = self.0.iter().map(|conflict| Cause {
            reason: "FieldManagerConflict".into(),
            message: format!("conflict with {}", describe(&conflict.owner)),
            field: show(&conflict.path),
        });
        let details = Details {
            causes: causes.collect(),
            ..Details::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(409, "Conflict", self.to_string())
        }
    }
}

impl fmt::Display for ApplyConflicts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let [FieldConflict { owner, path }] = self.0.as_slice() {
            let (owner, path) = (describe(owner), show(path));
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {owner}: {path}"
            );
        }
        let lines = self
            .0
            .chunk_by(|left, right| left.owner == right.owner)
            .flat_map(|of_one| {
                let head = format!("conflicts with {}:", describe(&of_one[0].owner));
                std::iter::once(head).chain(
                    of_one
                        .iter()
                        .map(|conflict| format!("- {}", show(&conflict.path))),
                )
            });
        let lines: Vec<String> = lines.collect();
        write!(
            f,
            "Apply failed with {} conflicts: {}",
            self.0.len(),
            lines.join("\n")
        )
    }
}

impl std::error::Error for ApplyConflicts {}

fn describe(owner: &ManagerIdentifier) -> String {
    let mut text = json::quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text += &format!(" with subresource {}", json::quote(&owner.subresource));
    }
    if owner.operation == ManagedFieldsOperation::Update {
        text += &format!(" using {}", owner.api_version);
    }
    text
}

fn show(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}
