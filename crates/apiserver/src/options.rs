//! The options of writes (`CreateOptions`, `UpdateOptions`, `PatchOptions`) and lists (`ListOptions`).

use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::validate::meta;
use mizzen_object::{GroupVersionKind, Kind, Path, Status, Violations};
use mizzen_registry::{ListOptions, Match, Selection};
use mizzen_value::{Value, json};

use crate::decode::{self, FieldValidation};
use crate::request::{Request, RequestQuery};

/// The options of create, update and patch.
pub struct WriteOptions {
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// What to do about unknown and duplicate fields.
    pub strictness: FieldValidation,
}

/// Reads the options of a write; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
pub fn write_options(request: &Request, kind: &str) -> Result<WriteOptions, Status> {
    if kind == "CreateOptions" {
        // Kubernetes: create checks the media type of the body before its options (handlers/create.go).
        decode::body_type(request)?;
    }
    let mut violations = Violations::default();
    if kind == "PatchOptions" {
        let is_apply = request
            .header("content-type")
            .starts_with("application/apply-patch");
        if is_apply && request.query.text("fieldManager").is_empty() {
            violations.required("fieldManager", "is required for apply patch");
        }
        if !is_apply && request.query.get("force").is_some() {
            violations.forbidden("force", "may not be specified for non-apply patch");
        }
    }
    let manager = request.query.text("fieldManager");
    if !manager.is_empty() {
        meta::field_manager(manager, &Path::new("fieldManager"), &mut violations);
    }
    let dry_run = dry_run(&request.query.all("dryRun"), &mut violations);
    let strictness = decode::field_validation(request, &mut violations);
    reject_violations(kind, violations)?;
    if kind == "PatchOptions" {
        request.record.set_request_patch(&request.body);
    }
    Ok(WriteOptions {
        dry_run,
        strictness,
    })
}

pub(crate) fn dry_run(values: &[&str], violations: &mut Violations) -> bool {
    if values.iter().any(|value| *value != "All") {
        let given = Value::List(values.iter().map(|value| Value::from(*value)).collect());
        violations.not_supported("dryRun", given, &["All"]);
    }
    !values.is_empty()
}

pub(crate) fn reject_violations(kind: &str, violations: Violations) -> Result<(), Status> {
    if violations.is_empty() {
        return Ok(());
    }
    let gvk = GroupVersionKind {
        group: "meta.k8s.io".into(),
        version: "v1".into(),
        kind: kind.into(),
    };
    Err(Status::invalid(&gvk, "", &violations))
}

/// The options of a list or watch, decoded from the query and validated.
///
/// Kubernetes: errors are reported in the order in which apimachinery converts the query (numbers, then selectors),
/// validates it, and converts field labels (handlers/get.go).
pub(crate) struct ListQuery {
    pub selection: Selection,
    pub timeout: Option<i64>,
    matching: Match,
    limit: i64,
}

impl ListQuery {
    pub(crate) fn parse(
        kind: &Kind,
        namespace: &str,
        name: &str,
        query: &RequestQuery,
        watch: bool,
    ) -> Result<ListQuery, Status> {
        let timeout = query.int("timeoutSeconds").map_err(Status::bad_request)?;
        let limit = query
            .int("limit")
            .map_err(Status::bad_request)?
            .unwrap_or_default();
        let labels =
            LabelSelector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let mut fields =
            FieldSelector::parse(query.text("fieldSelector")).map_err(Status::bad_request)?;
        let matching = version_match(query, watch)?;
        for (field, _, _) in &fields.terms {
            check_field_label(kind, field)?;
        }
        if !name.is_empty() {
            // Kubernetes: a field selector of a request for one name must select that name (handlers/get.go).
            if !fields.terms.is_empty() && fields.exact("metadata.name") != Some(name) {
                let problem = "fieldSelector metadata.name doesn't match requested name";
                return Err(Status::bad_request(problem));
            }
            fields
                .terms
                .push(("metadata.name".into(), true, name.into()));
        }
        let selection = Selection {
            namespace: namespace.into(),
            labels,
            fields,
        };
        Ok(ListQuery {
            selection,
            timeout,
            matching,
            limit,
        })
    }
}

/// Checks that objects of the kind can be selected by a field (a "field label" upstream).
fn check_field_label(kind: &Kind, field: &str) -> Result<(), Status> {
    // Kubernetes: a kind without a conversion of its own has the default labels (DefaultMetaV1FieldSelectorConversion).
    let has_default_labels = kind.selectable.is_empty() && !kind.rules.loose;
    let is_namespace =
        field == "metadata.namespace" && (kind.is_namespaced() || has_default_labels);
    if is_namespace
        || field == "metadata.name"
        || kind.selectable.iter().any(|selectable| selectable == field)
    {
        return Ok(());
    }
    let quoted = json::quote(field);
    // Kubernetes: two kinds have messages of their own (apis/batch/v1/conversion.go, apis/resource/v1/conversion.go).
    let problem = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        _ if has_default_labels => format!(
            "{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        ("batch", "Job") => format!("field label {quoted} not supported for Job"),
        ("resource.k8s.io", "ResourceSlice") => {
            format!("field label not supported for {}: {field}", kind.gvk)
        }
        _ => format!("field label not supported: {field}"),
    };
    Err(Status::bad_request(problem))
}

/// Reads the options of a list.
pub fn list_options(
    kind: &Kind,
    namespace: &str,
    query: &RequestQuery,
) -> Result<ListOptions, Status> {
    let watch = query.bool("watch").unwrap_or_default();
    let read = ListQuery::parse(kind, namespace, "", query, watch)?;
    Ok(ListOptions {
        selection: read.selection,
        version: query.text("resourceVersion").into(),
        matching: read.matching,
        limit: usize::try_from(read.limit).unwrap_or_default(),
        token: query.text("continue").into(),
    })
}

/// Validates `resourceVersionMatch` and `sendInitialEvents` of a list or a watch.
fn version_match(query: &RequestQuery, watch: bool) -> Result<Match, Status> {
    let mut violations = Violations::default();
    let matching = query.text("resourceVersionMatch");
    if watch {
        watch_violations(query, matching, &mut violations);
    } else {
        list_violations(query, matching, &mut violations);
    }
    reject_violations("ListOptions", violations)?;
    Ok(match matching {
        "Exact" => Match::Exact,
        "NotOlderThan" => Match::NotOlderThan,
        _ => Match::Unset,
    })
}

fn list_violations(query: &RequestQuery, matching: &str, violations: &mut Violations) {
    const FIELD: &str = "resourceVersionMatch";
    if !matching.is_empty() {
        let version = query.text("resourceVersion");
        if version.is_empty() {
            violations.forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if !query.text("continue").is_empty() {
            violations.forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            violations.not_supported(FIELD, matching, &["Exact", "NotOlderThan", ""]);
        }
        if matching == "Exact" && version == "0" {
            violations.forbidden(
                FIELD,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if query.get("sendInitialEvents").is_some() {
        violations.forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
}

fn watch_violations(query: &RequestQuery, matching: &str, violations: &mut Violations) {
    const FIELD: &str = "resourceVersionMatch";
    let initial = query.get("sendInitialEvents").is_some();
    if initial && matching != "NotOlderThan" {
        violations.forbidden(
            FIELD,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    // Kubernetes: a watch without a version starts with the current objects, as if `sendInitialEvents` was set.
    let implied =
        !initial && matching.is_empty() && matches!(query.text("resourceVersion"), "" | "0");
    if matching.is_empty() && !implied {
        return;
    }
    if !initial && !implied {
        violations.forbidden(
            FIELD,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if matching != "NotOlderThan" && !implied {
        violations.not_supported(FIELD, matching, &["NotOlderThan"]);
    }
    if !query.text("continue").is_empty() {
        violations.forbidden(
            FIELD,
            "resourceVersionMatch is forbidden when continue is provided",
        );
    }
}
