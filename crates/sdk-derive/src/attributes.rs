//! The `#[convert(…)]` attributes.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, Ident, LitStr, Path, Result, Token, Type};

/// The options of a type.
#[derive(Default)]
pub(crate) struct TypeOptions {
    pub hub: Option<Type>,
    pub hub_default: bool,
    pub rest: Option<Path>,
    /// A property test of the round trip is generated.
    pub round_trip: bool,
}

/// The options of a field or of a variant.
#[derive(Default)]
pub(crate) struct FieldOptions {
    pub rename: Option<Ident>,
    pub with: Option<Path>,
    /// The hub does not have it.
    pub is_absent: bool,
    /// Its value if the hub does not have it; by default that of `Default`.
    pub default: Option<Path>,
}

impl TypeOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<TypeOptions> {
        let mut options = TypeOptions::default();
        parse_each(attributes, |meta| {
            if meta.path.is_ident("hub") {
                options.hub = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("hub_default") {
                options.hub_default = true;
            } else if meta.path.is_ident("rest") {
                options.rest = Some(path(&meta)?);
            } else if meta.path.is_ident("round_trip") {
                options.round_trip = true;
            } else {
                let expected = "unknown option, expected hub, hub_default, rest or round_trip";
                return Err(meta.error(expected));
            }
            Ok(())
        })?;
        Ok(options)
    }
}

impl FieldOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<FieldOptions> {
        let mut options = FieldOptions::default();
        parse_each(attributes, |meta| {
            if meta.path.is_ident("rename") {
                options.rename = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            } else if meta.path.is_ident("with") {
                options.with = Some(path(&meta)?);
            } else if meta.path.is_ident("skip") {
                options.is_absent = true;
            } else if meta.path.is_ident("default") {
                options.is_absent = true;
                if meta.input.peek(Token![=]) {
                    options.default = Some(path(&meta)?);
                }
            } else {
                return Err(meta.error("unknown option, expected rename, with, skip or default"));
            }
            if options.is_absent && (options.rename.is_some() || options.with.is_some()) {
                return Err(
                    meta.error("what the hub does not have is neither renamed nor converted")
                );
            }
            Ok(())
        })?;
        Ok(options)
    }
}

fn parse_each(
    attributes: &[Attribute],
    mut read: impl FnMut(ParseNestedMeta) -> Result<()>,
) -> Result<()> {
    let ours = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("convert"));
    for attribute in ours {
        attribute.parse_nested_meta(&mut read)?;
    }
    Ok(())
}

/// A path, with or without quotes.
fn path(meta: &ParseNestedMeta) -> Result<Path> {
    let value = meta.value()?;
    match value.peek(LitStr) {
        true => value.parse::<LitStr>()?.parse(),
        false => value.parse(),
    }
}
