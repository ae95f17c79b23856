//! The options of writes and lists, from the query or a body.

use mizzen_object::decode::type_meta;
use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::validate::meta;
use mizzen_object::{GroupVersionKind, Kind, Path, Status, Value, Violations, json};
use mizzen_registry::{DeleteOptions, ListOptions, Match, Propagation, Selection};

use crate::intake::{self, BodyType, FieldValidation};
use crate::request::{Query, Request};
use crate::server::Inner;

/// The options of create, update and patch.
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub strictness: FieldValidation,
}

/// Reads the options of a write; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
pub(crate) fn write_options(request: &Request, kind: &str) -> Result<WriteOptions, Status> {
    let mut violations = Violations::default();
    let manager = request.query.text("fieldManager");
    if !manager.is_empty() {
        meta::field_manager(manager, &Path::new("fieldManager"), &mut violations);
    }
    if kind == "PatchOptions" {
        check_apply(request, &mut violations);
    }
    let dry_run = dry_run(&request.query.all("dryRun"), &mut violations);
    let strictness = intake::field_validation(request, &mut violations);
    refuse(kind, violations)?;
    if kind == "PatchOptions" {
        request.record.patched(&request.body);
    }
    Ok(WriteOptions { dry_run, strictness })
}

/// Who applies must have a name, and only who applies may use force.
fn check_apply(request: &Request, violations: &mut Violations) {
    let applied = request.header("content-type").starts_with("application/apply-patch");
    if applied && request.query.text("fieldManager").is_empty() {
        violations.required("fieldManager", "is required for apply patch");
    }
    if !applied && request.query.get("force").is_some() {
        violations.forbidden("force", "may not be specified for non-apply patch");
    }
}

fn dry_run(values: &[&str], violations: &mut Violations) -> bool {
    if values.iter().any(|value| *value != "All") {
        let given = Value::List(values.iter().map(|value| Value::from(*value)).collect());
        violations.not_supported("dryRun", given, &["All"]);
    }
    !values.is_empty()
}

fn refuse(kind: &str, violations: Violations) -> Result<(), Status> {
    if violations.is_empty() {
        return Ok(());
    }
    let gvk = GroupVersionKind { group: "meta.k8s.io".into(), version: "v1".into(), kind: kind.into() };
    Err(Status::invalid(&gvk, "", &violations))
}

/// Reads which objects a list or watch is about.
pub(crate) fn selection(
    kind: &Kind,
    namespace: &str,
    name: &str,
    query: &Query,
) -> Result<Selection, Status> {
    let labels = LabelSelector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
    let mut fields = FieldSelector::parse(query.text("fieldSelector")).map_err(Status::bad_request)?;
    for (field, _, _) in &fields.terms {
        check_field(kind, field)?;
    }
    if !name.is_empty() {
        fields.terms.push(("metadata.name".into(), true, name.into()));
    }
    Ok(Selection { namespace: namespace.into(), labels, fields })
}

fn check_field(kind: &Kind, field: &str) -> Result<(), Status> {
    let placed = field == "metadata.namespace" && (kind.is_namespaced() || !kind.rules.loose);
    let known =
        placed || field == "metadata.name" || kind.selectable.iter().any(|selectable| selectable == field);
    if known {
        return Ok(());
    }
    Err(Status::bad_request(match kind.selectable.is_empty() && !kind.rules.loose {
        true => format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            json::quote(field)
        ),
        false => format!("field label not supported: {field}"),
    }))
}

/// Reads the options of a list.
pub(crate) fn list_options(kind: &Kind, namespace: &str, query: &Query) -> Result<ListOptions, Status> {
    let limit = query.int("limit").map_err(Status::bad_request)?.unwrap_or_default();
    query.int("timeoutSeconds").map_err(Status::bad_request)?;
    let matching = check_version(query, false)?;
    Ok(ListOptions {
        selection: selection(kind, namespace, "", query)?,
        version: query.text("resourceVersion").into(),
        matching,
        limit: usize::try_from(limit).unwrap_or_default(),
        token: query.text("continue").into(),
    })
}

/// Checks what is said about versions, for a list or a watch.
pub(crate) fn check_version(query: &Query, watch: bool) -> Result<Match, Status> {
    let mut violations = Violations::default();
    let matching = query.text("resourceVersionMatch");
    if watch {
        watch_violations(query, matching, &mut violations);
    } else {
        list_violations(query, matching, &mut violations);
    }
    refuse("ListOptions", violations)?;
    Ok(match matching {
        "Exact" => Match::Exact,
        "NotOlderThan" => Match::NotOlderThan,
        _ => Match::Unset,
    })
}

fn list_violations(query: &Query, matching: &str, violations: &mut Violations) {
    const FIELD: &str = "resourceVersionMatch";
    if query.get("sendInitialEvents").is_some() {
        violations.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if matching.is_empty() {
        return;
    }
    let version = query.text("resourceVersion");
    if version.is_empty() {
        violations.forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if !query.text("continue").is_empty() {
        violations.forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided");
    }
    if !matches!(matching, "Exact" | "NotOlderThan") {
        violations.not_supported(FIELD, matching, &["Exact", "NotOlderThan", ""]);
    }
    if matching == "Exact" && version == "0" {
        violations.forbidden(FIELD, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
}

fn watch_violations(query: &Query, matching: &str, violations: &mut Violations) {
    const FIELD: &str = "resourceVersionMatch";
    if query.get("sendInitialEvents").is_some() {
        if matching != "NotOlderThan" {
            violations
                .forbidden(FIELD, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
    } else if !matching.is_empty() {
        violations.forbidden(
            FIELD,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if !matching.is_empty() {
        if !query.text("continue").is_empty() {
            violations.forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided");
        }
        if matching != "NotOlderThan" {
            violations.not_supported(FIELD, matching, &["NotOlderThan"]);
        }
    }
}

/// Reads the options of a delete from the body, or from the query if there is no body.
pub(crate) fn delete_options(server: &Inner, request: &Request, all: bool) -> Result<DeleteOptions, Status> {
    if all && !request.body.is_empty() && intake::body_type(request)? == BodyType::Json {
        // Kubernetes: for a collection the decoder's words are not explained.
        type_meta(&request.body).map_err(|problem| {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {problem}"))
        })?;
    }
    let (options, policy) =
        if request.body.is_empty() { from_query(&request.query)? } else { from_body(server, request)? };
    let violations = options.violations(policy.as_deref());
    refuse("DeleteOptions", violations)?;
    Ok(options)
}

fn from_query(query: &Query) -> Result<(DeleteOptions, Option<String>), Status> {
    let mut violations = Violations::default();
    let policy = query.get("propagationPolicy").filter(|policy| !policy.is_empty());
    let options = DeleteOptions {
        grace: query.int("gracePeriodSeconds").map_err(Status::bad_request)?,
        propagation: propagation(policy, &mut violations),
        orphan_dependents: query.bool("orphanDependents"),
        dry_run: dry_run(&query.all("dryRun"), &mut violations),
        uid: None,
        version: None,
    };
    refuse("DeleteOptions", violations)?;
    Ok((options, policy.map(String::from)))
}

fn from_body(server: &Inner, request: &Request) -> Result<(DeleteOptions, Option<String>), Status> {
    let gvk = GroupVersionKind { group: "".into(), version: "v1".into(), kind: "DeleteOptions".into() };
    let read =
        intake::other(&server.catalog, &gvk, &server.types.delete_options, request, FieldValidation::Ignore)?;
    from_value(&read.value)
}

/// Reads the options of a delete that something else carries, such as an Eviction.
pub(crate) fn delete_options_in(value: &Value) -> Result<DeleteOptions, Status> {
    let (options, policy) = from_value(value)?;
    refuse("DeleteOptions", options.violations(policy.as_deref()))?;
    Ok(options)
}

fn from_value(value: &Value) -> Result<(DeleteOptions, Option<String>), Status> {
    let mut violations = Violations::default();
    let dry: Vec<&str> = value["dryRun"].list().iter().map(Value::str).collect();
    let text = |value: &Value| value.as_str().map(String::from);
    let policy = value["propagationPolicy"].as_str();
    let options = DeleteOptions {
        grace: value["gracePeriodSeconds"].as_int(),
        propagation: propagation(policy, &mut violations),
        orphan_dependents: value["orphanDependents"].as_bool(),
        uid: text(&value["preconditions"]["uid"]),
        version: text(&value["preconditions"]["resourceVersion"]),
        dry_run: dry_run(&dry, &mut violations),
    };
    refuse("DeleteOptions", violations)?;
    Ok((options, policy.map(String::from)))
}

fn propagation(policy: Option<&str>, violations: &mut Violations) -> Option<Propagation> {
    match policy? {
        "Orphan" => Some(Propagation::Orphan),
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        other => {
            violations.not_supported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            );
            None
        }
    }
}
