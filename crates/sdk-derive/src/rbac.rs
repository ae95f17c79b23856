//! `#[derive(Rbac)]`: the `#[rbac(…)]` attributes of a type become its rules.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Attribute, DeriveInput, Error, LitStr, Result, Token, parenthesized};

/// The verbs of RBAC: those of requests, and those that other checks ask for.
const VERBS: [&str; 16] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "use",
    "approve",
    "sign",
    "attest",
    "*",
];

/// The verbs of URLs that are no resources.
const URL_VERBS: [&str; 8] = [
    "get", "head", "post", "put", "patch", "delete", "options", "*",
];

/// Verbs of requests that name no object, so that a rule with names never allows them.
const NAMELESS_VERBS: [&str; 2] = ["create", "deletecollection"];

/// One attribute.
#[derive(Default)]
struct RuleOptions {
    group: Option<LitStr>,
    resources: Vec<LitStr>,
    verbs: Vec<LitStr>,
    names: Vec<LitStr>,
    urls: Vec<LitStr>,
    is_namespaced: bool,
}

/// The implementation of `mizzen_sdk::Rbac`.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let attributes = input.attrs.iter();
    let rules = attributes
        .filter(|attribute| attribute.path().is_ident("rbac"))
        .map(|attribute| RuleOptions::parse(attribute)?.expand(attribute))
        .collect::<Result<Vec<_>>>()?;
    if rules.is_empty() {
        let message = "no rules: add #[rbac(group(\"…\"), resources(\"…\"), verbs(\"…\"))]";
        return Err(Error::new(input.ident.span(), message));
    }
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::mizzen_sdk::Rbac for #name #arguments #bounds {
            fn rules() -> ::std::vec::Vec<::mizzen_sdk::RbacRule> {
                ::std::vec![#(#rules),*]
            }
        }
    })
}

impl RuleOptions {
    fn parse(attribute: &Attribute) -> Result<RuleOptions> {
        let mut options = RuleOptions::default();
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("group") {
                options.group = Some(text(&meta)?);
            } else if meta.path.is_ident("resources") {
                options.resources = texts(&meta)?;
            } else if meta.path.is_ident("verbs") {
                options.verbs = texts(&meta)?;
            } else if meta.path.is_ident("names") {
                options.names = texts(&meta)?;
            } else if meta.path.is_ident("urls") {
                options.urls = texts(&meta)?;
            } else if meta.path.is_ident("scope") {
                let scope = text(&meta)?;
                options.is_namespaced = match scope.value().as_str() {
                    "Cluster" => false,
                    "Namespaced" => true,
                    _ => return Err(Error::new(scope.span(), "expected Cluster or Namespaced")),
                };
            } else {
                let expected =
                    "unknown option, expected group, resources, verbs, names, urls or scope";
                return Err(meta.error(expected));
            }
            Ok(())
        })?;
        Ok(options)
    }

    /// The expression of the rule.
    fn expand(self, attribute: &Attribute) -> Result<TokenStream> {
        self.check(attribute)?;
        let RuleOptions {
            group,
            resources,
            verbs,
            names,
            urls,
            is_namespaced,
        } = self;
        if !urls.is_empty() {
            return Ok(quote!(::mizzen_sdk::RbacRule::urls([#(#urls),*], [#(#verbs),*])));
        }
        let group = group.map_or_else(String::new, |group| group.value());
        let names = (!names.is_empty()).then(|| quote!(.names([#(#names),*])));
        let namespaced = is_namespaced.then(|| quote!(.namespaced()));
        Ok(quote! {
            ::mizzen_sdk::RbacRule::new(#group, [#(#resources),*], [#(#verbs),*]) #names #namespaced
        })
    }

    fn check(&self, attribute: &Attribute) -> Result<()> {
        let is_of_urls = !self.urls.is_empty();
        let message = match (is_of_urls, self.resources.is_empty()) {
            (false, true) => "a rule has resources(\"pods\", …) or urls(\"/metrics\", …)",
            (true, false) => "a rule has resources or urls, not both",
            _ if self.verbs.is_empty() => "a rule has verbs(\"get\", …)",
            (true, _) if self.is_namespaced || self.group.is_some() || !self.names.is_empty() => {
                "a rule of urls has neither group nor names nor scope"
            }
            _ => "",
        };
        if !message.is_empty() {
            return Err(Error::new_spanned(attribute, message));
        }
        for resource in &self.resources {
            let is_valid = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-./*".contains(letter)
            };
            if !resource.value().chars().all(is_valid) || resource.value().is_empty() {
                let message = format!(
                    "{:?} is no resource: expected the lower-case plural, such as \"pods\" or \"pods/status\"",
                    resource.value()
                );
                return Err(Error::new(resource.span(), message));
            }
        }
        let known: &[&str] = if is_of_urls { &URL_VERBS } else { &VERBS };
        for verb in &self.verbs {
            let text = verb.value();
            if !known.contains(&text.as_str()) {
                let message = format!("unknown verb {text:?}, expected {}", known.join(", "));
                return Err(Error::new(verb.span(), message));
            }
            if !self.names.is_empty() && NAMELESS_VERBS.contains(&text.as_str()) {
                let message = format!(
                    "{text} cannot be restricted by name: give it a rule of its own, without names"
                );
                return Err(Error::new(verb.span(), message));
            }
        }
        Ok(())
    }
}

/// `("apps")`. Options are written as lists because clippy takes `group = "apps"` in two attributes for a mistake.
fn text(meta: &ParseNestedMeta) -> Result<LitStr> {
    let content;
    parenthesized!(content in meta.input);
    content.parse()
}

/// `("get", "list")`.
fn texts(meta: &ParseNestedMeta) -> Result<Vec<LitStr>> {
    let content;
    parenthesized!(content in meta.input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
    Ok(texts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[track_caller]
    fn check(input: DeriveInput, expected: &str) {
        let outcome = match expand(&input) {
            Ok(tokens) => tokens.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(outcome.contains(expected), "{outcome}");
    }

    #[test]
    fn an_attribute_is_a_rule() {
        let input: DeriveInput = parse_quote! {
            #[rbac(group("apps"), resources("deployments"), verbs("get", "list"), names("web"), scope("Namespaced"))]
            #[rbac(urls("/metrics"), verbs("get"))]
            struct Reconciler<S: Storage>(S);
        };
        let expected: TokenStream = quote! {
            impl<S: Storage> ::mizzen_sdk::Rbac for Reconciler<S> {
                fn rules() -> ::std::vec::Vec<::mizzen_sdk::RbacRule> {
                    ::std::vec![
                        ::mizzen_sdk::RbacRule::new("apps", ["deployments"], ["get", "list"]).names(["web"]).namespaced(),
                        ::mizzen_sdk::RbacRule::urls(["/metrics"], ["get"])
                    ]
                }
            }
        };
        check(input, &expected.to_string());
    }

    #[test]
    fn an_unknown_option_or_verb_is_an_error_that_names_the_known_ones() {
        check(
            parse_quote!(
                #[rbac(groups("apps"), resources("pods"), verbs("get"))]
                struct A;
            ),
            "unknown option, expected group, resources, verbs, names, urls or scope",
        );
        check(
            parse_quote!(
                #[rbac(resources("pods"), verbs("fetch"))]
                struct A;
            ),
            r#"unknown verb "fetch", expected get, list, watch, create, update, patch, delete, deletecollection"#,
        );
        check(
            parse_quote!(
                #[rbac(urls("/metrics"), verbs("watch"))]
                struct A;
            ),
            r#"unknown verb "watch", expected get, head, post"#,
        );
    }

    #[test]
    fn a_rule_that_allows_nothing_is_an_error() {
        check(
            parse_quote!(
                struct A;
            ),
            "no rules: add #[rbac(",
        );
        check(
            parse_quote!(
                #[rbac(group("apps"), verbs("get"))]
                struct A;
            ),
            "a rule has resources(",
        );
        check(
            parse_quote!(
                #[rbac(group("apps"), resources("deployments"))]
                struct A;
            ),
            "a rule has verbs(",
        );
        check(
            parse_quote!(
                #[rbac(resources("Deployment"), verbs("get"))]
                struct A;
            ),
            "\"Deployment\" is no resource",
        );
        check(
            parse_quote!(
                #[rbac(resources("secrets"), verbs("get", "create"), names("a"))]
                struct A;
            ),
            "create cannot be restricted by name",
        );
        check(
            parse_quote!(
                #[rbac(urls("/metrics"), verbs("get"), scope("Namespaced"))]
                struct A;
            ),
            "a rule of urls has neither group nor names",
        );
    }
}
