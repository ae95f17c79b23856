//! What has changed between two objects, field by field.
//!
//! Invariant: what is equal in both costs a comparison and nothing more; sets are built for differences only.

use std::sync::LazyLock;

use super::element::Element;
use super::of::is_type;
use super::rule::{Item, ItemError, Rule, element_of};
use super::set::{FieldSet, Node};
use crate::schema::Struct;
use mizzen_value::{Map, Str, Value};

/// What has changed between two objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// What is new or different.
    pub changed: FieldSet,
    /// What is no longer there.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Fields of an object's metadata that nobody owns: they say which object it is, or are the server's.
const NOBODYS: &[&str] = &[
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

/// Those fields, as a set.
pub(super) fn nobodys() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
        let below = FieldSet::of_names(NOBODYS);
        FieldSet::from_nodes(vec![Node {
            element: Element::Name("metadata".into()),
            member: true,
            children: below,
        }])
    });
    &FIELDS
}

/// Compares two objects of one type, leaving out what nobody owns.
pub fn compare(schema: &Struct, old: &Value, new: &Value) -> Result<Comparison, ItemError> {
    let mut top = Level::default();
    if let (Value::Map(old), Value::Map(new)) = (old, new) {
        each_member(old, new, |name, old, new| match name.as_str() {
            "metadata" => top.metadata(schema, old, new),
            name if is_type(name) => Ok(()),
            _ => top.place(name, Rule::Struct(schema).member(name).0, old, new),
        })?;
    }
    Ok(top.into_comparison())
}

/// The differences at one level of the tree, in the order in which they are met.
#[derive(Default)]
struct Level {
    changed: Vec<Node>,
    removed: Vec<Node>,
}

impl Level {
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
        let (rule, _) = Rule::Struct(schema).member("metadata");
        let mut below = Level::default();
        let (old, new) = (map_or_empty(old), map_or_empty(new));
        each_member(old, new, |name, old, new| {
            match NOBODYS.contains(&name.as_str()) {
                true => Ok(()),
                false => below.place(name, rule.member(name).0, old, new),
            }
        })?;
        self.adopt(&Str::new_static("metadata"), below, false, false);
        Ok(())
    }

    /// Compares what is at one place.
    fn place(
        &mut self,
        step: &impl Step,
        rule: Rule,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), ItemError> {
        if is_leaf(rule, old, new) {
            self.leaf(step, old, new);
            return Ok(());
        }
        let mut below = Level::default();
        if let Rule::Items(item, keys) = rule {
            below.items(item, keys, list_or_empty(old), list_or_empty(new))?;
        } else {
            each_member(map_or_empty(old), map_or_empty(new), |name, old, new| {
                below.place(name, rule.member(name).0, old, new)
            })?;
        }
        // Something untyped that was a map and no longer is, or the other way round, has changed itself too.
        let turned = rule.is_free() && is_scalar(old) != is_scalar(new);
        self.adopt(step, below, old.is_none() || turned, new.is_none());
        Ok(())
    }

    fn leaf(&mut self, step: &impl Step, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) if same(old, new) => {}
            (_, Some(_)) => self.changed.push(Node::leaf(step.element())),
            (_, None) => self.removed.push(Node::leaf(step.element())),
        }
    }

    /// Hangs the differences below a place under it.
    fn adopt(&mut self, step: &impl Step, below: Level, is_new: bool, is_gone: bool) {
        for (nodes, below, member) in [
            (&mut self.changed, below.changed, is_new),
            (&mut self.removed, below.removed, is_gone),
        ] {
            if member || !below.is_empty() {
                nodes.push(Node {
                    element: step.element(),
                    member,
                    children: FieldSet::from_nodes(below),
                });
            }
        }
    }

    fn items(
        &mut self,
        item: Item,
        keys: &[Str],
        old: &[Value],
        new: &[Value],
    ) -> Result<(), ItemError> {
        if old == new {
            return Ok(());
        }
        let rule = Rule::of_item(item);
        let (olds, news) = (Told::all(item, keys, old)?, Told::all(item, keys, new)?);
        let (mut olds, mut news) = (olds.as_slice(), news.as_slice());
        while let Some(element) = [olds.first(), news.first()]
            .into_iter()
            .flatten()
            .map(|told| &told.element)
            .min()
        {
            let old = take_alike(&mut olds, element);
            let new = take_alike(&mut news, element);
            self.alike(element, rule, old, new)?;
        }
        Ok(())
    }

    /// Compares the items that one step leads to: usually one, but several where keys are not unique. Then
    /// the place is owned as a whole.
    fn alike(
        &mut self,
        element: &Element,
        rule: Rule,
        old: &[Told],
        new: &[Told],
    ) -> Result<(), ItemError> {
        let (first_old, first_new) = (
            old.first().map(|told| told.value),
            new.first().map(|told| told.value),
        );
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => self.place(element, rule, first_old, first_new)?,
            (2.., 2..) => {
                if !old
                    .iter()
                    .map(|told| told.value)
                    .eq(new.iter().map(|told| told.value))
                {
                    self.changed.push(Node::leaf(element.clone()));
                }
            }
            (2.., _) => {
                if first_new.is_some() {
                    self.place(element, rule, None, first_new)?;
                }
                self.removed.push(Node::leaf(element.clone()));
            }
            (_, 2..) => {
                if first_old.is_some() {
                    self.place(element, rule, first_old, None)?;
                }
                self.changed.push(Node::leaf(element.clone()));
            }
        }
        Ok(())
    }
}

/// What can become a step once a difference is found below it.
trait Step {
    fn element(&self) -> Element;
}

impl Step for Str {
    fn element(&self) -> Element {
        Element::Name(self.clone())
    }
}

impl Step for Element {
    fn element(&self) -> Element {
        self.clone()
    }
}

/// A list item and the step that leads to it.
struct Told<'a> {
    element: Element,
    value: &'a Value,
}

impl<'a> Told<'a> {
    /// All items, sorted by step; those alike in their order.
    fn all(item: Item, keys: &[Str], items: &'a [Value]) -> Result<Vec<Told<'a>>, ItemError> {
        let told = items.iter().map(|value| {
            Ok(Told {
                element: element_of(item, keys, value)?,
                value,
            })
        });
        let mut told = told.collect::<Result<Vec<_>, _>>()?;
        told.sort_by(|left, right| left.element.cmp(&right.element));
        Ok(told)
    }
}

fn take_alike<'a, 'b>(items: &mut &'a [Told<'b>], element: &Element) -> &'a [Told<'b>] {
    let n = items
        .iter()
        .take_while(|told| told.element == *element)
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

/// Whether the place is compared as a whole: it has no parts, or both are empty, so that null and empty differ.
fn is_leaf(rule: Rule, old: Option<&Value>, new: Option<&Value>) -> bool {
    match rule {
        Rule::Scalar(_) | Rule::Atomic(_) | Rule::Whole(_) => true,
        Rule::Items(..) => list_or_empty(old).is_empty() && list_or_empty(new).is_empty(),
        Rule::Struct(_) | Rule::Map(_) | Rule::Any | Rule::Defined(_) => {
            map_or_empty(old).is_empty() && map_or_empty(new).is_empty()
        }
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

/// Equal, where `1` and `1.0` are the same number.
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
