//! Who decides, and in which order? Modes by name, or the file that Kubernetes calls an AuthorizationConfiguration.
//!
//! `read` makes sense of the file's text, `validate` of what it says; what is wrong is said as upstream says it.

mod read;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use mizzen_object::in_one;
use mizzen_object::schema::{self, Schemas, Struct};
use mizzen_value::Str;

use super::webhook::WebhookSettings;

/// Those who decide, in the order in which they are asked.
#[derive(Debug, Clone)]
pub struct Authorization(pub Vec<AuthorizerConfiguration>);

/// One who decides.
#[derive(Debug, Clone)]
pub struct AuthorizerConfiguration {
    /// How metrics call them.
    pub name: Str,
    /// How they decide.
    pub kind: AuthorizerType,
}

/// A way of deciding.
#[derive(Debug, Clone)]
pub enum AuthorizerType {
    /// What nodes may do follows from the pods that they run.
    Node,
    /// By roles and bindings.
    Rbac,
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is allowed.
    AlwaysDeny,
    /// Somebody else is asked.
    Webhook(Arc<WebhookSettings>),
}

/// Why an authorization cannot be gone by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthorizationConfigurationError(pub(super) String);

/// The modes that have a name, sorted as upstream lists them. Kubernetes: ABAC is one; it is not ours.
pub(super) const MODES: [&str; 6] = [
    "ABAC",
    "AlwaysAllow",
    "AlwaysDeny",
    "Node",
    "RBAC",
    "Webhook",
];

/// Why there is no ABAC.
const NO_ABAC: &str = "the mode ABAC is not supported: roles say the same (RBAC)";

impl Default for Authorization {
    /// Nodes, then roles.
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

    /// Whether it may take over from what the server was started with. Who was there must stay, and who was not cannot
    /// come: webhooks alone come and go.
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
    /// One that needs no name of its own.
    pub fn with_default_name(mode: AuthorizerType) -> AuthorizerConfiguration {
        AuthorizerConfiguration {
            name: mode.name().to_ascii_lowercase().into(),
            kind: mode,
        }
    }
}

impl AuthorizerType {
    /// The mode of a name that needs no settings. None if there is no such mode, or it is a webhook.
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

    /// How files, flags and metrics call it.
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
    /// All that is wrong in one line; none if nothing is.
    pub fn from_problems(problems: Vec<String>) -> Option<AuthorizationConfigurationError> {
        in_one(problems).map(AuthorizationConfigurationError)
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
