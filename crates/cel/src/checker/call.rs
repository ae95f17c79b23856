//! Overload resolution.

use std::sync::Arc;

use super::substitutions::Substitutions;
use super::{ReferenceInfo, TypeChecker, qualified_name};
use crate::ast::{Expr, ExprKind, Literal};
use crate::function::Overload;
use crate::types::Type;
use mizzen_value::Str;

/// The checked operands of a call.
struct Operands {
    /// Whether the first one is the target of a member call.
    member: bool,
    kinds: Vec<Type>,
    ids: Vec<u32>,
}

impl TypeChecker<'_> {
    pub(super) fn call(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else {
            return Type::Error;
        };
        if &call.function == "_?._" {
            return self.optional_field(expr);
        }
        let mut kinds: Vec<Type> = call
            .arguments
            .iter_mut()
            .map(|argument| self.check(argument))
            .collect();
        if let Some(target) = &mut call.target {
            let name = qualified_name(target).map(|prefix| format!("{prefix}.{}", call.function));
            let function =
                name.and_then(|name| self.environment.function(&name).map(|found| (name, found)));
            if let Some((name, overloads)) = function {
                // The target is the namespace of a function.
                call.target = None;
                call.function = name.into();
                let ids = call.arguments.iter().map(|argument| argument.id).collect();
                let (name, member) = (call.function.clone(), false);
                let operands = Operands { member, kinds, ids };
                return self.resolve(id, &name, overloads, operands);
            }
            kinds.insert(0, self.check(target));
        }
        let member = call.target.is_some();
        let name = match member {
            true => call.function.clone(),
            false => Str::from(call.function.strip_prefix('.').unwrap_or(&call.function)),
        };
        let ids: Vec<_> = call
            .target
            .iter()
            .chain(&call.arguments)
            .map(|argument| argument.id)
            .collect();
        match self.environment.function(&name) {
            Some(overloads) => {
                call.function = name.clone();
                self.resolve(id, &name, overloads, Operands { member, kinds, ids })
            }
            None => {
                let written = call.function.clone();
                self.undeclared(id, &written)
            }
        }
    }

    fn optional_field(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else {
            return Type::Error;
        };
        let [operand, field] = &mut call.arguments[..] else {
            return Type::Error;
        };
        let Some(Literal::String(field)) = field.as_literal().cloned() else {
            return Type::Error;
        };
        let kind = self.field(id, operand, &field, true);
        self.references
            .insert(id, ReferenceInfo::Overloads(Vec::new()));
        self.bindings.resolve(&kind, false)
    }

    fn resolve(
        &mut self,
        id: u32,
        name: &str,
        overloads: &[Arc<Overload>],
        operands: Operands,
    ) -> Type {
        let Operands { member, kinds, ids } = operands;
        if matches!(name, "_&&_" | "_||_") {
            return self.logical(id, overloads, &kinds, &ids);
        }
        let (mut matching, mut result) = (Vec::new(), None);
        for overload in overloads
            .iter()
            .filter(|overload| overload.member == member)
        {
            let (parameters, yields) = self.instantiate(overload);
            if !self.bindings.assign_all(&kinds, &parameters) {
                continue;
            }
            matching.push(overload.clone());
            let yields = self.bindings.resolve(&yields, false);
            result = Some(match result {
                None => yields,
                Some(previous) if previous == yields => previous,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(kind) => {
                self.references
                    .insert(id, ReferenceInfo::Overloads(matching));
                kind
            }
            None => self.no_overload(id, name, &kinds, member),
        }
    }

    fn logical(
        &mut self,
        id: u32,
        overloads: &[Arc<Overload>],
        kinds: &[Type],
        ids: &[u32],
    ) -> Type {
        let mut fits = true;
        for (kind, id) in kinds.iter().zip(ids) {
            if !self.bindings.assign(kind, &Type::Bool) {
                self.mismatch(*id, &Type::Bool, kind);
                fits = false;
            }
        }
        self.references
            .insert(id, ReferenceInfo::Overloads(overloads.to_vec()));
        if fits { Type::Bool } else { Type::Error }
    }

    /// The types of an overload with fresh type variables for its parameters.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut names = Vec::new();
        overload
            .parameters
            .iter()
            .chain([&overload.result])
            .for_each(|kind| collect_parameters(kind, &mut names));
        if names.is_empty() {
            return (overload.parameters.clone(), overload.result.clone());
        }
        let mut fresh = Substitutions::default();
        for name in names {
            let open = self.open();
            fresh.bind(name, open);
        }
        let parameters = overload
            .parameters
            .iter()
            .map(|kind| fresh.resolve(kind, false))
            .collect();
        (parameters, fresh.resolve(&overload.result, false))
    }

    fn no_overload(&mut self, id: u32, name: &str, kinds: &[Type], member: bool) -> Type {
        let kinds: Vec<String> = kinds
            .iter()
            .map(|kind| self.bindings.resolve(kind, true).to_string())
            .collect();
        let signature = match (member, kinds.split_first()) {
            (true, Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", kinds.join(", ")),
        };
        self.report(
            id,
            format!("found no matching overload for '{name}' applied to '{signature}'"),
        );
        Type::Error
    }
}

/// Collects the names of the type parameters in a type.
fn collect_parameters(kind: &Type, names: &mut Vec<Str>) {
    match kind {
        Type::Parameter(name) if !names.contains(name) => names.push(name.clone()),
        _ => kind
            .parameters()
            .into_iter()
            .for_each(|part| collect_parameters(part, names)),
    }
}
