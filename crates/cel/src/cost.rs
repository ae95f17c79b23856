//! Between which bounds will the cost of an expression be?
//!
//! Kubernetes: a rule of a custom resource is refused if it may cost too much, so this follows cel-go's estimate
//! (checker/cost.go) step by step, odd ones included: a field of something dynamic costs nothing here.

use std::collections::HashMap;

use super::ast::{ACCUMULATOR, Call, Comprehension, Expr, ExprKind, Id, Literal};
use super::check::{Checked, Reference};
use super::estimate::{CallEstimate, LIST, MAP, Node, Range, STRUCT, Sizes, TRAVERSAL};
use super::function::{Overload, Sizing};
use super::types::Type;
use mizzen_value::Str;

/// The bounds of the cost of an expression, given what is known about sizes.
pub(crate) fn estimate(checked: &Checked, sizes: &dyn Sizes) -> Range {
    let mut coster = Coster {
        checked,
        sizes,
        paths: HashMap::new(),
        locals: Vec::new(),
        known: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(&checked.expr)
}

struct Coster<'a> {
    checked: &'a Checked,
    sizes: &'a dyn Sizes,
    /// Where in the data a node is.
    paths: HashMap<Id, Vec<Str>>,
    locals: Vec<Local>,
    /// The sizes of nodes.
    known: HashMap<Id, Range>,
    /// The sizes of keys and values of nodes that are lists or maps.
    entries: HashMap<Id, Entries>,
}

/// A variable of a loop.
struct Local {
    name: Str,
    path: Vec<Str>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// The sizes of what is in a list or a map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

/// Nothing was joined to it yet.
const NOTHING: Range = Range {
    min: u64::MAX,
    max: 0,
};

impl<'a> Coster<'a> {
    fn cost(&mut self, expr: &'a Expr) -> Range {
        match &expr.kind {
            ExprKind::Literal(_) => Range::ZERO,
            ExprKind::Ident(name) => {
                let path = self
                    .local(name)
                    .map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                Range::ONE
            }
            ExprKind::Select(select) => {
                let sum = self.cost(&select.operand);
                if select.test {
                    return sum;
                }
                let charged = matches!(
                    self.checked.kind(select.operand.id),
                    Type::Map(_) | Type::Object(_) | Type::Parameter(_)
                );
                let mut path = self.path(&select.operand);
                path.push(select.field.clone());
                self.paths.insert(expr.id, path);
                if charged { sum.add(Range::ONE) } else { sum }
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(items, _) => {
                let sum = items
                    .iter()
                    .fold(Range::ZERO, |sum, item| sum.add(self.cost(item)));
                let value = self.union(items.iter());
                self.entries.insert(
                    expr.id,
                    Entries {
                        is_list: true,
                        key: Range::ONE,
                        value,
                    },
                );
                sum.add(Range::fixed(LIST))
            }
            ExprKind::Map(entries) => {
                let sum = entries.iter().fold(Range::ZERO, |sum, entry| {
                    let key = self.cost(&entry.key);
                    sum.add(key).add(self.cost(&entry.value))
                });
                let key = self.union(entries.iter().map(|entry| &entry.key));
                let value = self.union(entries.iter().map(|entry| &entry.value));
                self.entries.insert(
                    expr.id,
                    Entries {
                        is_list: false,
                        key,
                        value,
                    },
                );
                sum.add(Range::fixed(MAP))
            }
            ExprKind::Struct(_, fields) => {
                let sum = fields
                    .iter()
                    .fold(Range::ZERO, |sum, field| sum.add(self.cost(&field.value)));
                sum.add(Range::fixed(STRUCT))
            }
            ExprKind::Comprehension(it) if is_bind(it) => self.bind(expr, it),
            ExprKind::Comprehension(it) => self.comprehension(expr, it),
        }
    }

    /// The sizes of all of some nodes.
    fn union(&mut self, exprs: impl ExactSizeIterator<Item = &'a Expr>) -> Range {
        if exprs.len() == 0 {
            return Range::ZERO;
        }
        exprs.fold(NOTHING, |union, expr| {
            union.union(self.size_or_unknown(expr))
        })
    }

    fn call(&mut self, expr: &'a Expr, call: &'a Call) -> Range {
        if call.function == "dyn" && call.arguments.len() == 1 {
            let cost = self.cost(&call.arguments[0]);
            self.copy_sizes(expr, &call.arguments[0]);
            return cost.add(Range::ONE);
        }
        let mut nodes = Vec::with_capacity(call.arguments.len());
        let mut costs = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            costs.push(self.cost(argument));
            nodes.push(self.node(argument));
        }
        let Some(Reference::Overloads(overloads)) = self.checked.references.get(&expr.id) else {
            return Range::ZERO;
        };
        let (mut sum, mut target) = (Range::ZERO, None);
        if let Some(expr) = &call.target {
            sum = self.cost(expr);
            target = Some(self.node(expr));
        }
        let (mut cost, mut size) = (NOTHING, None);
        if call.function == "_?._" {
            cost = total(&costs).add(Range::ONE);
            size = self.size(expr);
        }
        for overload in overloads {
            let estimate = self.overload(expr, call, overload, target.as_ref(), &nodes, &costs);
            cost = cost.union(estimate.cost);
            size = match (size, estimate.result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
            if let ("index_list" | "index_map", Some(container)) =
                (overload.id, call.arguments.first())
            {
                size = self.entries_of(container).map(|entries| entries.value);
                let mut path = self.path(container);
                path.push(if overload.id == "index_list" {
                    "@items".into()
                } else {
                    "@values".into()
                });
                self.paths.insert(expr.id, path);
            }
            size = size.or_else(|| self.size(expr));
        }
        self.known.extend(size.map(|size| (expr.id, size)));
        sum.add(cost)
    }

    /// What a call costs with its arguments if it means one overload.
    fn overload(
        &mut self,
        expr: &'a Expr,
        call: &'a Call,
        overload: &Overload,
        target: Option<&Node>,
        nodes: &[Node],
        costs: &[Range],
    ) -> CallEstimate {
        let all = total(costs);
        if let Some(estimate) = overload
            .estimate
            .and_then(|it| it(&Sizing(self.sizes), target, nodes))
        {
            return CallEstimate {
                cost: estimate.cost.add(all),
                ..estimate
            };
        }
        match (overload.id, nodes) {
            ("logical_and" | "logical_or", [_, _]) => CallEstimate::cost(Range {
                min: costs[0].min,
                max: costs[0].add(costs[1]).max,
            }),
            ("conditional", [_, then, otherwise]) => {
                let (one, other) = (
                    self.entries_of(&call.arguments[1]),
                    self.entries_of(&call.arguments[2]),
                );
                self.entries
                    .extend(join(one, other).map(|entries| (expr.id, entries)));
                let size = computed(then).union(computed(otherwise));
                CallEstimate::sized(costs[0].add(costs[1].union(costs[2])), size)
            }
            ("add_list", [left, right]) => {
                let (one, other) = (
                    self.entries_of(&call.arguments[0]),
                    self.entries_of(&call.arguments[1]),
                );
                self.entries
                    .extend(join(one, other).map(|entries| (expr.id, entries)));
                CallEstimate::sized(Range::ONE.add(all), computed(left).add(computed(right)))
            }
            ("equals" | "not_equals", [left, right]) => {
                let cost = library_equality(overload.id, left, right)
                    .unwrap_or_else(|| equality(left, right));
                CallEstimate::cost(cost.add(all))
            }
            _ => CallEstimate::cost(Range::ONE.add(all)),
        }
    }

    fn comprehension(&mut self, expr: &'a Expr, it: &'a Comprehension) -> Range {
        let mut sum = self.cost(&it.range);
        sum = sum.add(self.cost(&it.init));
        let depth = self.locals.len();
        self.bind_local(&it.accumulator, &it.init);
        match &it.second {
            Some(second) => {
                self.loop_local(&it.variable, &it.range, true);
                self.loop_local(second, &it.range, false);
            }
            None => {
                let is_list = self.is_list(&it.range);
                self.loop_local(&it.variable, &it.range, !is_list);
            }
        }
        let each = self.cost(&it.condition);
        let each = each.add(self.cost(&it.step));
        self.locals.truncate(depth + 1);
        sum = sum.add(self.cost(&it.result));
        self.locals.truncate(depth);
        let count = self.size_or_unknown(&it.range);
        match &it.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&it.init);
                self.known.extend(size.map(|size| (expr.id, size)));
            }
            ExprKind::List(..) | ExprKind::Map(_) => {
                self.known.insert(expr.id, count);
                let entries = self.entries_of(&it.step);
                self.entries
                    .extend(entries.map(|entries| (expr.id, entries)));
            }
            _ => {}
        }
        sum.add(count.multiply(each))
    }

    fn bind(&mut self, expr: &'a Expr, it: &'a Comprehension) -> Range {
        let sum = self.cost(&it.range);
        let sum = sum.add(self.cost(&it.init));
        let depth = self.locals.len();
        self.bind_local(&it.accumulator, &it.init);
        let sum = sum.add(self.cost(&it.result));
        self.locals.truncate(depth);
        self.copy_sizes(expr, &it.result);
        sum
    }

    /// A name for a value.
    fn bind_local(&mut self, name: &Str, value: &Expr) {
        let (path, size, entries) = (self.path(value), self.size(value), self.entries_of(value));
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entries,
        });
    }

    /// A name for each key or each value of a list or a map.
    fn loop_local(&mut self, name: &Str, range: &Expr, keys: bool) {
        let (entries, is_list, mut path) = (
            self.entries_of(range),
            self.is_list(range),
            self.path(range),
        );
        path.push(match (keys, is_list) {
            (true, true) => "@indices".into(),
            (true, false) => "@keys".into(),
            (false, true) => "@items".into(),
            (false, false) => "@values".into(),
        });
        let size = entries.map(|entries| if keys { entries.key } else { entries.value });
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entries: None,
        });
    }

    fn is_list(&self, expr: &Expr) -> bool {
        let by_type = matches!(self.checked.kind(expr.id), Type::List(_));
        self.entries_of(expr)
            .map_or(by_type, |entries| entries.is_list)
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Vec<Str> {
        match expr.as_ident().and_then(|name| self.local(name)) {
            Some(local) => local.path.clone(),
            None => self.paths.get(&expr.id).cloned().unwrap_or_default(),
        }
    }

    fn node(&mut self, expr: &'a Expr) -> Node<'a> {
        let mut path = self.path(expr);
        if path
            .first()
            .is_some_and(|first| first == ACCUMULATOR || first == "__result__")
        {
            path.clear();
        }
        let computed = self.size(expr);
        Node {
            path,
            kind: self.checked.kind(expr.id).clone(),
            expr: Some(expr),
            computed,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self
            .known
            .get(&expr.id)
            .copied()
            .or_else(|| written_size(expr))
        {
            return Some(size);
        }
        let kind = self.checked.kind(expr.id);
        let node = Node {
            path: self.path(expr),
            kind: kind.clone(),
            expr: Some(expr),
            computed: None,
        };
        if let Some(size) = self.sizes.size(&node) {
            self.known.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(kind) {
            return Some(Range::ONE);
        }
        self.local(expr.as_ident()?)?.size
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        let known = self.entries.get(&expr.id).copied();
        known.or_else(|| self.local(expr.as_ident()?)?.entries)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.known.extend(size.map(|size| (to.id, size)));
        self.entries.extend(entries.map(|entries| (to.id, entries)));
    }
}

fn total(costs: &[Range]) -> Range {
    costs.iter().fold(Range::ZERO, |sum, cost| sum.add(*cost))
}

fn computed(node: &Node) -> Range {
    node.computed.unwrap_or(Range::UNKNOWN)
}

fn join(one: Option<Entries>, other: Option<Entries>) -> Option<Entries> {
    let (one, other) = (one?, other?);
    Some(Entries {
        is_list: one.is_list,
        key: one.key.union(other.key),
        value: one.value.union(other.value),
    })
}

fn equality(left: &Node, right: &Node) -> Range {
    let max = computed(left).max.min(computed(right).max);
    Range {
        min: u64::from(max > 0),
        max,
    }
    .scale(TRAVERSAL)
}

/// Kubernetes: values of its libraries have their own costs of being compared (cel/library/cost.go).
fn library_equality(overload: &str, left: &Node, right: &Node) -> Option<Range> {
    if overload != "equals" || left.kind != right.kind {
        return None;
    }
    let (Type::Object(name) | Type::Opaque(name, _)) = &left.kind else {
        return None;
    };
    match name.as_str() {
        "kubernetes.NamedFormat" => Some(Range { min: 1, max: 64 }.scale(TRAVERSAL)),
        "kubernetes.URL" => Some(
            Range {
                min: 1,
                max: right.computed.map_or(1, |size| size.max),
            }
            .scale(TRAVERSAL),
        ),
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Some(Range::ONE),
        name if name.starts_with("kubernetes.authorization.") => Some(Range::ONE),
        _ => None,
    }
}

/// A loop over nothing that only gives a name to a value.
fn is_bind(it: &Comprehension) -> bool {
    let over_nothing = matches!(&it.range.kind, ExprKind::List(items, _) if items.is_empty());
    let never = it.condition.as_literal() == Some(&Literal::Bool(false));
    over_nothing && never && it.accumulator != "__result__"
}

/// The size of what is written down.
fn written_size(expr: &Expr) -> Option<Range> {
    let size = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List(items, _) => items.len(),
        ExprKind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Range::fixed(size as u64))
}

fn is_scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        _ => kind.inside_optional().is_some_and(is_scalar),
    }
}
