//! The audit policy: the first matching rule selects the audit level of a request.

mod read;
mod rule;
#[cfg(test)]
mod tests;

pub use read::PolicyError;
use rule::AuditRule;

use mizzen_request::Attributes;

/// The audit level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// The request is not audited.
    None,
    /// Metadata of the request and its result.
    Metadata,
    /// Also the request object.
    Request,
    /// Also the response object.
    RequestResponse,
}

impl AuditLevel {
    pub(super) const ALL: [AuditLevel; 4] = [
        AuditLevel::None,
        AuditLevel::Metadata,
        AuditLevel::Request,
        AuditLevel::RequestResponse,
    ];

    /// The name in policies and events.
    pub fn name(self) -> &'static str {
        match self {
            AuditLevel::None => "None",
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
            AuditLevel::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditStage {
    /// The request has arrived.
    RequestReceived,
    /// The response headers are sent; only of long-running requests.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The handler has panicked.
    Panic,
}

impl AuditStage {
    pub(super) const ALL: [AuditStage; 4] = [
        AuditStage::RequestReceived,
        AuditStage::ResponseStarted,
        AuditStage::ResponseComplete,
        AuditStage::Panic,
    ];

    /// The name in policies and events.
    pub fn name(self) -> &'static str {
        match self {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::ResponseStarted => "ResponseStarted",
            AuditStage::ResponseComplete => "ResponseComplete",
            AuditStage::Panic => "Panic",
        }
    }
}

/// A set of stages.
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

/// What the policy selects for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyDecision {
    pub level: AuditLevel,
    /// Stages without events.
    pub omitted: Stages,
    /// Whether `managedFields` are removed from objects.
    pub omits_managed_fields: bool,
}

/// The audit policy.
#[derive(Debug, Clone)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
}

impl AuditPolicy {
    /// Evaluates the rules; `known` says whether the request is authenticated. Level None if no
    /// rule matches.
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
