//! What does an expression consist of?

use std::sync::Arc;

use super::value::{Text, Value};
use mizzen_value::Str;

/// A number that is unique in one expression; positions and types are kept by it.
pub type Id = u32;

/// A node of the syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Its number.
    pub id: Id,
    /// What it is.
    pub kind: ExprKind,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A literal.
    Literal(Literal),
    /// A name; it begins with a dot if it was written so.
    Ident(Str),
    /// `operand.field`, or `has(operand.field)` if `test`.
    Select(Box<Select>),
    /// A function or an operator.
    Call(Box<Call>),
    /// `[a, ?b]`; the numbers of the optional items.
    List(Vec<Expr>, Vec<usize>),
    /// `{k: v, ?k: v}`.
    Map(Vec<Entry>),
    /// `Name{field: v}`.
    Struct(Str, Vec<FieldEntry>),
    /// What macros expand to.
    Comprehension(Box<Comprehension>),
}

/// `operand.field`.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// What is looked into.
    pub operand: Expr,
    /// The name of the field.
    pub field: Str,
    /// Whether only its presence is asked for.
    pub test: bool,
}

/// A call of a function or an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its name; operators have names like `_+_`.
    pub function: Str,
    /// What it is called on, if it is called on something.
    pub target: Option<Expr>,
    /// Its arguments.
    pub arguments: Vec<Expr>,
}

/// An entry of a map literal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its number.
    pub id: Id,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether it was written with `?`: the value is an optional, and there is no entry without it.
    pub optional: bool,
}

/// A field of an object literal.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldEntry {
    /// Its number.
    pub id: Id,
    /// Its name.
    pub name: Str,
    /// Its value.
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A loop: for each item of `range`, while `condition`, `accumulator = step`; then `result`.
#[derive(Debug, Clone, PartialEq)]
pub struct Comprehension {
    /// What is gone through.
    pub range: Expr,
    /// The name of the item, or of the key if there is a second name.
    pub variable: Str,
    /// The name of the value.
    pub second: Option<Str>,
    /// The name of what is accumulated.
    pub accumulator: Str,
    /// Its first value.
    pub init: Expr,
    /// Asked before each step.
    pub condition: Expr,
    /// Its next value.
    pub step: Expr,
    /// The value of the whole.
    pub result: Expr,
}

/// The name under which macros accumulate; nobody can write it.
pub const ACCUMULATOR: &str = "@result";

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed whole number.
    Int(i64),
    /// An unsigned whole number.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// Text.
    String(Str),
    /// Octets.
    Bytes(Arc<[u8]>),
}

impl Literal {
    /// The value that it denotes.
    pub fn value<'a>(&self) -> Value<'a> {
        match self {
            Literal::Null => Value::Null,
            Literal::Bool(bool) => Value::Bool(*bool),
            Literal::Int(int) => Value::Int(*int),
            Literal::Uint(uint) => Value::Uint(*uint),
            Literal::Double(double) => Value::Double(*double),
            Literal::String(text) => Value::String(Text::Shared(text.clone())),
            Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
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

    /// The name, if it is nothing but a name.
    pub fn as_ident(&self) -> Option<&Str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// The call, if it is one.
    pub fn as_call(&self) -> Option<&Call> {
        match &self.kind {
            ExprKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// The nodes directly below.
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

    /// The nodes directly below, to be changed.
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
