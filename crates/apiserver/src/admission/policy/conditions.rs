//! `matchConditions` of policies and webhooks.

use std::sync::Arc;

use mizzen_apiextensions::expression::{ExpressionCompiler, ExpressionResult, ExpressionVariables};
use mizzen_object::Status;
use mizzen_value::Value;

use super::activation::{CONDITIONS_BUDGET, ExpressionBatch, OptionalVariables, PolicyActivation};
use super::authorizer::AuthorizerChecks;
use super::spec::{PolicyExpression, Variables};
use crate::admission::webhook::VersionedAttributes;
use crate::admission::webhook::matching::MatchedVersion;

/// Whether all conditions are true. A single false one decides, whatever the errors of the rest. The error is for
/// `failurePolicy: Fail`.
pub(super) async fn hold(
    conditions: &[PolicyExpression],
    variables: &Variables,
    activation: &PolicyActivation,
) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let expressions: Vec<&PolicyExpression> = conditions.iter().collect();
    let evaluation = ExpressionBatch {
        variables,
        expressions: &expressions,
        optional: OptionalVariables {
            namespace: false,
            ..OptionalVariables::ALL
        },
        budget: CONDITIONS_BUDGET,
    };
    let results = activation
        .evaluate(evaluation, |value| value.as_bool())
        .await;
    let (results, _) = results.map_err(|error| error.to_string())?;
    if results.contains(&Ok(Some(false))) {
        return Ok(false);
    }
    let problems: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        Ok(true)
    } else {
        Err(mizzen_authorization::join_errors(&problems))
    }
}

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub(crate) struct MatchConditions(Vec<PolicyExpression>);

impl MatchConditions {
    /// Reads the field `matchConditions`.
    pub(crate) fn parse(conditions: &Value) -> MatchConditions {
        let (compiler, scope) = (
            ExpressionCompiler::default(),
            ExpressionVariables {
                authorizer: true,
                ..ExpressionVariables::default()
            },
        );
        let texts = conditions
            .list()
            .iter()
            .map(|condition| condition["expression"].str());
        MatchConditions(
            texts
                .map(|text| PolicyExpression::new(&compiler, text, scope, ExpressionResult::Bool))
                .collect(),
        )
    }

    /// Whether all of them are true for a request in the given version.
    pub(crate) async fn hold(
        &self,
        attributes: &VersionedAttributes<'_>,
        version: &MatchedVersion,
    ) -> Result<Result<bool, String>, Status> {
        if self.0.is_empty() {
            return Ok(Ok(true));
        }
        let activation = activation(attributes, version).await?;
        Ok(hold(&self.0, &Variables::new(), &activation).await)
    }
}

/// The variables of a request in a version, without namespace and parameters.
pub(super) async fn activation(
    attributes: &VersionedAttributes<'_>,
    version: &MatchedVersion,
) -> Result<PolicyActivation, Status> {
    Ok(PolicyActivation {
        object: attributes
            .shown(attributes.object, &version.resource)
            .await?,
        old: attributes.shown(attributes.old, &version.resource).await?,
        request: attributes.request(version)?,
        questions: Some(Arc::new(AuthorizerChecks::of(attributes))),
        ..PolicyActivation::default()
    })
}
