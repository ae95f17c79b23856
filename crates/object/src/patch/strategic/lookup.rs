//! Lookup of patch metadata in the schema, as upstream finds it in Go's types.

use super::StrategicError;
use crate::schema::{FieldShape, FieldType, PatchStrategy, Presence, Struct, StructField};

/// A type as Go's reflection sees it. Kubernetes: `PatchMetaFromStruct` of strategicpatch/meta.go.
#[derive(Clone, Copy)]
pub(super) struct PatchMetaSchema<'a> {
    ty: Ty<'a>,
    pointer: bool,
}

#[derive(Clone, Copy)]
enum Ty<'a> {
    Struct(&'a Struct),
    Other(&'a FieldType),
}

impl<'a> PatchMetaSchema<'a> {
    pub(super) fn root(ty: &'a Struct) -> PatchMetaSchema<'a> {
        PatchMetaSchema {
            ty: Ty::Struct(ty),
            pointer: false,
        }
    }

    /// The map in the member `name`, and its patch strategy.
    pub(super) fn map(
        self,
        name: &str,
    ) -> Result<(PatchMetaSchema<'a>, &'a PatchStrategy), StrategicError> {
        let field = self.field(name)?;
        Ok((
            PatchMetaSchema::new(&field.ty, is_pointer(field)),
            &field.patch,
        ))
    }

    /// The items of the list in the member `name`, and its patch strategy.
    pub(super) fn items(
        self,
        name: &str,
    ) -> Result<(PatchMetaSchema<'a>, &'a PatchStrategy), StrategicError> {
        let field = self.field(name)?;
        let item = match &field.ty.shape {
            FieldShape::List(item) => item,
            FieldShape::Bytes => &field.ty,
            _ if is_pointer(field) => &field.ty,
            _ => {
                return fail(format!(
                    "expected slice or array type, but got: {}",
                    self.kind()
                ));
            }
        };
        Ok((PatchMetaSchema::new(item, false), &field.patch))
    }

    fn new(ty: &'a FieldType, pointer: bool) -> PatchMetaSchema<'a> {
        let ty = ty
            .as_struct()
            .map_or(Ty::Other(ty), |inner| Ty::Struct(inner));
        PatchMetaSchema { ty, pointer }
    }

    fn field(self, name: &str) -> Result<&'a StructField, StrategicError> {
        let ty = match self.ty {
            Ty::Struct(ty) => ty,
            Ty::Other(ty) if kind(&ty.shape) == "struct" => {
                return unknown(ty.go.rsplit('.').next(), name);
            }
            Ty::Other(ty) => {
                let kind = kind(&ty.shape);
                return fail(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                ));
            }
        };
        // Kubernetes: as in Go's decoder, a name without an exact match is matched ignoring case.
        let in_any_case = || {
            ty.fields()
                .iter()
                .find(|field| field.name.eq_ignore_ascii_case(name))
        };
        match ty.field(name).or_else(in_any_case) {
            Some(field) => Ok(field),
            None => unknown(Some(&ty.name), name),
        }
    }

    /// The `reflect.Kind` of the type.
    pub(super) fn kind(self) -> &'static str {
        match self.ty {
            _ if self.pointer => "ptr",
            Ty::Struct(_) => "struct",
            Ty::Other(ty) => kind(&ty.shape),
        }
    }
}

fn is_pointer(field: &StructField) -> bool {
    matches!(field.presence, Presence::Set | Presence::Nullable)
}

fn kind(shape: &FieldShape) -> &'static str {
    match shape {
        FieldShape::Bool => "bool",
        FieldShape::Int32 => "int32",
        FieldShape::Int64 => "int64",
        FieldShape::Float => "float64",
        FieldShape::String => "string",
        FieldShape::Bytes | FieldShape::List(_) => "slice",
        FieldShape::Map(_) => "map",
        _ => "struct",
    }
}

fn unknown<T>(ty: Option<&str>, name: &str) -> Result<T, StrategicError> {
    let ty = ty.unwrap_or_default();
    fail(format!(
        "unable to find api field in struct {ty} for the json field {name:?}"
    ))
}

fn fail<T>(message: String) -> Result<T, StrategicError> {
    Err(StrategicError::Internal(message))
}
