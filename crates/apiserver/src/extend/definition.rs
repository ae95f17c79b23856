//! Kinds of a CustomResourceDefinition that is part of the program and is not created through the API.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use mizzen_apiextensions as apiextensions;
use mizzen_object::{
    Action, GroupVersionKind, Hooks, Kind, NoHooks, Subresource, User, Violations, custom,
};
use mizzen_openapi::Published;
use mizzen_registry::{Revision, Store};
use mizzen_value::{Str, Value, yaml};

use super::joined_hooks::JoinedHooks;
use crate::catalog::ServedKind;
use crate::crd::{CrdConverter, CrdDependencies};

/// What the author of a server adds to the kinds of definitions.
pub(super) struct DefinitionExtensions<'a> {
    /// Hooks by kind; those of the definition are taken out.
    pub hooks: &'a mut HashMap<GroupVersionKind, Arc<dyn Hooks>>,
    /// The subresources with handlers, and their verbs.
    pub subresources: &'a HashMap<(mizzen_object::GroupResource, Str), &'static [&'static str]>,
}

/// The served kinds of a CustomResourceDefinition, or all its violations.
pub(super) fn read(
    text: &str,
    store: &Store,
    extensions: &mut DefinitionExtensions,
) -> Result<Vec<ServedKind>, String> {
    let document = yaml::read(text.as_bytes()).map_err(|error| error.to_string())?;
    if let Some(complaint) = document.complaint {
        return Err(complaint.to_string());
    }
    let mut definition = document.value;
    check(&mut definition)?;
    if definition["spec"]["conversion"]["strategy"].str() == "Webhook" {
        return Err("spec.conversion: no webhook is called for a kind that is built in".into());
    }
    let means = CrdDependencies {
        store: store.clone(),
        object_meta: mizzen_schemas::object_meta(),
        clients: OnceLock::new(),
    };
    let mut converts = false;
    let kinds = custom::kinds(&definition, &means.object_meta);
    let kinds = kinds.into_iter().map(|kind| {
        let own = extensions.hooks.remove(&kind.gvk);
        converts |= own.is_some();
        let own = own.unwrap_or_else(|| Arc::new(NoHooks));
        Kind {
            data: Arc::new(with_subresources(&kind, extensions)),
            hooks: Arc::new(JoinedHooks {
                schema: kind.hooks,
                own,
            }),
        }
    });
    let kinds: Arc<[Kind]> = kinds.collect();
    let converter = CrdConverter::new(&definition, &kinds, Revision(0), &means);
    let converter = converter.ok_or("it stores no version")?;
    let converter = Arc::new(match converts {
        true => converter.converting_by_hooks(),
        false => converter,
    });
    let versions = definition["spec"]["versions"].list();
    let serve = |(kind, version): (&Kind, &Value)| {
        let schema = Some(Arc::new(version["schema"]["openAPIV3Schema"].clone()));
        ServedKind {
            published: Published {
                kind: kind.clone(),
                schema,
            },
            convert: Some(converter.clone()),
        }
    };
    let served = kinds
        .iter()
        .zip(versions)
        .filter(|(_, version)| version["served"].bool());
    Ok(served.map(serve).collect())
}

/// The data of a kind, with the subresources that have handlers.
fn with_subresources(kind: &Kind, extensions: &DefinitionExtensions) -> mizzen_object::KindData {
    let mut data = mizzen_object::KindData::clone(&kind.data);
    let resource = kind.resource();
    let own = extensions.subresources.iter();
    let mut own: Vec<_> = own
        .filter(|((of, name), _)| *of == resource && kind.subresource(name).is_none())
        .collect();
    own.sort();
    data.subresources
        .extend(own.into_iter().map(|((_, name), verbs)| Subresource {
            name: name.clone(),
            verbs: verbs.iter().copied().map(Str::new_static).collect(),
            kind: None,
            resets: None,
        }));
    data
}

/// Defaults and validates a definition as the server would.
fn check(definition: &mut Value) -> Result<(), String> {
    let rules = apiextensions::definition::behaviour("v1", "CustomResourceDefinition");
    rules.default(definition);
    let (who, mut violations) = (User::default(), Violations::default());
    rules.validate(
        definition,
        None,
        &who.context(Action::Create, ""),
        &mut violations,
    );
    let problems: Vec<String> = violations.0.iter().map(ToString::to_string).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join(", "))
    }
}
