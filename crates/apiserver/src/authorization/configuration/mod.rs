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

use super::webhook::Settings;

/// Those who decide, in the order in which they are asked.
#[derive(Debug, Clone)]
pub struct Authorization(pub Vec<Entry>);

/// One who decides.
#[derive(Debug, Clone)]
pub struct Entry {
    /// How metrics call them.
    pub name: Str,
    /// How they decide.
    pub mode: Mode,
}

/// A way of deciding.
#[derive(Debug, Clone)]
pub enum Mode {
    /// What nodes may do follows from the pods that they run.
    Node,
    /// By roles and bindings.
    Rbac,
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is allowed.
    AlwaysDeny,
    /// Somebody else is asked.
    Webhook(Arc<Settings>),
}

/// Why an authorization cannot be gone by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(pub(super) String);

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
        Authorization([Mode::Node, Mode::Rbac].map(Entry::plain).into())
    }
}

impl Authorization {
    /// Reads an AuthorizationConfiguration, and the kubeconfig files that it names.
    pub fn parse(text: &[u8]) -> Result<Authorization, ConfigurationError> {
        let document = read::document(text).map_err(|why| {
            ConfigurationError(format!(
                "failed to load AuthorizationConfiguration from file: {why}"
            ))
        })?;
        validate::authorization(&document)
    }

    /// Whether it may take over from what the server was started with. Who was there must stay, and who was not cannot
    /// come: webhooks alone come and go.
    pub(super) fn check_successor_of(
        &self,
        started: &Authorization,
    ) -> Result<(), ConfigurationError> {
        let mut gone: Vec<&str> = started.lasting().filter(|word| !self.has(word)).collect();
        gone.sort_unstable();
        if !gone.is_empty() {
            return Err(ConfigurationError(format!(
                "missing required types: [{}]",
                gone.join(" ")
            )));
        }
        match self
            .lasting()
            .find(|word| matches!(*word, "Node" | "RBAC") && !started.has(word))
        {
            None => Ok(()),
            Some(word) => Err(ConfigurationError(format!(
                "authorizer type {word} is not allowed if it was not enabled at initial server startup"
            ))),
        }
    }

    fn lasting(&self) -> impl Iterator<Item = &'static str> {
        self.0
            .iter()
            .map(|entry| entry.mode.word())
            .filter(|word| *word != "Webhook")
    }

    fn has(&self, word: &str) -> bool {
        self.0.iter().any(|entry| entry.mode.word() == word)
    }
}

impl Entry {
    /// One that needs no name of its own.
    pub fn plain(mode: Mode) -> Entry {
        Entry {
            name: mode.word().to_ascii_lowercase().into(),
            mode,
        }
    }
}

impl Mode {
    /// The mode of a name that needs no settings. None if there is no such mode, or it is a webhook.
    pub fn named(word: &str) -> Result<Option<Mode>, ConfigurationError> {
        Ok(Some(match word {
            "Node" => Mode::Node,
            "RBAC" => Mode::Rbac,
            "AlwaysAllow" => Mode::AlwaysAllow,
            "AlwaysDeny" => Mode::AlwaysDeny,
            "ABAC" => return Err(ConfigurationError(NO_ABAC.into())),
            _ => return Ok(None),
        }))
    }

    /// How files, flags and metrics call it.
    pub fn word(&self) -> &'static str {
        match self {
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Webhook(_) => "Webhook",
        }
    }
}

impl ConfigurationError {
    /// All that is wrong in one line; none if nothing is.
    pub fn of(problems: Vec<String>) -> Option<ConfigurationError> {
        in_one(problems).map(ConfigurationError)
    }
}

/// The types of `types.kinds`.
fn schemas() -> Schemas {
    let files = [("types.kinds", include_str!("types.kinds"))];
    schema::parse(files).expect("types.kinds makes sense")
}

/// A type of `types.kinds`.
pub(super) fn shape(name: &str) -> Arc<Struct> {
    schemas()
        .types
        .get(name)
        .cloned()
        .expect("types.kinds has what is read")
}
