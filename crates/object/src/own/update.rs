//! Ownership after a write that is not an apply: who changes a field owns it.

use std::borrow::Cow;

use super::cap::cap;
use super::check::check;
use super::compare::Comparison;
use super::managed::{Entry, Managed, Operation, Owner};
use super::rule::ItemError;
use super::set::FieldSet;
use super::writer::Writer;
use crate::schema::Struct;
use mizzen_value::{Str, Value};

impl Writer<'_> {
    /// Brings `metadata.managedFields` of `new` up to date, which is about to replace `old` (or nothing).
    ///
    /// Both are canonical, with defaults. What `new` says about its owners counts as long as it makes sense, so
    /// that clients can correct it; an empty list forgets all owners.
    pub fn update(&self, old: Option<&Value>, new: &mut Value) {
        let asked = new
            .get_mut("metadata")
            .and_then(|metadata| metadata.remove("managedFields"));
        let managed = self.known_owners(old, asked);
        let exists = old.is_some_and(|old| !old["metadata"]["uid"].str().is_empty());
        // Once all owners are forgotten nobody is remembered until somebody applies.
        if managed.entries.is_empty() && exists {
            return;
        }
        let nothing = if old.is_none() {
            self.nothing()
        } else {
            Value::Null
        };
        // Kubernetes: an object whose list items cannot be told apart has no owners (`UpdateNoErrors`).
        if let Ok(managed) = self.track(old.unwrap_or(&nothing), new, managed) {
            managed.write(new);
        }
    }

    /// The owners before this write.
    fn known_owners<'a>(&self, old: Option<&'a Value>, asked: Option<Value>) -> Managed<'a> {
        let asked = asked.filter(|_| self.subresource.is_empty());
        if let Some(Value::List(entries)) = asked {
            if is_reset(&entries) {
                return Managed::default();
            }
            match Managed::decode(Cow::Owned(entries)) {
                Ok(managed) if !managed.entries.is_empty() => return managed,
                _ => {}
            }
        }
        old.map_or_else(Managed::default, Managed::of)
    }

    /// The owners after `old` has become `new`.
    pub(super) fn track<'a>(
        &self,
        old: &Value,
        new: &Value,
        mut managed: Managed<'a>,
    ) -> Result<Managed<'a>, ItemError> {
        self.reconcile(&mut managed);
        let owner = self.owner(Operation::Update);
        let mut changes = Changes::new(*self, old, new)?;
        for entry in &mut managed.entries {
            let changes = changes.in_version(&entry.api_version)?;
            if entry.owner != owner {
                entry.lose(&changes.changed);
            }
            entry.lose(&changes.removed);
        }
        managed.drop_empty();
        self.claim(&mut managed, owner, changes.own.changed);
        cap(&mut managed);
        Ok(managed)
    }

    fn claim(&self, managed: &mut Managed, owner: Owner, changed: FieldSet) {
        if changed.is_empty() {
            return;
        }
        match managed.position(&owner) {
            Some(at) => {
                managed.entries[at].gain(&changed);
                managed.entries[at].set_time(self.now);
            }
            None => managed.set(Entry::new(
                owner,
                self.gvk.api_version(),
                self.now.into(),
                changed,
            )),
        }
    }
}

/// A client that sends no entry, or one that says nothing, wants all owners forgotten.
fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [only] => only.entries().next().is_none(),
        _ => false,
    }
}

/// What a write changes, in every version in which somebody owns something.
pub(super) struct Changes<'a> {
    writer: Writer<'a>,
    old: &'a Value,
    new: &'a Value,
    /// In the version of the write.
    pub(super) own: Comparison,
    others: Vec<(Str, Comparison)>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(
        writer: Writer<'a>,
        old: &'a Value,
        new: &'a Value,
    ) -> Result<Changes<'a>, ItemError> {
        let own = writer.compare(writer.schema, old, new)?;
        Ok(Changes {
            writer,
            old,
            new,
            own,
            others: Vec::new(),
        })
    }

    /// The changes as another version shows them.
    pub(super) fn in_version(&mut self, api_version: &Str) -> Result<&Comparison, ItemError> {
        if *api_version == self.writer.gvk.api_version() {
            return Ok(&self.own);
        }
        let known = self
            .others
            .iter()
            .position(|(version, _)| version == api_version);
        let at = match known {
            Some(at) => at,
            None => {
                self.others
                    .push((api_version.clone(), self.convert(api_version)?));
                self.others.len() - 1
            }
        };
        Ok(&self.others[at].1)
    }

    /// What cannot be converted has not changed, as far as anybody can tell.
    fn convert(&self, api_version: &str) -> Result<Comparison, ItemError> {
        let Writer { versions, gvk, .. } = self.writer;
        let convert = |object: &Value| versions.convert(object, &gvk.api_version(), api_version);
        match (
            versions.schema(api_version),
            convert(self.old),
            convert(self.new),
        ) {
            (Some(schema), Some(old), Some(new)) => {
                fits(&schema, &old).and_then(|()| fits(&schema, &new))?;
                self.writer.compare(&schema, &old, &new)
            }
            _ => Ok(Comparison::default()),
        }
    }
}

/// Kubernetes: a custom object that was converted has to be one of its version, or all its owners are forgotten.
fn fits(schema: &Struct, object: &Value) -> Result<(), ItemError> {
    if schema.rest().is_none() {
        return Ok(());
    }
    let mut object = object.clone();
    object.remove("metadata");
    check(schema, &object).map_or(Ok(()), |problem| Err(ItemError::Undeclared(problem)))
}

/// Gives the entries of `new` the times of `old` if nothing but times has changed, so that such a write is none.
/// To be called once `new` is what will be stored.
pub fn keep_times(old: &Value, new: &mut Value) {
    let olds = old["metadata"]["managedFields"].list();
    let news = new["metadata"]["managedFields"].list();
    let times_differ = olds
        .iter()
        .zip(news)
        .any(|(old, new)| old["time"] != new["time"]);
    if olds.len() != news.len() || !times_differ || !same_but(olds.iter().zip(news), "time") {
        return;
    }
    let same_metadata = same_but(
        [(&old["metadata"], &new["metadata"])].into_iter(),
        "managedFields",
    );
    if same_metadata && same_but([(old, &*new)].into_iter(), "metadata") {
        new.entry("metadata").set("managedFields", olds.to_vec());
    }
}

/// Whether all pairs are equal but for one member.
fn same_but<'a>(mut pairs: impl Iterator<Item = (&'a Value, &'a Value)>, name: &str) -> bool {
    pairs.all(|(old, new)| {
        let rest = |value: &'a Value| value.entries().filter(|(key, _)| *key != name);
        rest(old).count() == rest(new).count()
            && rest(old).all(|(key, value)| new.get(key) == Some(value))
    })
}
