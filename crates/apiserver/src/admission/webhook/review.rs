//! AdmissionReview: the request to a webhook and its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::decode::{decode, type_meta};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_value::{Value, json, value};

use super::attributes::VersionedAttributes;
use super::matching::{MatchedVersion, WebhookInvocation};

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The preferred version of AdmissionReview that both sides support.
pub(super) fn version(invocation: &WebhookInvocation) -> Result<&'static str, String> {
    let known = invocation
        .webhook
        .versions
        .iter()
        .find_map(|version| match version.as_str() {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
    known.ok_or_else(|| {
        "webhook does not accept known AdmissionReview versions (v1, v1beta1)".into()
    })
}

/// The review for a webhook.
pub(super) async fn question(
    version: &str,
    uid: &str,
    attributes: &VersionedAttributes<'_>,
    invocation: &WebhookInvocation,
) -> Result<Value, Status> {
    let version_shown = MatchedVersion {
        resource: invocation.resource.clone(),
        kind: invocation.kind.clone(),
    };
    let mut request = attributes.request(&version_shown)?;
    request.set("uid", uid);
    request.set(
        "object",
        attributes
            .shown(attributes.object, &invocation.resource)
            .await?,
    );
    request.set(
        "oldObject",
        attributes
            .shown(attributes.old, &invocation.resource)
            .await?,
    );
    let mut review = value!({ "kind": KIND, "apiVersion": (format!("{GROUP}/{version}")) });
    review.set("request", request);
    Ok(review)
}

impl VersionedAttributes<'_> {
    /// The request of a review in a version, without its objects.
    pub(crate) fn request(&self, version: &MatchedVersion) -> Result<Value, Status> {
        let (call, asked, shown) = (
            self.call,
            self.call.resource.kind(),
            version.resource.kind(),
        );
        let (options, dry_run) = self.options()?;
        let mut request = value!({ "uid": "" });
        request.set("kind", kind(&version.kind));
        request.set("resource", resource(&shown.gvk, &shown.plural));
        request.set("requestKind", kind(&self.kind));
        request.set("requestResource", resource(&asked.gvk, &asked.plural));
        let texts = [
            ("subResource", call.path.subresource.as_str()),
            ("requestSubResource", call.path.subresource.as_str()),
            ("name", self.name()),
            ("namespace", self.namespace()),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            request.set(field, text);
        }
        request.set("operation", self.operation.word());
        request.set("userInfo", user(self));
        request.set("dryRun", dry_run);
        request.set("options", options);
        Ok(request)
    }
}

fn kind(gvk: &GroupVersionKind) -> Value {
    value!({ "group": (&gvk.group), "version": (&gvk.version), "kind": (&gvk.kind) })
}

fn resource(gvk: &GroupVersionKind, plural: &str) -> Value {
    value!({ "group": (&gvk.group), "version": (&gvk.version), "resource": plural })
}

fn user(attributes: &VersionedAttributes) -> Value {
    let user = &attributes.call.request.user;
    let mut info = value!({ "username": (&user.name) });
    if !user.uid.is_empty() {
        info.set("uid", &user.uid);
    }
    if !user.groups.is_empty() {
        info.set(
            "groups",
            user.groups.iter().map(Value::from).collect::<Vec<_>>(),
        );
    }
    if !user.extra.is_empty() {
        info.set("extra", user.extra.clone());
    }
    info
}

/// The response of a webhook.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct WebhookResponse {
    pub allowed: bool,
    /// The Status of a denial; `null` without one.
    pub status: Value,
    pub warnings: Vec<String>,
    /// Audit annotations; `null` without any.
    pub annotations: Value,
    pub patch: Vec<u8>,
    /// The type of the patch.
    pub patch_type: String,
}

/// Decodes the body of a response. The error is client-go's.
pub(super) fn read(root: &Struct, version: &str, body: &[u8]) -> Result<Value, String> {
    let meta = type_meta(body)
        .map_err(|problem| format!("couldn't get version/kind; json parse error: {problem}"))?;
    let kind = if meta.kind.is_empty() {
        KIND
    } else {
        &meta.kind
    };
    let own = format!("{GROUP}/{version}");
    let api_version = if meta.api_version.is_empty() {
        &own
    } else {
        meta.api_version.as_str()
    };
    match (api_version, kind) {
        (stated, KIND) if stated == own => {}
        // A webhook may respond with a Status, which is an error unless it is a success.
        ("v1", "Status") => {
            let status = json::parse(body).unwrap_or_default();
            return match status["status"].str() {
                "Success" => Ok(Value::object()),
                _ => Err(status["message"].str().into()),
            };
        }
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", KIND) => {
            let stated = api_version.trim_start_matches("admission.k8s.io/");
            return Err(format!(
                "converting ({stated}.{KIND}) to ({version}.{KIND}): unknown conversion"
            ));
        }
        _ => {
            let (kind, api_version) = (json::quote(kind), json::quote(api_version));
            return Err(format!(
                "no kind {kind} is registered for version {api_version} in scheme \"pkg/util/webhook/client.go:71\""
            ));
        }
    }
    decode(root, body)
        .map(|decoded| decoded.value)
        .map_err(|error| error.to_string())
}

/// Verifies a review and returns its response.
pub(super) fn verify(
    review: &Value,
    version: &str,
    uid: &str,
    mutating: bool,
) -> Result<WebhookResponse, String> {
    let response = &review["response"];
    if response.is_null() {
        return Err("webhook response was absent".into());
    }
    let patch = STANDARD.decode(response["patch"].str()).unwrap_or_default();
    let patch_type = response["patchType"].as_str();
    // Kubernetes: v1beta1 is not checked.
    if version == "v1" {
        check_identity(review, uid)?;
        check_patch(&patch, patch_type, mutating)?;
    }
    let texts = |field: &str| {
        response[field]
            .list()
            .iter()
            .map(|text| text.str().to_owned())
            .collect()
    };
    let patch = if mutating { patch } else { Vec::new() };
    let patch_type = match version {
        "v1" => patch_type.unwrap_or_default().to_owned(),
        _ => "JSONPatch".into(),
    };
    Ok(WebhookResponse {
        allowed: response["allowed"].bool(),
        status: response["status"].clone(),
        warnings: texts("warnings"),
        annotations: response["auditAnnotations"].clone(),
        patch,
        patch_type,
    })
}

fn check_identity(review: &Value, uid: &str) -> Result<(), String> {
    let stated = review["response"]["uid"].str();
    if stated != uid {
        return Err(format!(
            "expected response.uid={}, got {}",
            json::quote(uid),
            json::quote(stated)
        ));
    }
    let (api_version, kind) = (review["apiVersion"].str(), review["kind"].str());
    if (api_version, kind) != ("admission.k8s.io/v1", KIND) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind={KIND}, got {group}/{version}, Kind={kind}"
        ));
    }
    Ok(())
}

fn check_patch(patch: &[u8], patch_type: Option<&str>, mutating: bool) -> Result<(), String> {
    let problem = match (mutating, !patch.is_empty(), patch_type) {
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(response: &str, mutating: bool, expected: &str) {
        let review = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#
        );
        let response = verify(
            &json::parse(review.as_bytes()).unwrap(),
            "v1",
            "u",
            mutating,
        );
        assert_eq!(
            response.map_or_else(|problem| problem, |_| "fine".into()),
            expected
        );
    }

    #[test]
    fn a_response_must_have_the_uid_of_the_review() {
        check(r#"{"uid":"u","allowed":true}"#, true, "fine");
        check("null", true, "webhook response was absent");
        check(
            r#"{"uid":"x"}"#,
            true,
            r#"expected response.uid="u", got "x""#,
        );
        let nameless = json::parse(br#"{"response":{"uid":"u"}}"#).unwrap();
        let problem = verify(&nameless, "v1", "u", true).unwrap_err();
        assert_eq!(
            problem,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
    }

    #[test]
    fn a_patch_has_a_type_and_comes_only_from_mutating_webhooks() {
        check(
            r#"{"uid":"u","patch":"W10="}"#,
            true,
            "webhook returned response.patch but not response.patchType",
        );
        check(
            r#"{"uid":"u","patchType":"JSONPatch"}"#,
            true,
            "webhook returned response.patchType but not response.patch",
        );
        check(
            r#"{"uid":"u","patch":"W10="}"#,
            false,
            "validating webhook may not return response.patch",
        );
        check(
            r#"{"uid":"u","patch":"W10=","patchType":"JSONPatch"}"#,
            true,
            "fine",
        );
    }
}
