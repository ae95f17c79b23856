//! The checker: infers the type of every node and resolves references to variables, types and
//! overloads.

mod call;
mod literals;
mod substitutions;

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Comprehension, Expr, ExprKind, FieldEntry, Id, Literal, MapEntry};
use super::env::{ANY_OTHER, Environment};
use super::escape::escape_reserved;
use super::function::Overload;
use super::parser::{Issue, Parsed};
use super::types::Type;
use mizzen_value::Str;
use substitutions::Substitutions;

#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expr: Expr,
    /// The type of each node.
    pub(crate) types: HashMap<Id, Type>,
    /// The references of identifiers and calls, by node.
    pub(crate) references: HashMap<Id, ReferenceInfo>,
}

/// The resolution of an identifier or a call.
#[derive(Debug, Clone)]
pub(crate) enum ReferenceInfo {
    /// A variable of the environment or of a comprehension.
    Variable(Str),
    /// A type as a value.
    Type(Str),
    /// The candidate overloads.
    Overloads(Vec<Arc<Overload>>),
}

impl Checked {
    /// The type of a node.
    pub(crate) fn kind(&self, id: Id) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }
}

/// Checks a parsed expression; returns all errors.
pub(crate) fn check(mut parsed: Parsed, environment: &Environment) -> Result<Checked, Vec<Issue>> {
    let mut expr = std::mem::replace(
        &mut parsed.expr,
        Expr {
            id: 0,
            kind: ExprKind::Literal(Literal::Null),
        },
    );
    let mut checker = TypeChecker {
        environment,
        parsed: &parsed,
        types: HashMap::new(),
        references: HashMap::new(),
        bindings: Substitutions::default(),
        scopes: Vec::new(),
        n_open: 0,
        issues: Vec::new(),
    };
    checker.check(&mut expr);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let bindings = checker.bindings;
    let types = checker
        .types
        .into_iter()
        .map(|(id, kind)| (id, bindings.resolve(&kind, true)))
        .collect();
    let checked = Checked {
        expr,
        types,
        references: checker.references,
    };
    let issues = literals::check(&checked, &parsed);
    if issues.is_empty() {
        Ok(checked)
    } else {
        Err(issues)
    }
}

struct TypeChecker<'a> {
    environment: &'a Environment,
    parsed: &'a Parsed,
    types: HashMap<Id, Type>,
    references: HashMap<Id, ReferenceInfo>,
    bindings: Substitutions,
    /// Variables of comprehensions, the innermost last.
    scopes: Vec<(Str, Type)>,
    n_open: usize,
    issues: Vec<Issue>,
}

impl TypeChecker<'_> {
    fn check(&mut self, expr: &mut Expr) -> Type {
        let kind = self.kind_of(expr);
        self.types.insert(expr.id, kind.clone());
        kind
    }

    fn kind_of(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        match &mut expr.kind {
            ExprKind::Literal(literal) => literal.static_type(),
            ExprKind::Ident(name) => self.ident(id, name),
            ExprKind::Select(_) => self.select(expr),
            ExprKind::Call(_) => self.call(expr),
            ExprKind::List(items, optional) => self.list(items, optional),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct(name, fields) => {
                let name = name.clone();
                self.construct(id, &name, fields)
            }
            ExprKind::Comprehension(it) => self.comprehension(it),
        }
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        self.name(id, name)
            .unwrap_or_else(|| self.undeclared(id, name))
    }

    fn map(&mut self, entries: &mut [MapEntry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check(&mut entry.key);
            keys = Some(self.join(keys, key));
            let value = self.check(&mut entry.value);
            let value = self.unwrap_optional(entry.value.id, value, entry.optional);
            values = Some(self.join(values, value));
        }
        let (keys, values) = (self.or_open(keys), self.or_open(values));
        Type::map(keys, values)
    }

    fn construct(&mut self, id: Id, name: &str, fields: &mut [FieldEntry]) -> Type {
        let Some(known) = self.name(id, name) else {
            return self.undeclared(id, name);
        };
        let object = self.object_type(id, &known);
        for field in fields {
            let value = self.check(&mut field.value);
            let value = self.unwrap_optional(field.value.id, value, field.optional);
            if let Some(object) = &object {
                self.check_field(object, field, &value);
            }
        }
        object.map_or(Type::Error, Type::Object)
    }

    fn check_field(&mut self, object: &str, field: &FieldEntry, value: &Type) {
        let kind = self.field_type(field.id, object, &field.name);
        if !self.bindings.assign(&kind, value) {
            let name = &field.name;
            let message = format!(
                "expected type of field '{name}' is '{kind}' but provided type is '{value}'"
            );
            self.report(field.id, message);
        }
    }

    /// The type of an identifier; `None` if it is not declared.
    fn name(&mut self, id: Id, name: &str) -> Option<Type> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        let variable = local
            .map(|(_, kind)| kind)
            .or_else(|| self.environment.variable(plain));
        if let Some(kind) = variable {
            let kind = kind.clone();
            self.references
                .insert(id, ReferenceInfo::Variable(plain.into()));
            return Some(kind);
        }
        let kind = self.environment.type_named(plain)?;
        self.references
            .insert(id, ReferenceInfo::Type(plain.into()));
        Some(Type::type_of(kind))
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.report(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
        Type::Error
    }

    fn select(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        if let Some(name) = qualified_name(expr)
            && let Some(kind) = self.name(id, &name)
        {
            expr.kind = ExprKind::Ident(name.into());
            return kind;
        }
        let ExprKind::Select(select) = &mut expr.kind else {
            return Type::Error;
        };
        let kind = self.field(id, &mut select.operand, &select.field, false);
        if select.test {
            Type::Bool
        } else {
            self.bindings.resolve(&kind, false)
        }
    }

    fn field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        let operand = self.check(operand);
        let operand = self.bindings.resolve(&operand, false);
        let (target, was_optional) = match operand.inside_optional() {
            Some(inside) => (inside.clone(), true),
            None => (operand, false),
        };
        let kind = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(name) => self.field_type(id, name, field),
            Type::Parameter(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            _ => {
                self.report(
                    id,
                    format!("type '{target}' does not support field selection"),
                );
                Type::Dyn
            }
        };
        if optional || was_optional {
            Type::optional(kind)
        } else {
            kind
        }
    }

    fn field_type(&mut self, id: Id, object: &str, field: &str) -> Type {
        if self.environment.is_open(object) {
            return Type::Dyn;
        }
        let Some(fields) = self.environment.object(object) else {
            self.report(id, format!("unexpected failed resolution of '{object}'"));
            return Type::Error;
        };
        let reserved = || fields.get(&escape_reserved(field)?);
        match fields
            .get(field)
            .or_else(reserved)
            .or_else(|| fields.get(ANY_OTHER))
        {
            Some(kind) => kind.clone(),
            None => {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }
        }
    }

    /// The name of the object type that an identifier denotes.
    fn object_type(&mut self, id: Id, known: &Type) -> Option<Str> {
        let message = match known {
            Type::Type(of) => match &**of {
                Type::Object(name) => return Some(name.clone()),
                other => format!("'{other}' is not a message type"),
            },
            other => format!("'{other}' is not a type"),
        };
        self.report(id, message);
        None
    }

    fn list(&mut self, items: &mut [Expr], optional: &[usize]) -> Type {
        let mut joined = None;
        for (index, item) in items.iter_mut().enumerate() {
            let kind = self.check(item);
            let kind = self.unwrap_optional(item.id, kind, optional.contains(&index));
            joined = Some(self.join(joined, kind));
        }
        Type::list(self.or_open(joined))
    }

    fn unwrap_optional(&mut self, id: Id, kind: Type, optional: bool) -> Type {
        match kind.inside_optional() {
            Some(inside) if optional => inside.clone(),
            None if optional && !kind.is_dyn() => {
                self.report(
                    id,
                    format!(
                        "expected type '{}' but found '{kind}'",
                        Type::optional(kind.clone())
                    ),
                );
                kind
            }
            _ => kind,
        }
    }

    /// The common type of items. Mixed types are reported by the literal validators.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.bindings.assign(&previous, &current) => {
                substitutions::most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn or_open(&mut self, kind: Option<Type>) -> Type {
        kind.unwrap_or_else(|| self.open())
    }

    /// A fresh type variable.
    fn open(&mut self) -> Type {
        self.n_open += 1;
        Type::Parameter(format!("_var{}", self.n_open - 1).into())
    }

    fn comprehension(&mut self, it: &mut Comprehension) -> Type {
        let range = self.check(&mut it.range);
        let range = self.bindings.resolve(&range, false);
        let accumulated = self.check(&mut it.init);
        let (first, second) = self.loop_types(it.range.id, &range, it.second.is_some());
        let depth = self.scopes.len();
        self.scopes
            .push((it.accumulator.clone(), accumulated.clone()));
        self.scopes.push((it.variable.clone(), first));
        self.scopes
            .extend(it.second.clone().map(|name| (name, second)));
        let condition = self.check(&mut it.condition);
        self.assert(it.condition.id, &Type::Bool, &condition);
        let step = self.check(&mut it.step);
        self.assert(it.step.id, &accumulated, &step);
        self.scopes.truncate(depth + 1);
        let result = self.check(&mut it.result);
        self.scopes.truncate(depth);
        self.bindings.resolve(&result, false)
    }

    fn loop_types(&mut self, id: Id, range: &Type, two: bool) -> (Type, Type) {
        match range {
            Type::List(items) if two => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Dyn),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Parameter(_) => {
                self.bindings.assign(&Type::Dyn, range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(id, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn assert(&mut self, id: Id, expected: &Type, found: &Type) {
        if !self.bindings.assign(expected, found) {
            self.mismatch(id, expected, found);
        }
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn report(&mut self, id: Id, message: String) {
        self.issues
            .push(Issue::new(self.parsed.position(id), message));
    }
}

/// The qualified name `a.b.c`, if the expression can be one.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select(select) if !select.test => Some(format!(
            "{}.{}",
            qualified_name(&select.operand)?,
            select.field
        )),
        _ => None,
    }
}
