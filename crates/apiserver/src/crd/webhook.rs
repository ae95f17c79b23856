//! Conversion webhooks.
//!
//! Kubernetes: the errors are upstream's (apiserver/conversion). For lists upstream sends one object per request; this server
//! sends all in one, and errors name the index of the object.

use std::time::Duration;

use mizzen_object::patch::go_type;
use mizzen_object::validate::meta;
use mizzen_object::{Kind, Path, Status, Violations};
use mizzen_registry::Registry;
use mizzen_value::clock::uuid;
use mizzen_value::{Str, Value, json, value};
use tokio::time::Instant;

use mizzen_outgoing::{CallLimit, OutgoingClient, WebhookClient};

/// The timeout of a conversion.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;
/// The versions of ConversionReview that this server supports.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// A conversion webhook.
pub(super) struct ConversionWebhook {
    hook: WebhookClient,
    /// Its `conversionReviewVersions`.
    review_versions: Vec<Str>,
    client: OutgoingClient,
    registry: Registry,
}

impl ConversionWebhook {
    /// Reads `spec.conversion.webhook`.
    pub(super) fn parse(
        config: &Value,
        client: OutgoingClient,
        registry: Registry,
    ) -> ConversionWebhook {
        let review_versions = config["conversionReviewVersions"]
            .list()
            .iter()
            .map(|text| text.str().into());
        let review_versions = review_versions.collect();
        ConversionWebhook {
            hook: WebhookClient::parse(&config["clientConfig"]),
            review_versions,
            client,
            registry,
        }
    }

    /// Converts objects to the version of `kind`; those that have it already stay as they are.
    pub(super) async fn convert(
        &self,
        mut objects: Vec<Value>,
        kind: &Kind,
    ) -> Result<Vec<Value>, Status> {
        let desired = kind.gvk.api_version();
        let indexes: Vec<usize> = (0..objects.len())
            .filter(|at| objects[*at]["apiVersion"].str() != desired)
            .collect();
        if indexes.is_empty() {
            return Ok(objects);
        }
        let originals: Vec<&Value> = indexes.iter().map(|at| &objects[*at]).collect();
        let request = ConversionRequest {
            first_kind: kind_text(originals[0]),
            objects: originals,
            desired: &desired,
        };
        let converted = self.send(&request).await.map_err(Status::unknown)?;
        for (at, object) in indexes.into_iter().zip(converted) {
            objects[at] = object;
        }
        Ok(objects)
    }

    async fn send(&self, request: &ConversionRequest<'_>) -> Result<Vec<Value>, String> {
        let supported = self
            .review_versions
            .iter()
            .find(|version| REVIEW_VERSIONS.contains(&version.as_str()));
        let version = supported.ok_or("no supported conversion review versions")?;
        let uid = uuid(self.registry.random());
        let body = request.review(version, &uid);
        let limit = CallLimit {
            until: Instant::now() + CONVERSION_TIMEOUT,
            bytes: MAX_RESPONSE,
        };
        let query = format!("timeout={}s", CONVERSION_TIMEOUT.as_secs());
        let failed = |why: String| {
            format!(
                "conversion webhook for {} failed: {why}",
                request.first_kind
            )
        };
        let answer = self
            .hook
            .post(&self.client, &query, json::to_string(&body).into(), limit)
            .await;
        let answer = answer.map_err(|error| failed(error.0))?;
        let review = json::parse(&answer).map_err(|error| {
            failed(format!(
                "couldn't get version/kind; json parse error: {error}"
            ))
        })?;
        let converted = converted_objects(&review, version, &uid).map_err(failed)?;
        request.check(converted)
    }
}

/// The request of a ConversionReview.
struct ConversionRequest<'a> {
    /// The kind of the first object, for errors.
    first_kind: String,
    objects: Vec<&'a Value>,
    desired: &'a str,
}

impl ConversionRequest<'_> {
    fn review(&self, version: &str, uid: &str) -> Value {
        let objects: Vec<Value> = self
            .objects
            .iter()
            .map(|object| (*object).clone())
            .collect();
        value!({
            "kind": "ConversionReview",
            "apiVersion": (format!("apiextensions.k8s.io/{version}")),
            "request": { "uid": uid, "desiredAPIVersion": (self.desired), "objects": objects },
        })
    }

    /// Checks the converted objects against the originals.
    fn check(&self, converted: &[Value]) -> Result<Vec<Value>, String> {
        let (about, expected) = (&self.first_kind, self.objects.len());
        if converted.len() != expected {
            let found = converted.len();
            return Err(format!(
                "conversion webhook for {about} returned {found} objects, expected {expected}"
            ));
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        pairs
            .map(|(at, (original, converted))| self.check_one(at, original, converted))
            .collect()
    }

    fn check_one(&self, at: usize, original: &Value, converted: &Value) -> Result<Value, String> {
        let about = &self.first_kind;
        let (object, metadata) = match self.objects.len() {
            1 => (
                format!("conversion webhook for {about} returned invalid object"),
                "metadata".to_string(),
            ),
            _ => (
                format!(
                    "conversion webhook for {about} returned invalid converted object at index {at}"
                ),
                format!("metadata in object at index {at}"),
            ),
        };
        let placed = if self.objects.len() == 1 {
            format!("{object} at index 0")
        } else {
            object.clone()
        };
        if converted["kind"].is_empty() {
            let text = json::to_string(converted);
            return Err(format!("{placed}: Object 'Kind' is missing in '{text}'"));
        }
        let same = [
            ("groupVersion", self.desired, "apiVersion"),
            ("kind", original["kind"].str(), "kind"),
        ];
        for (word, expected, field) in same {
            let found = converted[field].str();
            if found != expected {
                return Err(format!(
                    "{placed}: invalid {word} (expected {expected}, received {found})"
                ));
            }
        }
        for (word, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
            let before = original["metadata"][field].str();
            let after = converted["metadata"][field].str();
            if before != after {
                return Err(format!(
                    "{object}: must have the same {word}: {before} != {after}"
                ));
            }
        }
        restore_metadata(original, converted).map_err(|why| {
            format!("conversion webhook for {about} returned invalid {metadata}: {why}")
        })
    }
}

/// The kind of an object as text: `example.com/v1, Kind=Foo`.
fn kind_text(object: &Value) -> String {
    format!(
        "{}, Kind={}",
        object["apiVersion"].str(),
        object["kind"].str()
    )
}

/// The converted objects of a review, if it is the response to the request `uid`.
fn converted_objects<'a>(
    review: &'a Value,
    version: &str,
    uid: &str,
) -> Result<&'a [Value], String> {
    let expected = format!("apiextensions.k8s.io/{version}, Kind=ConversionReview");
    let (found, response) = (kind_text(review), &review["response"]);
    // Kubernetes: kind and uid of a v1beta1 review are not checked.
    if version == "v1" && found != expected {
        return Err(format!(
            "expected webhook response of {expected}, got {found}"
        ));
    }
    if response.is_null() {
        return Err("no response provided".into());
    }
    let answered = response["uid"].str();
    if version == "v1" && answered != uid {
        let (uid, answered) = (json::quote(uid), json::quote(answered));
        return Err(format!("expected response.uid={uid}, got {answered}"));
    }
    match (
        response["result"]["status"].str(),
        response["result"]["message"].str(),
    ) {
        ("Success", _) => Ok(response["convertedObjects"].list()),
        (status, "") => Err(format!(
            "response.result.status was '{status}', not 'Success'"
        )),
        (_, message) => Err(message.into()),
    }
}

/// The converted object with the original's metadata; only labels and annotations may have changed.
fn restore_metadata(original: &Value, converted: &Value) -> Result<Value, String> {
    let returned = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(returned @ Value::Map(_)) => returned,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                go_type(other)
            ));
        }
    };
    let mut object = converted.clone();
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        match &returned[field] {
            Value::Null => drop(metadata.remove(field)),
            texts => {
                check_string_map(field, texts, &metadata[field])?;
                metadata.set(field, texts.clone());
            }
        }
    }
    object.set("metadata", metadata);
    Ok(object)
}

/// Checks returned labels or annotations.
fn check_string_map(field: &str, texts: &Value, before: &Value) -> Result<(), String> {
    if texts.as_map().is_none() {
        return Err(format!(
            "invalid metadata.{field} of type {} in converted object",
            go_type(texts)
        ));
    }
    if let Some((key, odd)) = texts.entries().find(|(_, text)| text.as_str().is_none()) {
        let go = go_type(odd);
        return Err(format!(
            "metadata.{field}[{key}] must be a string, but is {go} in converted object"
        ));
    }
    let mut violations = Violations::default();
    let path = Path::new("metadata");
    match field {
        _ if texts == before => {}
        "labels" => meta::labels(texts, &path.child("labels"), &mut violations),
        _ => meta::annotations(texts, &path.child("annotation"), &mut violations),
    }
    violations.aggregate().map_or(Ok(()), Err)
}
