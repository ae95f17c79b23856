//! What stands between somebody and what he wants to apply, in the words that clients know.

use std::fmt;

use super::element::Element;
use super::managed::{Operation, Owner};
use super::set::FieldSet;
use crate::status::{Cause, Details, Status};
use mizzen_value::json;

/// A field that somebody else owns and that would get another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it.
    pub owner: Owner,
    /// Where it is.
    pub path: Vec<Element>,
}

/// All that stands in the way, by owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// What of these fields belongs to others.
    pub(super) fn new(mut owned: Vec<(Owner, FieldSet)>) -> Conflicts {
        owned.sort_by_cached_key(|(owner, _)| owner.identity());
        let conflicts = owned.into_iter().flat_map(|(owner, fields)| {
            fields.paths().into_iter().map(move |path| Conflict {
                owner: owner.clone(),
                path,
            })
        });
        Conflicts(conflicts.collect())
    }

    /// Those that are not about a field in `allowed`.
    pub(super) fn except(self, allowed: &FieldSet) -> Conflicts {
        Conflicts(
            self.0
                .into_iter()
                .filter(|conflict| !allowed.has(&conflict.path))
                .collect(),
        )
    }

    /// The answer that a client gets.
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

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let [Conflict { owner, path }] = self.0.as_slice() {
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

impl std::error::Error for Conflicts {}

fn describe(owner: &Owner) -> String {
    let mut text = json::quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text += &format!(" with subresource {}", json::quote(&owner.subresource));
    }
    if owner.operation == Operation::Update {
        text += &format!(" using {}", owner.api_version);
    }
    text
}

fn show(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}
