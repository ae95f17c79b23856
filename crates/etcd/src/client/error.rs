//! Why a call failed, and whether etcd may have executed it nevertheless.

use std::error::Error;

use tonic::{Code, Status, TimeoutExpired};

use super::connect::DialError;

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE_REVISION: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_LEADER: &str = "etcdserver: no leader";

/// Whether a call that failed may have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has not: the request never reached etcd, or etcd rejected it.
    NotExecuted,
    /// It may have: the connection broke, or the deadline passed, before the response came.
    Unknown,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The gRPC code. Whatever is wrong with a connection is [`Code::Unavailable`], as in etcd's own client.
    pub code: Code,
    /// What etcd says, or what is wrong with the connection.
    pub message: String,
    /// Whether the call may have been executed.
    pub outcome: Outcome,
}

impl CallError {
    /// Whether the revision of a read or of a watch has been compacted.
    pub fn is_compacted(&self) -> bool {
        self.code == Code::OutOfRange && self.message == COMPACTED
    }

    /// Whether the revision of a read is one that the store has not reached.
    pub fn is_future_revision(&self) -> bool {
        self.code == Code::OutOfRange && self.message == FUTURE_REVISION
    }

    /// Whether the request is larger than etcd, or this client, accepts.
    ///
    /// Kubernetes: both are 413 to the user (apiserver/pkg/endpoints/handlers/rest.go).
    pub fn is_too_large(&self) -> bool {
        match self.code {
            Code::InvalidArgument => self.message == "etcdserver: request is too large",
            Code::ResourceExhausted => self.message.contains("message larger than max"),
            _ => false,
        }
    }

    /// Whether etcd has reached the limit of its size. It answers reads; 3.5 before 3.5.7 refuses a transaction that only
    /// deletes, too.
    pub fn is_no_space(&self) -> bool {
        self.code == Code::ResourceExhausted
            && self.message == "etcdserver: mvcc: database space exceeded"
    }

    /// Whether the lease of a write has expired, or never was.
    pub fn is_lease_not_found(&self) -> bool {
        self.code == Code::NotFound && self.message == "etcdserver: requested lease not found"
    }

    /// Whether no member could answer: no connection, no leader, no quorum.
    pub fn is_unavailable(&self) -> bool {
        self.code == Code::Unavailable
    }

    /// Whether the deadline passed first.
    pub fn is_deadline_exceeded(&self) -> bool {
        self.code == Code::DeadlineExceeded
    }

    /// Whether another member may do better.
    pub(super) fn is_about_the_member(&self) -> bool {
        self.is_unavailable() || self.is_deadline_exceeded()
    }

    pub(super) fn not_executed(code: Code, message: impl Into<String>) -> CallError {
        let (message, outcome) = (message.into(), Outcome::NotExecuted);
        CallError {
            code,
            message,
            outcome,
        }
    }

    pub(super) fn unknown(code: Code, message: impl Into<String>) -> CallError {
        let (message, outcome) = (message.into(), Outcome::Unknown);
        CallError {
            code,
            message,
            outcome,
        }
    }

    /// In Go's words, with what was wrong before, if something was.
    pub(super) fn deadline_exceeded(endpoint: &str) -> CallError {
        let message = format!("context deadline exceeded: no response from {endpoint}");
        CallError::unknown(Code::DeadlineExceeded, message)
    }

    /// As etcd's own client refuses it (`MaxCallSendMsgSize`).
    pub(super) fn larger_than_max(length: usize, max: usize) -> CallError {
        let message = format!("trying to send message larger than max ({length} vs. {max})");
        CallError::not_executed(Code::ResourceExhausted, message)
    }

    pub(super) fn compacted() -> CallError {
        CallError::not_executed(Code::OutOfRange, COMPACTED)
    }

    pub(super) fn future_revision() -> CallError {
        CallError::not_executed(Code::OutOfRange, FUTURE_REVISION)
    }

    /// The error of a call to the member at `endpoint`, whose last connection ended because of `last_error`.
    pub(super) fn from_status(
        status: &Status,
        endpoint: &str,
        last_error: Option<String>,
    ) -> CallError {
        // Only the transport puts a source into a status; one that the server sent has none.
        match status.source() {
            Some(cause) => from_transport(cause, endpoint, last_error),
            None => from_server(status),
        }
    }
}

fn from_server(status: &Status) -> CallError {
    let (mut code, message) = (status.code(), status.message());
    // etcd may notice the deadline first, and tells it without its code.
    if code == Code::Unknown && message == "context deadline exceeded" {
        code = Code::DeadlineExceeded;
    }
    let outcome = match code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => Outcome::NotExecuted,
        // Not a response that is too large to be sent: that of an executed request.
        Code::ResourceExhausted
            if message.starts_with("etcdserver: ")
                || message.contains("received message larger than max") =>
        {
            Outcome::NotExecuted
        }
        // etcd checks for a leader before it executes a call that requires one (`require_leader`).
        Code::Unavailable if message == NO_LEADER => Outcome::NotExecuted,
        _ => Outcome::Unknown,
    };
    CallError {
        code,
        message: message.to_owned(),
        outcome,
    }
}

fn from_transport(
    first: &(dyn Error + 'static),
    endpoint: &str,
    last_error: Option<String>,
) -> CallError {
    let mut cause = first;
    let mut outcome = Outcome::Unknown;
    loop {
        if let Some(dial) = cause.downcast_ref::<DialError>() {
            return CallError::not_executed(Code::Unavailable, dial.to_string());
        }
        if cause.is::<TimeoutExpired>() {
            return CallError::deadline_exceeded(endpoint);
        }
        // hyper cancels a request that was still queued when its connection ended.
        if cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            outcome = Outcome::NotExecuted;
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => break,
        }
    }
    let reason = last_error.unwrap_or_else(|| cause.to_string());
    CallError {
        code: Code::Unavailable,
        message: format!("connection to {endpoint}: {reason}"),
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Code, message: &str, expected: Outcome) -> CallError {
        let endpoint = "http://127.0.0.1:2379";
        let error = CallError::from_status(&Status::new(code, message), endpoint, None);
        assert_eq!(error.outcome, expected, "{code:?}: {message}");
        error
    }

    #[test]
    fn a_rejected_call_was_not_executed_and_an_interrupted_one_may_have_been() {
        assert!(check(Code::OutOfRange, COMPACTED, Outcome::NotExecuted).is_compacted());
        assert!(
            check(Code::OutOfRange, FUTURE_REVISION, Outcome::NotExecuted).is_future_revision()
        );
        let space = "etcdserver: mvcc: database space exceeded";
        assert!(check(Code::ResourceExhausted, space, Outcome::NotExecuted).is_no_space());
        let large = "etcdserver: request is too large";
        assert!(check(Code::InvalidArgument, large, Outcome::NotExecuted).is_too_large());
        let lease = "etcdserver: requested lease not found";
        assert!(check(Code::NotFound, lease, Outcome::NotExecuted).is_lease_not_found());
        assert!(check(Code::Unavailable, NO_LEADER, Outcome::NotExecuted).is_unavailable());

        let slow = "etcdserver: request timed out";
        assert!(check(Code::Unavailable, slow, Outcome::Unknown).is_unavailable());
        check(
            Code::Unavailable,
            "etcdserver: leader changed",
            Outcome::Unknown,
        );
        let response = "grpc: trying to send message larger than max (9 vs. 8)";
        check(Code::ResourceExhausted, response, Outcome::Unknown);
        check(Code::Unknown, "raft: stopped", Outcome::Unknown);
        let late = "context deadline exceeded";
        assert!(check(Code::Unknown, late, Outcome::Unknown).is_deadline_exceeded());
    }

    #[test]
    fn a_request_that_is_too_large_to_send_is_too_large() {
        let error = CallError::larger_than_max(3 << 20, 2 << 20);
        assert!(error.is_too_large());
        assert_eq!(error.outcome, Outcome::NotExecuted);
    }
}
