//! The static cost estimator.
//!
//! Kubernetes: a validation rule of a CustomResourceDefinition is rejected if its estimated cost is
//! too high, so this follows cel-go (checker/cost.go) step by step, oddities included: selecting a
//! field of a `dyn` value costs nothing.

use std::collections::HashMap;

use super::ast::{ACCUMULATOR, CallExpr, Comprehension, Expr, ExprKind, Id};
use super::checker::{Checked, ReferenceInfo};
use super::estimate::{
    AstNode, CallEstimate, CostRange, LIST, MAP, STRUCT, SizeEstimator, TRAVERSAL,
};
use super::function::{Overload, Sizing};
use super::types::Type;
use mizzen_value::Str;

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(checked: &Checked, sizes: &dyn SizeEstimator) -> CostRange {
    let mut coster = CostEstimator {
        checked,
        sizes,
        paths: HashMap::new(),
        locals: Vec::new(),
        known: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(&checked.expr)
}

struct CostEstimator<'a> {
    checked: &'a Checked,
    sizes: &'a dyn SizeEstimator,
    /// The path of each node in the data.
    paths: HashMap<Id, Vec<Str>>,
    locals: Vec<Local>,
    /// The computed sizes of nodes.
    known: HashMap<Id, CostRange>,
    /// The sizes of the keys and values of list and map nodes.
    entries: HashMap<Id, EntrySizes>,
}

/// A variable of a comprehension.
struct Local {
    name: Str,
    path: Vec<Str>,
    size: Option<CostRange>,
    entries: Option<EntrySizes>,
}

/// The operands of a call, with the costs of its arguments.
#[derive(Default)]
struct CallOperands<'e> {
    target: Option<AstNode<'e>>,
    arguments: Vec<AstNode<'e>>,
    costs: Vec<CostRange>,
}

/// The sizes of the entries of a list or a map.
#[derive(Clone, Copy)]
struct EntrySizes {
    is_list: bool,
    key: CostRange,
    value: CostRange,
}

/// The neutral element of [`CostRange::union`].
const NOTHING: CostRange = CostRange {
    min: u64::MAX,
    max: 0,
};

impl<'a> CostEstimator<'a> {
    fn cost(&mut self, expr: &'a Expr) -> CostRange {
        match &expr.kind {
            ExprKind::Literal(_) => CostRange::ZERO,
            ExprKind::Ident(name) => {
                let path = self
                    .local(name)
                    .map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                CostRange::ONE
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
                if charged {
                    sum.add(CostRange::ONE)
                } else {
                    sum
                }
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(items, _) => {
                let sum = items
                    .iter()
                    .fold(CostRange::ZERO, |sum, item| sum.add(self.cost(item)));
                let value = self.union(items.iter());
                self.entries.insert(
                    expr.id,
                    EntrySizes {
                        is_list: true,
                        key: CostRange::ONE,
                        value,
                    },
                );
                sum.add(CostRange::fixed(LIST))
            }
            ExprKind::Map(entries) => {
                let sum = entries.iter().fold(CostRange::ZERO, |sum, entry| {
                    let key = self.cost(&entry.key);
                    sum.add(key).add(self.cost(&entry.value))
                });
                let key = self.union(entries.iter().map(|entry| &entry.key));
                let value = self.union(entries.iter().map(|entry| &entry.value));
                self.entries.insert(
                    expr.id,
                    EntrySizes {
                        is_list: false,
                        key,
                        value,
                    },
                );
                sum.add(CostRange::fixed(MAP))
            }
            ExprKind::Struct(_, fields) => {
                let sum = fields.iter().fold(CostRange::ZERO, |sum, field| {
                    sum.add(self.cost(&field.value))
                });
                sum.add(CostRange::fixed(STRUCT))
            }
            ExprKind::Comprehension(it) if it.is_bind() => self.bind(expr, it),
            ExprKind::Comprehension(it) => self.comprehension(expr, it),
        }
    }

    /// The union of the sizes of several nodes.
    fn union(&mut self, exprs: impl ExactSizeIterator<Item = &'a Expr>) -> CostRange {
        if exprs.len() == 0 {
            return CostRange::ZERO;
        }
        exprs.fold(NOTHING, |union, expr| {
            union.union(self.size_or_unknown(expr))
        })
    }

    fn call(&mut self, expr: &'a Expr, call: &'a CallExpr) -> CostRange {
        if call.function == "dyn" && call.arguments.len() == 1 {
            let cost = self.cost(&call.arguments[0]);
            self.copy_sizes(expr, &call.arguments[0]);
            return cost.add(CostRange::ONE);
        }
        let mut operands = CallOperands::default();
        for argument in &call.arguments {
            operands.costs.push(self.cost(argument));
            operands.arguments.push(self.node(argument));
        }
        let Some(ReferenceInfo::Overloads(overloads)) = self.checked.references.get(&expr.id)
        else {
            return CostRange::ZERO;
        };
        let mut sum = CostRange::ZERO;
        if let Some(expr) = &call.target {
            sum = self.cost(expr);
            operands.target = Some(self.node(expr));
        }
        let (mut cost, mut size) = (NOTHING, None);
        if call.function == "_?._" {
            cost = total(&operands.costs).add(CostRange::ONE);
            size = self.size(expr);
        }
        for overload in overloads {
            let estimate = self.overload(expr, call, overload, &operands);
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

    /// The cost of a call with its arguments, for one of its overloads.
    fn overload(
        &mut self,
        expr: &'a Expr,
        call: &'a CallExpr,
        overload: &Overload,
        operands: &CallOperands,
    ) -> CallEstimate {
        let (nodes, costs) = (&operands.arguments[..], &operands.costs);
        let all = total(costs);
        if let Some(estimate) = overload
            .estimate
            .and_then(|it| it(&Sizing(self.sizes), operands.target.as_ref(), nodes))
        {
            return CallEstimate {
                cost: estimate.cost.add(all),
                ..estimate
            };
        }
        match (overload.id, nodes) {
            ("logical_and" | "logical_or", [_, _]) => CallEstimate::cost(CostRange {
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
                CallEstimate::sized(CostRange::ONE.add(all), computed(left).add(computed(right)))
            }
            ("equals" | "not_equals", [left, right]) => {
                let cost = library_equality(overload.id, left, right).unwrap_or_else(|| {
                    let max = computed(left).max.min(computed(right).max);
                    let min = u64::from(max > 0);
                    CostRange { min, max }.scale(TRAVERSAL)
                });
                CallEstimate::cost(cost.add(all))
            }
            _ => CallEstimate::cost(CostRange::ONE.add(all)),
        }
    }

    fn comprehension(&mut self, expr: &'a Expr, it: &'a Comprehension) -> CostRange {
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

    fn bind(&mut self, expr: &'a Expr, it: &'a Comprehension) -> CostRange {
        let sum = self.cost(&it.range);
        let sum = sum.add(self.cost(&it.init));
        let depth = self.locals.len();
        self.bind_local(&it.accumulator, &it.init);
        let sum = sum.add(self.cost(&it.result));
        self.locals.truncate(depth);
        self.copy_sizes(expr, &it.result);
        sum
    }

    /// Declares a variable for a value.
    fn bind_local(&mut self, name: &Str, value: &Expr) {
        let (path, size, entries) = (self.path(value), self.size(value), self.entries_of(value));
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entries,
        });
    }

    /// Declares a variable for each key or each value of a list or a map.
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

    fn node(&mut self, expr: &'a Expr) -> AstNode<'a> {
        let mut path = self.path(expr);
        if path
            .first()
            .is_some_and(|first| first == ACCUMULATOR || first == "__result__")
        {
            path.clear();
        }
        let computed = self.size(expr);
        AstNode {
            path,
            kind: self.checked.kind(expr.id).clone(),
            expr: Some(expr),
            computed,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> CostRange {
        self.size(expr).unwrap_or(CostRange::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<CostRange> {
        if let Some(size) = self
            .known
            .get(&expr.id)
            .copied()
            .or_else(|| Some(CostRange::fixed(expr.literal_size()? as u64)))
        {
            return Some(size);
        }
        let kind = self.checked.kind(expr.id);
        let node = AstNode {
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
            return Some(CostRange::ONE);
        }
        self.local(expr.as_ident()?)?.size
    }

    fn entries_of(&self, expr: &Expr) -> Option<EntrySizes> {
        let known = self.entries.get(&expr.id).copied();
        known.or_else(|| self.local(expr.as_ident()?)?.entries)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.known.extend(size.map(|size| (to.id, size)));
        self.entries.extend(entries.map(|entries| (to.id, entries)));
    }
}

fn total(costs: &[CostRange]) -> CostRange {
    costs
        .iter()
        .fold(CostRange::ZERO, |sum, cost| sum.add(*cost))
}

fn computed(node: &AstNode) -> CostRange {
    node.computed.unwrap_or(CostRange::UNKNOWN)
}

fn join(one: Option<EntrySizes>, other: Option<EntrySizes>) -> Option<EntrySizes> {
    let (one, other) = (one?, other?);
    Some(EntrySizes {
        is_list: one.is_list,
        key: one.key.union(other.key),
        value: one.value.union(other.value),
    })
}

/// Kubernetes: library types have their own equality costs (cel/library/cost.go).
fn library_equality(overload: &str, left: &AstNode, right: &AstNode) -> Option<CostRange> {
    if overload != "equals" || left.kind != right.kind {
        return None;
    }
    let (Type::Object(name) | Type::Opaque(name, _)) = &left.kind else {
        return None;
    };
    match name.as_str() {
        "kubernetes.NamedFormat" => Some(CostRange { min: 1, max: 64 }.scale(TRAVERSAL)),
        "kubernetes.URL" => Some(
            CostRange {
                min: 1,
                max: right.computed.map_or(1, |size| size.max),
            }
            .scale(TRAVERSAL),
        ),
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Some(CostRange::ONE),
        name if name.starts_with("kubernetes.authorization.") => Some(CostRange::ONE),
        _ => None,
    }
}

fn is_scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        _ => kind.inside_optional().is_some_and(is_scalar),
    }
}
