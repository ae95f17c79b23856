//! Conversion by somebody else: a webhook gets objects in one version and gives them back in another.
//!
//! Kubernetes: what is wrong with an answer is said as upstream says it (apiserver/conversion). Upstream asks for one
//! object at a time where it reads lists; we ask for all at once, and name the place of the one that is wrong.

use std::time::Duration;

use mizzen_object::patch::go_type;
use mizzen_object::validate::meta;
use mizzen_object::{Kind, Path, Status, Violations};
use mizzen_registry::Registry;
use mizzen_value::clock::uuid;
use mizzen_value::{Str, Value, json, value};
use tokio::time::Instant;

use crate::outgoing::{Client, Hook, Limit};

/// How long a conversion may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// The versions of reviews that we speak.
const SPOKEN: [&str; 2] = ["v1", "v1beta1"];

/// A webhook that converts.
pub(super) struct Webhook {
    hook: Hook,
    /// The versions of reviews that it understands.
    understands: Vec<Str>,
    client: Client,
    registry: Registry,
}

impl Webhook {
    /// Reads `spec.conversion.webhook`.
    pub(super) fn parse(config: &Value, client: Client, registry: Registry) -> Webhook {
        let understands = config["conversionReviewVersions"]
            .list()
            .iter()
            .map(|text| text.str().into());
        let understands = understands.collect();
        Webhook {
            hook: Hook::parse(&config["clientConfig"]),
            understands,
            client,
            registry,
        }
    }

    /// These objects in `kind`'s version; those that are in it already stay as they are.
    pub(super) async fn convert(
        &self,
        mut objects: Vec<Value>,
        kind: &Kind,
    ) -> Result<Vec<Value>, Status> {
        let wanted = kind.gvk.api_version();
        let others: Vec<usize> = (0..objects.len())
            .filter(|at| objects[*at]["apiVersion"].str() != wanted)
            .collect();
        if others.is_empty() {
            return Ok(objects);
        }
        let asked: Vec<&Value> = others.iter().map(|at| &objects[*at]).collect();
        let question = Question {
            about: name(asked[0]),
            objects: asked,
            wanted: &wanted,
        };
        let converted = self.ask(&question).await.map_err(Status::unknown)?;
        for (at, object) in others.into_iter().zip(converted) {
            objects[at] = object;
        }
        Ok(objects)
    }

    async fn ask(&self, question: &Question<'_>) -> Result<Vec<Value>, String> {
        let spoken = self
            .understands
            .iter()
            .find(|version| SPOKEN.contains(&version.as_str()));
        let version = spoken.ok_or("no supported conversion review versions")?;
        let uid = uuid(self.registry.random());
        let body = question.review(version, &uid);
        let limit = Limit {
            until: Instant::now() + PATIENCE,
            bytes: MAX_ANSWER,
        };
        let query = format!("timeout={}s", PATIENCE.as_secs());
        let failed =
            |why: String| format!("conversion webhook for {} failed: {why}", question.about);
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
        let converted = verify(&review, version, &uid).map_err(failed)?;
        question.check(converted)
    }
}

/// What a webhook is asked.
struct Question<'a> {
    /// What the first object is.
    about: String,
    objects: Vec<&'a Value>,
    wanted: &'a str,
}

impl Question<'_> {
    fn review(&self, version: &str, uid: &str) -> Value {
        let objects: Vec<Value> = self
            .objects
            .iter()
            .map(|object| (*object).clone())
            .collect();
        value!({
            "kind": "ConversionReview",
            "apiVersion": (format!("apiextensions.k8s.io/{version}")),
            "request": { "uid": uid, "desiredAPIVersion": (self.wanted), "objects": objects },
        })
    }

    /// Whether the answer has what was asked for.
    fn check(&self, converted: &[Value]) -> Result<Vec<Value>, String> {
        let (about, expected) = (&self.about, self.objects.len());
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
        let about = &self.about;
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
            ("groupVersion", self.wanted, "apiVersion"),
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
        same_object(original, converted).map_err(|why| format!("{object}: {why}"))?;
        restore(original, converted).map_err(|why| {
            format!("conversion webhook for {about} returned invalid {metadata}: {why}")
        })
    }
}

/// What an object says it is: `example.com/v1, Kind=Foo`.
fn name(object: &Value) -> String {
    format!(
        "{}, Kind={}",
        object["apiVersion"].str(),
        object["kind"].str()
    )
}

/// The objects of an answer, if it is one to this question.
fn verify<'a>(review: &'a Value, version: &str, uid: &str) -> Result<&'a [Value], String> {
    let expected = format!("apiextensions.k8s.io/{version}, Kind=ConversionReview");
    let (found, response) = (name(review), &review["response"]);
    // Kubernetes: the older reviews were never asked to say what they are, or whom they answer.
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

/// A converted object is still the same object.
fn same_object(original: &Value, converted: &Value) -> Result<(), String> {
    for (word, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (before, after) = (
            original["metadata"][field].str(),
            converted["metadata"][field].str(),
        );
        if before != after {
            return Err(format!("must have the same {word}: {before} != {after}"));
        }
    }
    Ok(())
}

/// The converted object with the original's metadata; only labels and annotations may be others.
fn restore(original: &Value, converted: &Value) -> Result<Value, String> {
    let said = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(said @ Value::Map(_)) => said,
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
        match &said[field] {
            Value::Null => drop(metadata.remove(field)),
            texts => {
                check_texts(field, texts, &metadata[field])?;
                metadata.set(field, texts.clone());
            }
        }
    }
    object.set("metadata", metadata);
    Ok(object)
}

fn check_texts(field: &str, texts: &Value, before: &Value) -> Result<(), String> {
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
    violations.in_one().map_or(Ok(()), Err)
}
