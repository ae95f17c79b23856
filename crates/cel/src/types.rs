//! What kind of value can an expression have, as far as is known before it runs?

use std::fmt;
use std::sync::Arc;

use mizzen_value::Str;

/// A static type. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Anything; nothing is known before evaluation.
    Dyn,
    /// `google.protobuf.Any`: anything as well, but nothing to iterate over.
    Any,
    /// The type of an expression with an error in it; fits everywhere, so that one error is told once.
    Error,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed whole number of 64 bits.
    Int,
    /// An unsigned whole number of 64 bits.
    Uint,
    /// A number of 64 bits with a fraction.
    Double,
    /// Text.
    String,
    /// Octets.
    Bytes,
    /// A span of time.
    Duration,
    /// A moment.
    Timestamp,
    /// Items of one type.
    List(Arc<Type>),
    /// Keys of one type, values of another.
    Map(Arc<(Type, Type)>),
    /// A type as a value: what `type(x)` yields.
    Type(Arc<Type>),
    /// A primitive that may be null as well.
    Nullable(Arc<Type>),
    /// A type with named fields that the environment knows, or one that only functions can look into.
    Object(Str),
    /// An abstract type, perhaps with parameters.
    Opaque(Str, Arc<[Type]>),
    /// A type parameter of a function's declaration, or a type not yet inferred.
    Parameter(Str),
}

/// The name of the type of optional values.
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

    /// A value that may be missing.
    pub fn optional(of: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), [of].into())
    }

    /// A primitive that may be null.
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

    /// The type of `of` as a value.
    pub fn type_of(of: Type) -> Type {
        Type::Type(Arc::new(of))
    }

    /// What the optional holds, if this is the type of an optional.
    pub fn inside_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// Whether nothing is known of it.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    /// Whether values of it may be of any type.
    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The types that it is made of.
    pub fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(items) => vec![items],
            Type::Map(pair) => vec![&pair.0, &pair.1],
            Type::Type(of) => vec![of],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Its name as a value: `list` whatever the items.
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
    /// As it is declared, which some messages of Kubernetes show: `map(string, google.protobuf.Any)`.
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

/// As cel-go's checker writes it in its messages.
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
                write_list(f, parameters)
            }
        }
    }
}

fn write_list(f: &mut fmt::Formatter, parameters: &[Type]) -> fmt::Result {
    let [first, rest @ ..] = parameters else {
        return Ok(());
    };
    write!(f, "({first}")?;
    rest.iter()
        .try_for_each(|parameter| write!(f, ", {parameter}"))?;
    f.write_str(")")
}
