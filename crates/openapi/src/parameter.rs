//! Parameters of operations.

use mizzen_object::schema::{FieldShape, Struct};

/// A path or query parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    /// Its name.
    pub name: String,
    /// `path` or `query`.
    pub place: &'static str,
    /// The JSON type.
    pub ty: &'static str,
    /// The description.
    pub description: String,
}

/// The parameters of a list or watch.
pub(super) const LIST: &[&str] = &[
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

/// The parameters of a write.
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

/// The parameters of a deletion.
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

/// The additional parameters of `deletecollection`.
pub(super) const SELECT: &[&str] = &[
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

/// Query parameters by name.
pub(super) fn query(names: &[&str]) -> impl Iterator<Item = Parameter> {
    names.iter().map(|name| {
        let (ty, description) = query_parameter(name);
        Parameter {
            name: name.to_string(),
            place: "query",
            ty,
            description: description.into(),
        }
    })
}

/// The parameters of a patch. Kubernetes: `fieldManager` has another description here, because
/// server-side apply requires it.
pub(super) fn patch() -> impl Iterator<Item = Parameter> {
    query(&["dryRun", "fieldManager", "fieldValidation", "force"]).map(
        |parameter| match &*parameter.name {
            "fieldManager" => {
                let description = format!("{} Required for apply patches.", parameter.description);
                Parameter {
                    description,
                    ..parameter
                }
            }
            _ => parameter,
        },
    )
}

pub(super) fn path(name: &str, description: String) -> Parameter {
    Parameter {
        name: name.into(),
        place: "path",
        ty: "string",
        description,
    }
}

/// The query parameters of an options type; fields of types that a query cannot express are left
/// out.
pub(super) fn options(options: &Struct) -> impl Iterator<Item = Parameter> {
    options
        .fields()
        .iter()
        .filter(|field| field.tag != 0)
        .filter_map(|field| {
            let ty = match field.ty.item().unwrap_or(&field.ty).shape {
                FieldShape::Bool => "boolean",
                FieldShape::Int32 | FieldShape::Int64 => "integer",
                FieldShape::String => "string",
                _ => return None,
            };
            let description = option_description(&options.name, &field.name);
            Some(Parameter {
                name: field.name.to_string(),
                place: "query",
                ty,
                description: description.into(),
            })
        })
}

/// The description of an options field. The same name has different descriptions for different
/// subresources.
fn option_description(options: &str, name: &str) -> &'static str {
    match (options, name) {
        ("NodeProxyOptions", "path") => {
            "URL path of the request that is proxied to the node's kubelet."
        }
        ("PodProxyOptions", "path") => "URL path of the request that is proxied to the pod.",
        ("ServiceProxyOptions", "path") => {
            "URL path of the request that is proxied to an endpoint of the service, without the service's own name."
        }
        ("PodAttachOptions", "container") => {
            "Name of the container to attach to. May be omitted if the pod has one container."
        }
        ("PodExecOptions", "container") => {
            "Name of the container to run the command in. May be omitted if the pod has one container."
        }
        ("PodLogOptions", "container") => {
            "Name of the container whose log is returned. May be omitted if the pod has one container."
        }
        ("PodAttachOptions", "stderr") => {
            "Redirect the standard error stream of the container. Defaults to true."
        }
        ("PodAttachOptions", "stdin") => {
            "Redirect the standard input stream of the container. Defaults to false."
        }
        ("PodAttachOptions", "stdout") => {
            "Redirect the standard output stream of the container. Defaults to true."
        }
        ("PodAttachOptions", "tty") => "Whether the container has a terminal. Defaults to false.",
        ("PodExecOptions", "stderr") => "Redirect the standard error stream of the command.",
        ("PodExecOptions", "stdin") => {
            "Redirect the standard input stream of the command. Defaults to false."
        }
        ("PodExecOptions", "stdout") => "Redirect the standard output stream of the command.",
        ("PodExecOptions", "tty") => "Allocate a terminal for the command. Defaults to false.",
        _ => query_parameter(name).1,
    }
}

/// The type and the description of a query parameter.
fn query_parameter(name: &str) -> (&'static str, &'static str) {
    match name {
        "allowWatchBookmarks" => (
            "boolean",
            "Allow a watch to send events of type BOOKMARK, at the server's discretion. Ignored for lists.",
        ),
        "command" => (
            "string",
            "The command to run, one argument per occurrence. No shell is involved.",
        ),
        "continue" => (
            "string",
            "The continue token of the previous page of this list. All other parameters must be those of the first \
             page. An expired token is rejected with 410 and a token that continues from the latest state.",
        ),
        "dryRun" => (
            "string",
            "Process the request without persisting the result. The only valid value is `All`: every stage of the \
             request runs.",
        ),
        "fieldManager" => (
            "string",
            "Name of the field manager that makes the change: at most 128 printable characters. Defaults to the part \
             of the user agent before the first slash.",
        ),
        "fieldSelector" => (
            "string",
            "Restrict the list to objects whose fields match. Defaults to all objects.",
        ),
        "fieldValidation" => (
            "string",
            "How unknown and duplicate fields of the body are handled: `Ignore` drops them, `Warn` (the default) \
             also sends a warning for each, `Strict` rejects the request with all of them.",
        ),
        "follow" => (
            "boolean",
            "Stream the log as it is written. Defaults to false.",
        ),
        "force" => (
            "boolean",
            "Take over conflicting fields from their field managers. Only for apply patches; must be unset for others.",
        ),
        "gracePeriodSeconds" => (
            "integer",
            "Seconds until the object is deleted; 0 deletes it immediately. Defaults to the object's own grace period.",
        ),
        "ignoreStoreReadErrorWithClusterBreakingPotential" => (
            "boolean",
            "Delete an object that cannot be read from the store. Its dependents may be left behind and the cluster \
             may break.",
        ),
        "insecureSkipTLSVerifyBackend" => (
            "boolean",
            "Do not verify the serving certificate of the kubelet. The log may then come from another peer.",
        ),
        "labelSelector" => (
            "string",
            "Restrict the list to objects whose labels match. Defaults to all objects.",
        ),
        "limit" => (
            "integer",
            "Maximum number of objects in the response. If there are more, `metadata.continue` of the response is the \
             token for the next page; all pages show one consistent snapshot. Not supported for watches.",
        ),
        "limitBytes" => ("integer", "Maximum number of bytes of the log to return."),
        "orphanDependents" => (
            "boolean",
            "Deprecated: use propagationPolicy. Whether dependents are orphaned. Cannot be set with propagationPolicy.",
        ),
        "path" => ("string", "URL path of the request that is proxied."),
        "ports" => (
            "integer",
            "A port to forward; may be given several times. Required for WebSocket connections.",
        ),
        "pretty" => (
            "string",
            "If `true`, the response is indented. Defaults to `false` unless the user agent is a browser, curl or Wget.",
        ),
        "previous" => (
            "boolean",
            "Return the log of the previous, terminated instance of the container.",
        ),
        "propagationPolicy" => (
            "string",
            "How dependents are garbage collected: `Orphan` keeps them, `Background` deletes them after the object, \
             `Foreground` before it. Defaults to the policy of the kind. Cannot be set with orphanDependents.",
        ),
        "resourceVersion" => (
            "string",
            "Constraint on the resource version from which the request is served. Defaults to unset.",
        ),
        "resourceVersionMatch" => (
            "string",
            "How resourceVersion is applied to lists: `Exact` or `NotOlderThan`. Defaults to unset.",
        ),
        "sendInitialEvents" => (
            "boolean",
            "Start a watch with an ADDED event for each object that exists, followed by a bookmark with the annotation \
             `k8s.io/initial-events-end`. Requires resourceVersionMatch `NotOlderThan`; forbidden for lists.",
        ),
        "shardSelector" => (
            "string",
            "Restrict the list to objects whose hash of the named field is in the given range. Defaults to all objects.",
        ),
        "sinceSeconds" => (
            "integer",
            "Return only what was logged in the last so many seconds.",
        ),
        "stream" => (
            "string",
            "Which stream of the log to return: `All` (the default), `Stdout` or `Stderr`.",
        ),
        "tailLines" => (
            "integer",
            "Number of lines from the end of the log to return. Defaults to all lines.",
        ),
        "timeoutSeconds" => (
            "integer",
            "Seconds until the list or watch is ended, however active it is.",
        ),
        "timestamps" => (
            "boolean",
            "Prefix each line of the log with its RFC 3339 timestamp. Defaults to false.",
        ),
        "watch" => (
            "boolean",
            "Watch the described objects for changes instead of listing them.",
        ),
        _ => ("string", ""),
    }
}
