//! Which rules meet which values? An object and what it was, along the schema.

use super::declare::Declared;
use crate::structural::correlate::Correlated;
use crate::violation::{Path, Violations};
use mizzen_value::{Map, Value};

/// A walk along a schema.
pub(super) struct Walk<'v> {
    /// What rules may still cost.
    pub budget: i64,
    pub violations: &'v mut Violations,
}

/// The budget is spent; no more rules are run.
pub(super) struct Exhausted;

/// Where a value came from, for the question whether it has changed: it, and the nearest place around that has a past.
#[derive(Clone, Copy)]
pub(super) struct Past<'a> {
    current: Option<Correlated<'a>>,
    around: Option<Correlated<'a>>,
}

impl<'a> Past<'a> {
    pub(super) fn new(root: Option<Correlated<'a>>) -> Past<'a> {
        Past {
            current: root,
            around: None,
        }
    }

    /// Whether nothing has changed here, or around here if this has no past.
    pub(super) fn is_same(&self) -> bool {
        self.current
            .or(self.around)
            .is_some_and(|past| past.is_same())
    }

    /// Kubernetes: kind and version have no past, for both objects were brought to the same version.
    fn member(self, name: &str) -> Past<'a> {
        match self.current {
            None => self,
            Some(_) if self.around.is_none() && matches!(name, "apiVersion" | "kind") => {
                Past::new(None)
            }
            Some(past) => Past {
                current: past.member(name),
                around: self.current,
            },
        }
    }

    /// The pasts of the items of a list.
    fn items(self, n_items: usize) -> Vec<Past<'a>> {
        let Some(past) = self.current else {
            return vec![self; n_items];
        };
        let mut items = past.items();
        items.resize(n_items, None);
        items
            .into_iter()
            .map(|current| Past {
                current,
                around: self.current,
            })
            .collect()
    }
}

impl Walk<'_> {
    /// A value, and then what is in it. `old` is what rules see as the old value.
    pub(super) fn value(
        &mut self,
        declared: Declared,
        new: &Value,
        old: Option<&Value>,
        past: Past,
        path: &Path,
    ) -> Result<(), Exhausted> {
        if new.is_null() || !declared.node.has_rules() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.run(declared, new, old, past, path)?;
        match new {
            Value::List(items) => self.items(declared, new, items, old, past, path),
            Value::Map(map) => self.members(declared, map, old, past, path),
            _ => Ok(()),
        }
    }

    /// Items of lists that have keys are told apart by them; no others were anything before.
    fn items(
        &mut self,
        declared: Declared,
        new: &Value,
        items: &[Value],
        old: Option<&Value>,
        past: Past,
        path: &Path,
    ) -> Result<(), Exhausted> {
        let Some(node) = declared.node.items().filter(|node| node.has_rules()) else {
            return Ok(());
        };
        let olds = old
            .map(|old| Correlated::new(declared.node, new, old).items())
            .unwrap_or_default();
        let pasts = past.items(items.len());
        for (index, (item, past)) in items.iter().zip(pasts).enumerate() {
            let old = olds
                .get(index)
                .copied()
                .flatten()
                .map(|correlated| correlated.old());
            self.value(Declared::below(node), item, old, past, &path.index(index))?;
        }
        Ok(())
    }

    fn members(
        &mut self,
        declared: Declared,
        map: &Map,
        old: Option<&Value>,
        past: Past,
        path: &Path,
    ) -> Result<(), Exhausted> {
        let node = declared.node;
        for (name, value) in map.iter() {
            let old = old.and_then(|old| old.get(name));
            match (node.property(name).map(Declared::below), node.additional()) {
                (Some(below), _) if !below.node.has_rules() || !below.is_visible() => {}
                (Some(below), _) => {
                    self.value(below, value, old, past.member(name), &path.child(name))?
                }
                (None, Some(node)) => {
                    self.value(
                        Declared::below(node),
                        value,
                        old,
                        past.member(name),
                        &path.key(name),
                    )?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }
}
