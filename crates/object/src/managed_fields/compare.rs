//! Comparison of two objects, field by field.
//!
//! Invariant: equal parts cost a comparison and nothing more; sets are built for differences only.

use std::sync::LazyLock;

use super::field_set::{FieldSet, FieldSetNode};
use super::path_element::PathElement;
use super::rule::{ItemError, ListItemType, OwnershipRule, element_of};
use super::to_field_set::is_type;
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// The differences between two objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Added or modified fields.
    pub changed: FieldSet,
    /// Removed fields.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether there are no differences.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Fields of metadata that are not tracked: they identify the object, or belong to the server.
/// Kubernetes: managedfields' stripmeta.go.
const STRIPPED_FIELDS: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The stripped fields as a set.
pub(super) fn stripped_fields() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
        let below = FieldSet::of_names(STRIPPED_FIELDS);
        FieldSet::from_nodes(vec![FieldSetNode {
            element: PathElement::Name("metadata".into()),
            member: true,
            children: below,
        }])
    });
    &FIELDS
}

/// Compares two objects of one type, without the stripped fields.
pub fn compare(schema: &Struct, old: &Value, new: &Value) -> Result<Comparison, ItemError> {
    let mut top = LevelDiff::default();
    if let (Value::Map(old), Value::Map(new)) = (old, new) {
        each_member(old, new, |name, old, new| match name.as_str() {
            "metadata" => top.metadata(schema, old, new),
            name if is_type(name) => Ok(()),
            _ => top.place(name, OwnershipRule::Struct(schema).member(name).0, old, new),
        })?;
    }
    Ok(top.into_comparison())
}

/// The differences at one level of the tree, in the order in which they are found.
#[derive(Default)]
struct LevelDiff {
    changed: Vec<FieldSetNode>,
    removed: Vec<FieldSetNode>,
}

impl LevelDiff {
    fn into_comparison(self) -> Comparison {
        Comparison {
            changed: FieldSet::from_nodes(self.changed),
            removed: FieldSet::from_nodes(self.removed),
        }
    }

    fn metadata(
        &mut self,
        schema: &Struct,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), ItemError> {
        let (rule, _) = OwnershipRule::Struct(schema).member("metadata");
        let mut below = LevelDiff::default();
        let (old, new) = (map_or_empty(old), map_or_empty(new));
        each_member(old, new, |name, old, new| {
            match STRIPPED_FIELDS.contains(&name.as_str()) {
                true => Ok(()),
                false => below.place(name, rule.member(name).0, old, new),
            }
        })?;
        self.adopt(&Str::new_static("metadata"), below, false, false);
        Ok(())
    }

    /// Compares the values of one path element.
    fn place(
        &mut self,
        step: &impl ToPathElement,
        rule: OwnershipRule,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), ItemError> {
        if is_leaf(rule, old, new) {
            self.leaf(step, old, new);
            return Ok(());
        }
        let mut below = LevelDiff::default();
        if let OwnershipRule::Items(item, keys) = rule {
            below.items(item, keys, list_or_empty(old), list_or_empty(new))?;
        } else {
            each_member(map_or_empty(old), map_or_empty(new), |name, old, new| {
                below.place(name, rule.member(name).0, old, new)
            })?;
        }
        // An untyped value that changed between map and scalar has changed itself, too.
        let turned = rule.is_free() && is_scalar(old) != is_scalar(new);
        self.adopt(step, below, old.is_none() || turned, new.is_none());
        Ok(())
    }

    fn leaf(&mut self, step: &impl ToPathElement, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) if same(old, new) => {}
            (_, Some(_)) => self.changed.push(FieldSetNode::leaf(step.element())),
            (_, None) => self.removed.push(FieldSetNode::leaf(step.element())),
        }
    }

    /// Adds the differences below a path element.
    fn adopt(&mut self, step: &impl ToPathElement, below: LevelDiff, is_new: bool, is_gone: bool) {
        for (nodes, below, member) in [
            (&mut self.changed, below.changed, is_new),
            (&mut self.removed, below.removed, is_gone),
        ] {
            if member || !below.is_empty() {
                nodes.push(FieldSetNode {
                    element: step.element(),
                    member,
                    children: FieldSet::from_nodes(below),
                });
            }
        }
    }

    fn items(
        &mut self,
        item: ListItemType,
        keys: &[Str],
        old: &[Value],
        new: &[Value],
    ) -> Result<(), ItemError> {
        if old == new {
            return Ok(());
        }
        let rule = OwnershipRule::of_item(item);
        let (olds, news) = (
            KeyedItem::sorted(item, keys, old)?,
            KeyedItem::sorted(item, keys, new)?,
        );
        let (mut olds, mut news) = (olds.as_slice(), news.as_slice());
        while let Some(element) = [olds.first(), news.first()]
            .into_iter()
            .flatten()
            .map(|keyed| &keyed.element)
            .min()
        {
            let old = take_alike(&mut olds, element);
            let new = take_alike(&mut news, element);
            self.alike(element, rule, old, new)?;
        }
        Ok(())
    }

    /// Compares the items of one path element: usually one, but several if keys are not unique.
    /// These are owned as a whole.
    fn alike(
        &mut self,
        element: &PathElement,
        rule: OwnershipRule,
        old: &[KeyedItem],
        new: &[KeyedItem],
    ) -> Result<(), ItemError> {
        let (first_old, first_new) = (
            old.first().map(|keyed| keyed.value),
            new.first().map(|keyed| keyed.value),
        );
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => self.place(element, rule, first_old, first_new)?,
            (2.., 2..) => {
                if !old
                    .iter()
                    .map(|keyed| keyed.value)
                    .eq(new.iter().map(|keyed| keyed.value))
                {
                    self.changed.push(FieldSetNode::leaf(element.clone()));
                }
            }
            (2.., _) => {
                if first_new.is_some() {
                    self.place(element, rule, None, first_new)?;
                }
                self.removed.push(FieldSetNode::leaf(element.clone()));
            }
            (_, 2..) => {
                if first_old.is_some() {
                    self.place(element, rule, first_old, None)?;
                }
                self.changed.push(FieldSetNode::leaf(element.clone()));
            }
        }
        Ok(())
    }
}

/// What becomes a path element if a difference is found below it.
trait ToPathElement {
    fn element(&self) -> PathElement;
}

impl ToPathElement for Str {
    fn element(&self) -> PathElement {
        PathElement::Name(self.clone())
    }
}

impl ToPathElement for PathElement {
    fn element(&self) -> PathElement {
        self.clone()
    }
}

/// A list item with its path element.
struct KeyedItem<'a> {
    element: PathElement,
    value: &'a Value,
}

impl<'a> KeyedItem<'a> {
    /// All items, sorted by path element; stable for duplicates.
    fn sorted(
        item: ListItemType,
        keys: &[Str],
        items: &'a [Value],
    ) -> Result<Vec<KeyedItem<'a>>, ItemError> {
        let keyed = items.iter().map(|value| {
            Ok(KeyedItem {
                element: element_of(item, keys, value)?,
                value,
            })
        });
        let mut keyed = keyed.collect::<Result<Vec<_>, _>>()?;
        keyed.sort_by(|left, right| left.element.cmp(&right.element));
        Ok(keyed)
    }
}

fn take_alike<'a, 'b>(
    items: &mut &'a [KeyedItem<'b>],
    element: &PathElement,
) -> &'a [KeyedItem<'b>] {
    let n = items
        .iter()
        .take_while(|keyed| keyed.element == *element)
        .count();
    let (alike, rest) = items.split_at(n);
    *items = rest;
    alike
}

/// Visits every member of both maps once. Most often both have the same members in the same order.
fn each_member(
    old: &Map,
    new: &Map,
    mut visit: impl FnMut(&Str, Option<&Value>, Option<&Value>) -> Result<(), ItemError>,
) -> Result<(), ItemError> {
    if old.len() == new.len() && old.keys().eq(new.keys()) {
        return new
            .keys()
            .zip(old.values().zip(new.values()))
            .try_for_each(|(name, (old, new))| visit(name, Some(old), Some(new)));
    }
    for (name, value) in new.keys().zip(new.values()) {
        visit(name, old.get(name), Some(value))?;
    }
    for (name, value) in old
        .keys()
        .zip(old.values())
        .filter(|(name, _)| !new.contains_key(name))
    {
        visit(name, Some(value), None)?;
    }
    Ok(())
}

/// Whether the value is compared as a whole: it has no parts, or both are empty, so that null and
/// empty differ.
fn is_leaf(rule: OwnershipRule, old: Option<&Value>, new: Option<&Value>) -> bool {
    match rule {
        OwnershipRule::Scalar(_) | OwnershipRule::Atomic(_) | OwnershipRule::Whole(_) => true,
        OwnershipRule::Items(..) => list_or_empty(old).is_empty() && list_or_empty(new).is_empty(),
        OwnershipRule::Struct(_)
        | OwnershipRule::Map(_)
        | OwnershipRule::Any
        | OwnershipRule::Defined(_) => map_or_empty(old).is_empty() && map_or_empty(new).is_empty(),
    }
}

fn is_scalar(value: Option<&Value>) -> bool {
    !matches!(value, None | Some(Value::Null | Value::Map(_)))
}

fn map_or_empty(value: Option<&Value>) -> &Map {
    static EMPTY: LazyLock<Map> = LazyLock::new(Map::default);
    value.and_then(Value::as_map).unwrap_or(&EMPTY)
}

fn list_or_empty(value: Option<&Value>) -> &[Value] {
    value.map_or(&[], Value::list)
}

/// Equality in which `1` and `1.0` are the same number.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), _) | (_, Value::Number(_)) => {
            left.as_f64().is_some() && left.as_f64() == right.as_f64()
        }
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}
