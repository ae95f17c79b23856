//! What does an expression of the Common Expression Language mean, and what does it cost?
//!
//! `parse` makes a tree of the text, `check` finds the type of every node, `eval` computes the value and counts
//! what that costs, `estimate` says beforehand what it may cost. Kubernetes writes its validation rules,
//! admission policies and match conditions in this language, in the dialect of cel-go.
//!
//! # How to add a library
//!
//! A library is a function that returns a [`Library`]: a name, the Kubernetes version that introduced it, and
//! its functions. A function is a name with overloads; an overload has an id, the types of its parameters (the
//! target first if it is a [`member`](Overload::member)), the type of its result, and an implementation:
//!
//! ```text
//! pub fn library() -> Library {
//!     Library::new("kubernetes.example", (1, 29), vec![Function::new("shout", vec![
//!         Overload::member("string_shout", vec![Type::String], Type::String, shout)
//!             .costs(|arguments, _| scale(arguments[0].size(), TRAVERSAL), estimate),
//!     ])])
//! }
//!
//! fn shout<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
//!     let [Value::String(text)] = arguments else { return Err(EvalError::no_such_overload()) };
//!     Ok(text.to_uppercase().into())
//! }
//! ```
//!
//! A value of a type of its own implements [`Opaque`]; its static type is [`Type::object`] or [`Type::opaque`],
//! whichever upstream declares. An overload that takes a regular expression says which argument it is
//! ([`Overload::with_pattern`]) and asks its [`Site`] for the compiled form. Macros get an [`Expander`].
//! Then add the library to the list in `library/mod.rs`.

pub mod ast;
mod check;
mod cost;
mod data;
mod environment;
mod escape;
mod estimate;
mod eval;
mod function;
pub mod library;
mod parse;
mod plan;
mod program;
mod shape;
mod standard;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use environment::{ANY_OTHER, Environment, RefuseError};
pub use escape::{escape, is_identifier};
pub use estimate::{
    CallEstimate, LIST, MAP, NoSizes, Node, REGEX, Range, STRUCT, Sizes, TRAVERSAL, scale,
};
pub use eval::{Activation, Budget, Evaluation};
pub use function::{
    CostOf, Estimate, Expand, Expander, Function, Library, Macro, MacroError, Overload, Run, Site,
    Sizing, Version,
};
pub use parse::{CompileError, Issue};
pub use program::Program;
pub use shape::{Field, Form, Merge, Shape};
pub use types::{OPTIONAL, Type};
pub use value::{Entries, EvalError, Fields, Key, Lazy, List, Map, Opaque, Outcome, Text, Value};
