//! Which requests are remembered, and how much of each? The first rule that fits says it.

mod read;
mod rule;
#[cfg(test)]
mod tests;

pub use read::PolicyError;
use rule::Rule;

use crate::authorization::Attributes;

/// How much of a request is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what, when, and what came of it.
    Metadata,
    /// The object that was sent, too.
    Request,
    /// And the object that was sent back.
    RequestResponse,
}

impl Level {
    pub(super) const ALL: [Level; 4] = [
        Level::None,
        Level::Metadata,
        Level::Request,
        Level::RequestResponse,
    ];

    /// As files and events call it.
    pub fn word(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has come.
    RequestReceived,
    /// The head of the answer is on its way; told only of requests that take long.
    ResponseStarted,
    /// The answer is whole.
    ResponseComplete,
    /// The server has failed it.
    Panic,
}

impl Stage {
    pub(super) const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// As files and events call it.
    pub fn word(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// Some stages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stages(u8);

impl Stages {
    pub(super) fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn with(self, stage: Stage) -> Stages {
        Stages(self.0 | 1 << stage as u8)
    }

    fn and(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}

/// What the policy says of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    pub level: Level,
    /// The stages that are not told of.
    pub omitted: Stages,
    /// Whether objects are told of without who owns which of their fields.
    pub omits_managed_fields: bool,
}

/// The rules, in order.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// What is remembered of a request; `known` says whether we know whose it is. Nothing if no rule fits.
    pub(super) fn judge(&self, attributes: &Attributes, known: bool) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.fits(attributes, known));
        rule.map_or(
            Verdict {
                level: Level::None,
                omitted: Stages::default(),
                omits_managed_fields: false,
            },
            |rule| rule.verdict,
        )
    }
}
