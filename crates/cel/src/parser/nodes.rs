//! Creation of nodes with IDs and positions, and macro expansion.

use super::{CelParser, Issue};
use crate::ast::{CallExpr, Expr, ExprKind, Id, Literal};
use crate::function::ExprFactory;
use mizzen_value::Str;

impl CelParser<'_> {
    pub(super) fn call_or_macro(
        &mut self,
        id: Id,
        name: Str,
        target: Option<Expr>,
        arguments: Vec<Expr>,
    ) -> Expr {
        let member = target
            .as_ref()
            .map_or(0, |target| self.heights[target.id as usize]);
        let height = self.highest(&arguments).max(member) + u32::from(target.is_some());
        let expr = self.expand(id, name, target, arguments);
        self.heights[expr.id as usize] = height;
        expr
    }

    fn expand(&mut self, id: Id, name: Str, target: Option<Expr>, arguments: Vec<Expr>) -> Expr {
        let found = self.macros.iter().rev().find(|it| {
            it.name == name
                && it.member == target.is_some()
                && it.arity.is_none_or(|n| n == arguments.len())
        });
        if let Some(found) = found {
            self.macro_at = self.positions[id as usize];
            match (found.expand)(self, target.as_ref(), &arguments) {
                Ok(Some(expr)) => return expr,
                Ok(None) => {}
                Err(error) => {
                    let at = self
                        .positions
                        .get(error.at as usize)
                        .copied()
                        .unwrap_or_default();
                    return self.refuse(at as usize, error.message);
                }
            }
        }
        Expr {
            id,
            kind: ExprKind::Call(Box::new(CallExpr {
                function: name,
                target,
                arguments,
            })),
        }
    }

    pub(super) fn refuse(&mut self, at: usize, message: impl Into<String>) -> Expr {
        self.report(at, message);
        self.node_at(at, ExprKind::Literal(Literal::Null))
    }

    pub(super) fn report(&mut self, at: usize, message: impl Into<String>) {
        self.issues.push(Issue::new(at, message));
    }

    /// A call that counts towards the nesting depth.
    pub(super) fn counted(&mut self, id: Id, function: &str, arguments: Vec<Expr>) -> Expr {
        self.heights[id as usize] = self.highest(&arguments) + 1;
        call(id, function, arguments)
    }

    pub(super) fn highest<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> u32 {
        exprs
            .into_iter()
            .map(|expr| self.heights[expr.id as usize])
            .max()
            .unwrap_or_default()
    }

    pub(super) fn id_at(&mut self, at: usize) -> Id {
        self.heights.push(0);
        self.positions.push(at as u32);
        (self.positions.len() - 1) as Id
    }

    pub(super) fn node_at(&mut self, at: usize, kind: ExprKind) -> Expr {
        Expr {
            id: self.id_at(at),
            kind,
        }
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.id_at(self.positions[expr.id as usize] as usize);
        expr.children_mut()
            .into_iter()
            .for_each(|child| self.renumber(child));
    }
}

impl ExprFactory for CelParser<'_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        self.node_at(self.macro_at as usize, kind)
    }

    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }
}

/// A call without a target.
pub(super) fn call(id: Id, function: &str, arguments: Vec<Expr>) -> Expr {
    Expr {
        id,
        kind: ExprKind::Call(Box::new(CallExpr {
            function: function.into(),
            target: None,
            arguments,
        })),
    }
}
