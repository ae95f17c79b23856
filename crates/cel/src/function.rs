//! How does a library say which functions, macros and types it has?

use std::sync::Arc;

use super::ast::{Call, Comprehension, Expr, ExprKind, Id, Literal};
use super::estimate::{CallEstimate, Node, Sizes};
use super::types::Type;
use super::value::{Outcome, Value};
use mizzen_go_regexp::Regexp;

/// A version of Kubernetes: `(1, 29)`.
pub type Version = (u16, u16);

/// Functions, macros and types that come together.
#[derive(Debug, Clone)]
pub struct Library {
    /// Its name, for people.
    pub name: &'static str,
    /// The Kubernetes version whose environment has it first.
    pub since: Version,
    /// Its functions; a function that another library has too gains overloads.
    pub functions: Vec<Function>,
    /// Its macros.
    pub macros: Vec<Macro>,
    /// Types that can be named in an expression, as in `type(x) == net.IP`.
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

    /// With macros.
    pub fn with_macros(self, macros: Vec<Macro>) -> Library {
        Library { macros, ..self }
    }

    /// With types that can be named.
    pub fn with_types(self, types: Vec<Type>) -> Library {
        Library { types, ..self }
    }
}

/// A function: what it does depends on the types of its arguments.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it can be called with; they must not collide.
    pub overloads: Vec<Overload>,
}

impl Function {
    /// A function with its overloads.
    pub fn new(name: &'static str, overloads: Vec<Overload>) -> Function {
        Function { name, overloads }
    }
}

/// What a function does with arguments of certain types.
#[derive(Debug, Clone)]
pub struct Overload {
    /// Its name, unique among all functions.
    pub id: &'static str,
    /// Whether it is called on its first argument.
    pub member: bool,
    /// The types of its arguments, the target first.
    pub parameters: Vec<Type>,
    /// The type of what it yields.
    pub result: Type,
    /// The implementation.
    pub run: Run,
    /// What a call did cost; `None` if always 1.
    pub cost: Option<CostOf>,
    /// What a call may cost at most; `None` if always 1.
    pub estimate: Option<Estimate>,
    /// The argument that is a regular expression: it is compiled once if it is a literal.
    pub pattern: Option<usize>,
}

/// Computes the result. The arguments have the declared types as far as the types are not parameters or `dyn`:
/// answer with [`EvalError::no_such_overload`](super::EvalError::no_such_overload) where they have not.
pub type Run = for<'a> fn(&Site, &[Value<'a>]) -> Outcome<'a>;

/// The cost of a call, from its arguments and its result.
pub type CostOf = fn(&[Value], &Value) -> u64;

/// The range of costs of a call before it runs, from its target and arguments. `None` means: cost 1.
pub type Estimate = fn(&Sizing, Option<&Node>, &[Node]) -> Option<CallEstimate>;

impl Overload {
    /// A function that is called as `name(first, ..)`.
    pub fn global(id: &'static str, parameters: Vec<Type>, result: Type, run: Run) -> Overload {
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

    /// A function that is called as `first.name(..)`.
    pub fn member(id: &'static str, parameters: Vec<Type>, result: Type, run: Run) -> Overload {
        Overload {
            member: true,
            ..Overload::global(id, parameters, result, run)
        }
    }

    /// With its costs: what a call did cost, and what one may cost.
    pub fn costs(self, cost: CostOf, estimate: Estimate) -> Overload {
        Overload {
            cost: Some(cost),
            estimate: Some(estimate),
            ..self
        }
    }

    /// With a regular expression as argument number `argument`, the target being 0.
    pub fn with_pattern(self, argument: usize) -> Overload {
        Overload {
            pattern: Some(argument),
            ..self
        }
    }
}

/// The place of a call in an expression, with what could be prepared for it.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub(super) pattern: Option<Arc<Regexp>>,
}

impl Site {
    /// The regular expression of a pattern: known, if the overload said where it has one and it is a literal.
    pub fn regexp(&self, pattern: &str) -> Arc<Regexp> {
        match &self.pattern {
            Some(known) if known.pattern() == pattern => known.clone(),
            _ => Regexp::recent(pattern),
        }
    }
}

/// What estimates of costs may ask for.
pub struct Sizing<'a>(pub(super) &'a dyn Sizes);

/// A macro: it is replaced by what it expands to before types are checked.
#[derive(Debug, Clone)]
pub struct Macro {
    /// Its name.
    pub name: &'static str,
    /// Whether it is called on something.
    pub member: bool,
    /// How many arguments it has; `None` if any number.
    pub arity: Option<usize>,
    /// What it becomes.
    pub expand: Expand,
}

/// Expands a macro. `Ok(None)` leaves the call as it is.
pub type Expand = fn(&mut dyn Expander, Option<&Expr>, &[Expr]) -> Result<Option<Expr>, MacroError>;

/// Why a macro cannot be expanded, and the node to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroError {
    /// The node.
    pub at: Id,
    /// The message.
    pub message: String,
}

impl MacroError {
    /// Blames a node.
    pub fn new(at: &Expr, message: impl Into<String>) -> MacroError {
        MacroError {
            at: at.id,
            message: message.into(),
        }
    }
}

/// Makes nodes for macros: each gets a number of its own, and the position of the macro.
pub trait Expander {
    /// A node.
    fn node(&mut self, kind: ExprKind) -> Expr;

    /// The same nodes with numbers of their own, where they were.
    fn copy(&mut self, expr: &Expr) -> Expr;
}

impl dyn Expander + '_ {
    /// A name.
    pub fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    /// What is accumulated.
    pub fn accumulator(&mut self) -> Expr {
        self.ident(super::ast::ACCUMULATOR)
    }

    /// A literal.
    pub fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    /// A list of items.
    pub fn list(&mut self, items: Vec<Expr>) -> Expr {
        self.node(ExprKind::List(items, Vec::new()))
    }

    /// A call of a function or an operator such as `_+_`.
    pub fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call(Box::new(Call {
            function: function.into(),
            target: None,
            arguments,
        })))
    }

    /// A call on a target.
    pub fn member_call(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        let call = Call {
            function: function.into(),
            target: Some(target),
            arguments,
        };
        self.node(ExprKind::Call(Box::new(call)))
    }

    /// A loop.
    pub fn comprehension(&mut self, comprehension: Comprehension) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(comprehension)))
    }
}
