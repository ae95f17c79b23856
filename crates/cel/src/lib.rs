//! The Common Expression Language (CEL) with Kubernetes' libraries.
//!
//! Kubernetes uses CEL for validation rules, admission policies, match conditions and device
//! selectors. This crate follows cel-go and the libraries of k8s.io/apiserver: the same types, the
//! same errors, the same costs.
//!
//! An [`Environment`] declares variables and types. It compiles an expression to a [`Program`],
//! which has a type and an estimated cost, and can be evaluated any number of times:
//!
//! ```
//! use mizzen_cel::{Environment, EvalLimits, Type, UnknownSizes, Value};
//! use mizzen_value::json;
//!
//! let env = Environment::new((1, 36)).with_variable("object", Type::Dyn);
//!
//! // Parse: the abstract syntax tree, with macros expanded.
//! let expr = env.parse("object.spec.replicas <= 5").unwrap();
//! assert_eq!(expr.as_call().unwrap().function, "_<=_");
//!
//! // Check: an error has a position; a program has a type.
//! let error = env.compile("objekt.spec").unwrap_err();
//! assert!(error.to_string().contains("undeclared reference to 'objekt'"));
//! let program = env.compile("object.spec.replicas <= 5").unwrap();
//! assert_eq!(program.result_type(), &Type::Bool);
//!
//! // Cost: an estimate before the evaluation.
//! assert!(program.estimate(&UnknownSizes).max > 0);
//!
//! // Evaluate over a JSON value, with a cost limit.
//! let deployment = json::parse(br#"{"spec": {"replicas": 3}}"#).unwrap();
//! let activation = [("object", Value::data(&deployment))];
//! let result = program.evaluate(&activation, EvalLimits::cost(1_000_000));
//! assert_eq!(result.value.unwrap().as_bool(), Some(true));
//! assert!(result.cost > 0);
//! ```
//!
//! Data with a schema is declared as a [`DeclType`] ([`Environment::with_shape`]) and converted by
//! [`Value::shaped`]; then the checker knows its fields, and timestamps, durations and sets have
//! their own types.
//!
//! # Modules
//!
//! - `parser`: lexer, recursive descent parser, macros, and ANTLR's error messages.
//! - [`ast`]: the abstract syntax tree.
//! - `checker`: infers types and resolves overloads.
//! - `planner` and `interpreter`: a checked expression becomes a tree of interpretables, which is
//!   evaluated with runtime costs.
//! - `estimate` and `cost_estimator`: costs before the evaluation.
//! - `decl_type`: how JSON data is converted to values.
//! - `standard` and [`library`]: the functions of the language, and the extension libraries.
//!
//! # Adding a library
//!
//! A [`Library`] has a name, the Kubernetes version that introduced it, and functions. A function
//! has overloads; an [`Overload`] has an ID, parameter types (the target first if it is a
//! [`member`](Overload::member)), a result type, and an implementation:
//!
//! ```
//! use mizzen_cel::{CallSite, Environment, EvalError, Function, Library, Outcome, Overload, Type, Value};
//!
//! fn shout<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
//!     let [Value::String(text)] = arguments else {
//!         return Err(EvalError::no_such_overload());
//!     };
//!     Ok(text.to_uppercase().into())
//! }
//!
//! let overload = Overload::member("string_shout", vec![Type::String], Type::String, shout);
//! let library = Library::new("example", (1, 29), vec![Function::new("shout", vec![overload])]);
//! let program = Environment::new((1, 36)).with_library(library).compile("'hi'.shout()").unwrap();
//! assert_eq!(program.result_type(), &Type::String);
//! ```
//!
//! A value of a library type implements [`Opaque`]; its static type is [`Type::object`] or
//! [`Type::opaque`], whichever upstream declares. An overload with a regular expression declares
//! which argument it is ([`Overload::with_pattern`]) and gets the compiled form from its
//! [`CallSite`]. [`Overload::costs`] sets costs other than 1. Macros get an [`ExprFactory`].
//!
//! Invariant: no I/O, no clock, no randomness.

pub mod ast;
mod checker;
mod cost_estimator;
mod data;
mod decl_type;
mod env;
mod escape;
mod estimate;
mod function;
mod interpreter;
pub mod library;
mod parser;
mod planner;
mod program;
mod standard;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use decl_type::{DeclField, DeclForm, DeclType, ListSemantics};
pub use env::{ANY_OTHER, CompileProgramError, Environment};
pub use escape::{escape, is_identifier};
pub use estimate::{
    AstNode, CallEstimate, CostRange, LIST, MAP, REGEX, STRUCT, SizeEstimator, TRAVERSAL,
    UnknownSizes, scale,
};
pub use function::{
    CallSite, CostEstimateFn, ExprFactory, Function, Library, Macro, MacroError, MacroExpander,
    Overload, OverloadFn, RuntimeCost, Sizing, Version,
};
pub use interpreter::{Activation, EvalLimits, EvalResult};
pub use parser::{CompileError, Issue};
pub use program::Program;
pub use types::{OPTIONAL, Type};
pub use value::{
    Entries, EvalError, Lazy, LazyFields, ListVal, MapKey, MapVal, Opaque, Outcome, StringVal,
    Value,
};
