//! Table cells of RBAC kinds, CertificateSigningRequests and APIServices.

use mizzen_value::{Value, time};

use super::text::{NONE, age, condition};
use super::{Cells, nothing, row};

pub(super) fn rbac(kind: &str) -> Cells {
    if matches!(kind, "RoleBinding" | "ClusterRoleBinding") {
        binding
    } else {
        nothing
    }
}

fn binding(object: &Value, now: i64) -> Vec<Value> {
    let role = &object["roleRef"];
    row![
        format!("{}/{}", role["kind"].str(), role["name"].str()),
        age(object, now),
        subjects(object, "User"),
        subjects(object, "Group"),
        subjects(object, "ServiceAccount"),
    ]
}

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = binding["subjects"]
        .items()
        .filter(|subject| subject["kind"].str() == kind);
    subjects
        .map(|subject| match subject["kind"].str() {
            "ServiceAccount" => format!("{}/{}", subject["namespace"].str(), subject["name"].str()),
            _ => subject["name"].str().into(),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn signing_request(object: &Value, now: i64) -> Vec<Value> {
    let spec = &object["spec"];
    let requested = spec["expirationSeconds"].as_int();
    let status = &object["status"];

    let has = |of_type| !condition(&status["conditions"], of_type).is_null();
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if status["certificate"].is_empty() {
        ""
    } else {
        ",Issued"
    };
    let request_condition = format!("{decision}{failed}{issued}");
    row![
        age(object, now),
        spec["username"].str(),
        requested.map_or(NONE.into(), time::age),
        request_condition,
    ]
}

pub(super) fn api_service(object: &Value, now: i64) -> Vec<Value> {
    let service = &object["spec"]["service"];
    let name = format!("{}/{}", service["namespace"].str(), service["name"].str());
    let available = condition(&object["status"]["conditions"], "Available");
    let availability = match (available["status"].str(), available["reason"].str()) {
        _ if available.is_null() => "Unknown".into(),
        (status, "") | (status @ "True", _) => status.into(),
        (status, reason) => format!("{status} ({reason})"),
    };
    row![
        if service.is_null() {
            "Local".into()
        } else {
            name
        },
        availability,
        age(object, now),
    ]
}
