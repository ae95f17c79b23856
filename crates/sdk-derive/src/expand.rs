//! The generated conversions.
//!
//! Both directions are struct or enum literals, so that the compiler itself reports a field that
//! one side lacks. Conversions of fields have the span of the field's type, where the compiler
//! reports a missing one.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericArgument, Ident, Index, Member, PathArguments,
    Result, Type,
};

use crate::attributes::{FieldOptions, TypeOptions};

/// Both conversions of a type.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let options = TypeOptions::parse(&input.attrs)?;
    let Some(hub) = &options.hub else {
        let message = "the type of the hub is missing: add #[convert(hub = …)]";
        return Err(Error::new(input.ident.span(), message));
    };
    if !input.generics.params.is_empty() {
        let message = "conversions of generic types cannot be derived";
        return Err(Error::new(input.generics.span(), message));
    }
    let spoke = &input.ident;
    let spoke_type: Type = syn::parse_quote!(#spoke);
    let (to_hub, from_hub) = match &input.data {
        Data::Struct(data) => (
            convert_struct(&data.fields, hub, Direction::ToHub, options.hub_default)?,
            convert_struct(&data.fields, &spoke_type, Direction::FromHub, false)?,
        ),
        Data::Enum(data) => {
            let mut arms = (Vec::new(), Vec::new());
            for variant in &data.variants {
                let rename = FieldOptions::parse(&variant.attrs)?.rename;
                let (name, hub_name) = (&variant.ident, rename.as_ref().unwrap_or(&variant.ident));
                arms.0.push(convert_variant(
                    &variant.fields,
                    (spoke_type.clone(), name),
                    (hub.clone(), hub_name),
                    Direction::ToHub,
                )?);
                arms.1.push(convert_variant(
                    &variant.fields,
                    (hub.clone(), hub_name),
                    (spoke_type.clone(), name),
                    Direction::FromHub,
                )?);
            }
            let (to_hub, from_hub) = arms;
            (
                quote!(match self { #(#to_hub)* }),
                quote!(match self { #(#from_hub)* }),
            )
        }
        Data::Union(_) => {
            let message = "conversions of unions cannot be derived";
            return Err(Error::new(spoke.span(), message));
        }
    };
    let to_hub = implementation(&spoke_type, hub, &to_hub, &options, Direction::ToHub);
    let from_hub = implementation(hub, &spoke_type, &from_hub, &options, Direction::FromHub);
    let test = options.round_trip.then(|| round_trip_test(spoke, hub));
    Ok(quote!(#to_hub #from_hub #test))
}

/// A property test for the crate of the type, such as `oven_survives_its_round_trip`.
fn round_trip_test(spoke: &Ident, hub: &Type) -> TokenStream {
    let mut name = String::new();
    for letter in spoke.to_string().chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    let test = format_ident!("{name}_survives_its_round_trip");
    quote! {
        #[cfg(test)]
        #[test]
        fn #test() {
            ::mizzen_sdk::convert::check_round_trip::<#spoke, #hub>();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToHub,
    FromHub,
}

impl Direction {
    /// The function of a hand-written conversion.
    fn function(self) -> Ident {
        match self {
            Direction::ToHub => Ident::new("to_hub", Span::call_site()),
            Direction::FromHub => Ident::new("from_hub", Span::call_site()),
        }
    }
}

fn implementation(
    from: &Type,
    to: &Type,
    body: &TokenStream,
    options: &TypeOptions,
    direction: Direction,
) -> TokenStream {
    let function = direction.function();
    let body = match &options.rest {
        Some(rest) => quote! {
            let source = ::core::clone::Clone::clone(&self);
            let mut target: #to = #body;
            #rest::#function(&source, &mut target)?;
            ::core::result::Result::Ok(target)
        },
        None => quote!(::core::result::Result::Ok(#body)),
    };
    quote! {
        #[automatically_derived]
        impl ::mizzen_sdk::convert::ConvertTo<#to> for #from {
            fn convert_to(self) -> ::core::result::Result<#to, ::mizzen_sdk::convert::ConvertError> {
                #body
            }
        }
    }
}

/// The literal of the target of a struct.
fn convert_struct(
    fields: &Fields,
    to: &Type,
    direction: Direction,
    defaults: bool,
) -> Result<TokenStream> {
    let mut members = Vec::new();
    for (idx, field) in fields.iter().enumerate() {
        let names = FieldNames::new(field, idx)?;
        let (from, into) = names.in_direction(direction);
        members.extend(names.convert(field, quote!(self.#from), into, direction));
    }
    let defaults = defaults.then(|| quote!(..::core::default::Default::default()));
    Ok(quote!(#to { #(#members,)* #defaults }))
}

/// The match arm of a variant.
fn convert_variant(
    fields: &Fields,
    from: (Type, &Ident),
    to: (Type, &Ident),
    direction: Direction,
) -> Result<TokenStream> {
    let ((from, from_name), (to, to_name)) = (from, to);
    let (mut patterns, mut members) = (Vec::new(), Vec::new());
    for (idx, field) in fields.iter().enumerate() {
        let names = FieldNames::new(field, idx)?;
        let (source, into) = names.in_direction(direction);
        let binding = format_ident!("field_{idx}");
        match (names.options.is_absent, direction) {
            (true, Direction::FromHub) => {}
            (true, Direction::ToHub) => patterns.push(quote!(#source: _)),
            (false, _) => patterns.push(quote!(#source: #binding)),
        }
        members.extend(names.convert(field, quote!(#binding), into, direction));
    }
    // `Name { 0: value }` is valid for every shape of a variant.
    Ok(quote!(#from::#from_name { #(#patterns,)* } => #to::#to_name { #(#members,)* },))
}

/// The names of a field on both sides.
struct FieldNames {
    spoke: Member,
    hub: Member,
    options: FieldOptions,
}

impl FieldNames {
    fn new(field: &Field, idx: usize) -> Result<FieldNames> {
        let options = FieldOptions::parse(&field.attrs)?;
        let spoke = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(Index {
                index: u32::try_from(idx).expect("a small number"),
                span: field.ty.span(),
            }),
        };
        let hub = match &options.rename {
            Some(name) => Member::Named(name.clone()),
            None => spoke.clone(),
        };
        Ok(FieldNames {
            spoke,
            hub,
            options,
        })
    }

    /// The names in the source and in the target.
    fn in_direction(&self, direction: Direction) -> (&Member, &Member) {
        match direction {
            Direction::ToHub => (&self.spoke, &self.hub),
            Direction::FromHub => (&self.hub, &self.spoke),
        }
    }

    /// The member of the target's literal; `None` if the target does not have it.
    fn convert(
        &self,
        field: &Field,
        from: TokenStream,
        into: &Member,
        direction: Direction,
    ) -> Option<TokenStream> {
        let FieldOptions {
            with,
            is_absent,
            default,
            ..
        } = &self.options;
        let span = field.ty.span();
        if *is_absent {
            let value = match default {
                Some(path) => quote!(#path()),
                None => quote_spanned!(span=> ::core::default::Default::default()),
            };
            return (direction == Direction::FromHub).then(|| quote!(#into: #value));
        }
        let converted = match with {
            Some(module) => {
                let function = direction.function();
                quote!(#module::#function(#from))
            }
            None => convert_value(&field.ty, from),
        };
        let name = match &self.spoke {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        };
        Some(quote! {
            #into: #converted.map_err(|error: ::mizzen_sdk::convert::ConvertError| error.at(#name))?
        })
    }
}

/// The conversion of a value to whatever type the target has there: a `Result`. Containers are
/// converted item by item, because a conversion of each type to itself leaves no room for a
/// conversion of containers in the trait.
fn convert_value(ty: &Type, value: TokenStream) -> TokenStream {
    match container(ty) {
        Some((function, item)) => {
            let converted = convert_value(item, quote!(item));
            quote!(::mizzen_sdk::convert::derived::#function(#value, |item| #converted))
        }
        None => quote_spanned!(ty.span()=> ::mizzen_sdk::convert::ConvertTo::convert_to(#value)),
    }
}

/// The function that converts the items of a container, and their type, if a type is a container by
/// its name.
fn container(ty: &Type) -> Option<(Ident, &Type)> {
    let Type::Path(path) = ty else {
        return None;
    };
    let segment = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    let function = match segment.ident.to_string().as_str() {
        "Option" => "option",
        "Box" => "boxed",
        "Vec" => "list",
        "BTreeMap" | "HashMap" => {
            types.next();
            "map"
        }
        _ => return None,
    };
    Some((Ident::new(function, Span::call_site()), types.next()?))
}
