//! Static types.

use std::fmt;
use std::sync::Arc;

use mizzen_value::Str;

/// A static type. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Any type; checked at run time.
    Dyn,
    /// `google.protobuf.Any`: like `dyn`, but it cannot be iterated over.
    Any,
    /// The type of an expression with an error. It is assignable to everything, so that one error
    /// is reported once.
    Error,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit floating point number.
    Double,
    /// A string.
    String,
    /// Bytes.
    Bytes,
    /// A duration.
    Duration,
    /// A timestamp.
    Timestamp,
    /// A list of items of one type.
    List(Arc<Type>),
    /// A map of keys of one type to values of another.
    Map(Arc<(Type, Type)>),
    /// A type as a value: the type of `type(x)`.
    Type(Arc<Type>),
    /// A wrapper type: a primitive or null.
    Nullable(Arc<Type>),
    /// An object type with declared fields, or an opaque one of a library.
    Object(Str),
    /// An abstract type, optionally with parameters.
    Opaque(Str, Arc<[Type]>),
    /// A type parameter of a declaration, or a type that is not inferred yet.
    Parameter(Str),
}

/// The name of the optional type.
pub const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of `items`.
    pub fn list(items: Type) -> Type {
        Type::List(Arc::new(items))
    }

    /// A map from `keys` to `values`.
    pub fn map(keys: Type, values: Type) -> Type {
        Type::Map(Arc::new((keys, values)))
    }

    /// An optional of a type.
    pub fn optional(of: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), [of].into())
    }

    /// A wrapper type.
    pub fn nullable(of: Type) -> Type {
        Type::Nullable(Arc::new(of))
    }

    /// An object type, by its name.
    pub fn object(name: &str) -> Type {
        Type::Object(name.into())
    }

    /// An abstract type without parameters, by its name.
    pub fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), [].into())
    }

    /// A type parameter.
    pub fn parameter(name: &str) -> Type {
        Type::Parameter(name.into())
    }

    /// The type of the type `of`.
    pub fn type_of(of: Type) -> Type {
        Type::Type(Arc::new(of))
    }

    /// The parameter of an optional type.
    pub fn inside_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// Whether it is dynamic.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    /// Whether it is dynamic or an error.
    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// Whether null is assignable to it.
    pub(super) fn accepts_null(&self) -> bool {
        matches!(
            self,
            Type::Null
                | Type::Opaque(..)
                | Type::Object(_)
                | Type::Duration
                | Type::Timestamp
                | Type::Nullable(_)
        )
    }

    /// The parameters of the type.
    pub fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(items) => vec![items],
            Type::Map(pair) => vec![&pair.0, &pair.1],
            Type::Type(of) => vec![of],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The name of the type as a value: `list` for any list.
    pub fn name(&self) -> Str {
        match self {
            Type::Object(name) | Type::Opaque(name, _) | Type::Parameter(name) => name.clone(),
            Type::List(_) => "list".into(),
            Type::Map(_) => "map".into(),
            Type::Type(_) => "type".into(),
            Type::Duration => "google.protobuf.Duration".into(),
            Type::Timestamp => "google.protobuf.Timestamp".into(),
            Type::Null => "null_type".into(),
            Type::Any => "google.protobuf.Any".into(),
            simple => simple.to_string().into(),
        }
    }
}

impl Type {
    /// The type as it is declared, for some messages of Kubernetes: `map(string,
    /// google.protobuf.Any)`.
    pub fn declared(&self) -> String {
        let name = self.name();
        let parameters: Vec<String> = self
            .parameters()
            .into_iter()
            .filter(|parameter| !(matches!(self, Type::Type(_)) && matches!(parameter, Type::Dyn)))
            .map(Type::declared)
            .collect();
        match parameters.is_empty() {
            true => name.to_string(),
            false => format!("{name}({})", parameters.join(", ")),
        }
    }
}

/// As cel-go's checker prints it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Any => f.write_str("any"),
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(items) => write!(f, "list({items})"),
            Type::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Type::Type(of) if matches!(**of, Type::Dyn) => f.write_str("type"),
            Type::Type(of) => write!(f, "type({of})"),
            Type::Nullable(of) => write!(f, "wrapper({of})"),
            Type::Object(name) | Type::Parameter(name) => f.write_str(name),
            Type::Opaque(name, parameters) => {
                f.write_str(name)?;
                let [first, rest @ ..] = &parameters[..] else {
                    return Ok(());
                };
                write!(f, "({first}")?;
                rest.iter()
                    .try_for_each(|parameter| write!(f, ", {parameter}"))?;
                f.write_str(")")
            }
        }
    }
}
