//! Declarations of libraries: functions with their overloads, macros and types.

use std::sync::Arc;

use super::ast::{CallExpr, Comprehension, Expr, ExprKind, Id, Literal};
use super::estimate::{AstNode, CallEstimate, SizeEstimator};
use super::types::Type;
use super::value::{Outcome, Value};
use mizzen_go_regexp::Regexp;

/// A Kubernetes minor version: `(1, 29)`.
pub type Version = (u16, u16);

/// A set of functions, macros and types.
#[derive(Debug, Clone)]
pub struct Library {
    /// The name, for documentation.
    pub name: &'static str,
    /// The first Kubernetes version that has it.
    pub since: Version,
    /// The functions. Overloads are added to a function that another library declares, too.
    pub functions: Vec<Function>,
    /// Its macros.
    pub macros: Vec<Macro>,
    /// Types that an expression can name, as in `type(x) == net.IP`.
    pub types: Vec<Type>,
}

impl Library {
    /// A library with functions only.
    pub fn new(name: &'static str, since: Version, functions: Vec<Function>) -> Library {
        Library {
            name,
            since,
            functions,
            macros: Vec::new(),
            types: Vec::new(),
        }
    }

    /// Adds macros.
    pub fn with_macros(self, macros: Vec<Macro>) -> Library {
        Library { macros, ..self }
    }

    /// Adds types that can be named.
    pub fn with_types(self, types: Vec<Type>) -> Library {
        Library { types, ..self }
    }
}

/// Declares a function.
#[derive(Debug, Clone)]
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The overloads. Their signatures must not collide.
    pub overloads: Vec<Overload>,
}

impl Function {
    /// A function with its overloads.
    pub fn new(name: &'static str, overloads: Vec<Overload>) -> Function {
        Function { name, overloads }
    }
}

/// An implementation of a function for certain parameter types.
#[derive(Debug, Clone)]
pub struct Overload {
    /// The overload ID, unique among all functions.
    pub id: &'static str,
    /// Whether it is a member function, called on its first argument.
    pub member: bool,
    /// The parameter types, the target first.
    pub parameters: Vec<Type>,
    /// The result type.
    pub result: Type,
    /// The implementation.
    pub run: OverloadFn,
    /// The runtime cost of a call; `None` means 1.
    pub cost: Option<RuntimeCost>,
    /// The estimated cost of a call; `None` means 1.
    pub estimate: Option<CostEstimateFn>,
    /// The argument that is a regular expression: it is compiled once if it is a literal.
    pub pattern: Option<usize>,
}

/// Computes the result. Arguments have the declared types, except for type parameters and `dyn`:
/// return [`EvalError::no_such_overload`](super::EvalError::no_such_overload) for any other value.
pub type OverloadFn = for<'a> fn(&CallSite, &[Value<'a>]) -> Outcome<'a>;

/// The runtime cost of a call, from its arguments and its result.
pub type RuntimeCost = fn(&[Value], &Value) -> u64;

/// The estimated cost of a call, from its target and arguments. `None` means 1.
pub type CostEstimateFn = fn(&Sizing, Option<&AstNode>, &[AstNode]) -> Option<CallEstimate>;

impl Overload {
    /// A global function: `name(first, ..)`.
    pub fn global(
        id: &'static str,
        parameters: Vec<Type>,
        result: Type,
        run: OverloadFn,
    ) -> Overload {
        Overload {
            id,
            member: false,
            parameters,
            result,
            run,
            cost: None,
            estimate: None,
            pattern: None,
        }
    }

    /// A member function: `first.name(..)`.
    pub fn member(
        id: &'static str,
        parameters: Vec<Type>,
        result: Type,
        run: OverloadFn,
    ) -> Overload {
        Overload {
            member: true,
            ..Overload::global(id, parameters, result, run)
        }
    }

    /// Sets the runtime cost and the estimated cost.
    pub fn costs(self, cost: RuntimeCost, estimate: CostEstimateFn) -> Overload {
        Overload {
            cost: Some(cost),
            estimate: Some(estimate),
            ..self
        }
    }

    /// Declares argument number `argument` as a regular expression; the target is 0.
    pub fn with_pattern(self, argument: usize) -> Overload {
        Overload {
            pattern: Some(argument),
            ..self
        }
    }
}

/// The state of a call that is prepared once, when the expression is planned.
#[derive(Debug, Clone, Default)]
pub struct CallSite {
    pub(super) pattern: Option<Arc<Regexp>>,
}

impl CallSite {
    /// The regular expression of a pattern: prepared if it is a literal argument of
    /// [`Overload::with_pattern`].
    pub fn regexp(&self, pattern: &str) -> Arc<Regexp> {
        match &self.pattern {
            Some(known) if known.pattern() == pattern => known.clone(),
            _ => Regexp::recent(pattern),
        }
    }
}

/// The sizes that a [`CostEstimateFn`] can use.
pub struct Sizing<'a>(pub(super) &'a dyn SizeEstimator);

/// A macro: a call that is replaced by its expansion before types are checked.
#[derive(Debug, Clone)]
pub struct Macro {
    /// The name of the macro.
    pub name: &'static str,
    /// Whether it is called on a target.
    pub member: bool,
    /// The number of arguments; `None` means any.
    pub arity: Option<usize>,
    /// Computes the expansion.
    pub expand: MacroExpander,
}

/// Expands a macro. `Ok(None)` leaves the call as it is.
pub type MacroExpander =
    fn(&mut dyn ExprFactory, Option<&Expr>, &[Expr]) -> Result<Option<Expr>, MacroError>;

/// Why a macro cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroError {
    /// The node that is reported.
    pub at: Id,
    /// The message.
    pub message: String,
}

impl MacroError {
    /// An error at a node.
    pub fn new(at: &Expr, message: impl Into<String>) -> MacroError {
        MacroError {
            at: at.id,
            message: message.into(),
        }
    }
}

/// Creates nodes for macros. Each gets a new ID and the position of the macro.
pub trait ExprFactory {
    /// Creates a node.
    fn node(&mut self, kind: ExprKind) -> Expr;

    /// Copies a tree with new IDs and the original positions.
    fn copy(&mut self, expr: &Expr) -> Expr;
}

impl dyn ExprFactory + '_ {
    /// Creates an identifier.
    pub fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    /// Creates a reference to the accumulator.
    pub fn accumulator(&mut self) -> Expr {
        self.ident(super::ast::ACCUMULATOR)
    }

    /// Creates a literal.
    pub fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    /// Creates a list.
    pub fn list(&mut self, items: Vec<Expr>) -> Expr {
        self.node(ExprKind::List(items, Vec::new()))
    }

    /// Creates a call of a function or of an operator such as `_+_`.
    pub fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call(Box::new(CallExpr {
            function: function.into(),
            target: None,
            arguments,
        })))
    }

    /// Creates a member call.
    pub fn member_call(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        let call = CallExpr {
            function: function.into(),
            target: Some(target),
            arguments,
        };
        self.node(ExprKind::Call(Box::new(call)))
    }

    /// Creates a comprehension.
    pub fn comprehension(&mut self, comprehension: Comprehension) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(comprehension)))
    }
}
