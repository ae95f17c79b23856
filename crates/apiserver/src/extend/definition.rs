//! Kinds of a CustomResourceDefinition that is part of the program and is not created through the API.

use std::sync::{Arc, OnceLock};

use mizzen_apiextensions as apiextensions;
use mizzen_object::{Action, Hooks as _, Kind, User, Violations, custom};
use mizzen_registry::{Revision, Store};
use mizzen_value::{Value, yaml};

use crate::catalog::ServedKind;
use crate::crd::{CrdConverter, CrdDependencies};
use mizzen_openapi::Published;

/// The served kinds of a CustomResourceDefinition, or all its violations.
pub(super) fn read(text: &str, store: &Store) -> Result<Vec<ServedKind>, String> {
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
    let kinds: Arc<[Kind]> = custom::kinds(&definition, &means.object_meta).into();
    let converter = CrdConverter::new(&definition, &kinds, Revision(0), &means).map(Arc::new);
    let converter = converter.ok_or("it stores no version")?;
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
