//! Sets of fields.
//!
//! A set is a tree with sorted levels, so that set operations walk both trees once, and the
//! encoding has the canonical order.
//!
//! Invariant: the nodes of a level are sorted and unique, and each is a member or has children.

use std::cmp::Ordering;
use std::fmt;

use super::path_element::PathElement;

/// A set of fields. Kubernetes: structured-merge-diff's `fieldpath.Set`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    nodes: Vec<FieldSetNode>,
}

/// A path element, whether it is in the set, and its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSetNode {
    /// The path element.
    pub element: PathElement,
    /// Whether the path is in the set.
    pub member: bool,
    /// The members below this path.
    pub children: FieldSet,
}

impl FieldSetNode {
    /// A member without children.
    pub fn leaf(element: PathElement) -> FieldSetNode {
        FieldSetNode {
            element,
            member: true,
            children: FieldSet::default(),
        }
    }

    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    /// The set of these nodes, in any order. The first of duplicates wins.
    pub fn from_nodes(mut nodes: Vec<FieldSetNode>) -> FieldSet {
        let sorted = nodes.is_sorted_by(|left, right| left.element < right.element);
        if !sorted {
            nodes.sort_by(|left, right| left.element.cmp(&right.element));
            nodes.dedup_by(|later, first| later.element == first.element);
        }
        FieldSet { nodes }
    }

    /// The set of these dotted paths: `["metadata.labels", "spec"]`.
    pub fn of_names(paths: &[&str]) -> FieldSet {
        paths
            .iter()
            .fold(FieldSet::default(), |set, path| set.union(&chain(path)))
    }

    /// The nodes of the first level, sorted.
    pub fn nodes(&self) -> &[FieldSetNode] {
        &self.nodes
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of `element`.
    pub fn get(&self, element: &PathElement) -> Option<&FieldSetNode> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp(element))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// The node of the field `name`.
    pub fn name(&self, name: &str) -> Option<&FieldSetNode> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp_name(name))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// Whether a dotted path is in the set.
    pub fn has_names(&self, path: &str) -> bool {
        match path.split_once('.') {
            Some((head, tail)) => self
                .name(head)
                .is_some_and(|node| node.children.has_names(tail)),
            None => self.name(path).is_some_and(|node| node.member),
        }
    }

    /// Whether `path` is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [head, tail @ ..] => self.get(head).is_some_and(|node| node.children.has(tail)),
        }
    }

    /// What is in one of both.
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            NodePair::Left(node) | NodePair::Right(node) => Some(node.clone()),
            NodePair::Both(left, right) => Some(FieldSetNode {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
        })
    }

    /// What is in both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            NodePair::Left(_) | NodePair::Right(_) => None,
            NodePair::Both(left, right) => Some(FieldSetNode {
                element: left.element.clone(),
                member: left.member && right.member,
                children: left.children.intersection(&right.children),
            }),
        })
    }

    /// The paths of this set that are not in the other. Children of a removed path stay.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            NodePair::Left(node) => Some(node.clone()),
            NodePair::Right(_) => None,
            NodePair::Both(left, right) => Some(FieldSetNode {
                element: left.element.clone(),
                member: left.member && !right.member,
                children: left.children.difference(&right.children),
            }),
        })
    }

    /// Like [`FieldSet::difference`], but removes the children of a path, too.
    pub fn without(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            NodePair::Left(node) => Some(node.clone()),
            NodePair::Right(_) => None,
            NodePair::Both(_, right) if right.member => None,
            NodePair::Both(left, right) => Some(FieldSetNode {
                children: left.children.without(&right.children),
                ..left.clone()
            }),
        })
    }

    /// Whether the intersection is not empty.
    pub fn intersects(&self, other: &FieldSet) -> bool {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            match one.element.cmp(&two.element) {
                Ordering::Less => drop(left.next()),
                Ordering::Greater => drop(right.next()),
                Ordering::Equal
                    if one.member && two.member || one.children.intersects(&two.children) =>
                {
                    return true;
                }
                Ordering::Equal => drop((left.next(), right.next())),
            }
        }
        false
    }

    /// All paths. Kubernetes: at each level first the members, then their children, which is the
    /// order of conflicts.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            paths.push(prefix.iter().chain([&node.element]).cloned().collect());
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }
}

/// The set in its `fieldsV1` encoding.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&mizzen_value::json::to_string(&self.to_value()))
    }
}

/// A pair of nodes of the two sets.
enum NodePair<'a> {
    Left(&'a FieldSetNode),
    Right(&'a FieldSetNode),
    Both(&'a FieldSetNode, &'a FieldSetNode),
}

/// Merges two levels; `keep` computes each node, and empty ones are dropped.
fn join(
    left: &FieldSet,
    right: &FieldSet,
    keep: impl Fn(NodePair) -> Option<FieldSetNode>,
) -> FieldSet {
    let (mut lefts, mut rights) = (left.nodes.iter().peekable(), right.nodes.iter().peekable());
    let mut nodes = Vec::new();
    loop {
        let order = match (lefts.peek(), rights.peek()) {
            (Some(one), Some(two)) => one.element.cmp(&two.element),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return FieldSet { nodes },
        };
        let pair = match order {
            Ordering::Less => lefts.next().map(NodePair::Left),
            Ordering::Greater => rights.next().map(NodePair::Right),
            Ordering::Equal => lefts
                .next()
                .zip(rights.next())
                .map(|(one, two)| NodePair::Both(one, two)),
        };
        nodes.extend(pair.and_then(&keep).filter(|node| !node.is_empty()));
    }
}

fn chain(path: &str) -> FieldSet {
    let (head, tail) = path
        .split_once('.')
        .map_or((path, None), |(head, tail)| (head, Some(tail)));
    let children = tail.map_or_else(FieldSet::default, chain);
    FieldSet {
        nodes: vec![FieldSetNode {
            element: PathElement::Name(head.into()),
            member: tail.is_none(),
            children,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> FieldSet {
        FieldSet::parse(text).unwrap()
    }

    #[track_caller]
    fn check(result: FieldSet, expected: &str) {
        assert_eq!(result.to_string(), expected);
    }

    const LEFT: &str = r#"{"f:a":{".":{},"f:x":{},"f:y":{}},"f:b":{}}"#;
    const RIGHT: &str = r#"{"f:a":{"f:x":{},"f:z":{}},"f:b":{"f:c":{}}}"#;

    #[test]
    fn sets_have_unions_and_differences() {
        let (left, right) = (set(LEFT), set(RIGHT));
        check(
            left.union(&right),
            r#"{"f:a":{".":{},"f:x":{},"f:y":{},"f:z":{}},"f:b":{".":{},"f:c":{}}}"#,
        );
        check(left.intersection(&right), r#"{"f:a":{"f:x":{}}}"#);
        check(
            left.difference(&right),
            r#"{"f:a":{".":{},"f:y":{}},"f:b":{}}"#,
        );
        check(
            right.difference(&left),
            r#"{"f:a":{"f:z":{}},"f:b":{"f:c":{}}}"#,
        );
    }

    #[test]
    fn without_removes_children() {
        check(set(RIGHT).without(&set(LEFT)), "{}");
        check(
            set(LEFT).without(&FieldSet::of_names(&["a.x", "b.c"])),
            r#"{"f:a":{".":{},"f:y":{}},"f:b":{}}"#,
        );
    }

    #[test]
    fn intersects_compares_members_only() {
        assert!(set(LEFT).intersects(&set(RIGHT)));
        assert!(!set(r#"{"f:a":{}}"#).intersects(&set(r#"{"f:a":{"f:b":{}}}"#)));
        assert!(!set(r#"{"f:a":{}}"#).intersects(&set(r#"{"f:c":{}}"#)));
    }

    #[test]
    fn a_path_is_found() {
        let set = set(r#"{"f:spec":{"f:replicas":{},"f:template":{"f:x":{}}}}"#);
        assert!(set.has_names("spec.replicas"));
        assert!(!set.has_names("spec.template"));
        assert!(!set.has_names("spec"));
        assert!(!set.has_names("status"));
    }

    #[test]
    fn members_come_before_their_children() {
        let paths = set(r#"{"f:a":{".":{},"f:x":{}},"f:b":{}}"#).paths();
        let texts: Vec<String> = paths
            .iter()
            .map(|path| path.iter().map(PathElement::to_string).collect())
            .collect();
        assert_eq!(texts, [".a", ".b", ".a.x"]);
    }
}
