//! ConversionReviews: objects of a custom resource in another version.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::denied::Denied;
use crate::object::Object;

/// The version of ConversionReviews.
pub(super) const CONVERSION_VERSION: &str = "apiextensions.k8s.io/v1";

/// Converts an object to an `apiVersion`.
pub(super) type ConversionHandler =
    Arc<dyn Fn(Object, String) -> BoxFuture<'static, Result<Object, Denied>> + Send + Sync>;

/// A review as the API server sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionReview {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) request: Option<ConversionRequest>,
}

#[derive(Deserialize)]
pub(super) struct ConversionRequest {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Object>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: &'static str,
    kind: &'static str,
    response: ConversionResponse,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse {
    uid: String,
    converted_objects: Vec<Object>,
    result: Object,
}

impl ConversionRequest {
    pub(super) fn uid(&self) -> String {
        self.uid.clone()
    }

    /// Converts all objects, in order; none if one of them fails. Objects that have the version
    /// already are not given to the handler.
    pub(super) async fn convert(self, handler: ConversionHandler) -> Result<Vec<Object>, Denied> {
        let mut converted = Vec::with_capacity(self.objects.len());
        for object in self.objects {
            if object["apiVersion"].str() == self.desired_api_version {
                converted.push(object);
                continue;
            }
            let result = handler(object, self.desired_api_version.clone()).await?;
            // Kubernetes: the API server rejects the whole response otherwise.
            let version = result["apiVersion"].str();
            if version != self.desired_api_version {
                let wanted = &self.desired_api_version;
                let message =
                    format!("the conversion to {wanted} returned an object of {version:?}");
                return Err(Denied::with_code(500, "InternalError", message));
            }
            converted.push(result);
        }
        Ok(converted)
    }
}

/// The review that answers a request.
pub(super) fn finish(
    uid: String,
    outcome: Result<Vec<Object>, Denied>,
) -> Result<Vec<u8>, serde_json::Error> {
    let (converted_objects, result) = match outcome {
        Ok(converted) => (converted, mizzen_value::value!({ "status": "Success" })),
        Err(denied) => (Vec::new(), denied.status().to_value()),
    };
    let response = ConversionResponse {
        uid,
        converted_objects,
        result: Object(result),
    };
    serde_json::to_vec(&ReviewResponse {
        api_version: CONVERSION_VERSION,
        kind: "ConversionReview",
        response,
    })
}
