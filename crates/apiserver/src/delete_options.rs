//! `DeleteOptions`, from a body of any group and version, or from the query.
//!
//! Kubernetes: `DeleteOptions` is an unversioned kind of the scheme that decodes option bodies
//! (apimachinery/pkg/apis/meta/internalversion). So any `apiVersion` is accepted, and `kind` may be missing.

use mizzen_object::{GroupVersionKind, Status, Violations};
use mizzen_registry::{DeleteOptions, Propagation};
use mizzen_value::{Str, Value, json};

use crate::decode::{self, TypedBody};
use crate::options::{dry_run, reject_violations};
use crate::request::{Request, RequestQuery};
use crate::server::ServerParts;

const META: &str = "meta.k8s.io";

/// Kinds that the scheme of option bodies has in every version.
const UNVERSIONED: &[&str] = &[
    "CreateOptions",
    "UpdateOptions",
    "Status",
    "APIVersions",
    "APIGroupList",
    "APIGroup",
    "APIResourceList",
];

/// Kinds that the scheme has in a version of its own group: version, kind, and the package of Go's type.
const VERSIONED: &[(&str, &str, &str)] = &[
    ("v1", "ListOptions", "v1"),
    ("v1", "GetOptions", "v1"),
    ("v1", "PatchOptions", "v1"),
    ("v1", "WatchEvent", "v1"),
    ("v1", "Table", "v1"),
    ("v1", "TableOptions", "v1"),
    ("v1", "PartialObjectMetadata", "v1"),
    ("v1", "PartialObjectMetadataList", "v1"),
    ("v1beta1", "Table", "v1"),
    ("v1beta1", "TableOptions", "v1"),
    ("v1beta1", "PartialObjectMetadata", "v1"),
    ("v1beta1", "PartialObjectMetadataList", "v1beta1"),
];

/// Reads the options of a delete from the body, or from the query if there is no body.
pub(crate) fn read(server: &ServerParts, request: &Request) -> Result<DeleteOptions, Status> {
    if request.body.is_empty() {
        return from_query(&request.query);
    }
    let form = decode::body_type(request)?;
    let root = &server.types.delete_options;
    let default = GroupVersionKind {
        group: META.into(),
        version: "v1".into(),
        kind: "DeleteOptions".into(),
    };
    let read = TypedBody::open(form, &request.body)
        .and_then(|body| {
            check_kind(&body.gvk(&default)?)?;
            body.decode(root).map_err(|error| error.to_string())
        })
        .map_err(Status::bad_request)?;
    request
        .record
        .set_request_object(&default, root, &read.value);
    from_value(&read.value)
}

/// Rejects a body of another kind, with the message of upstream's scheme.
fn check_kind(gvk: &GroupVersionKind) -> Result<(), String> {
    let GroupVersionKind {
        group,
        version,
        kind,
    } = gvk;
    if kind == "DeleteOptions" {
        return Ok(());
    }
    let versioned = VERSIONED
        .iter()
        .find(|known| group == META && version == known.0 && kind == known.1);
    let package = versioned
        .map(|known| known.2)
        .or(UNVERSIONED.contains(&kind.as_str()).then_some("v1"));
    if let Some(package) = package {
        return Err(format!(
            "converting ({package}.{kind}) to (v1.DeleteOptions): unknown conversion"
        ));
    }
    let (kind, version) = (json::quote(kind), json::quote(&gvk.api_version()));
    Err(format!(
        "no kind {kind} is registered for version {version} in scheme \
         \"pkg/apis/meta/internalversion/scheme/register.go:27\""
    ))
}

fn from_query(query: &RequestQuery) -> Result<DeleteOptions, Status> {
    let grace = query
        .int("gracePeriodSeconds")
        .map_err(Status::bad_request)?;
    let precondition = |key: &str| {
        query
            .get(key)
            .filter(|text| !text.is_empty())
            .map(String::from)
    };
    let options = DeleteOptions {
        grace,
        orphan_dependents: query.bool("orphanDependents"),
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
        ..DeleteOptions::default()
    };
    validate(
        options,
        query.get("propagationPolicy"),
        &query.all("dryRun"),
    )
}

/// Reads the options of a delete that another object carries, such as an Eviction.
pub fn from_value(value: &Value) -> Result<DeleteOptions, Status> {
    let text = |value: &Value| value.as_str().map(String::from);
    let options = DeleteOptions {
        grace: value["gracePeriodSeconds"].as_int(),
        orphan_dependents: value["orphanDependents"].as_bool(),
        uid: text(&value["preconditions"]["uid"]),
        version: text(&value["preconditions"]["resourceVersion"]),
        ..DeleteOptions::default()
    };
    let dry: Vec<&str> = value["dryRun"].list().iter().map(Value::str).collect();
    validate(options, value["propagationPolicy"].as_str(), &dry)
}

/// Reports every violation, in the order of upstream's `ValidateDeleteOptions`.
fn validate(
    mut options: DeleteOptions,
    policy: Option<&str>,
    dry: &[&str],
) -> Result<DeleteOptions, Status> {
    const FIELD: &str = "propagationPolicy";
    let mut violations = Violations::default();
    if options.orphan_dependents.is_some() && policy.is_some() {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        violations.invalid(FIELD, policy.map(Str::from), detail);
    }
    options.propagation = match policy {
        None => None,
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            violations.not_supported(FIELD, other, &["Foreground", "Background", "Orphan", "nil"]);
            None
        }
    };
    options.dry_run = dry_run(dry, &mut violations);
    reject_violations("DeleteOptions", violations)?;
    Ok(options)
}
