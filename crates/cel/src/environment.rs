//! Which variables, types and functions can an expression use?

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use super::check;
use super::function::{Library, Macro, Overload, Version};
use super::parse::{self, CompileError};
use super::plan;
use super::program::Program;
use super::shape::{Form, Shape};
use super::types::Type;
use super::{library, standard};
use mizzen_value::Str;

/// What expressions can use. Cheap to clone and to extend.
#[derive(Debug, Clone)]
pub struct Environment {
    base: Arc<Base>,
    variables: HashMap<Str, Type>,
    objects: HashMap<Str, Arc<HashMap<Str, Type>>>,
    /// The name of a type that has any field, and so have all types below it.
    open: Option<Str>,
}

/// What comes from libraries.
#[derive(Debug, Clone, Default)]
struct Base {
    functions: HashMap<&'static str, Vec<Arc<Overload>>>,
    macros: Vec<Macro>,
    types: HashMap<Str, Type>,
}

/// The name, in an object type, of all fields that have none.
pub const ANY_OTHER: &str = "*";

/// Why there is no program for a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefuseError {
    /// The text is no expression, or its types do not fit.
    #[error("{0}")]
    Compile(#[from] CompileError),
    /// It is an expression, but a constant in it has no value.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

impl Environment {
    /// The environment of a Kubernetes version: the language and the libraries it had.
    pub fn new(version: Version) -> Environment {
        static BASES: OnceLock<parking_lot::Mutex<BTreeMap<Version, Arc<Base>>>> = OnceLock::new();
        let mut bases = BASES.get_or_init(Default::default).lock();
        let base = bases
            .entry(version)
            .or_insert_with(|| Arc::new(Base::new(version)));
        Environment {
            base: base.clone(),
            variables: HashMap::new(),
            objects: HashMap::new(),
            open: None,
        }
    }

    /// With a variable.
    pub fn with_variable(mut self, name: &str, kind: Type) -> Environment {
        self.variables.insert(name.into(), kind);
        self
    }

    /// With `cel.bind`, which names a value.
    pub fn with_bindings(mut self) -> Environment {
        Arc::make_mut(&mut self.base).macros.push(parse::bindings());
        self
    }

    /// With an object type and its fields. [`ANY_OTHER`] stands for all that are not named.
    pub fn with_object(
        self,
        name: &str,
        fields: impl IntoIterator<Item = (Str, Type)>,
    ) -> Environment {
        self.with_fields(name, Arc::new(fields.into_iter().collect()))
    }

    /// The same with fields that are shared.
    pub fn with_fields(mut self, name: &str, fields: Arc<HashMap<Str, Type>>) -> Environment {
        self.objects.insert(name.into(), fields);
        self
    }

    /// With an object type that has any field, and so have all types below it: `Object`, `Object.spec`.
    pub fn with_open_object(mut self, name: &str) -> Environment {
        self.open = Some(name.into());
        self
    }

    /// With every object type in a shape.
    pub fn with_shape(mut self, shape: &Shape) -> Environment {
        match &shape.form {
            Form::List(inner, _) | Form::Map(inner) => return self.with_shape(inner),
            Form::Object(name, fields) => {
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

    /// With another library.
    pub fn with_library(mut self, library: Library) -> Environment {
        Arc::make_mut(&mut self.base).add(library);
        self
    }

    /// Reads, checks and plans an expression.
    pub fn compile(&self, text: &str) -> Result<Program, RefuseError> {
        self.compile_with(text, true)
    }

    /// Like [`Environment::compile`]; `fold` says whether constants are computed beforehand.
    pub(crate) fn compile_with(&self, text: &str, fold: bool) -> Result<Program, RefuseError> {
        let parsed = parse::parse(text, &self.base.macros)?;
        let checked =
            check::check(parsed, self).map_err(|issues| CompileError::new(text, issues))?;
        let plan =
            plan::plan(&checked, fold).map_err(|error| RefuseError::Program(error.to_string()))?;
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

impl Base {
    fn new(version: Version) -> Base {
        let mut base = Base::default();
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
