//! The types of a schema: a model of structs and enums, before it is written.

use mizzen_value::Value;

use crate::name::{Names, identifier, pascal_case, serde_camel_case, snake_case};

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RustType {
    String,
    Bool,
    Float,
    /// `i64` and its like.
    Int(&'static str),
    IntOrString,
    /// A value with any fields.
    Any,
    List(Box<RustType>),
    Map(Box<RustType>),
    Optional(Box<RustType>),
    /// A struct or an enum of the model.
    Named(String),
}

impl RustType {
    /// Its code. In schemas another type stands for values with any fields.
    pub(crate) fn code(&self, any: &str) -> String {
        match self {
            RustType::String => "String".into(),
            RustType::Bool => "bool".into(),
            RustType::Float => "f64".into(),
            RustType::Int(name) => (*name).into(),
            RustType::IntOrString => "IntOrString".into(),
            RustType::Any => any.into(),
            RustType::List(item) => format!("Vec<{}>", item.code(any)),
            RustType::Map(value) => format!("BTreeMap<String, {}>", value.code(any)),
            RustType::Optional(inner) => format!("Option<{}>", inner.code(any)),
            RustType::Named(name) => name.clone(),
        }
    }

    /// Whether it contains a type.
    pub(crate) fn contains(&self, is_wanted: &impl Fn(&RustType) -> bool) -> bool {
        is_wanted(self)
            || match self {
                RustType::List(inner) | RustType::Map(inner) | RustType::Optional(inner) => {
                    inner.contains(is_wanted)
                }
                _ => false,
            }
    }

    /// `Option` of it, once.
    fn optional(self) -> RustType {
        match self {
            RustType::Optional(_) => self,
            other => RustType::Optional(Box::new(other)),
        }
    }
}

/// The default of a field: the name of its function and the value that this returns.
pub(crate) struct FieldDefault {
    pub function: String,
    pub value: String,
}

/// A field of a struct.
pub(crate) struct StructField {
    pub identifier: String,
    /// The name in objects, if serde does not derive it from the identifier.
    pub rename: Option<String>,
    pub docs: String,
    pub ty: RustType,
    /// Left out of objects if it has no value.
    pub is_optional: bool,
    pub default: Option<FieldDefault>,
    /// Has the fields that the schema does not name.
    pub is_flattened: bool,
}

/// A variant of an enum: its identifier and its text in objects.
pub(crate) struct EnumVariant {
    pub identifier: String,
    pub text: String,
}

/// A struct or an enum.
pub(crate) enum TypeItem {
    Struct {
        name: String,
        docs: String,
        fields: Vec<StructField>,
    },
    Enum {
        name: String,
        docs: String,
        variants: Vec<EnumVariant>,
    },
}

/// The types of a definition.
pub(crate) struct Model {
    /// In the order in which they are written: a type before those of its fields.
    pub items: Vec<TypeItem>,
    /// The name of the struct of `spec`, or of all fields.
    pub spec: String,
    /// Whether objects have fields beside `spec`, or no `spec`.
    pub has_no_spec: bool,
    /// The name of the struct of the status.
    pub status: Option<String>,
    names: Names,
    functions: Names,
}

impl Model {
    /// The types of a kind whose objects are of the type `root`.
    pub(crate) fn new(root: &str, schema: &Value) -> Model {
        let mut names = Names::of_types();
        names.take(root, "");
        let mut model = Model {
            items: Vec::new(),
            spec: String::new(),
            has_no_spec: false,
            status: None,
            names,
            functions: Names::empty(),
        };
        let properties = &schema["properties"];
        let is_common = |name: &str| ["apiVersion", "kind", "metadata", "status"].contains(&name);
        let others = properties.entries().filter(|(name, _)| !is_common(name));
        let others: Vec<&str> = others.map(|(name, _)| name).collect();
        model.spec = model.names.take(&format!("{root}Spec"), "");
        let has_status = properties.get("status").is_some();
        model.status = has_status.then(|| model.names.take(&format!("{root}Status"), ""));
        let spec = model.spec.clone();
        // A schema without properties allows any spec.
        if others.is_empty() || others == ["spec"] {
            let docs = docs_of(&properties["spec"], "spec", root);
            model.add_struct(&spec, docs, &properties["spec"], "spec");
        } else {
            model.has_no_spec = true;
            let mut all = schema.clone();
            for name in ["apiVersion", "kind", "metadata", "status"] {
                all.entry("properties").remove(name);
            }
            model.add_struct(&spec, format!("The fields of `{root}` objects."), &all, "");
        }
        if let Some(status) = model.status.clone() {
            let docs = docs_of(&properties["status"], "status", root);
            model.add_struct(&status, docs, &properties["status"], "status");
        }
        model
    }

    /// Whether a field has a type.
    pub(crate) fn uses(&self, is_wanted: impl Fn(&RustType) -> bool) -> bool {
        self.items.iter().any(|item| match item {
            TypeItem::Struct { fields, .. } => {
                fields.iter().any(|field| field.ty.contains(&is_wanted))
            }
            TypeItem::Enum { .. } => false,
        })
    }

    /// Adds the struct of an object; `path` is where it is.
    fn add_struct(&mut self, name: &str, docs: String, schema: &Value, path: &str) {
        let place = self.items.len();
        self.items.push(TypeItem::Struct {
            name: name.into(),
            docs,
            fields: Vec::new(),
        });
        let mut properties: Vec<(&str, &Value)> = schema["properties"].entries().collect();
        properties.sort_by_key(|(property, _)| *property);
        let mut taken = Names::empty();
        let mut fields = Vec::new();
        for (property, schema_of_field) in properties {
            let is_required = schema["required"].items().any(|it| it.str() == property);
            let field = taken.take(&snake_case(property), "_");
            let inner_path = match path {
                "" => property.to_owned(),
                path => format!("{path}.{property}"),
            };
            let type_name = format!("{name}{}", pascal_case(property));
            let ty = self.type_of(schema_of_field, &type_name, &inner_path);
            let default = self.default_of(&schema_of_field["default"], &ty, name, &field);
            let is_optional = !is_required && default.is_none();
            fields.push(StructField {
                rename: (serde_camel_case(&field) != property || !is_plain(&field))
                    .then(|| property.to_owned()),
                identifier: identifier(&field),
                docs: schema_of_field["description"].str().to_owned(),
                ty: if is_optional { ty.optional() } else { ty },
                is_optional,
                default,
                is_flattened: false,
            });
        }
        // Without `spec`, the fields are beside apiVersion and kind, which must not be taken for others.
        let is_open = preserves_unknown_fields(schema) || schema["properties"].is_empty();
        if is_open && !path.is_empty() {
            let field = taken.take("other", "_");
            fields.push(StructField {
                identifier: field,
                rename: None,
                docs: "Fields that the schema does not name.".into(),
                ty: RustType::Map(Box::new(RustType::Any)),
                is_optional: false,
                default: None,
                is_flattened: true,
            });
        }
        let TypeItem::Struct { fields: target, .. } = &mut self.items[place] else {
            unreachable!("a struct was pushed there");
        };
        *target = fields;
    }

    /// The type of a value. A struct or an enum of its own gets `name`.
    fn type_of(&mut self, schema: &Value, name: &str, path: &str) -> RustType {
        let ty = self.type_without_null(schema, name, path);
        match schema["nullable"].bool() {
            true => ty.optional(),
            false => ty,
        }
    }

    fn type_without_null(&mut self, schema: &Value, name: &str, path: &str) -> RustType {
        if schema["x-kubernetes-int-or-string"].bool() {
            return RustType::IntOrString;
        }
        if schema["x-kubernetes-embedded-resource"].bool() {
            return RustType::Any;
        }
        match schema["type"].str() {
            "string" => self.string_type(schema, name, path),
            "boolean" => RustType::Bool,
            "number" => RustType::Float,
            "integer" => RustType::Int(match schema["format"].str() {
                "int8" => "i8",
                "int16" => "i16",
                "int32" => "i32",
                "uint8" => "u8",
                "uint16" => "u16",
                "uint32" => "u32",
                "uint64" | "uint" => "u64",
                _ => "i64",
            }),
            "array" => {
                let item = self.type_of(&schema["items"], name, &format!("{path}.*"));
                RustType::List(Box::new(item))
            }
            "object" if !schema["properties"].is_empty() => {
                let name = self.names.take(name, "");
                self.add_struct(&name, docs_of(schema, path, ""), schema, path);
                RustType::Named(name)
            }
            "object" if preserves_unknown_fields(schema) => RustType::Any,
            "object" => {
                let value = match &schema["additionalProperties"] {
                    Value::Map(_) => {
                        let of_values = &schema["additionalProperties"];
                        self.type_of(of_values, name, &format!("{path}.*"))
                    }
                    _ => RustType::Any,
                };
                RustType::Map(Box::new(value))
            }
            _ => RustType::Any,
        }
    }

    /// An enum if the values are listed, else a string.
    fn string_type(&mut self, schema: &Value, name: &str, path: &str) -> RustType {
        let texts: Option<Vec<&str>> = schema["enum"].items().map(Value::as_str).collect();
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            return RustType::String;
        };
        let name = self.names.take(name, "");
        let mut taken = Names::empty();
        let mut variants: Vec<EnumVariant> = Vec::new();
        for text in texts {
            if variants.iter().any(|variant| variant.text == text) {
                continue;
            }
            let identifier = match pascal_case(text).as_str() {
                "" => taken.take("Empty", ""),
                "Self" => taken.take("SelfValue", ""),
                name => taken.take(name, ""),
            };
            variants.push(EnumVariant {
                identifier,
                text: text.into(),
            });
        }
        self.items.push(TypeItem::Enum {
            docs: docs_of(schema, path, ""),
            name: name.clone(),
            variants,
        });
        RustType::Named(name)
    }

    /// The default of a field, if it is a scalar of its type. Other defaults are left to the server.
    fn default_of(
        &mut self,
        default: &Value,
        ty: &RustType,
        owner: &str,
        field: &str,
    ) -> Option<FieldDefault> {
        let value = match (ty, default) {
            (RustType::String, Value::String(text)) => format!("{text:?}.into()"),
            (RustType::Bool, Value::Bool(value)) => value.to_string(),
            (RustType::Int(name), Value::Int(number)) if fits(*number, name) => number.to_string(),
            (RustType::Float, number) => {
                let number = number.as_f64().filter(|number| number.is_finite())?;
                format!("{number:?}")
            }
            (RustType::Named(name), Value::String(text)) => {
                let variant = self.variant_of(name, text)?;
                format!("{name}::{variant}")
            }
            _ => return None,
        };
        let function = format!("default_{}_{field}", snake_case(owner));
        Some(FieldDefault {
            function: self.functions.take(&function, "_"),
            value,
        })
    }

    fn variant_of(&self, name: &str, text: &str) -> Option<&str> {
        self.items.iter().find_map(|item| match item {
            TypeItem::Enum {
                name: other,
                variants,
                ..
            } if other == name => {
                let mut variants = variants.iter();
                let variant = variants.find(|variant| variant.text == text)?;
                Some(variant.identifier.as_str())
            }
            _ => None,
        })
    }
}

/// Whether an integer is in the range of a type.
fn fits(number: i64, ty: &str) -> bool {
    match ty {
        "i8" => i8::try_from(number).is_ok(),
        "i16" => i16::try_from(number).is_ok(),
        "i32" => i32::try_from(number).is_ok(),
        "u8" => u8::try_from(number).is_ok(),
        "u16" => u16::try_from(number).is_ok(),
        "u32" => u32::try_from(number).is_ok(),
        "u64" => number >= 0,
        _ => true,
    }
}

fn preserves_unknown_fields(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"].bool()
}

/// Whether an identifier is the name of its field.
fn is_plain(field: &str) -> bool {
    let identifier = identifier(field);
    identifier == field || identifier.starts_with("r#")
}

/// The description of a schema, or else where it is.
fn docs_of(schema: &Value, path: &str, kind: &str) -> String {
    match (schema["description"].str(), kind) {
        ("", "") => format!("The type of `{path}`."),
        ("", kind) => format!("The {path} of `{kind}` objects."),
        (description, _) => description.into(),
    }
}
