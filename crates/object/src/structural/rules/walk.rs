//! The traversal of an object and its old value along the schema.

use super::declare::DeclaredNode;
use crate::structural::correlate::Correlated;
use crate::violation::{Path, Violations};
use mizzen_value::{Map, Value};

/// A traversal of an object.
pub(super) struct RuleWalk<'v> {
    /// The remaining cost budget.
    pub budget: i64,
    pub violations: &'v mut Violations,
}

/// A value to validate.
#[derive(Clone, Copy)]
pub(super) struct RuleTarget<'a> {
    pub declared: DeclaredNode<'a>,
    pub new: &'a Value,
    /// The value of `oldSelf`.
    pub old: Option<&'a Value>,
    /// The old value for ratcheting.
    pub past: OldValue<'a>,
    pub path: &'a Path<'a>,
}

/// The budget is exceeded; no more rules are run.
pub(super) struct BudgetExhausted;

/// The old value, for ratcheting: of this value, or of the nearest parent that correlates.
#[derive(Clone, Copy)]
pub(super) struct OldValue<'a> {
    current: Option<Correlated<'a>>,
    around: Option<Correlated<'a>>,
}

impl<'a> OldValue<'a> {
    pub(super) fn new(root: Option<Correlated<'a>>) -> OldValue<'a> {
        OldValue {
            current: root,
            around: None,
        }
    }

    /// Whether nothing has changed here, or in the nearest parent that correlates.
    pub(super) fn is_same(&self) -> bool {
        self.current
            .or(self.around)
            .is_some_and(|past| past.is_same())
    }

    /// Kubernetes: `kind` and `apiVersion` have no old value, because both objects were converted
    /// to the same version.
    fn member(self, name: &str) -> OldValue<'a> {
        match self.current {
            None => self,
            Some(_) if self.around.is_none() && matches!(name, "apiVersion" | "kind") => {
                OldValue::new(None)
            }
            Some(past) => OldValue {
                current: past.member(name),
                around: self.current,
            },
        }
    }

    /// The old values of list items.
    fn items(self, n_items: usize) -> Vec<OldValue<'a>> {
        let Some(past) = self.current else {
            return vec![self; n_items];
        };
        let mut items = past.items();
        items.resize(n_items, None);
        items
            .into_iter()
            .map(|current| OldValue {
                current,
                around: self.current,
            })
            .collect()
    }
}

impl RuleWalk<'_> {
    /// Validates a value and everything in it.
    pub(super) fn value(&mut self, target: RuleTarget) -> Result<(), BudgetExhausted> {
        if target.new.is_null() || !target.declared.node.has_rules() {
            return Ok(());
        }
        let target = RuleTarget {
            old: target.old.filter(|old| !old.is_null()),
            ..target
        };
        self.run(target)?;
        match target.new {
            Value::List(items) => self.items(target, items),
            Value::Map(map) => self.members(target, map),
            _ => Ok(()),
        }
    }

    /// Items of lists with map keys correlate by them; items of other lists have no old value.
    fn items(&mut self, target: RuleTarget, items: &[Value]) -> Result<(), BudgetExhausted> {
        let Some(node) = target.declared.node.items().filter(|node| node.has_rules()) else {
            return Ok(());
        };
        let olds = target
            .old
            .map(|old| Correlated::new(target.declared.node, target.new, old).items())
            .unwrap_or_default();
        let pasts = target.past.items(items.len());
        for (index, (item, past)) in items.iter().zip(pasts).enumerate() {
            let old = olds
                .get(index)
                .copied()
                .flatten()
                .map(|correlated| correlated.old());
            self.value(RuleTarget {
                declared: DeclaredNode::below(node),
                new: item,
                old,
                past,
                path: &target.path.index(index),
            })?;
        }
        Ok(())
    }

    fn members(&mut self, target: RuleTarget, map: &Map) -> Result<(), BudgetExhausted> {
        let node = target.declared.node;
        for (name, value) in map.iter() {
            let (declared, path) = match (node.property(name), node.additional()) {
                (Some(below), _) => {
                    let below = DeclaredNode::below(below);
                    if !below.is_visible() {
                        continue;
                    }
                    (below, target.path.child(name))
                }
                (None, Some(values)) => (DeclaredNode::below(values), target.path.key(name)),
                (None, None) => continue,
            };
            self.value(RuleTarget {
                declared,
                new: value,
                old: target.old.and_then(|old| old.get(name)),
                past: target.past.member(name),
                path: &path,
            })?;
        }
        Ok(())
    }
}
