//! The abstract syntax tree of an expression.

use std::sync::Arc;

use super::types::Type;
use super::value::{StringVal, Value};
use mizzen_value::Str;

/// The ID of a node, unique in its expression. Positions and types are kept by it.
pub type Id = u32;

/// A node of the abstract syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// The ID of the node.
    pub id: Id,
    /// The kind of the node, with its operands.
    pub kind: ExprKind,
}

/// The kinds of nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A literal.
    Literal(Literal),
    /// An identifier; with a leading dot if it was written so.
    Ident(Str),
    /// `operand.field`, or `has(operand.field)` if `test`.
    Select(Box<Select>),
    /// A call of a function or an operator.
    Call(Box<CallExpr>),
    /// `[a, ?b]`, and the indexes of the optional items.
    List(Vec<Expr>, Vec<usize>),
    /// `{k: v, ?k: v}`.
    Map(Vec<MapEntry>),
    /// `Name{field: v}`.
    Struct(Str, Vec<FieldEntry>),
    /// A comprehension, which macros expand to.
    Comprehension(Box<Comprehension>),
}

/// `operand.field`.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// The operand.
    pub operand: Expr,
    /// The name of the field.
    pub field: Str,
    /// Whether it is a presence test.
    pub test: bool,
}

/// A call of a function or an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct CallExpr {
    /// The name of the function; operators have names like `_+_`.
    pub function: Str,
    /// The receiver of a member call.
    pub target: Option<Expr>,
    /// The arguments, without the target.
    pub arguments: Vec<Expr>,
}

/// An entry of a map literal.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry {
    /// The ID of the entry.
    pub id: Id,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether it was written with `?`: the value is an optional, and the entry is left out if it
    /// is empty.
    pub optional: bool,
}

/// A field of an object literal.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldEntry {
    /// The ID of the field.
    pub id: Id,
    /// The name of the field.
    pub name: Str,
    /// The value of the field.
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A comprehension: for each item of `range`, while `condition`, `accumulator = step`; then
/// `result`.
#[derive(Debug, Clone, PartialEq)]
pub struct Comprehension {
    /// The list or map that is iterated over.
    pub range: Expr,
    /// The iteration variable: the item, or the key if there is a second variable.
    pub variable: Str,
    /// The second iteration variable: the value.
    pub second: Option<Str>,
    /// The name of the accumulator.
    pub accumulator: Str,
    /// The initial value of the accumulator.
    pub init: Expr,
    /// Evaluated before each step; false ends the loop.
    pub condition: Expr,
    /// The next value of the accumulator.
    pub step: Expr,
    /// The value of the comprehension.
    pub result: Expr,
}

impl Comprehension {
    /// Whether it is the expansion of `cel.bind`: a comprehension over an empty list.
    pub(super) fn is_bind(&self) -> bool {
        let over_nothing = matches!(&self.range.kind, ExprKind::List(items, _) if items.is_empty());
        let never = self.condition.as_literal() == Some(&Literal::Bool(false));
        over_nothing && never && self.accumulator != "__result__"
    }
}

/// The accumulator of macros. It is not a valid identifier, so expressions cannot refer to it.
pub const ACCUMULATOR: &str = "@result";

/// A literal.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// An unsigned 64-bit integer.
    Uint(u64),
    /// A 64-bit floating point number.
    Double(f64),
    /// A string.
    String(Str),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

impl Literal {
    /// The value of the literal.
    pub fn value<'a>(&self) -> Value<'a> {
        match self {
            Literal::Null => Value::Null,
            Literal::Bool(bool) => Value::Bool(*bool),
            Literal::Int(int) => Value::Int(*int),
            Literal::Uint(uint) => Value::Uint(*uint),
            Literal::Double(double) => Value::Double(*double),
            Literal::String(text) => Value::String(StringVal::Shared(text.clone())),
            Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
        }
    }

    /// The type of the literal.
    pub fn static_type(&self) -> Type {
        match self {
            Literal::Null => Type::Null,
            Literal::Bool(_) => Type::Bool,
            Literal::Int(_) => Type::Int,
            Literal::Uint(_) => Type::Uint,
            Literal::Double(_) => Type::Double,
            Literal::String(_) => Type::String,
            Literal::Bytes(_) => Type::Bytes,
        }
    }
}

impl Expr {
    /// The literal, if it is one.
    pub fn as_literal(&self) -> Option<&Literal> {
        match &self.kind {
            ExprKind::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// The identifier, if it is one.
    pub fn as_ident(&self) -> Option<&Str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// The call, if it is one.
    pub fn as_call(&self) -> Option<&CallExpr> {
        match &self.kind {
            ExprKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// The number of characters, bytes, items or entries of a literal.
    pub(super) fn literal_size(&self) -> Option<usize> {
        Some(match &self.kind {
            ExprKind::Literal(Literal::String(text)) => text.chars().count(),
            ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
            ExprKind::Literal(_) => 1,
            ExprKind::List(items, _) => items.len(),
            ExprKind::Map(entries) => entries.len(),
            _ => return None,
        })
    }

    /// The direct children.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
            ExprKind::Select(select) => vec![&select.operand],
            ExprKind::Call(call) => call.target.iter().chain(&call.arguments).collect(),
            ExprKind::List(items, _) => items.iter().collect(),
            ExprKind::Map(entries) => entries
                .iter()
                .flat_map(|entry| [&entry.key, &entry.value])
                .collect(),
            ExprKind::Struct(_, fields) => fields.iter().map(|field| &field.value).collect(),
            ExprKind::Comprehension(it) => {
                vec![&it.range, &it.init, &it.condition, &it.step, &it.result]
            }
        }
    }

    /// The direct children, mutable.
    pub(super) fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
            ExprKind::Select(select) => vec![&mut select.operand],
            ExprKind::Call(call) => call.target.iter_mut().chain(&mut call.arguments).collect(),
            ExprKind::List(items, _) => items.iter_mut().collect(),
            ExprKind::Map(entries) => entries
                .iter_mut()
                .flat_map(|entry| [&mut entry.key, &mut entry.value])
                .collect(),
            ExprKind::Struct(_, fields) => {
                fields.iter_mut().map(|field| &mut field.value).collect()
            }
            ExprKind::Comprehension(it) => {
                vec![
                    &mut it.range,
                    &mut it.init,
                    &mut it.condition,
                    &mut it.step,
                    &mut it.result,
                ]
            }
        }
    }
}
