//! Does a policy or webhook want to have a say in this very request?

use std::sync::Arc;

use mizzen_apiextensions::expression::{Compiler, Scope, Wanted};
use mizzen_object::Status;
use mizzen_value::Value;

use super::questions::Questions;
use super::scene::{CONDITIONS_BUDGET, Scene, Sight};
use super::spec::{Expression, Variables};
use crate::admission::webhook::Attributes;
use crate::admission::webhook::matching::Version;
use crate::authorization;

/// Whether all conditions hold. One that does not is enough to say no, whatever is wrong with others. The error is
/// for those who want to fail.
pub(super) async fn hold(
    conditions: &[Expression],
    variables: &Variables,
    scene: &Scene,
) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let expressions: Vec<&Expression> = conditions.iter().collect();
    let sight = Sight {
        namespace: false,
        ..Sight::ALL
    };
    let results = scene
        .evaluate(variables, &expressions, sight, CONDITIONS_BUDGET, |value| {
            value.as_bool()
        })
        .await;
    let (results, _) = results.map_err(|error| error.to_string())?;
    if results.contains(&Ok(Some(false))) {
        return Ok(false);
    }
    let problems: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        Ok(true)
    } else {
        Err(authorization::aggregate(&problems))
    }
}

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Vec<Expression>);

impl Conditions {
    /// Reads the field `matchConditions`.
    pub(crate) fn parse(conditions: &Value) -> Conditions {
        let (compiler, scope) = (
            Compiler::default(),
            Scope {
                authorizer: true,
                ..Scope::default()
            },
        );
        let texts = conditions
            .list()
            .iter()
            .map(|condition| condition["expression"].str());
        Conditions(
            texts
                .map(|text| Expression::new(&compiler, text, scope, Wanted::Bool))
                .collect(),
        )
    }

    /// Whether all of them hold for a request in the version in which it is shown.
    pub(crate) async fn hold(
        &self,
        attributes: &Attributes<'_>,
        version: &Version,
    ) -> Result<Result<bool, String>, Status> {
        if self.0.is_empty() {
            return Ok(Ok(true));
        }
        let scene = scene(attributes, version).await?;
        Ok(hold(&self.0, &Variables::new(), &scene).await)
    }
}

/// What a request's expressions see in a version, but for the namespace and parameters.
pub(super) async fn scene(attributes: &Attributes<'_>, version: &Version) -> Result<Scene, Status> {
    Ok(Scene {
        object: attributes
            .shown(attributes.object, &version.resource)
            .await?,
        old: attributes.shown(attributes.old, &version.resource).await?,
        request: attributes.request(version)?,
        questions: Some(Arc::new(Questions::of(attributes))),
        ..Scene::default()
    })
}
