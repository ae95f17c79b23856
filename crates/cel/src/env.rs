//! The environment: the variables, types, functions and macros that expressions can use.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use super::ast::Expr;
use super::checker;
use super::decl_type::{DeclForm, DeclType};
use super::function::{Library, Macro, Overload, Version};
use super::parser::{self, CompileError};
use super::planner;
use super::program::Program;
use super::types::Type;
use super::{library, standard};
use mizzen_value::Str;

/// The environment in which expressions are compiled. Cheap to clone and to extend.
#[derive(Debug, Clone)]
pub struct Environment {
    base: Arc<LibrarySet>,
    variables: HashMap<Str, Type>,
    objects: HashMap<Str, Arc<HashMap<Str, Type>>>,
    /// The name of an object type that has any field; so have all types below it.
    open: Option<Str>,
}

/// The declarations of the libraries.
#[derive(Debug, Clone, Default)]
struct LibrarySet {
    functions: HashMap<&'static str, Vec<Arc<Overload>>>,
    macros: Vec<Macro>,
    types: HashMap<Str, Type>,
}

/// The name, in an object type, for all fields that are not declared.
pub const ANY_OTHER: &str = "*";

/// Why an expression cannot be compiled to a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileProgramError {
    /// A syntax or type error.
    #[error("{0}")]
    Compile(#[from] CompileError),
    /// The evaluation of a constant failed.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

impl Environment {
    /// The environment of a Kubernetes version: the language and the libraries that it has.
    pub fn new(version: Version) -> Environment {
        static BASES: OnceLock<parking_lot::Mutex<BTreeMap<Version, Arc<LibrarySet>>>> =
            OnceLock::new();
        let mut bases = BASES.get_or_init(Default::default).lock();
        let base = bases
            .entry(version)
            .or_insert_with(|| Arc::new(LibrarySet::new(version)));
        Environment {
            base: base.clone(),
            variables: HashMap::new(),
            objects: HashMap::new(),
            open: None,
        }
    }

    /// Declares a variable.
    pub fn with_variable(mut self, name: &str, kind: Type) -> Environment {
        self.variables.insert(name.into(), kind);
        self
    }

    /// Enables the macro `cel.bind`.
    pub fn with_bindings(mut self) -> Environment {
        Arc::make_mut(&mut self.base)
            .macros
            .push(parser::bindings());
        self
    }

    /// Declares an object type and its fields. [`ANY_OTHER`] stands for all fields that are not
    /// declared.
    pub fn with_object(
        self,
        name: &str,
        fields: impl IntoIterator<Item = (Str, Type)>,
    ) -> Environment {
        self.with_fields(name, Arc::new(fields.into_iter().collect()))
    }

    /// Like [`Environment::with_object`], with shared fields.
    pub fn with_fields(mut self, name: &str, fields: Arc<HashMap<Str, Type>>) -> Environment {
        self.objects.insert(name.into(), fields);
        self
    }

    /// Declares an object type that has any field, and so have all types below it: `Object`,
    /// `Object.spec`.
    pub fn with_open_object(mut self, name: &str) -> Environment {
        self.open = Some(name.into());
        self
    }

    /// Declares every object type in a [`DeclType`].
    pub fn with_shape(mut self, shape: &DeclType) -> Environment {
        match &shape.form {
            DeclForm::List(inner, _) | DeclForm::Map(inner) => return self.with_shape(inner),
            DeclForm::Object(name, fields) => {
                let kinds = fields
                    .iter()
                    .map(|(key, field)| (key.clone(), field.shape.static_type()));
                self = self.with_object(name, kinds.collect::<Vec<_>>());
                for field in fields.values() {
                    self = self.with_shape(&field.shape);
                }
            }
            _ => {}
        }
        self
    }

    /// Adds a library.
    pub fn with_library(mut self, library: Library) -> Environment {
        Arc::make_mut(&mut self.base).add(library);
        self
    }

    /// Parses an expression and expands its macros, without checking it.
    pub fn parse(&self, text: &str) -> Result<Expr, CompileError> {
        Ok(parser::parse(text, &self.base.macros)?.expr)
    }

    /// Parses, checks and plans an expression.
    pub fn compile(&self, text: &str) -> Result<Program, CompileProgramError> {
        self.compile_with(text, true)
    }

    /// Like [`Environment::compile`]; `fold` enables constant folding.
    pub(crate) fn compile_with(
        &self,
        text: &str,
        fold: bool,
    ) -> Result<Program, CompileProgramError> {
        let parsed = parser::parse(text, &self.base.macros)?;
        let checked =
            checker::check(parsed, self).map_err(|issues| CompileError::new(text, issues))?;
        let plan = planner::plan(&checked, fold)
            .map_err(|error| CompileProgramError::Program(error.to_string()))?;
        Ok(Program::new(checked, plan))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn object(&self, name: &str) -> Option<&HashMap<Str, Type>> {
        self.objects.get(name).map(|fields| &**fields)
    }

    /// Whether an object type has any field.
    pub(crate) fn is_open(&self, name: &str) -> bool {
        let below = self
            .open
            .as_ref()
            .and_then(|open| name.strip_prefix(open.as_str()));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    pub(crate) fn type_named(&self, name: &str) -> Option<Type> {
        let known = self.objects.contains_key(name) || self.is_open(name);
        let declared = known.then(|| Type::object(name));
        declared.or_else(|| self.base.types.get(name).cloned())
    }

    pub(crate) fn function(&self, name: &str) -> Option<&[Arc<Overload>]> {
        self.base.functions.get(name).map(Vec::as_slice)
    }
}

impl LibrarySet {
    fn new(version: Version) -> LibrarySet {
        let mut base = LibrarySet::default();
        let libraries = standard::libraries()
            .into_iter()
            .chain(library::libraries());
        libraries
            .filter(|library| library.since <= version)
            .for_each(|library| base.add(library));
        base
    }

    fn add(&mut self, library: Library) {
        for function in library.functions {
            let overloads = self.functions.entry(function.name).or_default();
            for overload in function.overloads {
                overloads.retain(|known| known.id != overload.id);
                overloads.push(Arc::new(overload));
            }
        }
        self.macros.extend(library.macros);
        self.types
            .extend(library.types.into_iter().map(|kind| (kind.name(), kind)));
    }
}
