//! What can be said along with a request, and what it means.

use mizzen_object::schema::{Shape, Struct};

/// A parameter in the path or the query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// `path` or `query`.
    pub place: &'static str,
    /// Its type in JSON.
    pub ty: &'static str,
    /// What it means.
    pub description: String,
}

/// What a list or watch takes.
pub const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];

/// What a write takes.
pub const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

/// What a patch takes.
pub const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

/// What a deletion takes.
pub const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

/// What the deletion of a collection takes besides.
pub const SELECT: &[&str] = &[
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// Parameters of the query, by name.
pub fn query(names: &[&str]) -> impl Iterator<Item = Parameter> {
    names.iter().map(|name| {
        let (ty, description) = known(name);
        Parameter { name: name.to_string(), place: "query", ty, description: description.into() }
    })
}

/// A parameter that is part of the path.
pub fn path(name: &str, description: String) -> Parameter {
    Parameter { name: name.into(), place: "path", ty: "string", description }
}

/// The fields of an options type, which a query can set; those of types that it cannot are left out.
pub fn options(ty: &Struct) -> impl Iterator<Item = Parameter> {
    ty.fields().iter().filter(|field| field.tag != 0).filter_map(|field| {
        let ty = match field.ty.item().unwrap_or(&field.ty).shape {
            Shape::Bool => "boolean",
            Shape::Int32 | Shape::Int64 => "integer",
            Shape::String => "string",
            _ => return None,
        };
        let description = known(&field.name).1.into();
        Some(Parameter { name: field.name.to_string(), place: "query", ty, description })
    })
}

fn known(name: &str) -> (&'static str, &'static str) {
    match name {
        "allowWatchBookmarks" => ("boolean", "Asks a watch for events of type BOOKMARK. Only for watches."),
        "command" => ("string", "The command to run, an argument each time. No shell is involved."),
        "container" => ("string", "The container; may be left out if the pod has only one."),
        "continue" => (
            "string",
            "Continues a list where the last one stopped: the token that its answer had. The other parameters must \
             be the same. A token that is too old is refused with 410 and a new, inconsistent one.",
        ),
        "dryRun" => ("string", "What not to do: `All` does everything but keep the result."),
        "fieldManager" => (
            "string",
            "Who makes the change, of at most 128 printable characters. An apply request must say it.",
        ),
        "fieldSelector" => ("string", "Only objects whose fields match. Defaults to everything."),
        "fieldValidation" => (
            "string",
            "What to do with unknown and repeated fields: `Ignore` drops them, `Warn` (the default) also says so in \
             a warning, `Strict` refuses the request.",
        ),
        "follow" => ("boolean", "Whether to go on with what is logged later."),
        "force" => (
            "boolean",
            "Takes over fields that others manage when they are applied with other values. Only for apply.",
        ),
        "gracePeriodSeconds" => ("integer", "How long the object may take to end, in seconds; 0 is at once."),
        "ignoreStoreReadErrorWithClusterBreakingPotential" => (
            "boolean",
            "Deletes an object although it cannot be read from the store. What depends on it may be left behind.",
        ),
        "insecureSkipTLSVerifyBackend" => {
            ("boolean", "Whether to trust the node whatever certificate it shows.")
        }
        "labelSelector" => ("string", "Only objects whose labels match. Defaults to everything."),
        "limit" => (
            "integer",
            "At most so many objects; if there are more, the answer has a token for `continue`. All pieces together \
             show one moment. Not for watches.",
        ),
        "limitBytes" => ("integer", "At most so many bytes."),
        "orphanDependents" => ("boolean", "Deprecated: use propagationPolicy. Whether dependents are kept."),
        "path" => ("string", "The path to ask behind the proxy."),
        "ports" => ("integer", "The ports to forward, one each time."),
        "pretty" => ("string", "Whether to indent the answer."),
        "previous" => ("boolean", "Whether to show what the container before this one logged."),
        "propagationPolicy" => (
            "string",
            "What happens to dependents: `Orphan` keeps them, `Background` deletes them afterwards, `Foreground` \
             before the object itself.",
        ),
        "resourceVersion" => {
            ("string", "How new the answer must be; see resourceVersionMatch. Defaults to unset.")
        }
        "resourceVersionMatch" => (
            "string",
            "How resourceVersion is meant: `Exact`, or `NotOlderThan` to allow anything newer. Defaults to unset.",
        ),
        "sendInitialEvents" => (
            "boolean",
            "Starts a watch with an event for each object that there is, and marks their end by a bookmark with the \
             annotation `k8s.io/initial-events-end`. Needs resourceVersionMatch `NotOlderThan`.",
        ),
        "shardSelector" => ("string", "Only objects whose hash is in the given ranges."),
        "sinceSeconds" => ("integer", "Only what was logged in the last so many seconds."),
        "stderr" => ("boolean", "Whether to read what it writes to its standard error."),
        "stdin" => ("boolean", "Whether to write to its standard input."),
        "stdout" => ("boolean", "Whether to read what it writes to its standard output."),
        "stream" => ("string", "Which stream: `All`, `Stdout` or `Stderr`."),
        "tailLines" => ("integer", "Only so many of the last lines."),
        "timeoutSeconds" => ("integer", "When to end a list or a watch, in seconds."),
        "timestamps" => ("boolean", "Whether to put the time before each line."),
        "tty" => ("boolean", "Whether it is to have a terminal."),
        "watch" => ("boolean", "Streams changes instead of answering a list."),
        _ => ("string", ""),
    }
}
