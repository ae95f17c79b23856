//! Which requests are remembered, and how much of each? The first rule that fits says it.

mod read;
mod rule;
#[cfg(test)]
mod tests;

pub use read::PolicyError;
use rule::AuditRule;

use crate::authorization::Attributes;

/// How much of a request is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// Nothing.
    None,
    /// Who, what, when, and what came of it.
    Metadata,
    /// The object that was sent, too.
    Request,
    /// And the object that was sent back.
    RequestResponse,
}

impl AuditLevel {
    pub(super) const ALL: [AuditLevel; 4] = [
        AuditLevel::None,
        AuditLevel::Metadata,
        AuditLevel::Request,
        AuditLevel::RequestResponse,
    ];

    /// As files and events call it.
    pub fn name(self) -> &'static str {
        match self {
            AuditLevel::None => "None",
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
            AuditLevel::RequestResponse => "RequestResponse",
        }
    }
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditStage {
    /// It has come.
    RequestReceived,
    /// The head of the answer is on its way; told only of requests that take long.
    ResponseStarted,
    /// The answer is whole.
    ResponseComplete,
    /// The server has failed it.
    Panic,
}

impl AuditStage {
    pub(super) const ALL: [AuditStage; 4] = [
        AuditStage::RequestReceived,
        AuditStage::ResponseStarted,
        AuditStage::ResponseComplete,
        AuditStage::Panic,
    ];

    /// As files and events call it.
    pub fn name(self) -> &'static str {
        match self {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::ResponseStarted => "ResponseStarted",
            AuditStage::ResponseComplete => "ResponseComplete",
            AuditStage::Panic => "Panic",
        }
    }
}

/// Some stages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stages(u8);

impl Stages {
    pub(super) fn has(self, stage: AuditStage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn with(self, stage: AuditStage) -> Stages {
        Stages(self.0 | 1 << stage as u8)
    }

    fn union(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}

/// What the policy says of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyDecision {
    pub level: AuditLevel,
    /// The stages that are not told of.
    pub omitted: Stages,
    /// Whether objects are told of without who owns which of their fields.
    pub omits_managed_fields: bool,
}

/// The rules, in order.
#[derive(Debug, Clone)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
}

impl AuditPolicy {
    /// What is remembered of a request; `known` says whether we know whose it is. Nothing if no rule fits.
    pub(super) fn evaluate(&self, attributes: &Attributes, known: bool) -> PolicyDecision {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.matches(attributes, known));
        rule.map_or(
            PolicyDecision {
                level: AuditLevel::None,
                omitted: Stages::default(),
                omits_managed_fields: false,
            },
            |rule| rule.decision,
        )
    }
}
