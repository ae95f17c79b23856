//! A set of fields: which places in an object somebody owns.
//!
//! A tree. Each level is sorted, so that two sets are joined, cut and compared in one walk over both, and so
//! that a set is written in the one order that clients know.
//!
//! Invariant: the nodes of a level are sorted by element, no two alike, and none is both no member and without
//! children.

use std::cmp::Ordering;
use std::fmt;

use super::element::Element;

/// A set of fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// A place in an object, and what is in the set at and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// How one gets here from the place above.
    pub element: Element,
    /// Whether this place itself is in the set.
    pub member: bool,
    /// What is in the set below this place.
    pub children: FieldSet,
}

impl Node {
    /// A place that is in the set, and nothing below it.
    pub fn leaf(element: Element) -> Node {
        Node {
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
    /// The set of these nodes, in whatever order they come. Of two alike the first counts.
    pub fn from_nodes(mut nodes: Vec<Node>) -> FieldSet {
        let sorted = nodes.is_sorted_by(|left, right| left.element < right.element);
        if !sorted {
            nodes.sort_by(|left, right| left.element.cmp(&right.element));
            nodes.dedup_by(|later, first| later.element == first.element);
        }
        FieldSet { nodes }
    }

    /// The set of these fields, each a path of names with dots: `["metadata.labels", "spec"]`.
    pub fn of_names(paths: &[&str]) -> FieldSet {
        paths
            .iter()
            .fold(FieldSet::default(), |set, path| set.union(&chain(path)))
    }

    /// The topmost places, sorted.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What is in the set at and below `element`.
    pub fn get(&self, element: &Element) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp(element))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// What is in the set at and below the field `name`.
    pub fn name(&self, name: &str) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|node| node.element.cmp_name(name))
            .ok()?;
        Some(&self.nodes[at])
    }

    /// Whether the field that a path of names with dots leads to is in the set.
    pub fn has_names(&self, path: &str) -> bool {
        match path.split_once('.') {
            Some((head, tail)) => self
                .name(head)
                .is_some_and(|node| node.children.has_names(tail)),
            None => self.name(path).is_some_and(|node| node.member),
        }
    }

    /// Whether the field at `path` is in the set.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [head, tail @ ..] => self.get(head).is_some_and(|node| node.children.has(tail)),
        }
    }

    /// What is in one of both.
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            Pair::Left(node) | Pair::Right(node) => Some(node.clone()),
            Pair::Both(left, right) => Some(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
        })
    }

    /// What is in both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            Pair::Left(_) | Pair::Right(_) => None,
            Pair::Both(left, right) => Some(Node {
                element: left.element.clone(),
                member: left.member && right.member,
                children: left.children.intersection(&right.children),
            }),
        })
    }

    /// What is in this one and not in the other. A place that is in the other takes only itself away, not
    /// what is below it.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(left, right) => Some(Node {
                element: left.element.clone(),
                member: left.member && !right.member,
                children: left.children.difference(&right.children),
            }),
        })
    }

    /// Like [`FieldSet::difference`], but a place that is in the other takes all below it away.
    pub fn without(&self, other: &FieldSet) -> FieldSet {
        join(self, other, |pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(_, right) if right.member => None,
            Pair::Both(left, right) => Some(Node {
                children: left.children.without(&right.children),
                ..left.clone()
            }),
        })
    }

    /// Whether something is in both.
    pub fn meets(&self, other: &FieldSet) -> bool {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            match one.element.cmp(&two.element) {
                Ordering::Less => drop(left.next()),
                Ordering::Greater => drop(right.next()),
                Ordering::Equal
                    if one.member && two.member || one.children.meets(&two.children) =>
                {
                    return true;
                }
                Ordering::Equal => drop((left.next(), right.next())),
            }
        }
        false
    }

    /// The path of every member. Kubernetes: at each level first the members, then what is below them, which
    /// is the order in which conflicts are told.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
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

/// The set as clients see it in an object.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&mizzen_value::json::to_string(&self.to_value()))
    }
}

/// Where two levels are compared.
enum Pair<'a> {
    Left(&'a Node),
    Right(&'a Node),
    Both(&'a Node, &'a Node),
}

/// Walks over both levels at once; what `keep` makes of each place is the result, unless it is empty.
fn join(left: &FieldSet, right: &FieldSet, keep: impl Fn(Pair) -> Option<Node>) -> FieldSet {
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
            Ordering::Less => lefts.next().map(Pair::Left),
            Ordering::Greater => rights.next().map(Pair::Right),
            Ordering::Equal => lefts
                .next()
                .zip(rights.next())
                .map(|(one, two)| Pair::Both(one, two)),
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
        nodes: vec![Node {
            element: Element::Name(head.into()),
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
    fn sets_are_joined_and_cut() {
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
    fn a_place_can_take_all_below_it_away() {
        check(set(RIGHT).without(&set(LEFT)), "{}");
        check(
            set(LEFT).without(&FieldSet::of_names(&["a.x", "b.c"])),
            r#"{"f:a":{".":{},"f:y":{}},"f:b":{}}"#,
        );
    }

    #[test]
    fn sets_meet_in_members_only() {
        assert!(set(LEFT).meets(&set(RIGHT)));
        assert!(!set(r#"{"f:a":{}}"#).meets(&set(r#"{"f:a":{"f:b":{}}}"#)));
        assert!(!set(r#"{"f:a":{}}"#).meets(&set(r#"{"f:c":{}}"#)));
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
    fn members_of_a_level_come_before_what_is_below_them() {
        let paths = set(r#"{"f:a":{".":{},"f:x":{}},"f:b":{}}"#).paths();
        let texts: Vec<String> = paths
            .iter()
            .map(|path| path.iter().map(Element::to_string).collect())
            .collect();
        assert_eq!(texts, [".a", ".b", ".a.x"]);
    }
}
