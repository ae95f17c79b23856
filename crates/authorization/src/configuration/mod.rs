//! Which authorizers a server has, in order: from flags, or from an AuthorizationConfiguration.
//!
//! `read` decodes the file, `validate` validates it; errors read as upstream's.

mod read;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use mizzen_object::aggregate;
use mizzen_object::schema::{self, Schemas, Struct};
use mizzen_value::Str;

use super::webhook::WebhookSettings;

/// The authorizers, in order.
#[derive(Debug, Clone)]
pub struct Authorization(pub Vec<AuthorizerConfiguration>);

/// One authorizer.
#[derive(Debug, Clone)]
pub struct AuthorizerConfiguration {
    /// The name in metrics.
    pub name: Str,
    /// The type of the authorizer.
    pub kind: AuthorizerType,
}

/// The type of an authorizer.
#[derive(Debug, Clone)]
pub enum AuthorizerType {
    /// The node authorizer.
    Node,
    /// RBAC.
    Rbac,
    /// AlwaysAllow.
    AlwaysAllow,
    /// AlwaysDeny.
    AlwaysDeny,
    /// A webhook.
    Webhook(Arc<WebhookSettings>),
}

/// Why an authorization configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthorizationConfigurationError(pub(super) String);

/// The names of all types, sorted as upstream lists them. ABAC is not supported.
pub(super) const MODES: [&str; 6] = [
    "ABAC",
    "AlwaysAllow",
    "AlwaysDeny",
    "Node",
    "RBAC",
    "Webhook",
];

const NO_ABAC: &str = "the mode ABAC is not supported: roles say the same (RBAC)";

impl Default for Authorization {
    /// The node authorizer, then RBAC.
    fn default() -> Authorization {
        Authorization(
            [AuthorizerType::Node, AuthorizerType::Rbac]
                .map(AuthorizerConfiguration::with_default_name)
                .into(),
        )
    }
}

impl Authorization {
    /// Reads an AuthorizationConfiguration, and the kubeconfig files that it names.
    pub fn parse(text: &[u8]) -> Result<Authorization, AuthorizationConfigurationError> {
        let document = read::decode_document(text).map_err(|why| {
            AuthorizationConfigurationError(format!(
                "failed to load AuthorizationConfiguration from file: {why}"
            ))
        })?;
        validate::validate_configuration(&document)
    }

    /// Whether it may replace the configuration of start-up. Only webhooks can be added and
    /// removed.
    pub(super) fn check_successor_of(
        &self,
        started: &Authorization,
    ) -> Result<(), AuthorizationConfigurationError> {
        let mut gone: Vec<&str> = started.lasting().filter(|word| !self.has(word)).collect();
        gone.sort_unstable();
        if !gone.is_empty() {
            return Err(AuthorizationConfigurationError(format!(
                "missing required types: [{}]",
                gone.join(" ")
            )));
        }
        match self
            .lasting()
            .find(|word| matches!(*word, "Node" | "RBAC") && !started.has(word))
        {
            None => Ok(()),
            Some(word) => Err(AuthorizationConfigurationError(format!(
                "authorizer type {word} is not allowed if it was not enabled at initial server startup"
            ))),
        }
    }

    fn lasting(&self) -> impl Iterator<Item = &'static str> {
        self.0
            .iter()
            .map(|entry| entry.kind.name())
            .filter(|word| *word != "Webhook")
    }

    fn has(&self, word: &str) -> bool {
        self.0.iter().any(|entry| entry.kind.name() == word)
    }
}

impl AuthorizerConfiguration {
    /// An authorizer with the default name of its type.
    pub fn with_default_name(mode: AuthorizerType) -> AuthorizerConfiguration {
        AuthorizerConfiguration {
            name: mode.name().to_ascii_lowercase().into(),
            kind: mode,
        }
    }
}

impl AuthorizerType {
    /// The type of a name; none if it is unknown, or a webhook, which needs settings.
    pub fn named(word: &str) -> Result<Option<AuthorizerType>, AuthorizationConfigurationError> {
        Ok(Some(match word {
            "Node" => AuthorizerType::Node,
            "RBAC" => AuthorizerType::Rbac,
            "AlwaysAllow" => AuthorizerType::AlwaysAllow,
            "AlwaysDeny" => AuthorizerType::AlwaysDeny,
            "ABAC" => return Err(AuthorizationConfigurationError(NO_ABAC.into())),
            _ => return Ok(None),
        }))
    }

    /// The name in files, flags and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            AuthorizerType::Node => "Node",
            AuthorizerType::Rbac => "RBAC",
            AuthorizerType::AlwaysAllow => "AlwaysAllow",
            AuthorizerType::AlwaysDeny => "AlwaysDeny",
            AuthorizerType::Webhook(_) => "Webhook",
        }
    }
}

impl AuthorizationConfigurationError {
    /// All problems in one line; none if there are none.
    pub fn from_problems(problems: Vec<String>) -> Option<AuthorizationConfigurationError> {
        aggregate(problems).map(AuthorizationConfigurationError)
    }
}

/// The types of `types.kinds`.
fn schemas() -> Schemas {
    let files = [("types.kinds", include_str!("types.kinds"))];
    schema::parse(files).expect("types.kinds makes sense")
}

/// A type of `types.kinds`.
pub(super) fn config_type(name: &str) -> Arc<Struct> {
    schemas()
        .types
        .get(name)
        .cloned()
        .expect("types.kinds has what is read")
}
