//! What every API server knows of kinds, whichever it serves: the rules of CustomResourceDefinitions, and the expressions of
//! admission.
//!
//! [`definition`] defaults and validates CustomResourceDefinitions, [`expression`] compiles what policies and webhooks say in
//! CEL, [`type_check`] warns of expressions that do not fit the types of a kind. The other modules are shared with the built-in
//! kinds of `mizzen-kinds`.
//!
//! ```
//! use mizzen_apiextensions::expression::{ExpressionCompiler, ExpressionVariables, ExpressionResult};
//!
//! let program = ExpressionCompiler::default().compile("object.spec.replicas < 5", ExpressionVariables::default(), ExpressionResult::Bool);
//! assert!(program.is_ok());
//! ```

mod behaviour;
pub mod bytes;
pub mod client;
pub mod definition;
pub mod expression;
pub mod internal;
pub mod pem;
pub mod rules;
pub mod type_check;

pub use behaviour::{Behaviour, KindStrategy};
pub use definition::{approval_condition, structural_condition};
